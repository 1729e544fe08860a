"""Lines for people: colour only where a terminal shows it, widths that fit, nothing that could steer the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TextIO

from bartack.cli.app._edge import edge_of, own, visible, without_own

Colour = Literal["auto", "always", "never"]
"""Whether there is any: where a terminal shows it and nobody objects, or as somebody says."""
Style = Literal["bold", "dim", "red", "green", "yellow", "cyan"]

_PLAIN = own("\x1b[0m")
_CODES: dict[Style, int] = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}


class Screen:
    """Writes lines to one stream.

    Attributes:
        width: Columns of the terminal; ``None`` when the stream is none, and lines may have any length.
        colour: Whether ``paint`` paints.
    """

    def __init__(self, stream: TextIO, colour: Colour = "auto") -> None:
        self._stream = edge_of(stream)
        self._put: Callable[[str], object] = self._show
        terminal = stream.isatty()
        self.width = _columns(stream) if terminal else None
        self.colour = colour == "always" or (colour == "auto" and terminal and _colour_is_welcome())

    def line(self, text: str = "") -> None:
        """Write one line. It is for people wherever it goes: a pager shows colours that were asked for, and obeys more."""
        self._put(text + "\n")

    def _show(self, text: str) -> None:
        self._stream.write(text if self.width is not None else visible(text))

    def flush(self) -> None:
        """Bring every line to the reader."""
        self._stream.flush()

    def paint(self, text: str, style: Style) -> str:
        """``text`` in a style, or as it is where there is no colour."""
        return own(f"\x1b[{_CODES[style]}m") + text + _PLAIN if self.colour else text

    def fit(self, text: str, used: int = 0) -> str:
        """``text`` shortened to what is left of the terminal's width when ``used`` columns are taken."""
        return text if self.width is None else shorten(text, max(self.width - used, 8))

    def table(self, rows: Sequence[Sequence[str]], indent: int = 2) -> None:
        """Write rows with their columns aligned, two spaces apart; the last column is never padded."""
        for line in columns(rows):
            self.line(" " * indent + line)

    def listing(self, rows: Sequence[Sequence[str]], indent: int = 2) -> None:
        """Like ``table``, with the last column shortened to what is left of the terminal's width."""
        if not rows:
            return
        used = indent + sum(max(map(cells, column)) + 2 for column in list(zip(*rows, strict=True))[:-1])
        self.table([(*row[:-1], self.fit(row[-1], used)) for row in rows], indent)

    def collect(self, write: Callable[[Screen], None]) -> list[str]:
        """The lines that ``write`` would write to a screen like this one."""
        written: list[str] = []
        other = Screen(self._stream)
        other.width, other.colour, other._put = self.width, self.colour, written.append
        write(other)
        return "".join(written).split("\n")[:-1]

    def paragraph(self, text: str, indent: int = 2) -> None:
        """Write text wrapped to the terminal's width, at most 100 columns."""
        import textwrap  # noqa: PLC0415 - few commands have so much to say

        width, margin = min(self.width or 100, 100), " " * indent
        blocks = [" ".join(block.split()) for block in text.split("\n\n")]
        filled = [
            textwrap.fill(block, width, initial_indent=margin, subsequent_indent=margin) for block in blocks
        ]
        self.line("\n\n".join(filled))


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines with their columns aligned, two spaces apart, nothing behind the last one."""
    widths = [max(map(cells, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text + " " * (width - cells(text)) for text, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


def printable(text: str) -> str:
    """``text`` with every character that is not to be seen, or that a terminal would obey, written as its escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable_lines(text: str, indent: int) -> str:
    """``text`` as ``printable`` gives it, but on as many lines as it has; all but the first are indented."""
    return ("\n" + " " * indent).join(map(printable, text.split("\n")))


def cells(text: str) -> int:
    """How many columns a terminal gives to ``text``; styles take none."""
    text = without_own(text)
    return len(text) if text.isascii() else sum(map(_cell, text))


def shorten(text: str, width: int) -> str:
    """``text`` if it fits ``width`` columns, else its beginning and three dots."""
    if cells(text) <= width:
        return text
    kept, left = 0, width - 3
    while (left := left - _cell(text[kept])) >= 0:
        kept += 1
    return text[:kept] + "..."


def human_size(count: int) -> str:
    """A number of bytes as people read it."""
    size = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def human_time(seconds: float) -> str:
    """A duration as people read it."""
    if seconds < 0.0995:
        return f"{max(seconds, 0.0) * 1000:.1f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} days"


def listed(words: Iterable[str]) -> str:
    """Words as a sentence has them: ``a, b and c``."""
    *head, last = words
    return f"{', '.join(head)} and {last}" if head else last


def _cell(character: str) -> int:
    import unicodedata  # noqa: PLC0415 - plain text does without

    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _columns(stream: TextIO) -> int:
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked):
        return int(asked)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        return 80


def _colour_is_welcome() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def say(text: str) -> None:
    """Tell a person something: on stderr, so that stdout carries results only."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
