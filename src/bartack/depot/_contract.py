"""What a depot is, whatever keeps it: the values that go in and come out, and the promises of an engine.

An engine keeps these promises, and ``bartack.testing.DepotContract`` checks each of them on every engine:

- a run that was accepted is there, in one state, until it is over and was forgotten;
- a run is owned by at most one node at a time, and every change of its owner raises its *fence*: a node with an older fence
  changes nothing, however late it wakes up;
- a run is claimed when it is due, when the runs that it follows have completed, in the order of priority and of submission;
- of runs that cannot work in a workspace at the same time, one at a time is owned, and one that has begun is continued before
  another begins;
- a run that rests or is held, and that has ended elsewhere, is settled unless it has changed since that was seen;
- there is one node at a time for one seat. The node that takes the seat knows that every earlier one is gone, and takes over
  its runs;
- what a method has returned is durable, and a change wakes up every process that watches.

Times come from the caller, in microseconds since 1970, so that tests decide what time it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Final, Literal, Protocol, Self

import msgspec

from bartack.core.watch import Watch

Placement = Literal["queued", "owned", "resting", "held", "over"]
"""``queued``: waits for a node. ``owned``: a node runs it. ``resting``: a person, a message or a time continues it. ``held``: a
node has given it up, for a reason. ``over``: it has ended."""

OnFailure = Literal["stop", "retry"]
Missed = Literal["once", "skip"]
WorkspaceUse = Literal["free", "shared", "alone"]
"""``free``: other runs may work in the workspace meanwhile. ``shared``: only free and shared ones. ``alone``: only free ones."""

MOST_QUEUED: Final = 10_000
"""Runs that a queue takes."""
MOST_PRIORITY: Final = 100


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run that a node is to take care of.

    Attributes:
        run: Its id.
        path: The directory of the run.
        workspace: Where it works.
        title: The name of its program, for lists.
        priority: A run with a higher one is taken first.
        after: Runs that have to complete before it.
        on_failure: What becomes of it when its program fails.
        retries: How often it is resumed after a failure; with ``retry`` only.
        environ: The variables that its processes get besides those of the node.
        schedule: The schedule that has started it.
        use: How it uses its workspace while it is active.
    """

    run: str
    path: str
    workspace: str
    title: str = ""
    priority: int = 0
    after: tuple[str, ...] = ()
    on_failure: OnFailure = "stop"
    retries: int = 0
    environ: dict[str, str] = {}
    schedule: str = ""
    use: WorkspaceUse = "free"


class Standing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run in the depot.

    Attributes:
        job: What is to be run.
        state: Who has to take care of it.
        fence: Raised by every change of the owner.
        node: The id of the node that owns it.
        submitted_us: When it was submitted.
        changed_us: When its state changed at last.
        due_us: Not to be taken before this time.
        strikes: How often in a row its process has died without any progress.
        failures: How often its program has failed.
        waits: How often in a row something that it needs was in use, or missing on the machine.
        progress: How far it had come at the last end of its process.
        outcome: The status of the run when it was over.
        reason: Why it is where it is, in words.
        wakes: It rests, and a node continues it: at ``due_us``, unless that is 0, or when something is left in its inbox.
    """

    job: Job
    state: Placement
    fence: int = 0
    node: str = ""
    submitted_us: int = 0
    changed_us: int = 0
    due_us: int = 0
    strikes: int = 0
    failures: int = 0
    waits: int = 0
    progress: int = 0
    outcome: str = ""
    reason: str = ""
    wakes: bool = False

    @property
    def is_timed(self) -> bool:
        """Whether a node takes it when it is due."""
        return self.state == "queued" or (self.wakes and self.due_us > 0)

    @property
    def has_begun(self) -> bool:
        """Whether its program has done something, as far as the depot knows."""
        return self.progress > 0 or self.strikes > 0 or self.failures > 0


class Claim(msgspec.Struct, frozen=True):
    """A run that a node has taken: only with this fence it may be released."""

    job: Job
    fence: int


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a run that a node does not run any more; see ``Standing``."""

    state: Placement
    due_us: int = 0
    strikes: int = 0
    failures: int = 0
    waits: int = 0
    progress: int = 0
    outcome: str = ""
    reason: str = ""
    wakes: bool = False


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One life of a node.

    Attributes:
        id: Never used twice.
        pid: Its process.
        boot: Which start of the machine it belongs to.
        version: Of Bartack.
        slots: How many runs it runs at a time.
        started_us: When it started.
    """

    id: str
    pid: int
    boot: str
    version: str
    slots: int = 0
    started_us: int = 0


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Runs that are started again and again.

    Attributes:
        name: Its name.
        cron: When: five fields.
        zone: The time zone that the fields are meant in.
        workspace: Where ``bartack run`` is called.
        words: What follows ``bartack run``.
        missed: What to do about times that have passed while no node was there: start one run, or none.
        next_us: The next time.
        last_us: The last time that a run was started.
        last_run: That run.
        problem: Why the last one could not be started.
        environ: See ``Job.environ``.
    """

    name: str
    cron: str
    zone: str
    workspace: str
    words: tuple[str, ...]
    missed: Missed = "once"
    next_us: int = 0
    last_us: int = 0
    last_run: str = ""
    problem: str = ""
    environ: dict[str, str] = {}


