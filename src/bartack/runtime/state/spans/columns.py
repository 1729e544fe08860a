"""Columns that spans are kept in: numbers in arrays and texts in one buffer, because a long run has a million of them.

Knows nothing of runs. What the columns hold is in ``spans.py`` and the modules that it names.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import chain
from typing import Final

OPEN: Final = 0xFFFF_FFFF
"""The end of a span that is open."""
FEWEST: Final = 1024
"""A copy of what is open is kept at most this often: once for this many new spans."""
KNOWN: Final = 1 << 16
"""How many different texts are recognised when they come again."""


class Texts:
    """Texts by their numbers, in one buffer. The same text usually has the same number; number 0 is the empty text."""

    def __init__(self) -> None:
        self._content = bytearray()
        self._ends = array("Q", [0])
        self._known: dict[str, int] = {"": 0}

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> str:
        if not number:
            return ""
        return self._content[self._ends[number - 1] : self._ends[number]].decode(errors="surrogatepass")

    def add(self, text: str) -> int:
        """The number of a text that may come again."""
        found = self._known.get(text)
        if found is None:
            found = self.add_new(text)
            if len(self._known) < KNOWN:
                self._known[text] = found
        return found

    def add_new(self, text: str) -> int:
        """The number of a text that does not come again."""
        if not text:
            return 0
        self._content += text.encode(errors="surrogatepass")
        self._ends.append(len(self._content))
        return len(self._ends) - 1


class Intervals:
    """Spans from one entry to another, by row. They are opened in the order of the entries.

    Attributes:
        opened: Of each row: the entry that opened it. It rises.
        closed: Of each row: the entry that closed it, or ``OPEN``.

    Args:
        fewest: A copy of what is open is kept at most once for this many rows.
    """

    def __init__(self, fewest: int = FEWEST) -> None:
        self.opened = array("I")
        self.closed = array("I")
        self._open: dict[int, None] = {}
        self._copies: list[array[int]] = [array("I")]
        """What was open when the row of the same place in ``_copied`` was opened."""
        self._copied = array("I", [0])
        self._copied_seqs = array("I", [0])
        self._fewest = self._next_copy = fewest

    def __len__(self) -> int:
        return len(self.opened)

    def open(self, seq: int) -> int:
        """A span begins with this entry; returns its row."""
        row = len(self.opened)
        if row >= self._next_copy:
            self._copy(row, seq)
        self.opened.append(seq)
        self.closed.append(OPEN)
        self._open[row] = None
        return row

    def close(self, row: int, seq: int) -> None:
        """A span ends with this entry."""
        self.closed[row] = seq
        del self._open[row]

    def add(self, seq: int) -> int:
        """A span that began and ended unseen: only this entry shows it."""
        row = len(self.opened)
        self.opened.append(seq)
        self.closed.append(seq)
        return row

    def now(self) -> list[int]:
        """The rows that are open."""
        return list(self._open)

    def at(self, seq: int) -> list[int]:
        """The rows that were open after an entry, in the order in which they were opened."""
        place = bisect_right(self._copied_seqs, seq) - 1
        if place < 0:
            return []
        closed = self.closed
        last = bisect_right(self.opened, seq)
        return [
            row for row in chain(self._copies[place], range(self._copied[place], last)) if closed[row] > seq
        ]

    def opened_by(self, seq: int) -> int:
        """How many rows were opened up to an entry: the rows below this number."""
        return bisect_right(self.opened, seq)

    def _copy(self, row: int, seq: int) -> None:
        """Keep what is open, so that ``at`` does not have to look at all rows.

        Spans that this entry has closed already are not in it: ``at`` uses it for this entry and later ones only. The next copy
        comes after as many rows as this one holds, so copies never take more than the columns, however many spans are open.
        """
        self._copies.append(array("I", self._open))
        self._copied.append(row)
        self._copied_seqs.append(seq)
        self._next_copy = row + max(self._fewest, len(self._open))
