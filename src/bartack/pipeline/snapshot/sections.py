"""Sections of a Markdown file, and whether an edit stayed inside those that an agent may edit.

A section runs from its heading to the next heading of the same or a higher level, and includes what is below it. Headings inside
fenced code are text. Lines are compared byte for byte.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

_HEADING: Final = re.compile(rb" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*\r?\n?\Z", re.DOTALL)
_FENCE: Final = re.compile(rb" {0,3}(`{3,}|~{3,})(.*)", re.DOTALL)
BLANK: Final = b"\0"
"""Stands for a body that may be anything."""


@dataclass(frozen=True)
class Heading:
    """A heading: the number of its line, its level and its title."""

    line: int
    level: int
    title: str


@dataclass(frozen=True)
class Verdict:
    """What is wrong with an edit; nothing if ``problem`` is empty."""

    problem: str = ""
    diff: str = ""
    """The forbidden part, as a unified diff."""


def split_lines(text: bytes) -> list[bytes]:
    """Lines with their ends; only line feeds end a line."""
    return text.splitlines(keepends=True) if b"\r" not in text else re.findall(rb"[^\n]*\n|[^\n]+\Z", text)


def find_headings(lines: Sequence[bytes]) -> list[Heading]:
    """The headings outside of fenced code."""
    found: list[Heading] = []
    fence = b""
    for number, line in enumerate(lines):
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not mark[2].strip():
                fence = b""
        elif mark and not (mark[1].startswith(b"`") and b"`" in mark[2]):
            fence = mark[1]
        elif heading := _HEADING.match(line):
            title = (heading[2] or b"").strip().decode("utf-8", "replace")
            found.append(Heading(number, len(heading[1]), title))
    return found


def missing_titles(text: bytes, titles: Sequence[str]) -> list[str]:
    """The titles that no heading of a file has."""
    there = {heading.title for heading in find_headings(split_lines(text))}
    return [title for title in titles if title not in there]


def check_edit(before: bytes, after: bytes, titles: Collection[str], name: str) -> Verdict:
    """Whether an edit left everything alone but the bodies of some sections.

    Args:
        before: The file as it was.
        after: The file as it is.
        titles: The sections that may be edited.
        name: What to call the file.
    """
    old, new = _blank(before, titles), _blank(after, titles)
    if old == new:
        return Verdict()
    shown_old, shown_new = (
        [_show(line) for line in split_lines(b"".join(part for part in parts))] for parts in (old, new)
    )
    diff = "".join(difflib.unified_diff(shown_old, shown_new, f"{name} (before)", f"{name} (after)"))
    headings = [line for line in _editable(before, titles) if line not in _editable(after, titles)]
    if headings:
        title = headings[0].decode("utf-8", "replace").strip()
        return Verdict(f"the heading {title!r} was changed or moved", diff)
    return Verdict("something outside of the sections that may be edited was changed", diff)


def _blank(text: bytes, titles: Collection[str]) -> list[bytes]:
    """The lines of a file, with the bodies of editable sections taken out."""
    lines = split_lines(text)
    kept: list[bytes] = []
    level = 0
    headings = {heading.line: heading for heading in find_headings(lines)}
    for number, line in enumerate(lines):
        heading = headings.get(number)
        if heading is not None and (not level or heading.level <= level):
            level = heading.level if heading.title in titles else 0
            # A heading that is the last line of the file has no line end: that is not a change outside.
            kept.append(line.rstrip(b"\r\n") + b"\n" + BLANK if level else line)
        elif not level:
            kept.append(line)
    return kept


def _editable(text: bytes, titles: Collection[str]) -> list[bytes]:
    lines = split_lines(text)
    return [lines[heading.line] for heading in find_headings(lines) if heading.title in titles]


def _show(line: bytes) -> str:
    text = line.replace(BLANK, b"").decode("utf-8", "backslashreplace")
    return text if text.endswith("\n") else f"{text}\n\\ No newline at end of file\n" if text else ""
