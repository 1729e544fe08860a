"""Notifications of a database: receiving them, and sending those that readers of runs wait for.

No promise depends on one. A notification that is lost, or that a pooler does not pass on, costs the time until the next look.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from bartack.core.closing import Closing
from bartack.core.readable import wait_readable
from bartack.depot.postgres._database import Database
from bartack.errors import DepotError

if TYPE_CHECKING:
    from bartack.depot.postgres._database import Connection

AGAIN_S: Final = 1.0
"""How long to wait before the next connection."""
ALIVE_S: Final = 10.0
"""How often a silent connection is tried, since one that was cut brings nothing."""
PAUSE_S: Final = 0.1
"""The time between two notifications of changes."""
WATCHED_S: Final = 40.0
"""How long a run counts as watched after a reader has reported that; two of its repetitions may be lost."""

Notified = Callable[[str, str], None]


def listen(connection: Connection, channels: Sequence[str]) -> None:
    """Have the notifications of channels sent to a connection. Their names are made of letters and numbers."""
    for channel in channels:
        connection.execute(f"LISTEN {channel}".encode())


class Listener(Closing):
    """Receives notifications in a thread with a connection of its own.

    Args:
        database: The database.
        channels: What it listens to.
        notified: Called with the channel and the text of a notification. With two empty texts: some may have been lost.
    """

    def __init__(self, database: Database, channels: Sequence[str], notified: Notified) -> None:
        self._database = database
        self._channels = channels
        self._notified = notified
        self._reader, self._writer = os.pipe()
        self._ends = False
        self._thread = threading.Thread(target=self._work, name="bartack-listen", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Receive nothing more."""
        if self._ends:
            return
        self._ends = True
        os.write(self._writer, b"x")
        self._thread.join(ALIVE_S)
        if not self._thread.is_alive():
            os.close(self._reader)
            os.close(self._writer)

    def _work(self) -> None:
        while not self._ends:
            with suppress(DepotError), self._database.talking():
                connection = self._database.connect()
                try:
                    self._receive(connection)
                finally:
                    connection.close()
            if not self._ends:
                wait_readable([self._reader], AGAIN_S)

    def _receive(self, connection: Connection) -> None:
        connection.add_notify_handler(lambda found: self._notified(found.channel, found.payload))
        listen(connection, self._channels)
        self._notified("", "")
        while not self._ends:
            wait_readable([self._reader, connection.fileno()], ALIVE_S)
            # The library hands over what has arrived with the answer to a statement.
            connection.execute(b"SELECT 1")


class Announcer(Closing):
    """Notifies the readers of runs of changes: of runs that are watched, and a few times a second at most.

    Args:
        database: The database.
        now: Seconds that count for how long a run is watched.
    """

    def __init__(self, database: Database, now: Callable[[], float] = time.monotonic) -> None:
        self._session = database.session()
        self._now = now
        self._watched: dict[int, float] = {}
        self._changed: set[int] = set()
        self._ends = False
        self._wakes = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="bartack-announce", daemon=True)
        self._thread.start()

    def watch(self, run: int) -> None:
        """A reader watches a run."""
        with self._wakes:
            self._watched[run] = self._now() + WATCHED_S
            self._changed.add(run)  # it may have changed since the reader has looked
            self._wakes.notify()

    def changed(self, run: int) -> None:
        """A run has new entries."""
        if run in self._watched:
            with self._wakes:
                self._changed.add(run)
                self._wakes.notify()

    def close(self) -> None:
        """Notify no reader any more."""
        with self._wakes:
            self._ends = True
            self._wakes.notify()
        self._thread.join(ALIVE_S)
        self._session.close()

    def _work(self) -> None:
        while runs := self._next():
            with suppress(DepotError):
                self._session.rows(
                    "SELECT pg_notify('bartack_run_' || no, '') FROM unnest(%s::bigint[]) AS n(no)", runs
                )

    def _next(self) -> list[int]:
        """The watched runs that have changed, after a pause; nothing if this ends."""
        with self._wakes:
            self._wakes.wait_for(lambda: self._ends, PAUSE_S)
            while not self._ends:
                self._wakes.wait_for(lambda: self._changed or self._ends)
                now = self._now()
                self._watched = {run: until for run, until in self._watched.items() if until > now}
                runs = [run for run in self._changed if run in self._watched]
                self._changed.clear()
                if runs:
                    return runs
            return []
