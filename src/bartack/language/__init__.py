"""Patchwork, the language of teams: source, syntax, diagnostics.

Pure: text goes in, values come out. Nothing here waits, writes or starts a process, and no text makes it raise.
`tree` holds the nodes of the syntax tree, `types` the types of values.
"""

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
    "Fix",
    "Loader",
    "NotLoaded",
    "Parsed",
    "Place",
    "Program",
    "Secondary",
    "Severity",
    "Source",
    "Span",
    "check",
    "compile_program",
    "find_entry",
    "has_errors",
    "parse",
    "read_doc",
    "render",
    "render_all",
    "schema",
    "settle",
    "summary",
    "to_json",
    "tree",
    "tree_json",
    "types",
]
