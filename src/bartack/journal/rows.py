"""Checks a journal that is kept as rows, each of them one commit, without a copy of it: the same report as that of a file.

Where the rows are is the caller's matter. They are read once, in order, and only the names of the large values are remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from bartack.errors import JournalCorruptError, JournalLostError
from bartack.journal._format import Scanner
from bartack.journal._survey import check_first, fence_in, iter_entries
from bartack.journal._verify import JournalDamage, JournalReport, Tally
from bartack.journal.contract import FORMAT, BlobRef


class Row(NamedTuple):
    """One commit, as it is kept.

    Attributes:
        seq: Its first entry, by what stands beside its lines.
        last: Its last entry, likewise.
        crc: The CRC of its last line, likewise.
        lines: The lines themselves.
    """

    seq: int
    last: int
    crc: int
    lines: bytes


def verify_rows(
    name: str, rows: Iterable[Row], at_least: int, problem_of: Callable[[BlobRef], str]
) -> JournalReport:
    """Read and check a whole journal and every large value that it refers to.

    Args:
        name: What the report calls it.
        rows: Its commits, in order.
        at_least: The last entry that is known to have been acknowledged.
        problem_of: Checks a large value; returns what is wrong with it, or nothing.

    Raises:
        JournalFormatError: A newer Bartack wrote it.
    """
    check = _Check(name)
    damage = check.read(rows)
    if damage is None and check.held < at_least:
        lost = JournalLostError(name, check.scanner.offset, check.held, at_least)
        damage = JournalDamage(lost.offset, check.held + 1, lost.problem, torn=False)
    tally = check.tally
    problems = map(problem_of, sorted(tally.refs, key=lambda ref: ref.sha256))
    return JournalReport(
        path=name,
        format=FORMAT,
        entries=check.held,
        commits=len(tally.commits),
        size_bytes=check.scanner.offset,
        owners=check.fence,
        first_at=tally.first_at,
        last_at=tally.last_at,
        blobs=len(tally.refs),
        blob_problems=tuple(problem for problem in problems if problem),
        damage=damage,
    )


class _Check:
    """Follows the rows of one journal up to the first that is wrong."""

    def __init__(self, name: str) -> None:
        self.scanner = Scanner()
        self.tally = Tally()
        self.fence = 0
        self._name = name

    @property
    def held(self) -> int:
        """The last entry that is intact."""
        return self.scanner.next_seq - 1

    def read(self, rows: Iterable[Row]) -> JournalDamage | None:
        """Read them; returns what is wrong with the first that is."""
        for row in rows:
            begin = self.scanner.offset
            try:
                problem = self._add(row)
            except JournalCorruptError as error:
                return JournalDamage(error.offset, row.seq, error.problem, torn=False)
            if problem:
                return JournalDamage(begin, row.seq, problem, torn=False)
        return None if self.held else JournalDamage(0, 1, "there is no journal", torn=False)

    def _add(self, row: Row) -> str:
        """Add a row; returns what is wrong with it."""
        expected = self.scanner.next_seq
        if row.seq != expected:
            return f"a row begins with entry {row.seq}, expected {expected}"
        texts = self.scanner.feed(row.lines)
        if expected == 1:
            check_first(self._name, texts[0] if texts else self.scanner.rest.split(b"\n", 1)[0])
        for entry in iter_entries(self._name, texts, self.scanner.offset, expected):
            self.tally.add(entry)
        if self.scanner.problem or self.scanner.rest:
            return self.scanner.problem or "a line is not complete"
        for offset, text in self.scanner.openings:
            self.fence = fence_in(self._name, offset, text)
        self.scanner.openings.clear()
        if (row.last, row.crc) != (self.held, self.scanner.crc):
            return f"the row of entry {row.seq} does not have the end that stands beside it"
        return ""
