"""The formatter: one look for all programs.

`format` is its door. The layout of code is in `_layout.py`, that of prompts and command lines in `_text.py`;
`_sheet.py` makes lines of it.

What comes out is read again and compared with what went in. Should they ever differ, in meaning or in comments, the text
stays as it is: nothing that is formatted can break.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from bartack.language.checking._check import check
from bartack.language.checking.modules import Loader, NotLoaded
from bartack.language.formatting._layout import CODE, Layout
from bartack.language.formatting._text import TEXT
from bartack.language.parsing._parser import Parsed, parse
from bartack.language.syntax import _tree as tree
from bartack.language.syntax._depth import make_room
from bartack.language.syntax._diagnostics import Diagnostic, has_errors

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
    """Format the text of the file `name`; returns more than `format`."""
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

    Some of it depends on other modules; without a `loader` there are none. Never raises. A text with syntax errors comes
    back as it is.
    """
    return upgraded(text, name, loader).text


class LeftOld(NamedTuple):
    """An old spelling that stays as it is, and why."""

    diagnostic: Diagnostic
    why: str


class Upgraded(NamedTuple):
    """A text in the modern spelling, as far as that is possible."""

    text: str
    left: tuple[LeftOld, ...]
    """What stays old, with its place in `text`."""


def upgraded(text: str, name: str, loader: Loader | None = None) -> Upgraded:
    """Upgrade a text; returns more than `upgrade`."""
    before = parse(text, name)
    if has_errors(before.diagnostics):
        return Upgraded(text, ())
    done = before.source.text
    for _ in range(MOST_ROUNDS):
        better = _better(before, done, tuple(_said(done, name, loader)))
        if better == done:
            break
        done = better
    if done == before.source.text:
        done = text
    comments = parse(done, name).tree.comments
    old = (one for one in _said(done, name, loader) if one.code in UPGRADES)
    return Upgraded(done, tuple(LeftOld(one, _why(one, comments)) for one in old))


def _why(one: Diagnostic, comments: tuple[tree.Comment, ...]) -> str:
    """Why an old spelling stays."""
    start, end, _ = one.fix or (*one.span, "")
    if any(start <= comment.start < end for comment in comments):
        return "a comment stands inside of it; move the comment, then upgrade again"
    return "the change would alter the program; write it yourself"


def _better(before: Parsed, text: str, said: tuple[Diagnostic, ...]) -> str:
    """The text with all fixes, or with those that leave the program as it is."""
    done = _fixed(text, said)
    if done == text or agree(before, parse(done, before.source.name)):
        return done
    for one in said:
        alone = _fixed(text, (one,))
        if alone != text and agree(before, parse(alone, before.source.name)):
            return alone
    return text


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
