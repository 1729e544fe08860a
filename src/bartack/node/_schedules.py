"""The schedules of a user: which of them are due, and what follows from how a start went. ``_launch.py`` starts the processes.

    due ──start──▶ starting ──its process ends──▶ recorded: next time, last run or problem

A time is used once, whatever is killed when. Its run carries a key that is made of the schedule and the time. The time is replaced
by the next one only after the start has ended, so a node that finds a time unused starts it again, and that start finds the run by
its key instead of making a second one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bartack.core.closing import Closing
from bartack.core.disk import is_disk_trouble
from bartack.depot import Depot, Schedule, Standing
from bartack.errors import ScheduleError, ScheduleNotFoundError
from bartack.node._core import SECOND_US
from bartack.node._cron import load_zone, next_time
from bartack.node._guard import describe_fault
from bartack.node._hubs import find_outcome
from bartack.node._launch import Launch, Start, StartOutcome
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.starts import has_key

LATE_US: Final = 300 * SECOND_US
"""A time that passed longer ago is missed: no node was running, or the machine was asleep."""
POLL_US: Final = SECOND_US // 4
"""How often to look whether a start has ended."""
STUCK_US: Final = 60 * SECOND_US
"""How often to look at a schedule whose next time cannot be computed."""

Say = Callable[[str], object]
Failed = Callable[[Schedule, str], object]
"""Takes a schedule and why no run of it was started."""


class _Begun(NamedTuple):
    due_us: int
    began_us: int
    start: Start


class Schedules(Closing):
    """The chores of a node: starts what is due; see the module.

    Args:
        depot: Where the schedules are.
        launch: Starts the process that makes a run.
        say: Takes a line about what was started or not.
        failed: Takes each start that failed, before that is recorded; a node that is killed in between reports it again.
    """

    def __init__(self, depot: Depot, launch: Launch, say: Say, failed: Failed | None = None) -> None:
        self._failed = failed
        self._depot = depot
        self._launch = launch
        self._say = say
        self._begun: dict[str, _Begun] = {}

    def __call__(self, now_us: int) -> int | None:
        """Do what is due. Returns when to look again; ``None`` if there are no schedules."""
        self._collect(now_us)
        for schedule in self._depot.schedules():
            if schedule.next_us <= now_us and schedule.name not in self._begun:
                self._begin_guarded(schedule, now_us)
        times = [self._look_at(schedule, now_us) for schedule in self._depot.schedules()]
        return min(times, default=None)

    def close(self) -> None:
        """Kill the starts in progress. Their times are unused: the next node repeats them."""
        for begun in self._begun.values():
            begun.start.kill()
        self._begun.clear()

    def _look_at(self, schedule: Schedule, now_us: int) -> int:
        if schedule.name in self._begun:
            return now_us + POLL_US
        return schedule.next_us if schedule.next_us > now_us else now_us + STUCK_US

    def _begin_guarded(self, schedule: Schedule, now_us: int) -> None:
        try:
            self._begin(schedule, now_us)
        except (
            Exception
        ) as error:  # the boundary: a fault of one schedule is its problem, and never ends the node
            if is_disk_trouble(error):
                raise
            self._finish(schedule, StartOutcome(problem=describe_fault(error)), now_us, now_us)

    def _begin(self, schedule: Schedule, now_us: int) -> None:
        if self._following(schedule, now_us) is None:
            return
        key = start_key(schedule.name, schedule.next_us)
        problem = _find_obstacle(schedule, self._depot.standings(), key, now_us)
        is_skipped = Path(schedule.workspace).is_dir()  # else it cannot start, now and at any other time
        skipped = StartOutcome(problem=problem, is_skipped=is_skipped)
        started = skipped if problem else self._launch(schedule, key)
        if isinstance(started, StartOutcome):
            self._finish(schedule, started, now_us, now_us)
        else:
            self._begun[schedule.name] = _Begun(schedule.next_us, now_us, started)

    def _collect(self, now_us: int) -> None:
        """See which starts have ended, and record how."""
        for name, begun in list(self._begun.items()):
            outcome = begun.start.outcome()
            if outcome is None:
                continue
            del self._begun[name]
            schedule = find_schedule(self._depot, name)
            if schedule is None or schedule.next_us != begun.due_us:
                continue  # it was removed or replaced meanwhile
            self._finish(schedule, outcome, begun.began_us, now_us)

    def _finish(self, schedule: Schedule, outcome: StartOutcome, began_us: int, now_us: int) -> None:
        following_us = self._following(schedule, now_us)
        if outcome.problem and self._failed is not None and not outcome.is_skipped:
            self._failed(schedule, outcome.problem)
        if following_us is not None:
            self._record(schedule, following_us, outcome, began_us)

    def _following(self, schedule: Schedule, now_us: int) -> int | None:
        """The next time of a schedule. If there is none the present one is kept: the database of time zones may come back."""
        try:
            return next_time(schedule.name, schedule.cron, schedule.zone, now_us)
        except ScheduleError as error:
            self._record(schedule, schedule.next_us, StartOutcome(problem=error.problem))
            return None

    def _record(self, schedule: Schedule, next_us: int, outcome: StartOutcome, began_us: int = 0) -> None:
        changed = with_outcome(schedule, outcome, began_us, next_us)
        if changed == schedule or not self._depot.advance(schedule.name, schedule.next_us, changed):
            return
        self._say(f"schedule {schedule.name}: {outcome.problem or f'{outcome.run} is queued'}")


def start_now(depot: Depot, name: str, launch: Launch, now_us: int) -> StartOutcome:
    """Start a run of a schedule now, and wait until it is queued. The next time of the schedule stays.

    Raises:
        ScheduleError: It cannot be started.
        ScheduleNotFoundError: No schedule has this name.
    """
    schedule = find_schedule(depot, name)
    if schedule is None:
        raise ScheduleNotFoundError(name)
    problem = _find_hindrance(schedule, depot.standings())
    started = StartOutcome(problem=problem) if problem else launch(schedule, "")
    outcome = started if isinstance(started, StartOutcome) else started.wait_outcome()
    if outcome.problem:
        raise ScheduleError(name, outcome.problem)
    current = find_schedule(depot, name)
    if current is not None:
        depot.advance(name, current.next_us, with_outcome(current, outcome, now_us, current.next_us))
    return outcome


def find_schedule(depot: Depot, name: str) -> Schedule | None:
    """A schedule by its name."""
    return next((one for one in depot.schedules() if one.name == name), None)


def start_key(name: str, due_us: int) -> str:
    """What the start of a schedule for one of its times is recognised by."""
    return hashlib.sha256(f"schedule {name} {due_us}".encode()).hexdigest()


def with_outcome(schedule: Schedule, outcome: StartOutcome, began_us: int, next_us: int) -> Schedule:
    """A schedule after a start."""
    changed = msgspec.structs.replace(schedule, next_us=next_us, problem=outcome.problem)
    if not outcome.run:
        return changed
    return msgspec.structs.replace(changed, last_us=began_us, last_run=outcome.run)


def _find_obstacle(schedule: Schedule, standings: Sequence[Standing], key: str, now_us: int) -> str:
    """Why a time is not used, in words; empty if it is to be used."""
    due = datetime.fromtimestamp(schedule.next_us / SECOND_US, load_zone(schedule.name, schedule.zone))
    if schedule.missed == "skip" and now_us - schedule.next_us > LATE_US:
        return f"{due:%Y-%m-%d %H:%M} was skipped: no node was running"
    problem = _find_hindrance(schedule, standings, key)
    return f"{due:%Y-%m-%d %H:%M} was skipped: {problem}" if problem else ""


def _find_hindrance(schedule: Schedule, standings: Sequence[Standing], key: str = "") -> str:
    """Why no run of a schedule can be started now. The run of a start that is repeated, by its key, is none."""
    if not Path(schedule.workspace).is_dir():
        return f"its workspace {schedule.workspace} is gone"
    active = [
        one
        for one in standings
        if one.job.schedule == schedule.name and (one.state in {"queued", "owned"} or one.wakes)
    ]
    for one in active:
        if not has_key(RunDir(one.job.path), key) and not _is_over(one):
            return f"{one.job.run} is still {'running' if one.state == 'owned' else one.state}"
    return ""


def _is_over(one: Standing) -> bool:
    """Whether a run that rests has ended elsewhere, and no node has looked at it since."""
    return one.state == "resting" and bool(find_outcome(one.job, one.changed_us))
