"""Patchwork, the language of teams: source, syntax, diagnostics, checks, compilation.

Pure: text goes in, values come out. Nothing here waits, writes or starts a process, and no text makes it raise.
`tree` holds the nodes of the syntax tree, `types` the types of values. Every name is loaded by its first use: a worker
that only executes what was compiled before does not load the parser.

Read ``syntax/_tree.py`` (what a program is), ``parsing/_parser.py``, ``checking/_check.py``, ``compiling/_compile.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bartack._lazy import lazy

if TYPE_CHECKING:
    from bartack.language._examples import Example, examples
    from bartack.language.checking import _types as types
    from bartack.language.checking._check import check
    from bartack.language.checking._entry import find_entry
    from bartack.language.checking._modules import Loader, NotLoaded
    from bartack.language.checking._program import Checked, CheckedModule, Declared, EntryPoint, Program
    from bartack.language.checking._schema import schema
    from bartack.language.compiling._compile import Compiled, CompiledModule, compile_program
    from bartack.language.compiling._tree import tree_json
    from bartack.language.formatting._format import (
        Formatted,
        LeftOld,
        Upgraded,
        format,  # noqa: A004 - its door
        reformat,
        upgrade,
        upgraded,
    )
    from bartack.language.parsing._parser import Parsed, parse
    from bartack.language.syntax import _tree as tree
    from bartack.language.syntax._diagnostics import (
        CATALOGUE,
        Diagnostic,
        Fix,
        Secondary,
        Severity,
        has_errors,
        settle,
    )
    from bartack.language.syntax._docs import Doc, read_doc
    from bartack.language.syntax._render import render, render_all, summary, to_json
    from bartack.language.syntax._source import Place, Source, Span

__all__ = [
    "CATALOGUE",
    "Checked",
    "CheckedModule",
    "Compiled",
    "CompiledModule",
    "Declared",
    "Diagnostic",
    "Doc",
    "EntryPoint",
    "Example",
    "Fix",
    "Formatted",
    "LeftOld",
    "Loader",
    "NotLoaded",
    "Parsed",
    "Place",
    "Program",
    "Secondary",
    "Severity",
    "Source",
    "Span",
    "Upgraded",
    "check",
    "compile_program",
    "examples",
    "find_entry",
    "format",
    "has_errors",
    "parse",
    "read_doc",
    "reformat",
    "render",
    "render_all",
    "schema",
    "settle",
    "summary",
    "to_json",
    "tree",
    "tree_json",
    "types",
    "upgrade",
    "upgraded",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "_examples": "Example examples",
        "checking._check": "check",
        "checking._entry": "find_entry",
        "checking._modules": "Loader NotLoaded",
        "checking._program": "Checked CheckedModule Declared EntryPoint Program",
        "checking._schema": "schema",
        "compiling._compile": "Compiled CompiledModule compile_program",
        "compiling._tree": "tree_json",
        "formatting._format": "Formatted LeftOld Upgraded format reformat upgrade upgraded",
        "parsing._parser": "Parsed parse",
        "syntax._diagnostics": "CATALOGUE Diagnostic Fix Secondary Severity has_errors settle",
        "syntax._docs": "Doc read_doc",
        "syntax._render": "render render_all summary to_json",
        "syntax._source": "Place Source Span",
    },
    modules={"types": "checking._types", "tree": "syntax._tree"},
)
