"""What people look for in a run, over time: marks, the status of the run, money and tokens. A part of ``spans.py``."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Final

from bartack.runtime.state import entries as e
from bartack.runtime.state.run_state import RunStatus, State
from bartack.runtime.state.spans.observed import Current
from bartack.runtime.state.spans.rows import HubSince, MarkKind, RunMark, Spent

LONGEST_TEXT: Final = 200
"""How much of the text of a mark is kept."""


class Marks:
    """Marks, statuses and sums, each with the entry that it came with.

    Attributes:
        all: The marks, in order.
        handlers: What is to be called after entries of these types were applied.
    """

    def __init__(self, current: Current) -> None:
        self.all: list[RunMark] = []
        self._current = current
        self._seqs = array("I")
        self._statuses: list[tuple[int, RunStatus]] = []
        self._failures: list[tuple[int, e.FailureRecorded | None]] = [(0, None)]
        """The failure of the session, from an entry on."""
        self._suppressed = array("I")
        """The entries with failures that came after that."""
        self._hubs: list[HubSince] = [HubSince(0, 0, 0, 0)]
        self._spent: list[Spent] = [Spent(0, 0, 0.0, 0)]
        self.handlers: Mapping[type[e.EntryData], Callable[..., None]] = {
            e.RunCreated: self._created,
            e.HubStarted: self._hub_started,
            e.ClockSet: self._clock_set,
            e.RunEnded: self._run_ended,
            e.FailureRecorded: self._failed,
            e.WorkerCrashed: self._crashed,
            e.StepStarted: self._step_started,
            e.StepFinished: self._step_ended,
            e.StepFailed: self._step_ended,
            e.QuestionAsked: self._question_asked,
            e.QuestionSettled: self._question_settled,
        }

    def note_status(self, status: RunStatus) -> None:
        """The run has this status now."""
        if not self._statuses or self._statuses[-1][1] != status:
            self._statuses.append((self._current.seq, status))

    def status_at(self, seq: int) -> RunStatus:
        """The status of the run after an entry, as far as the journal shows."""
        place = bisect_right(self._statuses, seq, key=lambda known: known[0]) - 1
        return self._statuses[place][1] if place >= 0 else "running"

    def since(self, seq: int) -> list[RunMark]:
        """The marks after an entry."""
        return self.all[bisect_right(self._seqs, seq) :]

    def failure_at(self, seq: int) -> e.FailureRecorded | None:
        """Why the session had failed, after an entry."""
        return self._failures[bisect_right(self._failures, seq, key=lambda known: known[0]) - 1][1]

    def suppressed_at(self, seq: int) -> list[int]:
        """The entries with failures that came after the one that counts, up to an entry."""
        since = self._failures[bisect_right(self._failures, seq, key=lambda known: known[0]) - 1][0]
        return [place for place in self._suppressed if since < place <= seq]

    def hub_at(self, seq: int) -> HubSince:
        """The hub that ran the run, after an entry."""
        return self._hubs[bisect_right(self._hubs, seq, key=lambda known: known.seq) - 1]

    def spent_at(self, seq: int) -> Spent:
        """What agents had cost and used after an entry."""
        return self._spent[bisect_right(self._spent, seq, key=lambda point: point.seq) - 1]

    def spent(self, most: int, seq: int) -> list[Spent]:
        """How cost and tokens grew up to an entry: at most this many points, the last one included."""
        points = self._spent[1 : bisect_right(self._spent, seq, key=lambda point: point.seq)]
        step = max(-(-len(points) // most), 1)
        return points[(len(points) - 1) % step :: step] if points else []

    # Kinds of entries.

    def _created(self, state: State, data: e.RunCreated) -> None:
        self._current.run = data.run

    def _hub_started(self, state: State, data: e.HubStarted) -> None:
        self._current.hub_us = self._current.at
        self._failures.append((self._current.seq, None))
        self._hubs.append(HubSince(self._current.seq, data.hub, self._current.at, state.dead_us))
        if data.hub > 1:
            away = f" after {data.dead_us / 1e6:.1f} s without a hub" if data.dead_us > 0 else ""
            self._mark("resume", f"resumed{away}")

    def _clock_set(self, state: State, data: e.ClockSet) -> None:
        self._hubs.append(self._hubs[-1]._replace(seq=self._current.seq, dead_us=state.dead_us))

    def _run_ended(self, state: State, data: e.RunEnded) -> None:
        self._mark("end", f"{data.status}{f': {data.reason}' if data.reason else ''}")

    def _failed(self, state: State, data: e.FailureRecorded) -> None:
        if state.failure is data:
            self._failures.append((self._current.seq, data))
        else:
            self._suppressed.append(self._current.seq)
        if not data.suppressed:
            name = data.error.type.rpartition(":")[2]
            self._mark("failure", f"{name}: {data.error.message}", data.worker)

    def _crashed(self, state: State, data: e.WorkerCrashed) -> None:
        self._mark("crash", data.reason, data.path)

    def _step_started(self, state: State, data: e.StepStarted) -> None:
        if data.question:
            self._mark("question", f"{data.question}: {data.about}", _owner(state, data.p))

    def _step_ended(self, state: State, data: e.StepFinished | e.StepFailed) -> None:
        if data.usd or data.used is not None:
            current = self._current
            self._spent.append(Spent(current.at, current.seq, state.spent_usd, state.spent.tokens))
        if data.step == "ask" and isinstance(data, e.StepFinished):
            self._mark("answer", f"{data.about}{_by(data.by)}".lstrip(), _owner(state, data.p))

    def _question_asked(self, state: State, data: e.QuestionAsked) -> None:
        self._mark("question", f"{data.id}: {data.about}", _owner(state, data.p))

    def _question_settled(self, state: State, data: e.QuestionSettled) -> None:
        if data.how == "answered":
            self._mark("answer", f"{data.id}: {data.answer}{_by(data.by)}")

    # Inside.

    def _mark(self, kind: MarkKind, text: str, path: str = "") -> None:
        self.all.append(RunMark(self._current.at, kind, self._current.seq, text[:LONGEST_TEXT], path))
        self._seqs.append(self._current.seq)


def _by(name: str) -> str:
    return f" (by {name})" if name else ""


def _owner(state: State, p: str) -> str:
    worker = state.worker_of(p)
    return p if worker is None else worker.path
