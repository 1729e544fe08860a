"""The lease of a process that owns runs: its right to own them, until a moment on the clock of the database.

A thread with a connection of its own renews the lease, so that nothing else that the process does can make it late. **Only the
database's clock decides when a lease is over, and only the round trip of a beat decides when its owner has to stand still**: the
clocks of two machines are never compared. A beat that was answered was sent at some moment on this machine's clock. The database
got it later than that, so its lease lasts at least ``lease_s`` from that moment. Everything of the runs stands still ``MARGIN_S``
before (``LeasePage`` and ``runtime/hub/holding.py``), and continues when a later beat is answered.

Each answer also says what time it is in the database. Hubs date their entries by that clock (``runtime/hub/leased_clock.py``), so a
run that goes from one machine to another has one time. They find on the page how far it is ahead of a clock of this machine that is
never set, so that nothing happens to runs when the clock on the wall is.

If the answer is that this node is dead, its runs have other owners, and the lease is over for good.

**The server that answers may be another one**, which has taken over and does not know the last claims. It lets other nodes claim
the same runs at once, while the row of this node, and so its lease, survives. Three things bound how long two owners are at work:

- As long as this node does not reach that server, no beat is answered, and its runs stand still at the end of the lease that the
  page shows, as in every failure.
- When it reaches it, a beat over a new connection renews the lease in the database, and nothing on this machine. The runs that
  the database has for the node are read over the same connection first (``reconnected``). The hub of each one that is missing is
  killed, and only then does the page show the lease. So a run that stood still and is lost never moves again, and one that did not
  stand still yet ends with the first answer of the server.
- Between the two, a node that reconnects sooner may begin a run of which this one is still to learn that it is lost. That lasts
  until the next beat of this node, a fifth of a lease later, and if that is not answered until its runs stand still. No commit of
  the old owner is accepted meanwhile (``_carrier.py`` asks first), and a step that is executed twice has the same key.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from bartack._version import __version__
from bartack.core.closing import Closing
from bartack.depot.postgres._database import Database, Session
from bartack.depot.postgres._rewound import Identity
from bartack.depot.postgres._schema import VERSION
from bartack.depot.taken import LEASE_S, READS
from bartack.errors import DepotError, DepotUnavailableError

MARGIN_S: Final = 1.0
BEATS: Final = 5
"""Beats in the time of one lease."""
_JOINED: Final = (
    "SELECT joined, (extract(epoch FROM clock_timestamp()) * 1e6)::bigint FROM bartack.node WHERE id = %s"
)
GRACE_S: Final = 30.0
"""How late a process may be that owns one run, before another one takes the run from it."""


class Page(Protocol):
    """Where the right to run is shown to all processes of the runs; see ``LeasePage``."""

    @staticmethod
    def now_ns() -> int:
        """The clock of the page."""
        ...

    def renew(self, until_ns: int) -> None:
        """The right lasts until this moment."""
        ...

    def set_offset(self, offset_us: int) -> None:
        """How far the database's clock is ahead of that clock."""
        ...

    def end(self) -> None:
        """The right is gone for good."""
        ...


class Sent(NamedTuple):
    """When a question was sent to the database, by two clocks of this machine.

    Attributes:
        wall_us: The clock on the wall.
        page_us: The clock of lease pages; 0 without a page.
    """

    wall_us: int
    page_us: int


def measure(before_us: int | None, there_us: int, sent_us: int, answered_us: int) -> int:
    """How far another clock is ahead of ours, as far as a question and its answer show.

    The other clock was read at some moment between the two. What was known ``before_us`` stays if it is possible, and changes no
    more than it has to: so an answer that takes long moves nothing.
    """
    least, most = sorted((there_us - answered_us, there_us - sent_us))
    return (least + most) // 2 if before_us is None else min(max(before_us, least), most)


