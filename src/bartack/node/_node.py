"""The loop of a node: take what is due, run it, see how it ends, and wait until there is something to do.

    queue ──claim──▶ owned ──hub ends──▶ judged ──release──▶ queued, resting, held or over

The hubs are processes of their own, and outlive a node that is killed: the next node finds them by their runs and watches them
from then on. A node that is asked to stop (SIGTERM, SIGINT) shuts its hubs down cleanly first; their runs are queued for the next
node.

The node listens to nothing. It is woken by a change in the depot, by the end of a hub and by signals, and looks once a minute at
least, because a clock may be set.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import socket
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Final

import msgspec

from bartack._version import __version__
from bartack.core.clock import Clock, SystemClock
from bartack.core.disk import is_disk_trouble
from bartack.core.watch import Watch
from bartack.depot import Claim, Depot, Job, NodeFacts, Standing, Verdict
from bartack.depot.ledger import SETTLED
from bartack.errors import QueueFullError
from bartack.node._core import SECOND_US, Ending, Policy, judge
from bartack.node._guard import GuardedHubs
from bartack.node._hubs import Hub, Hubs

LOOK_S: Final = 60.0
"""The longest time between two looks at the depot."""
TROUBLE_S: Final = 10.0
"""How long to wait when the disk of the depot is full."""
NO_PIDFD_S: Final = 1.0
"""The same where the system does not report the end of a process."""
STOP_S: Final = 60.0
"""How long the hubs may take to shut down cleanly."""
RUN_BYTES: Final = 1 << 29
"""Memory that one run with its agents is expected to need."""
STOPPING_US: Final = 10 * SECOND_US
"""What was left for a run not longer than this before its hub was gone may have missed the hub."""
DAY_US: Final = 24 * 3600 * SECOND_US
KEEP_OVER_US: Final = 30 * DAY_US
"""How long a run that is over stays in the list."""

Say = Callable[[str], object]


def choose_slots(most: int, processors: int, memory: int | None) -> int:
    """How many runs to run at a time: two for each processor, as far as the memory allows, unless the user has chosen a number.

    That number is not limited: runs that wait for agents most of the time need few processors.

    Args:
        most: The number that the user has chosen; 0: none.
        processors: How many there are.
        memory: Bytes that are left; ``None`` if that is not known.
    """
    fits = 2 * processors if memory is None else min(2 * processors, memory // RUN_BYTES)
    return most or max(1, fits)


def new_node(slots: int, boot: str, clock: Clock) -> NodeFacts:
    """The facts of this process as a node."""
    return NodeFacts(
        id=f"node-{secrets.token_hex(6)}-{boot_mark(boot)}",
        pid=os.getpid(),
        boot=boot,
        version=__version__,
        slots=slots,
        started_us=clock.now_us(),
    )


class Owned:
    """A run that this node owns, and the hub that runs it."""

    def __init__(self, claim: Claim, standing: Standing, hub: Hub) -> None:
        self.claim = claim
        self.standing = standing
        self.hub = hub


class Node:
    """One life of a node; see the module.

    Args:
        depot: Where the runs are queued.
        facts: Which node this is.
        hubs: Starts and finds hubs.
        say: Takes a line about what the node does.
        idle_s: End when there has been nothing to do for this long; ``None``: never.
        policy: How patient it is.
        clock: What time it is.
        chores: Called at every look: schedules. Returns the next time at which it has something to do.
        tidy: Called at the first look and then once a day.
    """

    def __init__(
        self,
        depot: Depot,
        facts: NodeFacts,
        hubs: Hubs,
        say: Say,
        *,
        idle_s: float | None = None,
        policy: Policy | None = None,
        clock: Clock | None = None,
        chores: Callable[[int], int | None] | None = None,
        tidy: Callable[[], object] | None = None,
    ) -> None:
        self._depot = depot
        self._facts = facts
        self._hubs = GuardedHubs(hubs, self._report)
        self._say = say
        self._idle_s = idle_s
        self._policy = policy or Policy()
        self._clock = clock or SystemClock()
        self._chores = chores
        self._tidy = tidy
        self._tidied_us: int | None = None
        self._reported: dict[str, str] = {}
        """The last problem of each run that was reported: most are met again at every look."""
        self._owned: dict[str, Owned] = {}
        self._stopping = False
        self._idle_since: float | None = None
        self._wake_reader: socket.socket | None = None

    def run(self) -> None:
        """Run until the node is asked to stop, or there is nothing left to do."""
        while True:
            with self._depot.sit(self._facts), ExitStack() as stack:
                watch = stack.enter_context(self._depot.watch())
                stack.enter_context(self._signals())
                self._take_over()
                self._loop(watch)
                self._stop_all()
            # A run or a schedule may have been added between the last look and the moment the seat was given up, by a command that
            # has found a node. A command that adds one after this look finds none, and starts one.
            if self._stopping or not (self._has_work(self._depot.standings()) or self._has_schedules()):
                return

    def stop(self) -> None:
        """Stop at the next occasion."""
        self._stopping = True

    # The loop.

    def _loop(self, watch: Watch) -> None:
        while not self._stopping:
            try:
                wait_s = self._look()
            except OSError as error:
                if not is_disk_trouble(error):
                    raise
                # Hubs have their own disks and continue. What could not be written is done at a later look.
                self._say(f"the queue cannot be written: {error.strerror}; trying again in {TROUBLE_S:g} s")
                wait_s = TROUBLE_S
            if wait_s is None:
                return
            self._wait(watch, wait_s)

    def _look(self) -> float | None:
        """Do what there is to do. Returns how long to wait; ``None`` if there is nothing left to wait for."""
        self._tidy_daily()
        self._collect()
        self._fill()
        standings = self._depot.standings()
        self._adopt(one for one in standings if one.state == "owned" and one.node == self._facts.id)
        standings = self._settle(standings)
        self._wake_resting(standings)
        # After the runs that have ended elsewhere are settled: they keep no schedule from its time.
        next_us = self._chores(self._clock.now_us()) if self._chores is not None else None
        return None if self._is_idle(standings, next_us) else self._patience_s(standings, next_us)

    def _tidy_daily(self) -> None:
        """Forget what was over long ago. A node may live for months; also when its clock is set back."""
        now_us = self._clock.now_us()
        if self._tidied_us is not None and self._tidied_us <= now_us < self._tidied_us + DAY_US:
            return
        self._tidied_us = now_us
        self._depot.forget(now_us - KEEP_OVER_US)
        self._reported.clear()
        if self._tidy is not None:
            self._tidy()

    def _adopt(self, standings: Iterable[Standing]) -> None:
        """Continue with runs of this node whose change could not be written, or only in part."""
        for one in standings:
            if one.job.run not in self._owned:
                claim, hub = Claim(one.job, one.fence), self._hubs.find(one.job)
                if hub is not None:
                    self._owned[one.job.run] = Owned(claim, one, hub)
                else:
                    self._end(claim, one, self._hubs.ending(one.job))

    def _take_over(self) -> None:
        """Continue what an earlier node has owned: its hub may still run."""
        now_us, earlier = self._clock.now_us(), {one.job.run: one for one in self._depot.standings()}
        for standing in self._depot.take_over(self._facts.id, now_us):
            claim = Claim(standing.job, standing.fence)
            hub = self._hubs.find(standing.job)
            if hub is not None:
                self._owned[standing.job.run] = Owned(claim, standing, hub)
                self._say(f"{standing.job.run} is running; this node watches it from now on")
            else:
                rebooted = not earlier[standing.job.run].node.endswith(boot_mark(self._facts.boot))
                self._end(claim, standing, self._hubs.ending(standing.job, rebooted=rebooted))

    def _collect(self) -> None:
        """See which hubs are gone, and decide what becomes of their runs."""
        for run, owned in list(self._owned.items()):
            if owned.hub.is_gone():
                owned.hub.close()
                del self._owned[run]
                self._end(owned.claim, owned.standing, self._hubs.ending(owned.claim.job))

    def _fill(self) -> None:
        """Take runs until all slots are used. A run that waits for a person uses none."""
        busy = sum(not self._hubs.is_asking(owned.claim.job) for owned in self._owned.values())
        for claim in self._depot.claim(self._facts.id, self._facts.slots - busy, self._clock.now_us()):
            standing = self._depot.find(claim.job.run)
            assert standing is not None
            started = self._hubs.start(claim.job)
            if isinstance(started, Ending):
                self._end(claim, standing, started)
            else:
                self._say(f"{claim.job.run} started")
                self._owned[claim.job.run] = Owned(claim, standing, started)

    def _end(self, claim: Claim, standing: Standing, ending: Ending) -> None:
        now_us = self._clock.now_us()
        verdict = judge(standing, ending, now_us, self._policy)
        # A reason may name a file, whose name may be any bytes.
        reason = verdict.reason.encode("utf-8", "replace").decode()
        verdict = msgspec.structs.replace(verdict, reason=reason)
        if self._depot.release(claim, verdict, now_us):
            self._say(describe(claim.job, verdict, now_us))

    def _settle(self, standings: Sequence[Standing]) -> Sequence[Standing]:
        """Learn which runs have ended without this node: cancelled, or completed in a terminal. Returns the others.

        One that was left as it is would be waited for without end, by the runs that follow it, its schedule and its workspace.
        """
        left = list[Standing]()
        for one in standings:
            outcome = self._hubs.outcome(one.job, one.changed_us) if one.state in SETTLED else ""
            if not outcome:
                left.append(one)
                continue
            now_us = self._clock.now_us()
            verdict = Verdict(state="over", outcome=outcome, failures=one.failures, progress=one.progress)
            if self._depot.settle(one, verdict, now_us):
                self._say(f"{one.job.run} {outcome} outside of this node")
        return left

    def _wake_resting(self, standings: Sequence[Standing]) -> None:
        """Queue the runs again for which something was left while they rested, or while their hubs stopped."""
        for one in standings:
            if one.wakes and self._hubs.has_mail(one.job, one.changed_us - STOPPING_US):
                try:
                    self._depot.submit(msgspec.structs.replace(one.job, after=()), self._clock.now_us())
                except QueueFullError as error:
                    self._report(one.job.run, f"it is not resumed yet: {error.message}")
                else:
                    self._say(f"{one.job.run} has an answer or a message")

    def _report(self, run: str, problem: str) -> None:
        """Write what is wrong with a run, once."""
        if self._reported.get(run) != problem:
            self._reported[run] = problem
            self._say(f"{run}: {problem}")

    def _stop_all(self) -> None:
        """Shut the hubs down cleanly; their runs are queued again."""
        if not self._stopping:
            return
        for owned in self._owned.values():
            self._say(f"{owned.claim.job.run} is being stopped")
            owned.hub.terminate()
        limit = time.monotonic() + STOP_S
        while self._owned and time.monotonic() < limit:
            try:
                self._collect()
            except OSError as error:
                if not is_disk_trouble(error):
                    raise
                return  # they are stopped; the next node finds them as they are
            if self._owned:
                _poll([owned.hub.fd for owned in self._owned.values()], 0.2)

    # Waiting.

    def _is_idle(self, standings: Sequence[Standing], next_us: int | None) -> bool:
        if self._idle_s is None or self._owned or next_us is not None or self._has_work(standings):
            self._idle_since = None
            return False
        if self._idle_since is None:
            self._idle_since = time.monotonic()
        return time.monotonic() - self._idle_since >= self._idle_s

    def _has_work(self, standings: Sequence[Standing]) -> bool:
        """Whether a run waits for the node: for its turn, its time, or what is left for it."""
        return any(one.state == "queued" or one.wakes for one in standings)

    def _has_schedules(self) -> bool:
        return self._chores is not None and bool(self._depot.schedules())

    def _patience_s(self, standings: Sequence[Standing], next_us: int | None) -> float:
        now_us = self._clock.now_us()
        dues = [one.due_us for one in standings if one.is_timed and one.due_us > now_us]
        dues += [] if next_us is None else [next_us]
        left = [LOOK_S, *((due - now_us) / SECOND_US for due in dues)]
        if any(owned.hub.fd is None for owned in self._owned.values()):
            left.append(NO_PIDFD_S)
        if self._idle_s is not None and self._idle_since is not None:
            left.append(self._idle_s - (time.monotonic() - self._idle_since))
        return max(0.0, min(left))

    def _wait(self, watch: Watch, wait_s: float) -> None:
        fd, signals = watch.fileno(), self._wake_reader
        assert signals is not None
        if fd is None:
            watch.wait(min(wait_s, 0.2))
            return
        _poll([fd, signals.fileno(), *(owned.hub.fd for owned in self._owned.values())], wait_s)
        watch.wait(0)
        _drain(signals)

    @contextmanager
    def _signals(self) -> Generator[None]:
        """SIGTERM and SIGINT stop the node; SIGHUP, the end of a terminal, does not."""
        reader, writer = socket.socketpair()
        for end in (reader, writer):
            end.setblocking(False)
        self._wake_reader = reader
        before = {number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGINT)}
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        wakeup = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            reader.close()
            writer.close()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True


def boot_mark(boot: str) -> str:
    """What the ids of all nodes of one start of the machine end with."""
    return boot.replace("-", "")[:8]


def describe(job: Job, verdict: Verdict, now_us: int) -> str:
    """What becomes of a run, in words."""
    why = f": {verdict.reason}" if verdict.reason else ""
    match verdict.state:
        case "over":
            return f"{job.run} {verdict.outcome}"
        case "queued":
            wait_s = max(0, verdict.due_us - now_us) // SECOND_US
            return f"{job.run} is resumed {f'in {wait_s} s' if wait_s else 'now'}{why}"
        case "resting" if verdict.due_us:
            return f"{job.run} rests for {max(0, verdict.due_us - now_us) // SECOND_US} s{why}"
        case state:
            return f"{job.run} is {state}{why}"


def _poll(fds: Sequence[int | None], wait_s: float) -> None:
    poller = select.poll()
    for fd in fds:
        if fd is not None:
            poller.register(fd, select.POLLIN)
    poller.poll(wait_s * 1000)


def _drain(end: socket.socket) -> None:
    try:
        end.recv(4096)
    except BlockingIOError:
        return
