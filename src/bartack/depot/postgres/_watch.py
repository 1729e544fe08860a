"""Waiting for a change of a run in a database: a notification says when to look, and there is a look every second anyway.

A reader listens first, then looks, and then waits, so it misses nothing. The process that owns the run notifies only if a
reader has reported that it watches, so a reader repeats that. A pooler that gives each statement another connection brings no
notifications. Then what a person sees is late by a second at most.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from bartack.core.closing import Closing
from bartack.core.readable import wait_readable
from bartack.core.watch import WatchKind
from bartack.depot.postgres._database import Session
from bartack.depot.postgres._listen import listen
from bartack.errors import DepotError, DepotUnavailableError

if TYPE_CHECKING:
    from bartack.depot.postgres._database import Connection

LOOK_S: Final = 1.0
"""The longest time between two looks."""
REPEAT_S: Final = 15.0
"""How often a reader reports that it watches."""
_LOOK: Final = (
    "SELECT o.node, o.fence, r.marked, o.state, o.alive, (SELECT max(j.last) FROM bartack.journal j WHERE j.run = r.no), "
    "(SELECT sum(q.no) FROM bartack.request q WHERE q.run = r.no AND q.state = 'open') "
    "FROM bartack.run r JOIN bartack.owner o ON o.run = r.no WHERE r.id = %s"
)
_REPORT: Final = "SELECT pg_notify('bartack_node_' || %s::int, 'watch ' || %s::bigint)"


class RowWatch(Closing):
    """See ``Watch``.

    Args:
        session: A connection that belongs to this object.
        run: The id of the run.
        number: Its number.
    """

    kind: WatchKind = "poll"

    def __init__(self, session: Session, run: str, number: int) -> None:
        self._session = session
        self._run = run
        self._number = number
        self._listening: Connection | None = None
        self._node: object = None
        self._report_at = 0.0
        self._look_at = 0.0
        self._seen = self._look()

    def wait(self, timeout_s: float | None) -> bool:
        """See ``Watch.wait``. A database that does not answer has not changed."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            if self._is_notified() or time.monotonic() >= self._look_at:
                now = self._seen
                with suppress(DepotUnavailableError):
                    now = self._look()
                if now != self._seen:
                    self._seen = now
                    return True
            left = self._look_at - time.monotonic()
            if end is not None:
                left = min(left, end - time.monotonic())
                if end <= time.monotonic():
                    return False
            wait_readable(self._descriptors(), left)

    def _is_notified(self) -> bool:
        return bool(wait_readable(self._descriptors(), 0))

    def _descriptors(self) -> list[int]:
        """What is readable when a notification has come, or the end of the connection: a look finds out."""
        connection = self._listening
        return [] if connection is None or connection.closed else [connection.fileno()]

    def fileno(self) -> int | None:
        """There is none: it has to be looked."""
        return None

    def close(self) -> None:
        """See ``Watch.close``."""
        self._session.close()

    def _look(self) -> object:
        """What is different after a change."""
        self._look_at = time.monotonic() + LOOK_S
        with self._session.use() as connection:
            if connection is not self._listening:
                self._listen(connection)
            row = connection.execute(_LOOK.encode(), (self._run,)).fetchone()
            if row is not None and row[0] is not None:
                self._report(connection, row[0])
            return row

    def _listen(self, connection: Connection) -> None:
        self._listening = connection
        self._node = None
        # The library keeps notifications that have no handler.
        connection.add_notify_handler(lambda _: None)
        with suppress(DepotError), self._session.database.talking():
            listen(connection, [f"bartack_run_{self._number}"])

    def _report(self, connection: Connection, node: object) -> None:
        """Let the node that owns the run know that it is watched."""
        if node == self._node and time.monotonic() < self._report_at:
            return
        self._node, self._report_at = node, time.monotonic() + REPEAT_S
        connection.execute(_REPORT.encode(), (node, self._number))
