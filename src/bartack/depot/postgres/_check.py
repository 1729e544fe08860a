"""Checks the runs of a database where they are: every row and every large value is read there, and nothing is kept here."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

import msgspec

from bartack.depot.postgres._database import Session
from bartack.depot.postgres._objects import load_object, missing
from bartack.errors import BlobCorruptError, BlobMissingError, JournalNotFoundError
from bartack.journal import BlobRef, JournalReport
from bartack.journal.rows import Row, verify_rows

ROWS: Final = 32
"""Commits that are fetched at a time. Each has at most a few MiB."""
REMEMBERED: Final = 100_000
"""How many values are remembered that were checked: runs of a team share them."""


class RunCheck:
    """Checks runs one after the other.

    Args:
        session: The connection.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[tuple[str, BlobRef], str] = {}

    def check(self, run_id: str) -> JournalReport:
        """Read the whole journal of a run with all its large values and its program.

        Raises:
            JournalNotFoundError: The run is not there, or it was deleted meanwhile.
            JournalFormatError: A newer Bartack wrote it.
            DepotError: The database cannot be read.
        """
        statement = "SELECT no, team, at_least, program, program_size FROM bartack.run WHERE id = %s"
        rows = self._session.rows(statement, run_id)
        name = f"{self._session.database.name}: {run_id}"
        if not rows:
            raise JournalNotFoundError(name)
        ((number, team, at_least, program, program_size),) = rows
        own = _RunValues(self, number, team)
        report = verify_rows(name, self._rows(number), at_least, own.problem_of)
        if program is not None:
            own.note(BlobRef(bytes(program).hex(), program_size))
        further = own.further()
        if further:
            report = msgspec.structs.replace(
                report,
                blobs=report.blobs + len(further),
                blob_problems=(*report.blob_problems, *filter(None, further)),
            )
        if not report.ok and not self._session.rows(statement, run_id):
            raise JournalNotFoundError(name)
        return report

    def judge(self, run_id: str) -> tuple[int, str]:
        """How many entries of a run are intact, and what is wrong with it, in words. Raises what ``check`` raises."""
        report = self.check(run_id)
        damage = report.damage
        problems = [] if damage is None else [f"entry {damage.seq}, byte {damage.offset}: {damage.problem}"]
        return report.entries, "; ".join([*problems, *report.blob_problems])

    def _rows(self, number: int) -> Iterator[Row]:
        after = 0
        while found := self._session.rows(
            "SELECT seq, last, crc, lines FROM bartack.journal WHERE run = %s AND seq > %s ORDER BY seq LIMIT %s",
            number,
            after,
            ROWS,
        ):
            for seq, last, crc, lines in found:
                yield Row(seq, last, crc, bytes(lines))
            after = found[-1][0]

    def held(self, number: int) -> list[BlobRef]:
        """The values that a run holds."""
        rows = self._session.rows(
            "SELECT b.sha256, c.size FROM bartack.blob b LEFT JOIN bartack.content c ON c.team = b.team "
            "AND c.sha256 = b.sha256 WHERE b.run = %s ORDER BY b.sha256",
            number,
        )
        return [BlobRef(bytes(digest).hex(), size or 0) for digest, size in rows]

    def problem_of(self, team: str, ref: BlobRef) -> str:
        """What is wrong with a value of a team; empty: nothing."""
        if (team, ref) not in self._known:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            try:
                self._check_value(team, ref)
            except (BlobMissingError, BlobCorruptError) as error:
                self._known[team, ref] = error.message
            else:
                self._known[team, ref] = ""
        return self._known[team, ref]

    def _check_value(self, team: str, ref: BlobRef) -> None:
        database, digest = self._session.database, bytes.fromhex(ref.sha256)
        statement = "SELECT size, key FROM bartack.content WHERE team = %s AND sha256 = %s"
        found = self._session.rows(statement, team, digest)
        if not found:
            raise BlobMissingError(ref.sha256, database.name)
        ((size, key),) = found
        if size != ref.size:
            raise BlobCorruptError(ref.sha256, f"{size} bytes are kept of it, and it has {ref.size}")
        if key is not None:
            if (
                load_object(database, key, ref) is None
                and self._session.rows(statement, team, digest) == found
            ):
                raise missing(database, ref)
            return
        kept, checksum = self._read_pieces(team, digest)
        if checksum != ref.sha256:
            problem = "does not match the checksum" if kept == size else f"has {kept} bytes of {size}"
            raise BlobCorruptError(ref.sha256, f"its content in {database.name} {problem}")

    def _read_pieces(self, team: str, digest: bytes) -> tuple[int, str]:
        """How many bytes are kept of a value, and their checksum. One piece of it is in memory at a time."""
        content, size, number = hashlib.sha256(), 0, 0
        statement = "SELECT bytes FROM bartack.part WHERE team = %s AND sha256 = %s AND no = %s"
        while found := self._session.rows(statement, team, digest, number):
            piece = bytes(found[0][0])
            content.update(piece)
            size += len(piece)
            number += 1
        return size, content.hexdigest()


class _RunValues:
    """The large values of one run that is checked."""

    def __init__(self, check: RunCheck, number: int, team: str) -> None:
        self._check = check
        self._number = number
        self._team = team
        self._held: dict[str, BlobRef] | None = None
        self._checked: set[BlobRef] = set()

    def problem_of(self, ref: BlobRef) -> str:
        """What is wrong with a value that an entry refers to; empty: nothing."""
        self._checked.add(ref)
        problem = self._check.problem_of(self._team, ref)
        if not problem and ref.sha256 not in self._hold():
            return f"blob {ref.sha256}: the run does not hold it, so it can be deleted any time"
        return problem

    def note(self, ref: BlobRef) -> None:
        """The run needs a value that no entry refers to."""
        self._hold().setdefault(ref.sha256, ref)

    def further(self) -> list[str]:
        """For each value that no entry refers to, what is wrong with it."""
        done = {ref.sha256 for ref in self._checked}
        rest = [ref for ref in self._hold().values() if ref.sha256 not in done]
        return [self._check.problem_of(self._team, ref) for ref in rest]

    def _hold(self) -> dict[str, BlobRef]:
        # Values come before the entries that refer to them, so this is read after the entries.
        if self._held is None:
            self._held = {ref.sha256: ref for ref in self._check.held(self._number)}
        return self._held
