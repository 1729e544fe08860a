"""The text of a Patchwork file and the places in it.

Owns offsets, lines and columns; knows nothing of syntax. An offset counts code points from 0, lines and columns
count from 1, and a column counts code points too. Read `_diagnostics.py` next.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property
from typing import NamedTuple

MAX_BYTES = 4 * 1024 * 1024
DIRECTIONS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]+")
"""Characters that change the direction of the text around them: what people read is then not what is run."""


class Span(NamedTuple):
    """A stretch of text: from offset `start` up to, not including, offset `end`."""

    start: int
    end: int


class Place(NamedTuple):
    """Where an offset is, as people count: line and column from 1, the column in code points."""

    offset: int
    line: int
    column: int


class Source:
    """One file's text and its name.

    A byte order mark at the start is dropped, so that offset 0 is the first character people see. A line ends at
    LF or CRLF; a lone CR does not end one.
    """

    def __init__(self, text: str, name: str) -> None:
        self.text = text.removeprefix("\ufeff")
        self.name = name

    @cached_property
    def line_starts(self) -> list[int]:
        """The offset of the first character of each line."""
        starts = [0]
        find = self.text.find
        at = find("\n")
        while at >= 0:
            starts.append(at + 1)
            at = find("\n", at + 1)
        return starts

    def line_of(self, offset: int) -> int:
        """The number of the line, from 1, that holds `offset`."""
        return bisect_right(self.line_starts, offset)

    def place(self, offset: int) -> Place:
        """Where `offset` is; one past the end of the text is a place too."""
        offset = min(max(offset, 0), len(self.text))
        line = self.line_of(offset)
        return Place(offset, line, offset - self.line_starts[line - 1] + 1)

    def line_text(self, line: int) -> str:
        """The text of a line, numbered from 1, without its line end."""
        start, end = self.line_span(line)
        return self.text[start:end]

    def line_span(self, line: int) -> Span:
        """The offsets of a line, numbered from 1, without its line end."""
        starts = self.line_starts
        start = starts[line - 1]
        end = starts[line] - 1 if line < len(starts) else len(self.text)
        if line < len(starts) and end > start and self.text[end - 1] == "\r":
            end -= 1
        return Span(start, end)

    def __getitem__(self, span: Span) -> str:
        return self.text[span.start : span.end]


class Undecodable(NamedTuple):
    """Why bytes are not Patchwork text: what is wrong, and at which byte."""

    message: str
    byte: int


def decode(data: bytes) -> str | Undecodable:
    """Read bytes as the text of a Patchwork file: UTF-8 without NUL."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        return Undecodable(f"this file is not UTF-8 (byte {problem.start})", problem.start)
    return faults_of(text) or text


def faults_of(text: str) -> Undecodable | None:
    """What keeps `text` from being the text of a file: a NUL, or a code point that UTF-8 cannot write."""
    nul = text.find("\0")
    if nul >= 0:
        at = len(text[:nul].encode("utf-8", "surrogatepass"))
        return Undecodable(f"this file contains a NUL byte (byte {at})", at)
    if text.isascii():
        return None
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as problem:
        at = len(text[: problem.start].encode("utf-8"))
        return Undecodable(f"this file is not UTF-8 (byte {at})", at)
    return None
