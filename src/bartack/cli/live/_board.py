r"""Puts the lines of the live view on a terminal, below all other output.

The terminal stays in its usual mode, without an alternate screen or a scroll region, and the cursor stays visible: if this process
is killed, the terminal needs no repair. A frame is one write, in a synchronised update (``CSI ? 2026``), so that no half of it is
seen.

**The size is asked for at every frame**, and each line is shorter than the terminal is wide. A terminal that became narrower has
broken the lines that are there. So whatever is to be erased is counted in rows of the width that the terminal has now.

**A person may be typing** below the lines, and what was typed cannot be known before Enter. While the size stays the same, changes
are made above the cursor, which returns to where it was (``ESC 7``, ``ESC 8``): lines that changed are written again, and output of
the run is inserted above the view (``IND`` to make room below, then ``CSI L``). All else erases the view and draws it again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, NamedTuple, TextIO

from bartack.cli.app._edge import edge_of, own, visible, without_colour
from bartack.cli.app._terminal import Colour, Screen, cells
from bartack.cli.live._draw import Line

_BEGIN: Final = own("\x1b[?2026h")
_END: Final = own("\x1b[?2026l")
_SAVE: Final = own("\x1b7")
_RESTORE: Final = own("\x1b8")
_CLEAR_LINE: Final = own("\x1b[K")
_TABS: Final = 8


class Size(NamedTuple):
    """The size of a terminal."""

    columns: int
    rows: int


class Board:
    """The lines of the live view on a terminal.

    Args:
        stream: The terminal.
        colour: Whether styles become colours.
    """

    def __init__(self, stream: TextIO, colour: Colour = "auto") -> None:
        self._stream = edge_of(stream)
        self.screen = Screen(stream, colour)
        self._lines: list[str] = []
        self._prompt = ""
        self._typed = 0
        """Rows between the lines and the cursor: those of lines that a person has typed."""
        self._size: Size | None = None
        """The size at the last frame; ``None``: nothing is drawn."""

    @property
    def utf8(self) -> bool:
        """Whether the terminal shows all characters."""
        return (self._stream.encoding or "").lower().replace("-", "").replace("_", "") == "utf8"

    @property
    def size(self) -> Size:
        """The size of the terminal now; ``COLUMNS`` and ``LINES`` count where the terminal does not know it."""
        try:
            found = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            found = os.terminal_size((0, 0))
        return Size(found.columns or _number("COLUMNS", 80), found.lines or _number("LINES", 24))

    def frame(self, lines: Sequence[Line], size: Size, *, above: str = "", prompt: str = "") -> None:
        """Show lines in place of those that are there.

        Args:
            lines: The lines, drawn for ``size``.
            size: The size that the terminal has now.
            above: Output to put above them; it ends with a line break.
            prompt: What stands in front of what a person types, below the lines.
        """
        painted = [self._paint(line) for line in lines]
        is_in_place = self._size == size and self._prompt == prompt and not self._typed
        text = self._change(painted, size, above) if is_in_place else None
        if text is None:
            text = self._erasure(size) + above + "".join(f"{line}\n" for line in painted)
            text += self.screen.paint(prompt, "cyan") if prompt else ""
        self._lines, self._prompt, self._typed, self._size = painted, prompt, 0, size
        if text:
            self._stream.write(f"{_BEGIN}{text}{_END}")
            self._stream.flush()

    def erase(self, above: str = "") -> None:
        """Remove the lines; ``above`` takes their place."""
        text = ("" if self._size is None else self._erasure(self.size)) + above
        self._lines, self._prompt, self._typed, self._size = [], "", 0, None
        if text:
            self._stream.write(text)
            self._stream.flush()

    def typed(self, text: str) -> None:
        """A person has typed a line, and the terminal has shown it."""
        if self._size is not None:
            self._typed += _rows(f"{self._prompt}{text}", self.size.columns)

    # Inside.

    def _paint(self, line: Line) -> str:
        return "".join(
            self.screen.paint(piece.text, piece.style) if piece.style and piece.text else piece.text
            for piece in line
        ).rstrip()

    def _erasure(self, size: Size) -> str:
        """Move to the first row of what is drawn, and erase all from there on."""
        if self._size is None:
            return ""
        rows = sum(_rows(line, size.columns) for line in self._lines) + self._typed
        return own(f"\r\x1b[{rows}A\x1b[J" if rows else "\r\x1b[J")

    def _change(self, lines: list[str], size: Size, above: str) -> str | None:
        """Make changes above the cursor; ``None`` if there is more to insert than the terminal has rows."""
        added = sum(_rows(line, size.columns) for line in above.split("\n")[:-1])
        grown = len(lines) - len(self._lines)
        here, made = self._lines, ""
        if above and not self._prompt:
            return (
                None  # no answer is being typed: drawing all again needs no guess how many rows a text takes
            )
        if added or grown > 0:
            rows = added + max(grown, 0)
            if rows + max(len(lines), len(here)) + 1 > size.rows:
                return None
            made = self._insert(rows, len(here), above)
            here = [""] * len(lines) if added else [*[""] * grown, *here]
        if grown < 0:
            made += (
                _SAVE + own(f"\x1b[{len(self._lines)}A\r\x1b[{-grown}M") + _RESTORE + own(f"\x1b[{-grown}A")
            )
            here = here[-len(lines) :] if lines else []
        return made + self._rewrite(here, lines)

    @staticmethod
    def _insert(rows: int, height: int, above: str) -> str:
        """Make room above the lines, with text in it. The cursor ends on the row that it was on, which has moved down."""
        room = own("\x1bD" * rows) + _SAVE + own(f"\x1b[{rows + height}A\r\x1b[{rows}L")
        return f"{room}{above}{_RESTORE}"

    @staticmethod
    def _rewrite(here: Sequence[str], lines: Sequence[str]) -> str:
        """Write the lines that differ, and return."""
        changed = [place for place, line in enumerate(lines) if here[place] != line]
        if not changed:
            return ""
        made, row = _SAVE, len(lines)
        for place in changed:
            made += own(f"\x1b[{row - place}A\r" if row > place else f"\x1b[{place - row}B\r")
            made += lines[place] + _CLEAR_LINE
            row = place
        return made + _RESTORE


def as_output(text: str) -> str:
    """Text of a program as the terminal shows it: without control characters, with blanks for tabs, as whole lines."""
    shown = visible(text, colour=True)
    return (shown.expandtabs(_TABS) if "\t" in shown else shown) + "\n"


def is_same_terminal(one: TextIO, other: TextIO) -> bool:
    """Whether two streams are the same terminal."""
    try:
        return one.isatty() and other.isatty() and os.path.sameopenfile(one.fileno(), other.fileno())
    except (OSError, ValueError):
        return False


def _rows(line: str, columns: int) -> int:
    """How many rows a line takes on a terminal."""
    return max(-(-cells(without_colour(line)) // columns), 1)


def _number(variable: str, default: int) -> int:
    given = os.environ.get(variable, "")
    return int(given) if given.isdecimal() and int(given) else default
