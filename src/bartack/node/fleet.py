"""A node that takes runs from a database, one of any number on any hosts. ``depot/postgres/schema/0002.sql`` decides who owns what.

    queued ──claim──▶ owned ──hub ends──▶ judged ──give back──▶ queued, resting, held or over

``_fleet_core.py`` decides, without I/O: read it first. This is the loop around it, with its signals and descriptors. Each run that
the node owns has a thread (``_work.py``).

**Why no run has two owners at work.** The node renews its lease by beats. All its hubs, and the parents of their workers, commands
and agents, read the lease from one page of shared memory: they stand still before the lease is over, and continue with the next
answer of the database (``runtime/hub/holding.py``). Another node buries this one only when the lease is over. What the old owner
sends then is refused by its fence. A node that learns that it is dead ends the lease page for good. Its hubs end and record
nothing, and the node joins anew with another number. A node that is killed takes its hubs with it, by the end of a pipe
(``depot/link.py``), and these take their trees. By the same pipe a node ends the hub of one run that it has lost alone, because a
server has taken over that does not know the claim; ``depot/postgres/_lease.py`` has how long that takes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

from bartack.core.clock import Clock, SystemClock
from bartack.core.files import open_private
from bartack.core.trust import make_private
from bartack.core.user_home import user_home
from bartack.depot.chores import CHORE_ANSWER_S
from bartack.depot.fleet import Fleet
from bartack.depot.taken import HOLD_S, FleetFacts, Taken
from bartack.depot.team import Team
from bartack.depot.timetable import Timetable
from bartack.errors import DepotSchemaError, DepotUnavailableError, NodeRunningError, TreeLockedError
from bartack.node._chores import Chores, put_run_aside
from bartack.node._core import REST_AFTER_S, Policy
from bartack.node._environments import Environments
from bartack.node._fleet_core import (
    DRAIN_S,
    Action,
    BeginRun,
    ClaimRuns,
    EndLife,
    FleetCore,
    ForgetRun,
    GiveBack,
    HurryRun,
    Join,
    KillRun,
    LeaseView,
    ListRuns,
    Moment,
    Note,
    Output,
    StopRun,
    WorkEnd,
)
from bartack.node._reports import FleetEvents
from bartack.node._work import RunWork
from bartack.runtime.rundir.layout import RunDir
from bartack.supervision.process.lease import LeasePage
from bartack.supervision.process.lock import take_tree_lock
from bartack.telemetry import NO_TELEMETRY, Telemetry

LOOK_S: Final = 1.0
"""The longest time between two looks at the queue: a beat that has seen something wakes the node sooner."""
CLOSE_S: Final = 5.0
"""How long this process waits for threads of runs that do not end, before it ends itself."""
LOCK: Final = "lock"

Say = Callable[[str], object]


class FleetSettings(NamedTuple):
    """What a node of a database needs to know.

    Attributes:
        team: The database where the runs are.
        name: What people call the node.
        seat: Its directory.
        slots: How many runs it runs at a time.
        pools: The queues that it takes runs from.
        labels: What runs may need.
        lease_s: How long its right to own runs lasts after a beat.
        boot: This start of the machine.
        say: Takes a line about what the node does.
        environ: The environment of hubs.
        rest_after_s: They stop when there is nothing to do for longer than this.
        policy: How patient it is.
        hold_s: How long its runs stand still before it stops them.
        drain_s: How long it waits for steps in flight before it ends.
        clock: What time it is.
        telemetry: Takes the events of the node.
    """

    team: Team
    name: str
    seat: Path
    slots: int
    pools: tuple[str, ...]
    labels: tuple[str, ...]
    lease_s: float
    boot: str
    say: Say
    environ: Mapping[str, str]
    rest_after_s: float = REST_AFTER_S
    policy: Policy = Policy()
    hold_s: float = HOLD_S
    drain_s: float = DRAIN_S
    clock: Clock = SystemClock()
    telemetry: Telemetry = NO_TELEMETRY

    @property
    def runs(self) -> Path:
        """Where the directories of runs are."""
        return self.seat / "runs"

    @property
    def environments(self) -> Path:
        """Where the environments are that the node makes."""
        return self.seat / "environments"


class _Life:
    """What belongs to one life of a node: from the moment it joins until it leaves, or is declared dead.

    Args:
        settings: What the node needs to know.
        environments: With what hubs are started.
        wake: Called when there is something to look at, in any thread.
        ended: Called when the work on a run is over, in the thread of that.
        lost: Called when the node does not own a run any more, in any thread.
        events: Reports what becomes of the node.
    """

    def __init__(
        self,
        settings: FleetSettings,
        environments: Environments,
        wake: Callable[[], object],
        ended: Callable[[Taken, WorkEnd], object],
        lost: Callable[[int, int, str], object],
        events: FleetEvents,
    ) -> None:
        self._events = events
        self._settings = settings
        self._environments = environments
        self._ended = ended
        self._lost = lost
        self._works: dict[tuple[int, int], RunWork] = {}
        self._page, self._lease = LeasePage.create()
        facts = FleetFacts(
            settings.name,
            settings.seat,
            _boot_of(settings),
            settings.slots,
            settings.pools,
            settings.labels,
            settings.lease_s,
        )
        try:
            self.fleet = Fleet(
                settings.team.database,
                facts,
                self._page,
                wake,
                self._note_rewound,
                self._lose,
                lambda: list(self._works),
                hold_s=settings.hold_s,
                say=settings.say,
            )
        except BaseException:
            os.close(self._lease)
            raise
        self._ids: set[str] = set()
        self._mutex = threading.Lock()
        team = Team(settings.team.where, CHORE_ANSWER_S)
        self._chores = Chores(
            self.fleet,
            team,
            Timetable(team),
            settings.runs,
            user_home() / "pauses",
            self._put_aside,
            environments.remove_unused,
            say=settings.say,
            wake=wake,
            clock=settings.clock,
        )
        self._chores.start()

    def _put_aside(self, directory: Path) -> Path | None:
        """Rename the directory of a run, unless there is work on the run here; from any thread."""
        with self._mutex:
            if directory.name in self._ids:
                return None
            return put_run_aside(directory)

    @property
    def misfit(self) -> DepotSchemaError | None:
        """Why this version does not work with the database any more."""
        return self._chores.misfit

    def _note_rewound(self, run: str, entries: int) -> None:
        self._events.rewound(run, entries)
        self._settings.say(f"{run}: the database had lost {entries} entries, which were sent again")

    def _lose(self, run: int, fence: int, why: str) -> None:
        """See ``Courier``: nothing of the run may continue."""
        work = self._works.get((run, fence))
        if work is not None:
            work.cut()
            self._lost(run, fence, why)

    @property
    def lease(self) -> LeaseView:
        """Its lease, as the last beat has left it."""
        node = self.fleet.node
        state = "dead" if node.is_dead else node.state
        return LeaseView(state, self._page.left_s() > 0, node.is_hurried)

    def begin(self, run: Taken) -> None:
        """Begin the work on a run."""
        settings = self._settings
        with self._mutex:
            self._ids.add(run.id)
        self._works[run.no, run.fence] = RunWork(
            run,
            self.fleet,
            settings.runs,
            self._lease,
            environments=self._environments,
            rest_after_s=settings.rest_after_s,
            say=settings.say,
            ended=self._ended,
            restored=self._events.restored,
            hold_s=settings.hold_s,
        )

    def stop(self, run: Taken) -> None:
        """Stop the hub of a run when no step is in flight."""
        self._works[run.no, run.fence].stop()

    def hurry(self, run: Taken) -> None:
        """Stop the hub of a run now."""
        self._works[run.no, run.fence].hurry()

    def kill(self, run: Taken) -> None:
        """Kill the hub of a run."""
        self._works[run.no, run.fence].kill()

    def note_requests(self) -> None:
        """Let the works look whose runs have requests."""
        asked = self.fleet.take_asked()
        for (number, _), work in self._works.items():
            if number in asked:
                work.note_request()

    def forget(self, run: Taken) -> None:
        """The work on a run is over."""
        self._works.pop((run.no, run.fence), None)
        with self._mutex:
            self._ids.discard(run.id)

    def close(self) -> None:
        """End it, with all hubs that are left."""
        for work in self._works.values():
            work.kill()
        limit = time.monotonic() + CLOSE_S
        are_over = [work.join(max(0.0, limit - time.monotonic())) for work in self._works.values()]
        self._chores.close()
        # Another node may begin a run when this one leaves. What cannot be ended here stands still when the lease is over.
        self.fleet.close(leaves=all(are_over))
        os.close(self._lease)


class FleetLoop:
    """A node of a database; see the module. SIGTERM and SIGINT drain it, a second one ends it at once.

    Args:
        settings: What it needs to know.
    """

    def __init__(self, settings: FleetSettings) -> None:
        self._settings = settings
        self._environments = Environments(settings.environments, settings.environ, settings.say)
        self._core = FleetCore(settings.slots, settings.policy, settings.hold_s, settings.drain_s)
        self._events = FleetEvents(settings.telemetry, settings.name, settings.slots)
        self._misfit: DepotSchemaError | None = None
        self._life: _Life | None = None
        self._has_joined = False
        self._signals = 0
        self._ends: list[tuple[Taken, WorkEnd]] = []
        self._losses: list[tuple[int, int, str]] = []
        self._mutex = threading.Lock()
        self._wakes, self._waker = -1, -1

    def run(self) -> None:
        """Take and run runs until a signal comes, or until it is drained.

        Raises:
            NodeRunningError: Another node has this seat.
            DepotError: The database cannot be used at all.
            DepotSchemaError: The tables have become those of a version that this one does not work with; the node has drained.
        """
        make_private(self._settings.seat)
        make_private(self._settings.runs)
        with _sitting(self._settings.seat), self._catching():
            self._wait_for_trees()
            try:
                while not self._look():
                    self._wait()
            finally:
                self._end_life()
        if self._misfit is not None:
            raise self._misfit

    def _wait_for_trees(self) -> None:
        """Give what an earlier life has left here the time to end: other nodes may begin its runs as soon as this one joins.

        What has not ended by then stands still, since the lease of that life is over.
        """
        limit = time.monotonic() + self._settings.lease_s
        for path in self._settings.runs.iterdir():
            with contextlib.suppress(TreeLockedError, OSError):
                os.close(take_tree_lock(str(RunDir(path).tree_lock), max(0.0, limit - time.monotonic())))

    def _look(self) -> bool:
        """Let the core decide, and carry out what it wants, until it wants nothing more; whether the node has ended."""
        now = self._now()
        with self._mutex:
            ends, self._ends = self._ends, []
            losses, self._losses = self._losses, []
        for run, end in ends:
            if self._life is not None:
                self._life.forget(run)
            self._core.work_ended(run, end, now)
        for loss in losses:
            self._core.lost(*loss)
        if self._life is not None:
            self._life.note_requests()
        lease = LeaseView("live", is_valid=True) if self._life is None else self._life.lease
        self._core.look(now, lease, self._stops())
        while outputs := self._core.take():
            self._carry_out(outputs)
        self._events.look(self._core.state, len(self._core.owned), now.s)
        return self._core.state == "ended"

    def _stops(self) -> int:
        """How many reasons to stop there were: signals, and a database that this version does not work with any more."""
        if self._misfit is None and self._life is not None and self._life.misfit is not None:
            self._misfit = self._life.misfit
            self._settings.say(f"it ends: {self._misfit}")
        return max(self._signals, int(self._misfit is not None))

    def _carry_out(self, outputs: list[Output]) -> None:
        is_away = False
        for output in outputs:
            if not isinstance(output, Join | ClaimRuns | ListRuns | GiveBack):
                self._act(output)
            elif not is_away:
                try:
                    self._ask(output)
                except DepotUnavailableError as error:
                    if not self._has_joined:
                        raise
                    is_away = True
                    self._core.no_answer(str(error))
                    self._events.away(str(error), self._now().s)
                else:
                    self._events.answered(self._now().s)

    def _ask(self, statement: Join | ClaimRuns | ListRuns | GiveBack) -> None:
        """Send a statement to the database, and report its answer."""
        core = self._core
        if isinstance(statement, Join):
            self._life = _Life(
                self._settings, self._environments, self._wake, self._work_ended, self._run_lost, self._events
            )
            self._has_joined = True
            core.joined()
            self._events.joined(self._life.fleet.node.id)
            return
        assert self._life is not None
        fleet = self._life.fleet
        if isinstance(statement, ClaimRuns | ListRuns):
            if isinstance(statement, ClaimRuns):
                fleet.claim(statement.most)
            core.owns(fleet.owned())
            return
        verdict = statement.verdict
        state, due_us, why = verdict.state, verdict.due_us, verdict.reason
        refuses = statement.refuses
        found = fleet.give_back(statement.run, state, due_us, why, verdict.strikes, refuses=refuses)
        core.given_back(statement.run, found)
        self._events.given_back(statement.run, verdict, found, self._now().s)

    def _act(self, action: Action) -> None:
        if isinstance(action, Note):
            self._settings.say(action.text)
            return
        assert self._life is not None
        match action:
            case BeginRun(run):
                self._life.begin(run)
                self._events.begun(run, self._now().s)
            case StopRun(run):
                self._life.stop(run)
            case HurryRun(run):
                self._life.hurry(run)
            case KillRun(run):
                self._life.kill(run)
            case ForgetRun(run):
                self._life.fleet.forget(run)
                self._events.lost(run)
            case EndLife():
                self._end_life()

    def _end_life(self) -> None:
        life, self._life = self._life, None
        if life is not None:
            life.close()

    def _now(self) -> Moment:
        clock = self._settings.clock
        return Moment(clock.monotonic_ns() / 1e9, clock.now_us())

    # Waiting.

    def _work_ended(self, run: Taken, end: WorkEnd) -> None:
        """The work on a run is over; in any thread."""
        with self._mutex:
            self._ends.append((run, end))
        self._wake()

    def _run_lost(self, run: int, fence: int, why: str) -> None:
        """The node does not own a run any more; in any thread."""
        with self._mutex:
            self._losses.append((run, fence, why))
        self._wake()

    def _wake(self) -> None:
        """Let the loop look; from any thread."""
        with contextlib.suppress(OSError):
            os.write(self._waker, b"x")

    def _wait(self) -> None:
        """Wait until there is something to look at."""
        select.select([self._wakes], [], [], LOOK_S)
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wakes, 4096):
                pass

    @contextlib.contextmanager
    def _catching(self) -> Generator[None]:
        """Count signals to stop; each one wakes the loop."""
        self._wakes, self._waker = os.pipe()
        for fd in (self._wakes, self._waker):
            os.set_blocking(fd, False)

        def note(number: int, frame: FrameType | None) -> None:
            self._signals += 1

        before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        wakeup = signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._close_pipe()

    def _close_pipe(self) -> None:
        wakes, waker = self._wakes, self._waker
        self._wakes, self._waker = -1, -1
        os.close(wakes)
        os.close(waker)


def _boot_of(settings: FleetSettings) -> str:
    """This start of the machine, for this seat: a copy of the seat on the same machine is not the same seat."""
    facts = os.stat(settings.seat / LOCK)
    return f"{settings.boot} {facts.st_dev}:{facts.st_ino}"


@contextlib.contextmanager
def _sitting(seat: Path) -> Generator[None]:
    """Have the seat for this process: a later node of it may declare this one dead."""
    fd = open_private(seat / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
            error = NodeRunningError(int(owner) if owner.isdigit() else 0)
            error.remedy = f"That node has {seat}. Give this one another directory (--state-dir DIR), or stop the other first."
            raise error from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(fd)
