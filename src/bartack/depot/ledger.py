"""The decisions of a depot, on plain values: every engine calls these and keeps what they return. Without I/O.

Each function takes the runs of the depot as they are and returns the standings that change.

**Why an old fence can change nothing.** The engine lets one caller at a time decide: from reading the runs to the last write it
holds a lock, so what a function has checked is still true when it is written. A run is owned from ``claim`` on; ``take_over`` gives
it to another node, ``release`` ends that. Each of the three raises the fence by one, and nothing lowers it: ``submit`` keeps the
fence of a run that is there. So no two claims of a run have the same fence. ``release`` is the only change that a node makes with a
claim, and it writes nothing unless the run is owned with just that fence. A node that was stopped, lost its runs to the next
node and wakes up has an older one. Only a run that is deleted loses its fence. ``withdraw`` and ``forgotten`` delete none that is
owned, and a node that still has an old claim of it has lost its seat, which it holds as long as it lives: so it is dead.

The fence protects the place in the queue, not the journal: two hubs of one run are kept apart by the lock of its journal.

**Why** ``claim`` **may be torn between files.** It changes several runs, and an engine may write them one by one and be killed in
between. That leaves the first of the list, in its order: the runs that are taken, then those that are held, then new reasons. A
run is taken if its workspace is free *with the runs before it in the list taken*, so every beginning of the list keeps the rule
of workspaces. Whether a run is held follows from runs that are over, and a reason is only a text. What was not written is decided
again by the next ``claim``. A run that was taken, and whose node never learned it, is owned by a node without a hub for it: the
same node finds it at its next look (``Node._adopt``), another one by ``take_over``, and both judge it by its journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from bartack.depot._contract import MOST_PRIORITY, MOST_QUEUED, Claim, Job, Standing, Verdict
from bartack.errors import QueueFullError, RunNotQueuedError, UsageError

Runs = Mapping[str, Standing]
ACTIVE: Final = frozenset({"queued", "owned"})
SETTLED: Final = frozenset({"resting", "held"})
"""States in which no node looks after a run, so that it may end elsewhere."""
SET_BACK_US: Final = 60 * 1_000_000
"""A clock that is adjusted by less was not set."""


def submit(runs: Runs, job: Job, now_us: int, most: int = MOST_QUEUED) -> Standing:
    """See ``Depot.submit``; the queue takes ``most`` runs."""
    _check(runs, job)
    found = runs.get(job.run)
    if found is not None and found.state in ACTIVE:
        return msgspec.structs.replace(found, job=job)
    if sum(one.state in ACTIVE for one in runs.values()) >= most:
        raise QueueFullError(most)
    fence = 0 if found is None else found.fence
    return Standing(job=job, state="queued", fence=fence, submitted_us=now_us, changed_us=now_us)


def _check(runs: Runs, job: Job) -> None:
    if not -MOST_PRIORITY <= job.priority <= MOST_PRIORITY:
        raise UsageError(
            "--priority", f"it is between -{MOST_PRIORITY} and {MOST_PRIORITY}, not {job.priority}"
        )
    for name in job.after:
        if name == job.run or job.run in _all_before(runs, name):
            raise UsageError("--after", f"{job.run} would wait for itself")
        if name not in runs:
            raise RunNotQueuedError(name, "it is not in the queue, so nothing can follow it")


def _all_before(runs: Runs, run: str) -> set[str]:
    """The runs that have to complete before a run."""
    found, left = set[str](), [run]
    while left:
        standing = runs.get(left.pop())
        new = set(standing.job.after) - found if standing is not None else set[str]()
        found |= new
        left += new
    return found


def withdraw(runs: Runs, run: str) -> Standing:
    """See ``Depot.withdraw``."""
    found = runs.get(run)
    if found is None:
        raise RunNotQueuedError(run, "it is not in the queue")
    if found.state == "owned":
        raise RunNotQueuedError(run, "it is running")
    return found


def take_over(runs: Runs, node: str, now_us: int) -> list[Standing]:
    """See ``Depot.take_over``."""
    return [
        msgspec.structs.replace(one, node=node, fence=one.fence + 1, changed_us=now_us)
        for one in runs.values()
        if one.state == "owned" and one.node != node
    ]


def claim(runs: Runs, node: str, most: int, now_us: int) -> list[Standing]:
    """See ``Depot.claim``: the runs that the node owns now, those that are held, and those with a new reason."""
    waiting = [one for one in runs.values() if one.is_timed]
    held = [
        msgspec.structs.replace(one, state="held", reason=reason, changed_us=now_us)
        for one in waiting
        if (reason := _never(runs, one))
    ]
    gone = {one.job.run for one in held}
    ready = [
        one for one in waiting if _is_due(one, now_us) and one.job.run not in gone and _may_begin(runs, one)
    ]
    ready.sort(key=lambda one: (-one.job.priority, one.submitted_us, one.job.run))
    taken, busy = dict[str, Standing](), dict[str, str]()
    for one in ready:
        occupant = _find_occupant({**runs, **taken}, one)
        if occupant:
            busy[one.job.run] = busy_workspace(occupant)
        elif len(taken) < most:
            taken[one.job.run] = msgspec.structs.replace(
                one, state="owned", node=node, fence=one.fence + 1, reason="", changed_us=now_us, wakes=False
            )
    left = [one for one in waiting if one.job.run not in taken and one.job.run not in gone]
    noted = [
        msgspec.structs.replace(one, reason=reason)
        for one in left
        if (reason := busy.get(one.job.run, _waits_for(runs, one))) != one.reason
    ]
    return [*taken.values(), *held, *noted]


def busy_workspace(occupant: str) -> str:
    """The reason of a run whose workspace is in use."""
    return f"waits for the workspace: {occupant} works there"


def _find_occupant(runs: Runs, one: Standing) -> str:
    """The run that keeps another from its workspace; empty if there is none.

    A run that has begun and that a node continues keeps its workspace meanwhile: the files are in the middle of its work.
    """
    for name, other in runs.items():
        is_shared = other.job.use == one.job.use == "shared"
        if name == one.job.run or other.job.workspace != one.job.workspace or is_shared:
            continue
        comes_back = (other.state == "queued" or other.wakes) and other.has_begun and not one.has_begun
        if "free" not in {other.job.use, one.job.use} and (other.state == "owned" or comes_back):
            return name
    return ""


def _is_due(one: Standing, now_us: int) -> bool:
    """Whether the time of a run has come. A clock that was set back does not hold up a retry; timers follow the clock."""
    was_set_back = now_us < one.changed_us - SET_BACK_US
    return one.due_us <= now_us or (one.state == "queued" and was_set_back)


def _before(runs: Runs, one: Standing) -> Iterable[tuple[str, Standing | None]]:
    """The runs that have to complete before a run begins. One that has begun continues, whatever becomes of them."""
    return () if _has_begun(one) else ((name, runs.get(name)) for name in one.job.after)


def _has_begun(one: Standing) -> bool:
    """Whether a run has been active, even if it has not finished a step."""
    return one.has_begun or one.state != "queued"


def _may_begin(runs: Runs, one: Standing) -> bool:
    return all(other is not None and other.outcome == "completed" for _, other in _before(runs, one))


def _never(runs: Runs, one: Standing) -> str:
    """Why a run can never begin: one that it follows has ended otherwise, or is not known any more."""
    for name, other in _before(runs, one):
        if other is None:
            return f"it was to follow {name}, which is not in the queue any more"
        if other.state == "over" and other.outcome != "completed":
            return f"it was to follow {name}, which is {other.outcome or 'over'}"
    return ""


def _waits_for(runs: Runs, one: Standing) -> str:
    """The reason of a run that is not taken: what keeps the run before it, if only a person continues that one."""
    if _has_begun(one) or not one.job.after:
        return one.reason
    for name, other in _before(runs, one):
        if other is not None and (other.state == "held" or (other.state == "resting" and not other.wakes)):
            why = f": {other.reason}" if other.reason else ""
            return f"waits for {name}, which is {'held' if other.state == 'held' else 'stopped'}{why}"
    return ""


def release(runs: Runs, claimed: Claim, verdict: Verdict, now_us: int) -> Standing | None:
    """See ``Depot.release``; ``None`` if the fence has been raised."""
    found = runs.get(claimed.job.run)
    if found is None or found.state != "owned" or found.fence != claimed.fence:
        return None
    return _decided(found, verdict, now_us)


def settle(runs: Runs, seen: Standing, verdict: Verdict, now_us: int) -> Standing | None:
    """See ``Depot.settle``; ``None`` if the run has changed since it was seen, or a node takes care of it."""
    found = runs.get(seen.job.run)
    # Queueing a run again does not raise its fence, because its owner does not change.
    if found is None or (found.state, found.fence, found.changed_us) != (
        seen.state,
        seen.fence,
        seen.changed_us,
    ):
        return None
    return _decided(found, verdict, now_us) if found.state in SETTLED else None


def _decided(found: Standing, verdict: Verdict, now_us: int) -> Standing:
    return msgspec.structs.replace(
        found,
        state=verdict.state,
        node="",
        fence=found.fence + 1,
        changed_us=now_us,
        due_us=verdict.due_us,
        strikes=verdict.strikes,
        failures=verdict.failures,
        waits=verdict.waits,
        progress=verdict.progress,
        outcome=verdict.outcome,
        reason=verdict.reason,
        wakes=verdict.wakes,
    )


def forgotten(runs: Runs, before_us: int) -> list[str]:
    """See ``Depot.forget``. One that another run still waits for stays."""
    needed = {name for one in runs.values() if one.state != "over" for name in one.job.after}
    return [
        name
        for name, one in runs.items()
        if one.state == "over" and one.changed_us < before_us and name not in needed
    ]


def ordered(runs: Iterable[Standing]) -> list[Standing]:
    """Runs in the order of their submission."""
    return sorted(runs, key=lambda one: (one.submitted_us, one.job.run))
