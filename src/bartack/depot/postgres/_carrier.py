"""Takes the commits of runs to the database: one connection in a thread, one statement for everything that waits.

While a statement is under way, more commits come; the next statement takes them all. That is group commit without a timer.

**What becomes of a commit** is what the database answers, and nothing else. A connection that is cut, a restart, a failover or a
timeout is not an answer: the same bytes are sent again until an answer comes. An earlier attempt may have been written, or may
still be running in its backend. Then ``append`` finds the row, or waits for it, and answers *look*; ``look`` compares what stands
there with what was sent. The same place, CRC and fence are the same bytes, because a CRC covers all lines before it: the commit is
kept. A higher fence of the run means that it has another owner, and that nothing of this one is ever written again.

Values that are kept in an object store are there before their commit is sent (``_uploads.py``).

The server that answers after a cut may be another one, which lacks what was acknowledged. So every new connection begins with a
comparison (``_rewound.py``). What that refuses is reported at once (``lost``): the run may execute a long step, and its next commit
come much later. The first commit of an ownership is compared with nothing, but a server that does not know the ownership may have
given the same fence to another node. So on a new connection it is sent only if the run is still this node's.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from bartack.depot.postgres._append import Append
from bartack.depot.postgres._content import upload
from bartack.depot.postgres._database import load_psycopg
from bartack.depot.postgres._rewound import Findings, Identity, Kept, compare, fences_of
from bartack.depot.postgres._uploads import Say, Uploads
from bartack.depot.taken import HOLD_S
from bartack.errors import (
    BartackError,
    DepotError,
    DepotRewoundError,
    DepotUnavailableError,
    JournalCorruptError,
    JournalPoisonedError,
    NodeLostError,
)
from bartack.journal import BlobRef
from bartack.journal.shared import Commit

if TYPE_CHECKING:
    from bartack.depot.postgres._database import Connection, Database

FIRST_WAIT_S: Final = 0.05
LONGEST_WAIT_S: Final = 1.0
CLOSE_S: Final = 15.0
"""How long the end of a process waits for the answer to its last commit."""
MOST_BYTES: Final = 8 << 20
"""How many bytes of lines go with one statement, which has only so much time. One commit may have more."""

Done = Callable[[BartackError | None], None]
Rewound = Callable[[str, int], object]
Lost = Callable[[int, int, str], object]
"""Takes the number of a run, the fence of the ownership that is gone, and why; called in any thread."""


class Parcel:
    """One commit on its way, and the function that learns what became of it."""

    def __init__(self, kept: Kept, done: Done) -> None:
        self.kept = kept
        self.run = kept.run
        self.name = kept.name
        self.commit = kept.commit
        self.done = done


class Courier:
    """The thread; see the module. One run has one commit under way at a time.

    Attributes:
        counts: How many commits were sent, and with how many statements.

    Args:
        database: Where the runs are kept.
        node: The node that owns them.
        rewound: Called in the thread, with the name of a run and how many of its entries the database had lost and got again.
        lost: Called in the thread when a comparison finds that nothing more of a run is written.
        hold_s: How long a commit waits for an object store that does not answer.
        say: Takes a line when a commit begins to wait for it.
    """

    def __init__(
        self,
        database: Database,
        node: Identity,
        rewound: Rewound | None = None,
        lost: Lost = lambda run, fence, why: None,
        *,
        hold_s: float = HOLD_S,
        say: Say = lambda _: None,
    ) -> None:
        self.counts = 0, 0
        self._session = database.session()
        self._database = database
        self._uploads = Uploads(database, hold_s, say)
        self._append = Append(load_psycopg())
        self._node = node
        self._rewound = rewound
        self._lost = lost
        self._kept: dict[int, Kept] = {}
        self._refused: dict[tuple[int, int], BartackError] = {}
        self._compared: Connection | None = None
        self._must_compare = False
        self._waiting: list[Parcel] = []
        self._changed = threading.Condition()
        self._ends = False
        self._thread = threading.Thread(target=self._work, name="bartack-commits", daemon=True)
        self._thread.start()

    def send(self, parcel: Parcel) -> None:
        """Take a commit along with the next statement, as soon as its largest values are kept."""
        try:
            if self._uploads.is_needed(parcel.kept):
                self._uploads.begin(parcel.kept, partial(self._uploaded, parcel))
                return
        except BartackError as error:
            parcel.done(error)
            return
        except Exception as error:  # noqa: BLE001 - what no hub sends must not end the thread that brings commits
            parcel.done(DepotError(self._database.name, f"{type(error).__name__}: {error}"))
            return
        self._uploaded(parcel, None)

    def _uploaded(self, parcel: Parcel, problem: BartackError | None) -> None:
        if problem is not None:
            parcel.done(problem)
            return
        with self._changed:
            self._waiting.append(parcel)
            self._changed.notify()

    def compare(self) -> None:
        """Compare what the database has with what it has acknowledged, soon: it may be another server than before."""
        with self._changed:
            self._must_compare = True
            self._changed.notify()

    def forget(self, run: int) -> None:
        """This process does not own a run any more, and nothing of it is under way."""
        with self._changed:
            self._kept.pop(run, None)
            self._refused = {key: error for key, error in self._refused.items() if key[0] != run}

    def close(self) -> bool:
        """Deliver what waits if the database answers, and end; returns whether it did."""
        limit = time.monotonic() + CLOSE_S
        have_ended = self._uploads.close(limit)
        with self._changed:
            self._ends = True
            self._changed.notify()
        self._thread.join(max(0.0, limit - time.monotonic()))
        self._session.close()
        return have_ended and not self._thread.is_alive()

    def _work(self) -> None:
        while (batch := self._next()) is not None:
            try:
                self._deliver(batch)
            except Exception as error:  # noqa: BLE001 - the boundary of the thread: without it no run would get an answer again
                _finish_all(batch, DepotError(self._database.name, f"{type(error).__name__}: {error}"))

    def _next(self) -> list[Parcel] | None:
        """What goes with the next statement; nothing if there is only something to compare; ``None`` if this ends."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._must_compare or self._ends)
            if not self._waiting and not self._must_compare:
                return None
            batch, size = list[Parcel](), 0
            while self._waiting and (not batch or size + len(self._waiting[0].commit.lines) <= MOST_BYTES):
                batch.append(self._waiting.pop(0))
                size += len(batch[-1].commit.lines)
            return batch

    def _deliver(self, batch: list[Parcel]) -> None:
        """Send a batch until it is known what became of each commit."""
        tries = 0
        while batch or self._must_compare:
            try:
                with self._session.use() as connection:
                    self._compare(connection, batch)
                    batch = self._send(connection, batch)
            except DepotUnavailableError as error:
                if self._ends:
                    self._must_compare = False
                    problem = f"the outcome is not known: {error}"
                    _finish_all(batch, JournalPoisonedError(self._database.name, problem))
                    return
                self._wait(tries)
                tries += 1
            except BartackError as error:
                self._must_compare = False
                if len(batch) <= 1:
                    _finish_all(batch, error)
                    return
                # One of them may be what the database does not take; the others are not concerned.
                for parcel in batch:
                    self._deliver([parcel])
                return

    def _compare(self, connection: Connection, batch: Sequence[Parcel]) -> None:
        """Find out what a server that may be another one lacks; see ``_rewound.py``."""
        if connection is self._compared and not self._must_compare:
            return
        self._must_compare = False
        with self._changed:
            kept = [one for one in self._kept.values() if (one.run, one.commit.fence) not in self._refused]
            first = [parcel.kept for parcel in batch if parcel.run not in self._kept]
        try:
            found = compare(connection, self._node, kept) if kept else Findings({}, {})
            there = fences_of(connection, self._node) if first else {}
        except BaseException:
            self._must_compare = True
            raise
        self._refuse(kept, found.refused)
        missing = [one for one in first if there.get(one.run) != one.commit.fence]
        self._refuse(missing, {one.run: NodeLostError(one.name, "it has another owner") for one in missing})
        if self._rewound is not None:
            for run, entries in found.sent_again.items():
                self._rewound(self._kept[run].name, entries)
        self._compared = connection

    def _refuse(self, kept: Sequence[Kept], refused: Mapping[int, BartackError]) -> None:
        fences = {one.run: one.commit.fence for one in kept if one.run in refused}
        with self._changed:
            self._refused |= {(run, fence): refused[run] for run, fence in fences.items()}
        for run, fence in fences.items():
            self._lost(run, fence, str(refused[run]))

    def _send(self, connection: Connection, batch: list[Parcel]) -> list[Parcel]:
        """Send a batch once. Returns what has to be sent again."""
        batch = [parcel for parcel in batch if self._is_wanted(parcel) and _upload(connection, parcel)]
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
                    self._finish(parcel)
                case "lost":
                    parcel.done(NodeLostError(parcel.name, "it has another owner"))
                case _:
                    doubtful.append(parcel)
        return self._look(connection, doubtful) if doubtful else []

    def _is_wanted(self, parcel: Parcel) -> bool:
        """Whether a commit can be sent; otherwise the reason is its outcome."""
        refusal = self._refused.get((parcel.run, parcel.commit.fence))
        if refusal is not None:
            parcel.done(refusal)
        return refusal is None

    def _finish(self, parcel: Parcel) -> None:
        """A commit is kept."""
        with self._changed:
            self._kept[parcel.run] = parcel.kept
        parcel.done(None)

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
                    self._finish(parcel)
                case "lost":
                    parcel.done(NodeLostError(parcel.name, "it has another owner"))
                case "rewound" if parcel.run in self._kept:
                    self._must_compare = True
                    again.append(parcel)
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
        commit, read = parcel.commit, parcel.kept.read
        upload(connection, parcel.name, parcel.run, commit.fence, commit.blobs, read)
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
        directory: Its directory, with the copy of its journal.
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
        directory: Path,
        fence: int,
        read: Callable[[BlobRef], bytes],
        release: Callable[[], None],
        *,
        written: Callable[[], object] = lambda: None,
    ) -> None:
        self.fence = fence
        self._courier = courier
        self._run = run
        self._name = name
        self._directory = directory
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
        kept = Kept(self._run, self._name, self._directory, commit, self._read)
        self._courier.send(Parcel(kept, self._done))

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
