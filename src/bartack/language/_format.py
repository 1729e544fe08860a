"""The formatter: one look for all programs.

`format` is its door. The layout of code is in `_format_layout.py`, that of prompts and command lines in `_format_text.py`;
`_format_sheet.py` makes lines of it.

What comes out is read again and compared with what went in. Should they ever differ, in meaning or in comments, the text
stays as it is: nothing that is formatted can break.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from bartack.language import _tree as tree
from bartack.language._check import check
from bartack.language._depth import make_room
from bartack.language._diagnostics import Diagnostic, has_errors
from bartack.language._format_layout import CODE, Layout
from bartack.language._format_text import TEXT
from bartack.language._modules import Loader, NotLoaded
from bartack.language._parser import Parsed, parse

WRITERS = {**CODE, **TEXT}
UPGRADES = frozenset(("PW200", "PW290", "PW291", "PW292", "PW293", "PW294"))
MOST_ROUNDS = 100


class Formatted(NamedTuple):
    """A text that has been formatted, or left alone because of what is wrong with it."""

    text: str
    parsed: Parsed
    """What went in; has the diagnostics."""
    kept: bool
    """The text was left alone."""


def format(text: str, name: str) -> str:  # noqa: A001 - the language package is where it is looked for
    """The text of the file `name` in its canonical form.

    Never raises. A text with syntax errors comes back as it is.
    """
    return reformat(text, name).text


def reformat(text: str | bytes, name: str) -> Formatted:
    """Format the text of the file `name`; tells more than `format`."""
    make_room()
    parsed = parse(text, name)
    if has_errors(parsed.diagnostics):
        return Formatted(text if isinstance(text, str) else "", parsed, kept=True)
    layout = Layout(parsed.source, parsed.tree.comments, WRITERS)
    layout.module(parsed.tree)
    done = layout.sheet.printed()
    if done == parsed.source.text or agree(parsed, parse(done, name)):
        return Formatted(done, parsed, kept=False)
    return Formatted(parsed.source.text, parsed, kept=True)


def agree(left: Parsed, right: Parsed) -> bool:
    """Whether two texts are the same program with the same comments, whatever they look like."""
    return (
        not has_errors(right.diagnostics)
        and _comments(left.tree) == _comments(right.tree)
        and _docs(left.tree) == _docs(right.tree)
        and tree.same(left.tree, right.tree)
    )


def _comments(module: tree.Module) -> list[str]:
    return [comment.text.rstrip(" \t\r") for comment in module.comments]


def _docs(module: tree.Module) -> list[list[str]]:
    documented = (tree.Declaration, tree.Trait, tree.TypeDeclaration)
    items = [unit for unit in module.units if isinstance(unit, documented)]
    for unit in module.units:
        if isinstance(unit, tree.Trait):
            items.extend(method for method in unit.methods if isinstance(method, tree.Declaration))
    return [[comment.text.rstrip(" \t\r") for comment in item.doc] for item in items]


def upgrade(text: str, name: str, loader: Loader | None = None) -> str:
    """The text of the file `name` in the modern spelling: without old words, and with `==` in conditions.

    Some of it only other modules can tell; without a `loader` there are none. Never raises. A text with syntax errors comes
    back as it is.
    """
    before = parse(text, name)
    if has_errors(before.diagnostics):
        return text
    done = before.source.text
    for _ in range(MOST_ROUNDS):
        better = _fixed(done, _said(done, name, loader))
        if better == done:
            break
        done = better
    return done if agree(before, parse(done, name)) else text


def _said(text: str, name: str, loader: Loader | None) -> Iterable[Diagnostic]:
    def load(path: str) -> str | bytes | NotLoaded:
        if path == name:
            return text
        return loader(path) if loader else NotLoaded("missing")

    return (one for one in check(load, name).diagnostics if one.file == name)


def _fixed(text: str, diagnostics: Iterable[Diagnostic]) -> str:
    """The text with the fixes that do not lie in others; those come in the next round."""
    fixes = sorted({one.fix for one in diagnostics if one.fix and one.code in UPGRADES})
    pieces: list[str] = []
    at = 0
    for start, end, better in fixes:
        if start >= at:
            pieces.extend((text[at:start], better))
            at = end
    return "".join((*pieces, text[at:]))
