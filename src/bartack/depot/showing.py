"""The runs of a database for a program that shows them all the time, as ``bartack web`` does.

One thread looks at the database: each second, and when a notification says that something has changed. It keeps the list of the
newest runs, and brings the copies of journals that are looked at up to date. So nothing that shows a run waits for the database:
it reads the list as it was found last, and the copy in the directory of the run, whose changes the system reports.
"""

from __future__ import annotations

import os
import select
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from bartack.core import typed
from bartack.core.closing import Closing
from bartack.depot.elsewhere import Elsewhere
from bartack.depot.postgres._listen import listen
from bartack.depot.postgres._run import ENDED, PostgresRun
from bartack.depot.postgres._source import RunSource
from bartack.depot.postgres._watch import LOOK_S, REPEAT_S
from bartack.depot.shown import shown_place, shown_runs
from bartack.depot.team import MOST_LISTED, Team
from bartack.depot.upkeep import Upkeep, Wait
from bartack.errors import BartackError, DepotError, DepotUnavailableError, JournalNotFoundError
from bartack.journal import BlobRef
from bartack.journal.file import JOURNAL_FILE
from bartack.journal.mirror import End

if TYPE_CHECKING:
    from bartack.depot.postgres._database import Connection, Session

WANTED_S: Final = 60.0
"""So long the list is looked at each second after it was asked for."""
IDLE_S: Final = 5.0
"""How often it is looked at otherwise."""
PAUSE_S: Final = 0.1
"""The time between two looks."""
QUEUE_CHANNEL: Final = "bartack_runs"

_LIST: Final = (
    "SELECT r.no, r.id, r.team, r.marked, o.state, o.fence, coalesce(o.pool, ''), coalesce(n.name, ''), "
    "o.state = 'owned' AND o.alive AND n.until > clock_timestamp(), "
    "(extract(epoch FROM CASE WHEN o.state <> 'owned' OR NOT o.alive THEN o.seen "
    "WHEN n.until <= clock_timestamp() THEN n.until - n.lease END) * 1e6)::bigint "
    "FROM bartack.run r JOIN bartack.owner o ON o.run = r.no LEFT JOIN bartack.node n ON n.id = o.node "
    "ORDER BY r.no DESC LIMIT %s"
)
_SUMMARIES: Final = "SELECT id, summary FROM bartack.run WHERE id = ANY (%s)"
_ENDS: Final = (
    "SELECT r.no, r.id, o.node, (SELECT max(j.last) FROM bartack.journal j WHERE j.run = r.no) "
    "FROM bartack.run r JOIN bartack.owner o ON o.run = r.no WHERE r.id = ANY (%s)"
)
_REPORT: Final = "SELECT pg_notify('bartack_node_' || %s::int, 'watch ' || %s::bigint)"


class _Marked(msgspec.Struct):
    """What of the summary of a run decides whether its journal is needed for the list."""

    pid: int = 0
    status: str = ""


class ShownFacts(NamedTuple):
    """What the list of a database has of a run.

    Attributes:
        number: Its number there.
        id: Its id.
        team: Whose run it is.
        marked: Changes with its summary.
        state: ``queued``, ``owned``, ``resting``, ``held`` or ``over``.
        fence: Changes with its owner.
        pool: Which nodes may take it; empty: none, it is run by hand.
        node: The process that owns it.
        is_active: Whether a hub runs it, under a lease that is not over.
        seen_us: When a hub of it was last seen alive, unless one is.
        summary: What lists show of it, as JSON.
        pid: Its hub, on the machine of its owner.
        reason: Why no process runs it, if it is for nodes.
        is_stuck: Whether a person has to do something about that.
    """

    number: int
    id: str
    team: str
    marked: int
    state: str
    fence: int
    pool: str
    node: str
    is_active: bool
    seen_us: int | None
    summary: bytes | None = None
    pid: int = 0
    reason: str = ""
    is_stuck: bool = False

    @property
    def needs_journal(self) -> bool:
        """Whether its summary alone does not say how it is: there is none, or its hub has died."""
        if self.summary is None:
            return True
        return bool(self.pid) and not self.is_active and _decode(self.summary).status not in ENDED


