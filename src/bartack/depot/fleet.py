"""A node that takes runs from a database: its lease, the runs that it claims, and the way of their commits.

``postgres/schema/0002.sql`` decides. One connection renews the lease, one takes the commits of all runs of the node, and one does
the rest. A claim whose answer was lost leaves a run that is owned and that no hub runs. The node finds it among its runs at the
next look (``owned``), and begins it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID

from bartack._version import __version__
from bartack.core import typed
from bartack.core.closing import Closing
from bartack.depot.chores import Chore, do_due
from bartack.depot.elsewhere import NODE, Elsewhere, write_elsewhere
from bartack.depot.link import Answer
from bartack.depot.postgres._carrier import Courier, Lost, Parcel, Rewound
from bartack.depot.postgres._content import download, keep_content, keep_program
from bartack.depot.postgres._database import Database, Session
from bartack.depot.postgres._lease import Node, Page
from bartack.depot.postgres._listen import Announcer, Listener
from bartack.depot.postgres._objects import check_size
from bartack.depot.postgres._owner import Errands, seat_of
from bartack.depot.postgres._requests import RunAnswerer
from bartack.depot.postgres._rewound import Kept, fences_of
from bartack.depot.postgres._run import Marked, PostgresRun
from bartack.depot.postgres._schema import VERSION, check_version
from bartack.depot.taken import HOLD_S, FleetFacts, Taken
from bartack.errors import BartackError, BlobTooLargeError, JournalOwnershipLostError, NodeLostError
from bartack.journal import BlobRef
from bartack.journal.mirror import FetchedBlobs
from bartack.journal.shared import Commit

if TYPE_CHECKING:
    from bartack.depot.team import Team

FINISHED: Final = b'"step.finished"'
"""What a line has in it that records a finished step."""
# At most an equal share for each live node of the runs that wait. No more of them are counted than make a difference.
_CLAIM: Final = (
    "WITH asked AS (SELECT %s::int AS me, %s::int AS most), "
    "nodes AS (SELECT greatest(count(*), 1) AS live FROM bartack.node x, bartack.node n, asked "
    "WHERE x.id = asked.me AND n.state = 'live' AND n.slots > 0 AND n.until > clock_timestamp() AND n.pools && x.pools), "
    "waiting AS (SELECT count(*) AS runs FROM (SELECT 1 FROM bartack.owner o, bartack.node x, asked "
    "WHERE x.id = asked.me AND o.state = 'queued' AND o.pool = ANY (x.pools) "
    "LIMIT (SELECT most * live FROM asked, nodes)) w) "
    "SELECT c.run, c.id, c.team, c.fence, c.strikes, c.seen_us FROM asked, nodes, waiting, "
    "LATERAL bartack.claim(asked.me, least(asked.most, greatest(1, ceil(waiting.runs / nodes.live::float8)))::int) c"
)


class FleetNode(Node):
    """One life of a node that takes runs; see ``Node``.

    Attributes:
        state: ``live`` or ``draining``, as of the last beat.
        is_hurried: Whether it is not to wait for steps in flight when it drains, as of the last beat.
        asked: The numbers of runs that have requests, until they are taken out.

    Args:
        database: Where the runs are.
        facts: Which node it is.
        page: Shows the right to run.
        wake: Called when there is something to look at.
    """

    def __init__(self, database: Database, facts: FleetFacts, page: Page, wake: Callable[[], object]) -> None:
        self.state = "live"
        self.is_hurried = False
        self.asked = set[int]()
        self._facts = facts
        self._wake = wake
        super().__init__(database, seat_of(facts.seat), facts.boot, page, facts.lease_s)

    def _join(self, session: Session, seat: UUID, boot: str) -> int:
        facts = self._facts
        statement = "SELECT bartack.join_fleet(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
        values = facts.name, seat, boot, __version__, facts.slots, facts.lease_s
        offers = list(facts.pools), list(facts.labels)
        ((number,),) = session.rows(statement, *values, *offers, facts.reads, VERSION)
        return int(number)

    def _renew_there(self, session: Session) -> str:
        statement = (
            "SELECT b.state, b.queued, b.asked, b.now_us, n.hurries FROM bartack.node n, LATERAL bartack.beat_fleet(n.id) b "
            "WHERE n.id = %s AND n.joined = %s"
        )
        sent = self.sent()
        found = session.rows(statement, *self.identity)
        state, queued, asked, now_us, hurries = found[0] if found else ("dead", True, None, None, False)
        self.note_time(now_us, sent)
        has_changed = (state, hurries) != (self.state, self.is_hurried)
        self.state, self.is_hurried = state, hurries
        self.asked.update(asked or ())
        if queued or has_changed or asked:
            self._wake()
        return str(state)


class Fleet(Closing):
    """What a node does in the database; see the module. It joins when it is made, and its lease begins.

    Args:
        database: Where the runs are.
        facts: Which node it is.
        page: Shows the right to run.
        wake: Called, in another thread, when there is something to look at.
        rewound: See ``Courier``.
        lost: See ``Courier``. Also called when a server that may be another one does not have the node as the owner of a run.
        at_work: Returns the numbers and fences of the runs that have processes here.
        hold_s: See ``Courier``.
        say: See ``Courier``.
    """

    def __init__(
        self,
        database: Database,
        facts: FleetFacts,
        page: Page,
        wake: Callable[[], object],
        rewound: Rewound | None = None,
        lost: Lost = lambda run, fence, why: None,
        at_work: Callable[[], Sequence[tuple[int, int]]] = tuple,
        *,
        hold_s: float = HOLD_S,
        say: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.database = database
        self._session = database.session()
        check_version(self._session)
        self.node = FleetNode(database, facts, page, wake)
        self._courier = Courier(database, self.node.identity, rewound, lost, hold_s=hold_s, say=say)
        self._lost, self._at_work = lost, at_work
        self.node.reconnected = self._check
        self._errands = Errands(database)
        self._wake = wake
        self._announcer = Announcer(database)
        self._listener = Listener(database, ["bartack_runs", f"bartack_node_{self.node.id}"], self._notified)

    def _notified(self, channel: str, text: str) -> None:
        match text.split():
            case ["watch", number] if number.isdigit():
                self._announcer.watch(int(number))
                return
            case ["ask", number] if number.isdigit():
                self.node.asked.add(int(number))
            case _:
                pass  # something is queued, or a notification may have been lost
        self._wake()

    def _check(self, session: Session) -> None:
        """The server may be another one, which does not know the last claims and has lost entries."""
        self._courier.compare()
        expected = self._at_work()  # before the query: what is claimed meanwhile is not taken for lost
        with session.use() as connection:
            there = fences_of(connection, self.node.identity)
        for run, fence in expected:
            if there.get(run) != fence:
                self._lost(run, fence, "the database does not know of its ownership")

    def take_asked(self) -> set[int]:
        """The numbers of runs that have requests, since the last call."""
        found, self.node.asked = self.node.asked, set()
        return found

    def answerer(self, run: Taken) -> RunAnswerer:
        """For the requests to a run that the node owns."""
        return RunAnswerer(self._session, run.no, run.fence)

    def claim(self, most: int) -> list[Taken]:
        """Own up to ``most`` runs that wait for such a node, and of a short queue no more than its share."""
        rows = self._session.rows(_CLAIM, self.node.id, most)
        return [Taken(*row) for row in rows]

    def do_chores(self, team: Team) -> list[Chore]:
        """Do what is due for all nodes and that no other one does, and report what this node measures; returns what was done.

        Args:
            team: The database, with a connection that no run waits for.

        Raises:
            DepotSchemaError: This version of Bartack does not work with the tables any more.
        """
        session = team.database.shared
        check_version(session)
        appends, statements = self._courier.counts
        report = "SELECT bartack.report(%s, %s, %s, %s)"
        session.rows(report, self.node.id, self.node.beat_us, appends, statements)
        return do_due(session, self.node.id)

    def share_pauses(self, team: Team, known: Mapping[str, tuple[int, str]]) -> dict[str, tuple[int, str]]:
        """Report until when agents take no calls, and why; returns what the nodes of the same pools know.

        Times are those of this machine's clock. The database keeps them in its own.

        Args:
            team: The database, with a connection that no run waits for.
            known: By the name of the agent and its account.
        """
        names, offset_us = list(known), self.node.offset_us
        untils = [known[name][0] + offset_us for name in names]
        rows = team.database.shared.rows(
            "SELECT agent, until_us, reason FROM bartack.share_pauses(%s, %s, %s, %s)",
            self.node.id,
            names,
            untils,
            [known[name][1] for name in names],
        )
        return {str(name): (int(until_us) - offset_us, str(reason)) for name, until_us, reason in rows}

    def owned(self) -> list[Taken]:
        """All runs that this node owns, as the database has it."""
        rows = self._session.rows(
            "SELECT o.run, r.id, r.team, o.fence, o.strikes, (extract(epoch FROM o.seen) * 1e6)::bigint "
            "FROM bartack.node n JOIN bartack.owner o ON o.node = n.id JOIN bartack.run r ON r.no = o.run "
            "WHERE n.id = %s AND n.joined = %s",
            *self.node.identity,
        )
        return [Taken(*row) for row in rows]

    def give_back(
        self, run: Taken, state: str, due_us: int, why: str, strikes: int, *, refuses: bool = False
    ) -> str | None:
        """End the ownership of a run; returns its state then, or ``None`` if it had another owner already.

        ``due_us`` is a time of this machine's clock. The database gets it in its own. A database that was rewound may have given
        the fence to another node, so the function is called only if the owner is this one.
        """
        self._errands.flush()
        due_us = max(due_us + self.node.offset_us, 1) if due_us > 0 else 0
        statement = (
            "SELECT g.state FROM bartack.node n JOIN bartack.owner o ON o.node = n.id, "
            "LATERAL bartack.give_back(o.run, %s, %s, %s, %s, %s, %s) g(state) WHERE o.run = %s AND n.id = %s AND n.joined = %s"
        )
        values = run.fence, state, due_us, why, strikes, refuses, run.no
        found = self._session.rows(statement, *values, *self.node.identity)
        self.forget(run)
        return None if not found or found[0][0] is None else str(found[0][0])

    def forget(self, run: Taken) -> None:
        """The node does not own a run any more, and nothing of it is under way."""
        self._courier.forget(run.no)

    def prepare(self, run: Taken, runs: Path) -> Path:
        """Bring the directory of a run below ``runs`` up to date: journal, program and summary.

        Raises:
            JournalLostError: The database has lost acknowledged entries of it.
            BartackError: That is not possible, now or at all.
        """
        path = runs / run.id
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_elsewhere(path, Elsewhere(NODE))
        PostgresRun(path, self.database).bring_here(is_owner=True)
        return path

    def begin(self, run: Taken) -> None:
        """Something of a run is executed from now on: if the node dies, that may be the fault of the run.

        Raises:
            NodeLostError: It has another owner, or none.
        """
        if not self._session.rows("SELECT 1 WHERE bartack.begun(%s, %s)", run.no, run.fence):
            raise NodeLostError(run.id, "it has another owner")

    def take(self, run: Taken, directory: Path, commit: Commit, answer: Answer) -> None:
        """Keep a commit of a run; ``answer`` is called when it is known what became of it."""
        if run.strikes and FINISHED in commit.lines:
            answer = partial(self._clear_strikes, run, answer)
        read = partial(self.load_blob, run, directory)

        def done(error: BartackError | None) -> None:
            answer(error)
            if error is None:
                self._announcer.changed(run.no)

        self._courier.send(Parcel(Kept(run.no, run.id, directory, commit, read), done))

    def _clear_strikes(self, run: Taken, answer: Answer, error: BartackError | None) -> None:
        """A commit with a finished step has its outcome. One that is not kept clears nothing."""
        if error is None:
            self._errands.run(f"progressed {run.no}", "SELECT bartack.progressed(%s, %s)", run.no, run.fence)
        answer(error)

    def load_blob(self, run: Taken, directory: Path, ref: BlobRef) -> bytes:
        """A large value of a run as it is stored: from its directory, or from the database."""
        source = PostgresRun(directory, self.database).source_of(run.no, run.team)
        return FetchedBlobs(str(directory), source).verify(ref)

    def call(self, run: Taken, what: str, words: Sequence[object]) -> object:
        """Carry out a call of the hub of a run; see ``HubLink``.

        Raises:
            BartackError: It is not possible.
        """
        match what, *words:
            case "alive", *_:
                self._errands.run(f"alive {run.no}", "SELECT bartack.alive(%s, %s)", run.no, run.fence)
            case "mark", bytes(summary):
                seq = typed.decode(summary, type=Marked).seq
                statement = "SELECT bartack.mark(%s, %s, %s, %s)"
                self._errands.run(f"mark {run.no}", statement, run.no, run.fence, summary, seq)
            case "fits", int(size):
                return self._fits(size)
            case "blob", str(digest), int(size):
                return download(self._session, run.team, BlobRef(digest, size))
            case "program", bytes(program):
                self._keep_program(run, program)
            case _:
                raise JournalOwnershipLostError(run.id, f"its hub asks for {what!r}")
        return True

    def _fits(self, size: int) -> object:
        """Whether a large value of this size can be kept; otherwise the facts of the refusal."""
        try:
            check_size(self.database, size)
        except BlobTooLargeError as error:
            return [error.size, error.limit, error.where]
        return True

    def _keep_program(self, run: Taken, program: bytes) -> None:
        keep_content(self._session, run.team, program)
        with self._session.use() as connection:
            keep_program(connection, run.id, run.no, run.fence, program)

    def close(self, *, leaves: bool = True) -> None:
        """End; if it leaves, runs that are still owned are queued again at once, otherwise when the lease is over."""
        self._listener.close()
        self._announcer.close()
        answers = all([self._courier.close(), self._errands.close()])
        self.node.close(leaves=leaves and answers)
        self._session.close()
