"""Patchwork, the language of teams: source, syntax, diagnostics, checks, compilation.

Pure: text goes in, values come out. Nothing here waits, writes or starts a process, and no text makes it raise.
`tree` holds the nodes of the syntax tree, `types` the types of values. Every name is loaded by its first use: a worker
that only executes what was compiled before does not load the parser.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bartack.language import _tree as tree
    from bartack.language import _types as types
    from bartack.language._check import check
    from bartack.language._compile import Compiled, CompiledModule, compile_program
    from bartack.language._compile_tree import tree_json
    from bartack.language._diagnostics import (
        CATALOGUE,
        Diagnostic,
        Fix,
        Secondary,
        Severity,
        has_errors,
        settle,
    )
    from bartack.language._docs import Doc, read_doc
    from bartack.language._entry import find_entry
    from bartack.language._examples import Example, examples
    from bartack.language._format import (
        Formatted,
        LeftOld,
        Upgraded,
        format,  # noqa: A004 - its door
        reformat,
        upgrade,
        upgraded,
    )
    from bartack.language._modules import Loader, NotLoaded
    from bartack.language._parser import Parsed, parse
    from bartack.language._program import Checked, CheckedModule, Declared, EntryPoint, Program
    from bartack.language._render import render, render_all, summary, to_json
    from bartack.language._schema import schema
    from bartack.language._source import Place, Source, Span

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

_HOMES: Final = {
    "_check": ("check",),
    "_compile": (
        "Compiled",
        "CompiledModule",
        "compile_program",
    ),
    "_compile_tree": ("tree_json",),
    "_diagnostics": (
        "CATALOGUE",
        "Diagnostic",
        "Fix",
        "Secondary",
        "Severity",
        "has_errors",
        "settle",
    ),
    "_docs": (
        "Doc",
        "read_doc",
    ),
    "_entry": ("find_entry",),
    "_examples": (
        "Example",
        "examples",
    ),
    "_format": (
        "Formatted",
        "LeftOld",
        "Upgraded",
        "format",
        "reformat",
        "upgrade",
        "upgraded",
    ),
    "_modules": (
        "Loader",
        "NotLoaded",
    ),
    "_parser": (
        "Parsed",
        "parse",
    ),
    "_program": (
        "Checked",
        "CheckedModule",
        "Declared",
        "EntryPoint",
        "Program",
    ),
    "_render": (
        "render",
        "render_all",
        "summary",
        "to_json",
    ),
    "_schema": ("schema",),
    "_source": (
        "Place",
        "Source",
        "Span",
    ),
}
_MODULES: Final = {"tree": "_tree", "types": "_types"}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        module: object = import_module(f"{__name__}.{_MODULES[name]}")
        globals()[name] = module
        return module
    for home, names in _HOMES.items():
        if name in names:
            value: object = getattr(import_module(f"{__name__}.{home}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
