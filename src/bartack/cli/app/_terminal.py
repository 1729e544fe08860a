"""Lines for people: colour only on a terminal, lines shortened to its width, no control characters from outside."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Literal, TextIO

from bartack.cli.app._edge import edge_of, own, visible, without_own

Colour = Literal["auto", "always", "never"]
"""``auto`` means colour on a terminal unless ``NO_COLOR`` is set; the others are explicit choices."""
Style = Literal["bold", "dim", "red", "green", "yellow", "cyan"]

_PLAIN = own("\x1b[0m")
_CODES: dict[Style, int] = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}


class Screen:
    """Writes lines to one stream.

    Attributes:
        width: Columns of the terminal; ``None`` if the stream is not a terminal and lines can have any length.
        colour: Whether ``paint`` adds colour.
    """

    def __init__(self, stream: TextIO, colour: Colour = "auto") -> None:
        self._stream = edge_of(stream)
        self._put: Callable[[str], object] = self._show
        terminal = stream.isatty()
        self.width = _columns(stream) if terminal else None
        self.colour = colour == "always" or (colour == "auto" and terminal and _colour_is_allowed())

    def line(self, text: str = "") -> None:
        """Write one line for people. Control characters are escaped on a pipe, too: a pager would obey them."""
        self._put(text + "\n")

    def _show(self, text: str) -> None:
        self._stream.write(text if self.width is not None else visible(text))

    def flush(self) -> None:
        """Flush the stream."""
        self._stream.flush()

    def paint(self, text: str, style: Style) -> str:
        """Return ``text`` in a style, or unchanged without colour."""
        return own(f"\x1b[{_CODES[style]}m") + text + _PLAIN if self.colour else text

    def fit(self, text: str, used: int = 0) -> str:
        """Shorten ``text`` to the terminal's width less ``used`` columns."""
        return text if self.width is None else shorten(text, max(self.width - used, 8))

    def table(self, rows: Sequence[Sequence[str]], indent: int = 2) -> None:
        """Write rows with their columns aligned, two spaces apart; the last column is never padded."""
        for line in columns(rows):
            self.line(" " * indent + line)

    def listing(self, rows: Sequence[Sequence[str]], indent: int = 2) -> None:
        """Like ``table``, with the last column shortened to the rest of the terminal's width."""
        if not rows:
            return
        used = indent + sum(max(map(cells, column)) + 2 for column in list(zip(*rows, strict=True))[:-1])
        self.table([(*row[:-1], self.fit(row[-1], used)) for row in rows], indent)

    def collect(self, write: Callable[[Screen], None]) -> list[str]:
        """Return the lines that ``write`` would write to a screen like this one."""
        written: list[str] = []
        other = Screen(self._stream)
        other.width, other.colour, other._put = self.width, self.colour, written.append
        write(other)
        return "".join(written).split("\n")[:-1]

    def paragraph(self, text: str, indent: int = 2) -> None:
        """Write text wrapped to the terminal's width, at most 100 columns."""
        import textwrap  # noqa: PLC0415 - few commands write paragraphs

        width, margin = min(self.width or 100, 100), " " * indent
        blocks = [" ".join(block.split()) for block in text.split("\n\n")]
        filled = [
            textwrap.fill(block, width, initial_indent=margin, subsequent_indent=margin) for block in blocks
        ]
        self.line("\n\n".join(filled))


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Format rows as lines with their columns aligned, two spaces apart, without trailing blanks."""
    widths = [max(map(cells, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text + " " * (width - cells(text)) for text, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


def printable(text: str) -> str:
    """Return ``text`` with every invisible or control character written as its escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable_lines(text: str, indent: int) -> str:
    """Like ``printable``, with the line breaks of ``text`` kept; all lines but the first are indented."""
    return ("\n" + " " * indent).join(map(printable, text.split("\n")))


def cells(text: str) -> int:
    """Return how many columns ``text`` takes on a terminal; styles take none."""
    text = without_own(text)
    return len(text) if text.isascii() else sum(width for _, width in graphemes(text))


def shorten(text: str, width: int, dots: str = "...") -> str:
    """Return ``text`` if it fits ``width`` columns, else its beginning and dots. No character is cut in its middle."""
    if cells(text) <= width:
        return text
    left = max(width - len(dots), 0)
    if text.isascii():
        return text[:left] + dots[:width]
    kept = ""
    for grapheme, wide in graphemes(text):
        if (left := left - wide) < 0:
            break
        kept += grapheme
    return kept + dots[:width]


def graphemes(text: str) -> Iterator[tuple[str, int]]:
    """The characters of a text as people see them, each with the columns it takes.

    Where terminals differ (emoji that are joined into one), the larger number counts: a line must not be broken by the terminal.
    """
    found, width, regional = "", 0, False
    for character in text:
        wide = _cell(character)
        flag = _is_regional(character)
        joins = not wide or found[-1:] == _JOINER or (flag and regional) or character in _SKINS
        if found and not joins:
            yield found, width
            found, width = "", 0
        found += character
        width += 1 if character == _EMOJI_STYLE and width == 1 else wide
        regional = flag and not regional
    if found:
        yield found, width


_JOINER = "\u200d"
_EMOJI_STYLE = "\ufe0f"
_SKINS = "\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"


def human_size(count: int) -> str:
    """Format a number of bytes for people."""
    size = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def usd_text(usd: float, *, estimated: bool, digits: int = 2) -> str:
    """An amount of money, and whether it was computed from prices."""
    return f"{usd:.{digits}f} USD{' (estimated)' if estimated else ''}"


def human_time(seconds: float) -> str:
    """Format a duration for people."""
    if 0 < seconds < 0.00005:
        return "<0.1 ms"
    if seconds < 0.0995:
        return f"{max(seconds, 0.0) * 1000:.1f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} days"


def local_moment(at_us: int) -> str:
    """Format microseconds since 1970 for people: the time on the wall, with the date unless that is today's."""
    then = datetime.fromtimestamp(at_us / 1e6).astimezone()
    is_today = then.date() == datetime.now().astimezone().date()
    return f"{then:%H:%M}" if is_today else f"{then:%Y-%m-%d %H:%M}"


def listed(words: Iterable[str]) -> str:
    """Join words as in a sentence: ``a, b and c``."""
    *head, last = words
    return f"{', '.join(head)} and {last}" if head else last


@lru_cache(maxsize=4096)
def _cell(character: str) -> int:
    import unicodedata  # noqa: PLC0415 - ASCII text does not need it

    if unicodedata.category(character) in {"Mn", "Me", "Cf"} or "\u1160" <= character <= "\u11ff":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" or _is_regional(character) else 1


def _is_regional(character: str) -> bool:
    """Whether it is half of a flag. Terminals show a flag, or its halves with two columns each."""
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _columns(stream: TextIO) -> int:
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked):
        return int(asked)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        return 80


def _colour_is_allowed() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def write_note(text: str) -> None:
    """Write a note for people to stderr, so that stdout carries results only."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
