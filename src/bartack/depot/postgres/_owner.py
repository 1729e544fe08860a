"""Owning a run in a database, from this process: the node that it is meanwhile, its lease, and the way of its commits.

``claim`` comes after the directory of the run is locked: two processes of one directory never own it at the same time, so that the
second may declare the first dead, which left without a word (``join_node`` in ``schema/0001.sql``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from bartack.core.files import replace_file
from bartack.depot.postgres._carrier import Courier, PostgresCarrier, Rewound
from bartack.depot.postgres._lease import GRACE_S, Node, Page
from bartack.depot.postgres._listen import Announcer, Listener
from bartack.depot.postgres._rewound import fences_of
from bartack.depot.taken import LEASE_S
from bartack.errors import DepotUnavailableError, JournalLockedError, JournalNotFoundError
from bartack.journal import BlobRef

if TYPE_CHECKING:
    from bartack.depot.postgres._database import Database, Session

SEAT_FILE: Final = "seat"
FLUSH_S: Final = 15.0


class Errands:
    """Statements beside the journal that the owner of a run does not wait for: the newest of each kind, in a thread."""

    def __init__(self, database: Database) -> None:
        self._session = database.session()
        self._waiting: dict[str, tuple[str, tuple[object, ...]]] = {}
        self._busy = False
        self._ends = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="bartack-errands", daemon=True)
        self._thread.start()

    def run(self, kind: str, statement: str, *values: object) -> None:
        """Execute a statement soon, instead of an earlier one of its kind that still waits."""
        with self._changed:
            self._waiting[kind] = statement, values
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until nothing waits any more, for some time at most."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting and not self._busy, FLUSH_S)

    def close(self) -> bool:
        """Execute what waits, if the database answers, and end; returns whether it did."""
        with self._changed:
            self._ends = True
            self._changed.notify_all()
        self._thread.join(FLUSH_S)
        self._session.close()
        return not self._thread.is_alive()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting or self._ends)
                if not self._waiting:
                    return
                kind = next(iter(self._waiting))
                statement, values = self._waiting.pop(kind)
                self._busy = True
            try:
                self._session.rows(statement, *values)
            except DepotUnavailableError:
                self._put_back(kind, statement, values)
            except Exception:  # noqa: BLE001 - the boundary of the thread. What the database never takes would hold up the others.
                self._session.drop()

    def _put_back(self, kind: str, statement: str, values: tuple[object, ...]) -> None:
        """Try a statement again a little later, unless there is a newer one or this ends."""
        with self._changed:
            if not self._ends:
                # Before those that wait: a summary that came after the end of the ownership would be refused.
                self._waiting = {kind: (statement, values), **self._waiting}
                self._changed.wait_for(lambda: self._ends, 1.0)


class Ownership:
    """The ownership of one run; made by ``claim``.

    Attributes:
        fence: Its number.
        is_shown_alive: A hub runs the run, and the database knows it.
    """

    def __init__(
        self, node: Node, database: Database, run: int, fence: int, rewound: Rewound | None = None
    ) -> None:
        self.node = node
        self.fence = fence
        self.is_shown_alive = False
        self.errands = Errands(database)
        self._courier = Courier(database, node.identity, rewound, lambda run, fence, why: node.lose())
        self._run = run
        self._is_over = False
        node.reconnected = self._check
        self._state, self._reason = "resting", ""
        self._database = database
        self._announcer: Announcer | None = None
        self._listener: Listener | None = None

    @classmethod
    def claim(
        cls,
        database: Database,
        session: Session,
        run: int,
        name: str,
        directory: Path,
        boot: str,
        page: Page | None = None,
        lease_s: float = LEASE_S,
        *,
        rewound: Rewound | None = None,
    ) -> Ownership:
        """Own a run. The directory is locked by this process.

        Raises:
            JournalLockedError: Another process owns it.
            JournalNotFoundError: It is gone.
            DepotError: The database cannot be used.
        """
        node = Node(database, seat_of(directory), boot, page, lease_s)
        try:
            ((outcome, fence, owner, wait_s),) = session.rows(
                "SELECT outcome, fence, owner, wait_s FROM bartack.claim_run(%s, %s, %s)",
                node.id,
                run,
                GRACE_S,
            )
        except BaseException:
            node.close()
            raise
        if outcome == "claimed":
            return cls(node, database, run, fence, rewound)
        node.close()
        if outcome == "gone":
            raise JournalNotFoundError(name)
        if outcome == "held":
            raise JournalLockedError(name, None, f"another directory: it was {owner}")
        raise JournalLockedError(name, None, f"node {owner}, or free in {wait_s:.0f} s if that has died")

    def _check(self, session: Session) -> None:
        """The server may be another one, which does not know this ownership: then nothing of the run may continue here."""
        self._courier.compare()
        with session.use() as connection:
            there = fences_of(connection, self.node.identity)
        if there.get(self._run) != self.fence and not self._is_over:
            self.node.lose()

    def carrier(self, name: str, directory: Path, read: Callable[[BlobRef], bytes]) -> PostgresCarrier:
        """The way of its commits; closing it ends the ownership."""
        return PostgresCarrier(
            self._courier,
            self._run,
            name,
            directory,
            self.fence,
            read,
            self.release,
            written=self._note_written,
        )

    def on_request(self, asked: Callable[[], object]) -> None:
        """Call a function, in another thread, when there may be a request; and notify those that watch the run of changes."""
        self._announcer = announcer = Announcer(self._database)

        def notified(channel: str, text: str) -> None:
            if text.startswith("watch "):
                announcer.watch(self._run)
            else:
                asked()

        self._listener = Listener(self._database, [f"bartack_node_{self.node.id}"], notified)

    def _note_written(self) -> None:
        if self._announcer is not None:
            self._announcer.changed(self._run)

    def note_changed(self) -> None:
        """Entries came without a hub: the nodes that the run is for have something to do, unless it has ended."""
        if self._state == "resting" and not self.is_shown_alive:
            self._state = "changed"

    def note_status(self, *, over: bool) -> None:
        """Whether the run has ended. A process that runs it itself leaves it resting."""
        if over and self._state == "resting" and not self.is_shown_alive:
            self._state = "over"

    def show_alive(self) -> None:
        """Let others know that a hub runs the run."""
        if not self.is_shown_alive:
            self.is_shown_alive = True
            self.errands.run("alive", "SELECT bartack.alive(%s, %s)", self._run, self.fence)

    def mark(self, summary: bytes, seq: int) -> None:
        """Keep what lists show of the run."""
        self.errands.run("mark", "SELECT bartack.mark(%s, %s, %s, %s)", self._run, self.fence, summary, seq)

    def hold_for(self, directory: Path) -> None:
        """When it ends, only this directory can own the run: it is being pulled there."""
        self._state, self._reason = "held", f"pulled to {seat_of(directory)}"

    def release(self) -> None:
        """End it, in order if the database answers; otherwise with the lease."""
        if self._is_over:
            return
        self._is_over = True
        if self._listener is not None:
            self._listener.close()
        answers = self._courier.close()
        if self._announcer is not None:
            self._announcer.close()
        if answers:
            if not self.node.is_dead:  # otherwise the fence may be that of another owner by now
                statement = "SELECT bartack.release(%s, %s, %s, %s)"
                self.errands.run("release", statement, self._run, self.fence, self._state, self._reason)
            answers = self.errands.close()
        self.node.close(leaves=answers)


def seat_of(directory: Path) -> UUID:
    """The seat of a run's directory on this machine: the same whichever process has it."""
    path = directory / SEAT_FILE
    try:
        return UUID(path.read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        seat = uuid4()
        replace_file(path, f"{seat}\n".encode())
        return seat
