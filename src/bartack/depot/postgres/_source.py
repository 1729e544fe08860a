"""The journal and the large values of one run in a database, for those that read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bartack.depot.postgres._content import download
from bartack.depot.postgres._database import Session
from bartack.depot.postgres._objects import check_size
from bartack.journal import BlobRef
from bartack.journal.mirror import End

ROWS: Final = 500
"""Commits that are fetched at a time."""


class RunSource:
    """See ``Source``.

    Args:
        session: The connection.
        run: The number of the run.
        name: What errors call its journal.
        team: Its team.
    """

    def __init__(self, session: Session, run: int, name: str, team: str) -> None:
        self.name = name
        self._session = session
        self._run = run
        self._team = team

    def end(self) -> End:
        """See ``Source.end``."""
        rows = self._session.rows(
            "SELECT last, crc FROM bartack.journal WHERE run = %s ORDER BY seq DESC LIMIT 1", self._run
        )
        return End(*rows[0]) if rows else End()

    def has(self, end: End) -> bool:
        """See ``Source.has``."""
        rows = self._session.rows(
            "SELECT crc FROM bartack.journal WHERE run = %s AND seq <= %s AND last = %s ORDER BY seq DESC LIMIT 1",
            self._run,
            end.last,
            end.last,
        )
        return [tuple(row) for row in rows] == [(end.crc,)]

    def rows(self, after: int) -> Iterator[bytes]:
        """See ``Source.rows``."""
        while True:
            found = self._session.rows(
                "SELECT last, lines FROM bartack.journal WHERE run = %s AND seq > %s ORDER BY seq LIMIT %s",
                self._run,
                after,
                ROWS,
            )
            for last, lines in found:
                after = last
                yield bytes(lines)
            if len(found) < ROWS:
                return

    def check_size(self, size: int) -> None:
        """See ``Source.check_size``."""
        check_size(self._session.database, size)

    def fetch_blob(self, ref: BlobRef) -> bytes | None:
        """See ``Source.fetch_blob``."""
        return download(self._session, self._team, ref)
