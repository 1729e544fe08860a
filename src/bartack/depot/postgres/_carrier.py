"""Takes the commits of runs to the database: one connection in a thread, one statement for everything that waits.

While a statement is under way, more commits come; the next statement takes them all. That is group commit without a timer.

**What becomes of a commit** is what the database answers, and nothing else. A connection that is cut, a restart, a failover or a
timeout is not an answer: the same bytes are sent again until an answer comes. An earlier attempt may have been written, or may
still be running in its backend. Then ``append`` finds the row, or waits for it, and answers *look*; ``look`` compares what stands
there with what was sent. The same place, CRC and fence are the same bytes, because a CRC covers all lines before it: the commit is
kept. A higher fence of the run means that it has another owner, and that nothing of this one is ever written again.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal

from bartack.depot.postgres._append import Append
from bartack.depot.postgres._content import upload
from bartack.depot.postgres._database import load_psycopg
from bartack.errors import (
    BartackError,
    DepotRewoundError,
    DepotUnavailableError,
    JournalCorruptError,
    JournalOwnershipLostError,
    JournalPoisonedError,
)
from bartack.journal import BlobRef
from bartack.journal.shared import Commit

if TYPE_CHECKING:
    from bartack.depot.postgres._database import Connection, Database

FIRST_WAIT_S: Final = 0.05
LONGEST_WAIT_S: Final = 1.0
CLOSE_S: Final = 15.0
"""How long the end of a process waits for the answer to its last commit."""

Done = Callable[[BartackError | None], None]


class Parcel:
    """One commit on its way, and the function that learns what became of it."""

    def __init__(
        self, run: int, name: str, commit: Commit, read: Callable[[BlobRef], bytes], done: Done
    ) -> None:
        self.run = run
        self.name = name
        self.commit = commit
        self.read = read
        self.done = done


class Courier:
    """The thread; see the module. One run has one commit under way at a time.

    Attributes:
        counts: How many commits were sent, and with how many statements.
    """

    def __init__(self, database: Database) -> None:
        self.counts = 0, 0
        self._session = database.session()
        self._database = database
        self._append = Append(load_psycopg())
        self._waiting: list[Parcel] = []
        self._changed = threading.Condition()
        self._ends = False
        self._thread = threading.Thread(target=self._work, name="bartack-commits", daemon=True)
        self._thread.start()

    def send(self, parcel: Parcel) -> None:
        """Take a commit along with the next statement."""
        with self._changed:
            self._waiting.append(parcel)
            self._changed.notify()

    def close(self) -> bool:
        """Deliver what waits if the database answers, and end; returns whether it did."""
        with self._changed:
            self._ends = True
            self._changed.notify()
        self._thread.join(CLOSE_S)
        self._session.close()
        return not self._thread.is_alive()

    def _work(self) -> None:
        while batch := self._next():
            self._deliver(batch)

    def _next(self) -> list[Parcel]:
        """Everything that waits; nothing if this ends."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ends)
            batch, self._waiting = self._waiting, []
            return batch

    def _deliver(self, batch: list[Parcel]) -> None:
        """Send a batch until it is known what became of each commit."""
        tries = 0
        while batch:
            try:
                with self._session.use() as connection:
                    batch = self._send(connection, batch)
            except DepotUnavailableError as error:
                if self._ends:
                    _finish_all(
                        batch, JournalPoisonedError(self._database.name, f"the outcome is not known: {error}")
                    )
                    return
                self._wait(tries)
                tries += 1
            except BartackError as error:
                _finish_all(batch, error)
                return

    def _send(self, connection: Connection, batch: list[Parcel]) -> list[Parcel]:
        """Send a batch once. Returns what has to be sent again."""
        batch = [parcel for parcel in batch if _upload(connection, parcel)]
        if not batch:
            return []
        self.counts = self.counts[0] + len(batch), self.counts[1] + 1
        outcomes = self._append.send(
            connection, [parcel.run for parcel in batch], [parcel.commit for parcel in batch]
        )
        doubtful = list[Parcel]()
        for parcel in batch:
            match outcomes.get(parcel.run):
                case "written":
                    parcel.done(None)
                case "lost":
                    parcel.done(JournalOwnershipLostError(parcel.name, "it has another owner"))
                case _:
                    doubtful.append(parcel)
        return self._look(connection, doubtful) if doubtful else []

    def _look(self, connection: Connection, batch: list[Parcel]) -> list[Parcel]:
        """Find out what became of commits that may have been written before."""
        rows = connection.execute(
            "SELECT run, owner_fence, fence, last, crc, ends FROM bartack.look(%s, %s)",
            ([parcel.run for parcel in batch], [parcel.commit.seq for parcel in batch]),
        ).fetchall()
        found = {row[0]: row[1:] for row in rows}
        again = list[Parcel]()
        for parcel in batch:
            owner_fence, fence, last, crc, ends = found[parcel.run]
            commit = parcel.commit
            match what_became(commit, owner_fence, (fence, last, crc), ends):
                case "kept":
                    parcel.done(None)
                case "lost":
                    parcel.done(JournalOwnershipLostError(parcel.name, "it has another owner"))
                case "rewound":
                    problem = (
                        f"{parcel.name} ends with entry {ends}, but entry {commit.seq - 1} was acknowledged"
                    )
                    parcel.done(DepotRewoundError(self._database.name, problem))
                case "again":
                    again.append(parcel)
                case "corrupt":
                    problem = f"entry {commit.seq} is not the one that was sent"
                    parcel.done(JournalCorruptError(f"{self._database.name}: {parcel.name}", 0, problem))
        return again

    def _wait(self, tries: int) -> None:
        longest = min(FIRST_WAIT_S * 2 ** min(tries, 10), LONGEST_WAIT_S)
        with self._changed:
            self._changed.wait_for(lambda: self._ends, random.uniform(0, longest))


