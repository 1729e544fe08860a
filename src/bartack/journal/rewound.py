"""What a journal that is kept elsewhere has lost, and the copy of its owner still has.

A server that takes over from another one may lack the last commits that were acknowledged. Their owner has a copy of them
(``mirror.py``). It may send them again if what is kept is the beginning of the same history: the same bytes at the same places
give the same journal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from bartack.journal._access import access
from bartack.journal._format import Scanner, begins_with, decode_line
from bartack.journal._line_file import JOURNAL_FILE
from bartack.journal.contract import BlobRef
from bartack.journal.mirror import End
from bartack.journal.shared import Commit

MOST_BYTES: Final = 8 << 20
"""How long a commit may become into which several lost ones are joined."""


def missing_commits(directory: str, end: End, last: Commit) -> list[Commit] | None:
    """The commits that a history lacks which ends with ``end``. The lines of several are joined.

    Args:
        directory: Where the copy is. It may end before ``last``, and its end may be torn.
        end: Where the history ends that is kept.
        last: The last commit that was acknowledged.

    Returns:
        ``None`` if what is kept is not the beginning of the history of the copy, or the copy is damaged.

    Raises:
        FileAccessError: The operating system refused.
    """
    scanner, missing = Scanner(), _Missing(end, last.fence)
    with access(directory):
        for line in _known_lines(directory, last):
            missing.note_end(scanner)
            scanner.feed(line)
            if scanner.problem or scanner.rest:
                return None
            missing.add(line, scanner)
    is_whole = (scanner.next_seq - 1, scanner.crc) == (last.last, last.crc)
    return missing.commits() if is_whole and missing.has_begun else None


def _known_lines(directory: str, last: Commit) -> Iterator[bytes]:
    """The lines of the copy before a commit, and those of the commit."""
    path = os.path.join(directory, JOURNAL_FILE)
    if last.seq > 1:
        with open(path, "rb") as copy:
            for line in copy:
                place = begins_with(line)
                if place is None or place >= last.seq:
                    break
                yield line
    yield from last.lines.splitlines(keepends=True)


class _Missing:
    """Collects what follows an end.

    Attributes:
        has_begun: The end was met.
    """

    def __init__(self, end: End, fence: int) -> None:
        self.has_begun = False
        self._end = end
        self._fence = fence
        self._made: list[Commit] = []
        self._lines: list[bytes] = []
        self._size = 0
        self._first = 0
        self._place = end

    def note_end(self, scanner: Scanner) -> None:
        """Begin to collect if the history up to here is what is kept."""
        self.has_begun = self.has_begun or (scanner.next_seq - 1, scanner.crc) == self._end

    def add(self, line: bytes, scanner: Scanner) -> None:
        """Take a line, after which the scanner stands."""
        if not self.has_begun:
            return
        if not self._lines:
            self._first = begins_with(line) or 0
        self._lines.append(line)
        self._size += len(line)
        self._place = End(scanner.next_seq - 1, scanner.crc)
        if self._size >= MOST_BYTES:
            self._finish()

    def commits(self) -> list[Commit]:
        """All of them."""
        if self._lines:
            self._finish()
        return self._made

    def _finish(self) -> None:
        lines, self._lines, self._size = self._lines, [], 0
        last, crc = self._place
        refs: dict[BlobRef, None] = {}
        for line in lines:
            refs.update((entry.ref, None) for entry in decode_line(line) if entry.ref is not None)
        self._made.append(Commit(self._first, last, self._fence, crc, b"".join(lines), tuple(refs)))