class Node(Closing):
    """One life of this process as an owner of runs. It joins when it is made.

    Attributes:
        identity: What it is to the database.
        is_dead: The database has declared it dead, or does not know it.
        beat_us: How long its last beat took.
        offset_us: How far the database's clock is ahead of the clock on the wall of this machine, as of the last beat.
        reconnected: Called in the thread of the beats when one has gone over a new connection, with that, before the lease is shown
            to be renewed. If it does not return, that waits for the next beat.

    Args:
        database: Where the runs are.
        seat: What is the same for later lives; only one process at a time uses a seat.
        boot: This start of the machine.
        page: Shows the right to run.
        lease_s: How long the right lasts after a beat.
    """

    def __init__(
        self, database: Database, seat: UUID, boot: str, page: Page | None = None, lease_s: float = LEASE_S
    ) -> None:
        self.is_dead = False
        self.beat_us = 0
        self.offset_us = 0
        self.reconnected: Callable[[Session], object] | None = None
        self._checked = 0
        self._wall_offset_us: int | None = None
        self._page_offset_us: int | None = None
        self._database = database
        self._page = page
        self._lease_s = lease_s
        self._ends = threading.Event()
        self._session = database.session(self._answer_s)
        sent = 0 if page is None else page.now_ns()
        # A request to join that was given up may arrive after the next one. Its lower number keeps it from burying that one's node.
        number = self._join(self._session, seat, f"{boot}/{time.monotonic_ns()}")
        asked = self.sent()
        ((joined, now_us),) = self._session.rows(_JOINED, number)
        self.note_time(now_us, asked)
        self.identity = Identity(number, joined)
        self._renew(sent)
        self._thread = threading.Thread(target=self._beat_on, name="bartack-lease", daemon=True)
        self._thread.start()

    @property
    def id(self) -> int:
        """Its number. A database that was rewound may give it to another node."""
        return self.identity.id

    @property
    def _answer_s(self) -> float:
        """A beat that was not answered by then is late, and the next one is sent on a new connection."""
        return self._lease_s - MARGIN_S

    def close(self, *, leaves: bool = True) -> None:
        """End; if it leaves, the runs that it still owns are free at once, otherwise with its lease."""
        self._ends.set()
        if leaves:
            self._thread.join(2 * self._lease_s)
        if self._page is not None:
            self._page.end()
        if leaves and not self.is_dead:
            self._leave()
        self._session.close()

    def _join(self, session: Session, seat: UUID, boot: str) -> int:
        """Become a node; returns its number."""
        name = f"{socket.gethostname()}-{secrets.token_hex(3)}"
        statement = "SELECT bartack.join_node(%s, %s, %s, %s, 0, %s, %s, %s)"
        values = name, seat, boot, __version__, self._lease_s, READS, VERSION
        ((number,),) = session.rows(statement, *values)
        return int(number)

    def _leave(self) -> None:
        try:
            self._session.rows("SELECT bartack.leave(%s)", self.id)
        except DepotError:
            return  # its lease ends by itself

    def _renew(self, sent_ns: int) -> None:
        if self._page is not None:
            self._page.renew(sent_ns + int((self._lease_s - MARGIN_S) * 1e9))

    def _beat_on(self) -> None:
        with self._database.session(self._answer_s) as session:
            while not self._ends.wait(self._lease_s / BEATS) and not self.is_dead:
                self._beat(session)

    def _beat(self, session: Session) -> None:
        sent = 0 if self._page is None else self._page.now_ns()
        began = time.monotonic_ns()
        try:
            state = self._renew_there(session)
            self._check(session)
        except DepotUnavailableError:
            return  # the page shows how long it may continue
        except Exception:  # noqa: BLE001 - the boundary of the thread: without beats the runs would stand still for good
            session.drop()
            return
        self.beat_us = (time.monotonic_ns() - began) // 1000
        if state in {"live", "draining"}:
            self._renew(sent)
        else:
            self.lose()

    def _check(self, session: Session) -> None:
        """Find out what a server that may be another one knows of this node."""
        made = session.connections
        if made != self._checked and self.reconnected is not None:
            self.reconnected(session)
            self._checked = made

    def lose(self) -> None:
        """This node owns nothing any more: the right to run is gone for good."""
        self.is_dead = True
        if self._page is not None:
            self._page.end()

    def _renew_there(self, session: Session) -> str:
        """Renew the lease in the database; returns the state of the node there."""
        # A number alone may be that of another node by now; the function is called for rows that were found.
        statement = (
            "SELECT b.state, b.now_us FROM bartack.node n, LATERAL bartack.beat(n.id) b "
            "WHERE n.id = %s AND n.joined = %s"
        )
        sent = self.sent()
        found = session.rows(statement, *self.identity)
        state, now_us = found[0] if found else ("dead", None)
        self.note_time(now_us, sent)
        return str(state)

    def sent(self) -> Sent:
        """Now, by the clocks of this machine."""
        return Sent(time.time_ns() // 1000, 0 if self._page is None else self._page.now_ns() // 1000)

    def note_time(self, now_us: int | None, sent: Sent) -> None:
        """What time it was in the database, at some moment since the question was sent."""
        if now_us is None:
            return
        answered = self.sent()
        self._wall_offset_us = measure(self._wall_offset_us, now_us, sent.wall_us, answered.wall_us)
        self.offset_us = self._wall_offset_us
        if self._page is not None:
            self._page_offset_us = measure(self._page_offset_us, now_us, sent.page_us, answered.page_us)
            self._page.set_offset(self._page_offset_us)
