"""A few lines at the bottom of a terminal that are redrawn, with all other output above them.

The cursor stays visible and the terminal stays in its usual mode: if this process is killed, the terminal needs no repair.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TextIO

from bartack.cli.app._edge import edge_of, own, visible
from bartack.cli.app._terminal import Colour, Screen, cells


class Board:
    """Lines at the bottom of a terminal; on a pipe or file they are written once when they change."""

    def __init__(self, stream: TextIO, colour: Colour = "auto") -> None:
        self._stream = edge_of(stream)
        self.screen = Screen(stream, colour)
        self._drawn: list[str] = []

    @property
    def height(self) -> int:
        """The number of lines of the terminal."""
        try:
            return os.get_terminal_size(self._stream.fileno()).lines or 24
        except (OSError, ValueError):
            return 24

    def draw(self, write: Callable[[Screen], None]) -> None:
        """Replace the lines by those that ``write`` writes."""
        lines = self.screen.collect(write)
        if lines == self._drawn:
            return
        if self.screen.width is None:
            self._stream.write(visible("".join(f"{line}\n" for line in lines)))
        else:
            lines = lines[: max(self.height - 1, 1)]
            self._stream.write(self._erasure() + "".join(f"{line}\n" for line in lines))
        self._drawn = lines
        self._stream.flush()

    def erase(self) -> None:
        """Erase the lines, so that other output can take their place."""
        if self._drawn and self.screen.width is not None:
            self._stream.write(self._erasure())
            self._stream.flush()
        self._drawn = []

    def _erasure(self) -> str:
        """Move the cursor back to the first drawn line; a line that the terminal wrapped counts as several."""
        width = self.screen.width
        if not self._drawn or width is None:
            return ""
        rows = sum(max(-(-cells(line) // width), 1) for line in self._drawn)
        return own(f"\x1b[{rows}A\r\x1b[J")
