"""A node that takes runs from a database, one of any number on any hosts. ``depot/postgres/schema/0002.sql`` decides who owns what.

    queued ──claim──▶ owned ──hub ends──▶ judged ──give back──▶ queued, resting, held or over

Each run that the node owns has a thread, which brings the directory of the run up to date, starts its hub, waits for its end and
judges that as for runs of one machine (``_core.py``). The loop claims, gives back and stops.

**Why no run has two owners at work.** The node renews its lease by beats. All its hubs, and the parents of their workers, commands
and agents, read the lease from one page of shared memory: they stand still before the lease is over, and continue with the next
answer of the database (``runtime/hub/holding.py``). Another node buries this one only when the lease is over. What the old owner
sends then is refused by its fence. A node that learns that it is dead ends the lease page for good. Its hubs end and record
nothing, and the node joins anew with another number. A node that is killed takes its hubs with it, by the end of a pipe
(``depot/link.py``), and these take their trees.

A run is given back when no process of its tree is left on this machine, not before.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

import msgspec

from bartack.core.clock import Clock, SystemClock
from bartack.core.files import open_private
from bartack.core.trust import make_private
from bartack.depot import Job, Standing, Verdict
from bartack.depot.fleet import Fleet, FleetFacts, Taken
from bartack.depot.link import NodeLink
from bartack.depot.team import Team
from bartack.errors import (
    DepotError,
    DepotUnavailableError,
    NodeRunningError,
    TreeLockedError,
)
from bartack.node._core import REST_AFTER_S, Ending, Policy, judge
from bartack.node._hubs import Hub, RealHubs
from bartack.node._node import describe
from bartack.runtime.client.start_hub import HubOrder, HubProcess, InterpreterProcess
from bartack.runtime.rundir.find import read_state
from bartack.runtime.rundir.layout import RunDir
from bartack.supervision.process.lease import LeasePage
from bartack.supervision.process.lock import take_tree_lock

LOOK_S: Final = 1.0
"""The longest time between two looks at the queue: a beat that has seen something wakes the node sooner."""
TREE_S: Final = 30.0
"""How long the processes of a run may take to end after its hub."""
AGAIN_US: Final = 5_000_000
"""How long a run that this node could not begin waits for another one."""
LOCK: Final = "lock"

Say = Callable[[str], object]


def hub_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of hubs and everything below them: without what names the database or opens it."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith("PG") and name not in {"BARTACK_ON", "BARTACK_DATABASE"}
    }


def spawn_linked(
    link: NodeLink, fence: int, lease: int, order: HubOrder, log: int, report: int
) -> HubProcess:
    """See ``Spawn``: a new interpreter that reaches the database through this node, and stands still without its lease."""
    process = subprocess.Popen(  # bartack: allow[unsupervised_process] it ends with its link  # noqa: S603 - our own interpreter and module
        [sys.executable, "-P", "-s", "-m", order.module, *order.words],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        start_new_session=True,
        cwd=order.workspace,
        env=order.environ,
        pass_fds=(report, lease, *link.fds),
    )
    assert process.stdin is not None
    instructions = {
        "report": report,
        "sets": list(order.sets),
        "rest_after_s": order.rest_after_s,
        "lease": lease,
        "link": list(link.fds),
        "fence": fence,
    }
    with contextlib.suppress(BrokenPipeError), process.stdin:
        process.stdin.write(msgspec.json.encode(instructions))
    link.started()
    return InterpreterProcess(process)


class _Result(NamedTuple):
    """What becomes of a run; ``refuses``: this node cannot run it."""

    verdict: Verdict
    refuses: bool = False


class _OwnedRun:
    """A run that the node owns, and the thread that takes care of it.

    Attributes:
        result: What becomes of it, when its hub and everything below that is gone.
    """

    def __init__(self, taken: Taken, fleet: Fleet, life: _Life) -> None:
        self.taken = taken
        self.result: _Result | None = None
        self._fleet = fleet
        self._life = life
        self._hub: Hub | None = None
        self._link: NodeLink | None = None
        self._is_stopping = False
        self._mutex = threading.Lock()
        self.thread = threading.Thread(target=self._work, name=f"bartack {taken.id}", daemon=True)
        self.thread.start()

    def terminate(self) -> None:
        """Ask its hub to stop, such that another node continues the run."""
        with self._mutex:
            self._is_stopping = True
            if self._hub is not None:
                self._hub.terminate()

    def kill(self) -> None:
        """End its hub at once."""
        with self._mutex:
            self._is_stopping = True
            if self._link is not None:
                self._link.close()

    def _work(self) -> None:
        try:
            self.result = self._run()
        except DepotUnavailableError as error:
            self.result = self._later(f"the database did not answer: {error}")
        except Exception as error:  # noqa: BLE001 - the boundary of one run: whatever is wrong with it, the node has others
            # This node cannot run it; another one may.
            self.result = self._refused(str(error) or type(error).__name__)
        finally:
            self._life.wake()

    def _run(self) -> _Result:
        taken, settings = self.taken, self._life.settings
        path = self._fleet.prepare(taken, settings.runs)
        run = RunDir(path)
        job = Job(run=taken.id, path=str(path), workspace=self._workspace(run))
        link = NodeLink(partial(self._fleet.take, taken, path), partial(self._fleet.call, taken))
        spawn = partial(spawn_linked, link, taken.fence, self._life.lease)
        hubs = RealHubs(settings.environ, spawn, settings.rest_after_s)
        before = hubs.ending(job).progress
        with link:
            with self._mutex:
                self._link = link
                if self._is_stopping:
                    return self._later("its node stops")
            started = hubs.start(job)
            if isinstance(started, Ending):
                return self._judge(job, before, started)
            self._wait(started)
        self._wait_for_tree(run)
        return self._judge(job, before, hubs.ending(job))

    def _workspace(self, run: RunDir) -> str:
        state = read_state(run)
        assert state.run is not None
        return run.workspace(state, None)

    def _wait(self, hub: Hub) -> None:
        with self._mutex:
            self._hub = hub
            if self._is_stopping:
                hub.terminate()
        while not hub.is_gone():
            select.select([] if hub.fd is None else [hub.fd], [], [], LOOK_S)
        with self._mutex:
            self._hub = None
            hub.close()

    def _wait_for_tree(self, run: RunDir) -> None:
        """Until nothing of the run is left here: another node may begin it as soon as it is given back."""
        while True:
            try:
                os.close(take_tree_lock(str(run.tree_lock), TREE_S))
            except TreeLockedError as error:
                self._life.settings.say(f"{self.taken.id}: {error}")
            else:
                return

    def _judge(self, job: Job, before: int, ending: Ending) -> _Result:
        if ending.problem:
            return self._refused(ending.problem)
        has_progressed = ending.progress > before
        standing = Standing(
            job=job,
            state="owned",
            strikes=0 if has_progressed else self.taken.strikes,
            progress=before,
        )
        settings = self._life.settings
        verdict = judge(standing, ending, settings.clock.now_us(), settings.policy)
        settings.say(describe(job, verdict, settings.clock.now_us()))
        return _Result(verdict)

    def _later(self, why: str) -> _Result:
        due_us = self._life.settings.clock.now_us() + AGAIN_US
        return _Result(Verdict(state="queued", due_us=due_us, strikes=self.taken.strikes, reason=why))

    def _refused(self, why: str) -> _Result:
        self._life.settings.say(f"{self.taken.id} cannot run here: {why}")
        return _Result(Verdict(state="queued", strikes=self.taken.strikes, reason=why), refuses=True)


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
        clock: What time it is.
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
    clock: Clock = SystemClock()

    @property
    def runs(self) -> Path:
        """Where the directories of runs are."""
        return self.seat / "runs"


class _Life:
    """One life of a node: from the moment it joins until it leaves, or is declared dead."""

    def __init__(self, settings: FleetSettings) -> None:
        self.settings = settings
        self._wake_reader, self._wake_writer = os.pipe()
        for fd in (self._wake_reader, self._wake_writer):
            os.set_blocking(fd, False)
        self._page, self.lease = LeasePage.create()
        facts = FleetFacts(
            settings.name,
            settings.seat,
            settings.boot,
            settings.slots,
            settings.pools,
            settings.labels,
            settings.lease_s,
        )
        try:
            self._fleet = Fleet(settings.team.database, facts, self._page, self.wake)
        except BaseException:
            self._close_descriptors()
            raise
        self._owned: dict[int, _OwnedRun] = {}
        self._is_away = False

    @property
    def is_dead(self) -> bool:
        """Whether the database has declared the node dead."""
        return self._fleet.node.is_dead

    @property
    def is_draining(self) -> bool:
        """Whether it takes no more runs."""
        return self._fleet.node.state == "draining"

    def wake(self) -> None:
        """Let the loop look; from any thread."""
        with contextlib.suppress(OSError):
            os.write(self._wake_writer, b"x")

    def look(self, *, takes: bool) -> bool:
        """Give back what has ended, and claim what there is room for; whether it owns anything."""
        try:
            self._give_back()
            free = self.settings.slots - len(self._owned)
            if takes and free > 0:
                self._claim(free)
            self._note_away("")
        except DepotUnavailableError as error:
            self._note_away(str(error))
        return bool(self._owned)

    def _note_away(self, problem: str) -> None:
        if bool(problem) != self._is_away:
            self._is_away = bool(problem)
            self.settings.say(
                f"the database does not answer: {problem}" if problem else "the database answers again"
            )

    def _claim(self, free: int) -> None:
        self._fleet.claim(free)
        # What it owns as the database has it: a claim whose answer was lost is begun, too.
        for taken in self._fleet.owned():
            if taken.no not in self._owned:
                self.settings.say(f"{taken.id} begins here")
                self._owned[taken.no] = _OwnedRun(taken, self._fleet, self)

    def _give_back(self) -> None:
        for number, owned in list(self._owned.items()):
            if owned.result is None:
                continue
            verdict = owned.result.verdict
            found = self._fleet.give_back(
                owned.taken,
                verdict.state,
                verdict.due_us,
                verdict.reason,
                verdict.strikes,
                refuses=owned.result.refuses,
            )
            if found is None:
                self.settings.say(f"{owned.taken.id} has another owner by now")
            elif found == "held":
                self.settings.say(f"{owned.taken.id} is held: {verdict.reason}")
            del self._owned[number]

    def stop_runs(self) -> None:
        """Shut all hubs down cleanly."""
        for owned in self._owned.values():
            owned.terminate()

    def wait(self, signals: int, wait_s: float = LOOK_S) -> None:
        """Wait until there is something to look at."""
        select.select([self._wake_reader, signals], [], [], wait_s)
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake_reader, 4096):
                pass

    def close(self) -> None:
        """End it, with all hubs that are left."""
        for owned in self._owned.values():
            owned.kill()
        for owned in self._owned.values():
            owned.thread.join(TREE_S)
        with contextlib.suppress(DepotError):
            self._give_back()
        self._fleet.close()
        self._close_descriptors()

    def _close_descriptors(self) -> None:
        for fd in (self._wake_reader, self._wake_writer, self.lease):
            os.close(fd)


class FleetLoop:
    """A node of a database; see the module. SIGTERM and SIGINT drain it, a second one ends it at once.

    Args:
        settings: What it needs to know.
    """

    def __init__(self, settings: FleetSettings) -> None:
        self._settings = settings
        self._signals = 0

    def run(self) -> None:
        """Take and run runs until a signal comes, or until it is drained.

        Raises:
            NodeRunningError: Another node has this seat.
            DepotError: The database cannot be used at all.
        """
        make_private(self._settings.seat)
        make_private(self._settings.runs)
        with _sitting(self._settings.seat), self._catching() as wakes:
            is_first = True
            while is_first or not self._signals:
                try:
                    if not self._live(wakes):
                        return
                    self._settings.say("this node was declared dead; it joins anew")
                except DepotUnavailableError as error:
                    if is_first:
                        raise
                    self._settings.say(f"it cannot join yet: {error}")
                    select.select([wakes], [], [], LOOK_S)
                is_first = False

    def _live(self, wakes: int) -> bool:
        """One life; whether there has to be another one."""
        life = _Life(self._settings)
        is_stopping = False
        try:
            while not life.is_dead:
                leaves = self._signals > 0 or life.is_draining
                owns = life.look(takes=not leaves)
                if leaves and (not owns or self._signals > 1):
                    return False
                if leaves and not is_stopping:
                    is_stopping = True
                    self._settings.say("takes no more runs, and stops those that it has")
                    life.stop_runs()
                life.wait(wakes)
        finally:
            life.close()
        return True

    @contextlib.contextmanager
    def _catching(self) -> Generator[int]:
        """Count signals to stop; gives a descriptor that one makes readable."""
        reader, writer = os.pipe()
        os.set_blocking(writer, False)

        def note(number: int, frame: FrameType | None) -> None:
            self._signals += 1

        before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        try:
            yield reader
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(reader)
            os.close(writer)


@contextlib.contextmanager
def _sitting(seat: Path) -> Generator[None]:
    """Have the seat for this process: a later node of it may declare this one dead."""
    fd = open_private(seat / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
            raise NodeRunningError(int(owner) if owner.isdigit() else 0) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(fd)