class Seat(Protocol):
    """The right of one node to own runs. It ends with its process."""

    def close(self) -> None:
        """Leave it to the next node."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Depot(Protocol):
    """See the module."""

    def submit(self, job: Job, now_us: int) -> Standing:
        """Queue a run. One that is queued or owned already keeps its place and takes the new priority.

        Raises:
            QueueFullError: The queue takes no more.
            RunNotQueuedError: It is to follow a run that is not here.
            UsageError: Its priority is out of range, or it would follow itself.
        """
        ...

    def find(self, run: str) -> Standing | None:
        """A run by its id."""
        ...

    def standings(self) -> Sequence[Standing]:
        """All runs, in the order of their submission."""
        ...

    def withdraw(self, run: str) -> Standing:
        """Forget a run that no node owns. Its directory stays.

        Raises:
            RunNotQueuedError: It is not here, or a node owns it.
        """
        ...

    def sit(self, node: NodeFacts) -> Seat:
        """Take the seat for a node.

        Raises:
            NodeRunningError: Another node has it.
        """
        ...

    def seated(self) -> NodeFacts | None:
        """The node that has the seat now."""
        ...

    def take_over(self, node: str, now_us: int) -> Sequence[Standing]:
        """Own all that earlier nodes have owned. Only for the node that has the seat."""
        ...

    def claim(self, node: str, most: int, now_us: int) -> Sequence[Claim]:
        """Own up to ``most`` runs that are due.

        Runs that can never be due any more are held. Those whose workspace is in use get that as their reason.
        """
        ...

    def release(self, claim: Claim, verdict: Verdict, now_us: int) -> bool:
        """End the ownership of a run; ``False`` if another owner has it by now, and nothing was changed."""
        ...

    def settle(self, seen: Standing, verdict: Verdict, now_us: int) -> bool:
        """Decide about a run that rests or is held, because of what has happened to it elsewhere.

        ``False`` if it is not as it was ``seen`` any more, and nothing was changed.
        """
        ...

    def forget(self, before_us: int) -> int:
        """Forget the runs that were over before a time; returns how many."""
        ...

    def put_schedule(self, schedule: Schedule, *, replace: bool = False) -> None:
        """Keep a schedule.

        Raises:
            ScheduleError: There is one of this name, and it is not to be replaced.
        """
        ...

    def schedules(self) -> Sequence[Schedule]:
        """All of them, by name."""
        ...

    def advance(self, name: str, seen_us: int, schedule: Schedule) -> bool:
        """Replace a schedule if its next time is still ``seen_us``; whether it was: a time is used once."""
        ...

    def remove_schedule(self, name: str) -> Schedule:
        """Remove a schedule.

        Raises:
            ScheduleNotFoundError: There is none of this name.
        """
        ...

    def watch(self) -> Watch:
        """Wait for a change of any of this."""
        ...
