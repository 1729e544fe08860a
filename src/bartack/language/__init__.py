"""Patchwork, the language of teams: source, syntax, diagnostics.

Pure: text goes in, values come out. Nothing here waits, writes or starts a process, and no text makes it raise.
`tree` holds the nodes of the syntax tree.
"""

from bartack.language import _tree as tree
from bartack.language._diagnostics import (
    CATALOGUE,
    Diagnostic,
    Fix,
    Secondary,
    Severity,
    has_errors,
    settle,
)
from bartack.language._parser import Parsed, parse
from bartack.language._source import Place, Source, Span

__all__ = [
    "CATALOGUE",
    "Diagnostic",
    "Fix",
    "Parsed",
    "Place",
    "Secondary",
    "Severity",
    "Source",
    "Span",
    "has_errors",
    "parse",
    "settle",
    "tree",
]
