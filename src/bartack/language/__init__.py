"""Patchwork, the language of teams: source, syntax, diagnostics, checks, compilation.

Pure: text goes in, values come out. Nothing here waits, writes or starts a process, and no text makes it raise.
`tree` holds the nodes of the syntax tree, `types` the types of values. Every name is loaded by its first use: a worker
that only executes what was compiled before does not load the parser.

Folders, in the order of a program's way: ``syntax/``, ``parsing/``, ``checking/``, ``compiling/``, and ``formatting/`` beside it.
Read ``syntax/_tree.py`` (what a program is), ``parsing/_parser.py``, ``checking/_check.py``, ``compiling/_compile.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bartack._lazy import lazy

if TYPE_CHECKING:
    from bartack.language._examples import examples
    from bartack.language.checking import _types as types
    from bartack.language.checking._check import check
    from bartack.language.checking._entry import find_entry
    from bartack.language.checking._schema import schema
    from bartack.language.checking.modules import Loader
    from bartack.language.checking.program import Checked, Program
    from bartack.language.compiling._compile import Compiled, compile_program
    from bartack.language.formatting.format import Formatted, format  # noqa: A004 - its door
    from bartack.language.parsing._parser import Parsed, parse
    from bartack.language.syntax import _tree as tree
    from bartack.language.syntax._diagnostics import CATALOGUE, Diagnostic, Severity, has_errors
    from bartack.language.syntax._source import Place, Source, Span
    from bartack.language.syntax.render import render_all

__all__ = [
    "CATALOGUE",
    "Checked",
    "Compiled",
    "Diagnostic",
    "Formatted",
    "Loader",
    "Parsed",
    "Place",
    "Program",
    "Severity",
    "Source",
    "Span",
    "check",
    "compile_program",
    "examples",
    "find_entry",
    "format",
    "has_errors",
    "parse",
    "render_all",
    "schema",
    "tree",
    "types",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "_examples": "examples",
        "checking._check": "check",
        "checking._entry": "find_entry",
        "checking._schema": "schema",
        "checking.modules": "Loader",
        "checking.program": "Checked Program",
        "compiling._compile": "Compiled compile_program",
        "formatting.format": "Formatted format",
        "parsing._parser": "Parsed parse",
        "syntax._diagnostics": "CATALOGUE Diagnostic Severity has_errors",
        "syntax._source": "Place Source Span",
        "syntax.render": "render_all",
    },
    modules={"tree": "syntax._tree", "types": "checking._types"},
)