def what_became(
    commit: Commit, owner_fence: int, found: tuple[int | None, int | None, int | None], ends: int
) -> Literal["kept", "lost", "rewound", "again", "corrupt"]:
    """What became of a commit whose append was not answered, or did not fit.

    Args:
        commit: What was sent.
        owner_fence: The fence of the owner of the run.
        found: Fence, last entry and CRC of the commit that is at its place.
        ends: The last entry of the journal.
    """
    if found == (commit.fence, commit.last, commit.crc):
        return "kept"
    if owner_fence != commit.fence:
        return "lost"
    if ends < commit.seq - 1:
        return "rewound"
    if found[0] is None and ends == commit.seq - 1:
        return "again"
    return "corrupt"


def _upload(connection: Connection, parcel: Parcel) -> bool:
    """Keep the large values of a commit; ``False`` if that is not possible. The commits of other runs are not concerned."""
    try:
        upload(connection, parcel.name, parcel.run, parcel.commit.fence, parcel.commit.blobs, parcel.read)
    except DepotUnavailableError:
        raise  # all of them are sent again
    except BartackError as error:
        parcel.done(error)
        return False
    return True


def _finish_all(batch: Sequence[Parcel], error: BartackError) -> None:
    for parcel in batch:
        parcel.done(error)


class PostgresCarrier:
    """See ``Carrier``: the commits of one run.

    Args:
        courier: Takes them along.
        run: The number of the run.
        name: Its id.
        fence: The number of the ownership.
        read: Returns the content of a large value as it is stored.
        release: Ends the ownership.
        written: Called, in another thread, when a commit is written.
    """

    def __init__(
        self,
        courier: Courier,
        run: int,
        name: str,
        fence: int,
        read: Callable[[BlobRef], bytes],
        release: Callable[[], None],
        written: Callable[[], object] = lambda: None,
    ) -> None:
        self.fence = fence
        self._courier = courier
        self._run = run
        self._name = name
        self._read = read
        self._release = release
        self._written = written
        self._outcome: BartackError | None = None
        self._is_known = False
        self._ready, self._signal = os.pipe()
        os.set_blocking(self._ready, False)
        self._closed = threading.Lock()
        self._is_closed = False

    def send(self, commit: Commit) -> None:
        """See ``Carrier.send``."""
        self._is_known, self._outcome = False, None
        self._courier.send(Parcel(self._run, self._name, commit, self._read, self._done))

    def fileno(self) -> int:
        """See ``Carrier.fileno``."""
        return self._ready

    def take(self) -> bool:
        """See ``Carrier.take``."""
        if not self._is_known:
            return False
        with suppress(BlockingIOError):
            os.read(self._ready, 64)
        if self._outcome is not None:
            raise self._outcome
        return True

    def close(self) -> None:
        """See ``Carrier.close``."""
        self._release()
        with self._closed:
            if not self._is_closed:
                self._is_closed = True
                os.close(self._ready)
                os.close(self._signal)

    def _done(self, error: BartackError | None) -> None:
        self._outcome = error
        self._is_known = True
        if error is None:
            self._written()
        with self._closed:
            if not self._is_closed:
                os.write(self._signal, b"x")