# Long because the list, the copies and the connection that brings notifications of both belong together.
class ShownDatabase(Closing):
    """The runs of a database that are shown; ``open`` starts the thread.

    Attributes:
        where: The database.
        name: What messages call it.
        place: What stands for the workspace of its runs.
        problem: Why it could not be looked at, if it could not.

    Args:
        where: The database.
        changed: Called in the thread whenever the list has changed, or could not be read.
    """

    def __init__(self, where: Elsewhere, changed: Callable[[], object] = lambda: None) -> None:
        self.where = where
        self._team = Team(where)
        self.name = self._team.name
        self.place = shown_place(where)
        self.problem: BartackError | None = None
        self._folder = shown_runs(where)
        self._changed = changed
        self._session: Session = self._team.database.session()
        self._runs: dict[str, ShownFacts] = {}
        self._looked_at = float("-inf")
        self._wanted_until = float("-inf")
        self._looking = threading.Lock()
        self._copied: dict[str, tuple[int, int, bool]] = {}
        """What a run in the list was like when its journal was copied for the list."""
        self._watched: Counter[str] = Counter()
        self._ends: dict[str, object] = {}
        self._reported: dict[str, tuple[object, float]] = {}
        self._listening: Connection | None = None
        self._channels: set[str] = set()
        self._notified_of: set[str] = set()
        """Channels with notifications since the last look."""
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Begin to look."""
        self._thread = threading.Thread(  # bartack: allow[unsupervised_thread] ``close`` ends it
            target=self._work, name="bartack-showing", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """End the thread, and the connections."""
        self._is_closed = True
        self._wake()
        if self._thread is not None:
            self._thread.join(LOOK_S)
            self._thread = None
        self._session.close()
        self._team.database.close()

    # The list.

    def runs(self) -> list[ShownFacts]:
        """The newest runs, the newest first. Waits for a look if there was none lately, so it is called in a thread."""
        is_stale = time.monotonic() - self._looked_at > LOOK_S * 2
        self._wanted_until = time.monotonic() + WANTED_S
        if is_stale:
            self.look()
        return list(self._runs.values())

    def find(self, run_id: str) -> ShownFacts | None:
        """A run, as it was found last."""
        return self._runs.get(run_id)

    def match(self, asked: str) -> list[ShownFacts]:
        """The runs that an id, or the beginning of one, can mean; ``latest`` is the newest. As they were found last."""
        found = self._runs
        if asked == "latest":
            return list(found.values())[:1]
        if asked in found:
            return [found[asked]]
        return [facts for run_id, facts in found.items() if run_id.startswith((asked, f"run-{asked}"))]

    def path_of(self, run_id: str) -> Path:
        """The directory of a run."""
        return self._folder / run_id

    def look(self) -> None:
        """Look at all runs now. What goes wrong becomes ``problem``."""
        with self._looking:
            before = (self._runs, self.problem)
            try:
                self._runs = self._read_list()
                self.problem = None
            except BartackError as problem:
                self.problem = problem
            except OSError as error:
                self.problem = DepotError(self.name, error.strerror or str(error))
            self._looked_at = time.monotonic()
            changed = before[0] != self._runs or str(before[1]) != str(self.problem)
        if changed:
            self._changed()

    def _read_list(self) -> dict[str, ShownFacts]:
        known = self._runs
        found = {row[1]: ShownFacts(*row) for row in self._session.rows(_LIST, MOST_LISTED)}
        waiting = [
            one.id for one in found.values() if one.pool and one.state in {"queued", "held", "resting"}
        ]
        waits = Upkeep(self._team).waits_of(waiting)
        changed = [one for one in found if one not in known or known[one].marked != found[one].marked]
        summaries = dict(self._session.rows(_SUMMARIES, changed)) if changed else {}
        for run_id, facts in found.items():
            if run_id in summaries:
                raw = summaries[run_id]
                summary = None if raw is None else bytes(raw)
                pid = 0 if summary is None else _decode(summary).pid
            else:
                summary, pid = known[run_id].summary, known[run_id].pid
            wait = waits.get(run_id) or Wait(facts.state, "")
            found[run_id] = facts._replace(
                summary=summary, pid=pid, reason=wait.text, is_stuck=wait.problem is not None
            )
        for run_id in found.keys() - known.keys():
            self._team.place(run_id, self._folder, synced=False)
        self._forget(known, found)
        self._copy_for_list(found.values())
        return found

    def _forget(self, known: dict[str, ShownFacts], found: dict[str, ShownFacts]) -> None:
        """What was deleted in the database goes here, too. With more runs than are listed, older ones only leave the list."""
        if len(found) < MOST_LISTED:
            for run_id in known.keys() - found.keys():
                shutil.rmtree(self.path_of(run_id), ignore_errors=True)

    def _copy_for_list(self, found: Iterable[ShownFacts]) -> None:
        for facts in found:
            state = (facts.marked, facts.fence, facts.is_active)
            if facts.needs_journal and self._copied.get(facts.id) != state:
                self._run(facts.id).catch_up()
                self._copied[facts.id] = state

    # Copies.

    def copy(self, run_id: str) -> None:
        """Bring the copy of a run up to date, with its program.

        Raises:
            JournalNotFoundError: It is not there.
            DepotError: The database cannot be read, and there is no copy yet.
        """
        path = self._team.place(run_id, self._folder, synced=False)
        try:
            run = self._run(run_id)
            run.catch_up()
            with suppress(DepotError):
                run.bring_here()
        except DepotUnavailableError:
            if not (path / JOURNAL_FILE).exists():
                raise

    def watch(self, run_id: str) -> None:
        """Keep the copy of a run up to date from now on; as often as ``leave`` is called for it."""
        self._watched[run_id] += 1
        self._wake()

    def leave(self, run_id: str) -> None:
        """See ``watch``."""
        self._watched[run_id] -= 1
        if self._watched[run_id] <= 0:
            del self._watched[run_id]
            self._ends.pop(run_id, None)
            self._reported.pop(run_id, None)

    def source(self, facts: ShownFacts) -> RunSource:
        """Where the large values of a run come from."""
        name = f"{self.name}: {facts.id}"
        return _AvailableSource(self, RunSource(self._team.database.shared, facts.number, name, facts.team))

    def _run(self, run_id: str) -> PostgresRun:
        return PostgresRun(self.path_of(run_id), self._team.database)

    # The thread.

    def _work(self) -> None:
        while not self._is_closed:
            with suppress(BartackError, OSError):
                self._follow()
            now = time.monotonic()
            often_s = LOOK_S if self._watched or now < self._wanted_until else IDLE_S
            if QUEUE_CHANNEL in self._notified_of or now - self._looked_at >= often_s:
                self._notified_of.discard(QUEUE_CHANNEL)
                self.look()
            self._wait()

    def _wait(self) -> None:
        """Wait for a notification, or until it is time to look. What comes soon after the last look waits a moment."""
        with suppress(OSError, ValueError):
            select.select([], [], [], PAUSE_S)
            connection = self._listening
            ready = [self._reader]
            if connection is not None and not connection.closed:
                ready.append(connection.fileno())
            if self._reader in select.select(ready, [], [], LOOK_S - PAUSE_S)[0]:
                os.read(self._reader, 4096)

    def _wake(self) -> None:
        with suppress(OSError):
            os.write(self._writer, b"x")

    def _follow(self) -> None:
        """Look at the runs that are watched, and copy what is new of them."""
        watched = list(self._watched)
        with self._session.use() as connection:
            if connection is not self._listening:
                self._listening, self._channels = connection, set()
                connection.add_notify_handler(self._notified)
                self._listen(connection, [QUEUE_CHANNEL])
            # Notifications that have come are handed over with the answer, also to a question about no run.
            rows = connection.execute(_ENDS.encode(), (watched,)).fetchall()
            self._listen(connection, [f"bartack_run_{number}" for number, *_ in rows])
            for number, run_id, node, _ in rows:
                self._report(connection, number, run_id, node)
        for _, run_id, _, last in rows:
            if self._ends.get(run_id) != last:
                with suppress(JournalNotFoundError):
                    self._run(run_id).catch_up()
                self._ends[run_id] = last

    def _notified(self, found: Any) -> None:
        self._notified_of.add(found.channel)

    def _listen(self, connection: Connection, channels: Sequence[str]) -> None:
        missing = [channel for channel in channels if channel not in self._channels]
        with suppress(DepotError), self._team.database.talking():
            listen(connection, missing)
            self._channels.update(missing)

    def _report(self, connection: Connection, number: int, run_id: str, node: object) -> None:
        """Let the node that owns a run know that it is watched."""
        before, until = self._reported.get(run_id, (None, 0.0))
        if node is not None and (node != before or time.monotonic() >= until):
            self._reported[run_id] = (node, time.monotonic() + REPEAT_S)
            connection.execute(_REPORT.encode(), (node, number))


class _AvailableSource(RunSource):
    """Refuses at once while the database is away: what shows a run must not wait for a connection."""

    def __init__(self, shown: ShownDatabase, source: RunSource) -> None:
        self.name = source.name
        self._shown = shown
        self._within = source

    def end(self) -> End:
        """See ``Source.end``."""
        self._check()
        return self._within.end()

    def check_size(self, size: int) -> None:
        """See ``Source.check_size``."""
        self._within.check_size(size)

    def fetch_blob(self, ref: BlobRef) -> bytes | None:
        """See ``Source.fetch_blob``."""
        self._check()
        return self._within.fetch_blob(ref)

    def _check(self) -> None:
        if self._shown.problem is not None:
            raise self._shown.problem


def _decode(summary: bytes) -> _Marked:
    try:
        return typed.decode(summary, type=_Marked)
    except msgspec.DecodeError:
        return _Marked()
