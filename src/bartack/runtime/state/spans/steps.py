"""Steps as spans: the columns that ``spans.py`` keeps of them, and how they are filled while entries are added."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from bartack.runtime.protocol.frames import ErrorData
from bartack.runtime.protocol.paths import CallPlace, outer
from bartack.runtime.protocol.steps import BODIES
from bartack.runtime.state import entries as e
from bartack.runtime.state.spans.calls import CallColumns
from bartack.runtime.state.spans.columns import OPEN, Texts
from bartack.runtime.state.spans.lanes import (
    ABORTED,
    AFTER,
    FAILED,
    FINISHED,
    OPENED,
    STATUS_BITS,
    STATUSES,
    UNDONE,
    LaneSteps,
    StepTimes,
)
from bartack.runtime.state.spans.observed import Current
from bartack.runtime.state.spans.rows import Cost, ErrorFacts, StepSpan
from bartack.runtime.state.worker_state import OpenStep, StepKey, WorkerState

TOOL: Final = "tool"
"""The kind of a call of a tool. It is not a step of the program; its number is 0."""
OUTPUTS: Final = frozenset({"print", "log"})
"""Kinds of steps whose values are texts for people."""
CLEANUP: Final = 16
ONCE: Final = 32
LONGEST_MESSAGE: Final = 400
"""How much of the message of an error is kept."""

_OUTCOMES: Final = (e.StepFinished, e.StepFailed)
_OF_MAIL: Final = (e.MessageSent, e.MessageTaken, e.MessagesDrained)
"""Outcomes of steps that are about a mailbox."""
_TAKES_BACK: Final = (e.WorkerRewound, e.StepSetAside, e.WorkersDropped)
"""Entries that undo steps."""


class StepAttempt(NamedTuple):
    """An attempt at a step, from an entry on."""

    seq: int
    number: int
    due_us: int
    """When a timer fires, or when the attempt begins, if it has not begun yet."""
    began_us: int = 0
    """Of a body: when it began. Each of its attempts has its own time; other steps are one wait."""


class StepAttempts:
    """Attempts at steps; few steps have more than one."""

    def __init__(self, steps: StepTimes) -> None:
        self._steps = steps
        self._of: dict[int, list[StepAttempt]] = {}

    def add(self, row: int, attempt: StepAttempt) -> None:
        """Another attempt at a step."""
        self._of.setdefault(row, []).append(attempt)

    def at(self, row: int, seq: int) -> StepAttempt:
        """The attempt that was under way, or next, after an entry."""
        found = [attempt for attempt in self._of.get(row, ()) if attempt.seq <= seq]
        return found[-1] if found else StepAttempt(self._steps.rows.opened[row], 1, 0)

    def began(self, row: int, seq: int) -> tuple[int, int]:
        """The entry and the moment from which the time of a step counts, after an entry."""
        bodies = [attempt for attempt in self._of.get(row, ()) if attempt.began_us and attempt.seq <= seq]
        steps = self._steps
        return (bodies[-1].seq, bodies[-1].began_us) if bodies else (steps.rows.opened[row], steps.began[row])

    def entries(self, row: int) -> list[int]:
        """The entries of the attempts at a step after its first."""
        return [attempt.seq for attempt in self._of.get(row, ())]


class Outcomes:
    """The entries that are outcomes of steps, by worker."""

    def __init__(self) -> None:
        self._of: defaultdict[str, array[int]] = defaultdict(lambda: array("I"))

    def add(self, worker: str, seq: int) -> None:
        """A step of a worker has its outcome."""
        self._of[worker].append(seq)

    def count(self, worker: str, after: int, seq: int) -> int:
        """How many steps of a worker had their outcome after one entry, up to another one."""
        found = self._of.get(worker)
        return 0 if found is None else bisect_right(found, seq) - bisect_right(found, after)


class StepColumns(StepTimes):
    """All steps of a run, each with its path, number, kind and times; what few of them have is kept beside the columns.

    Attributes:
        kinds: The kinds of steps, by number.
        lanes: The paths, by number.
        subject: Of each, the number of the text of what it is about.
        calls: The calls of agents that some of them are.
        outputs: The rows of those that print or log.
        attempts: Which attempt each was at.
        outcomes: The outcomes of each worker.
    """

    def __init__(self, current: Current, times: array[int], texts: Texts) -> None:
        super().__init__(times)
        self.kinds: list[str] = []
        self.lanes: list[LaneSteps] = []
        self.calls = CallColumns(current, texts)
        self.outputs = array("I")
        self.attempts = StepAttempts(self)
        self.outcomes = Outcomes()
        self._current = current
        self._texts = texts
        self._lane = array("I")
        self._n = array("I")
        self.subject = array("I")
        self._kind_numbers: dict[str, int] = {}
        self._by_path: dict[str, LaneSteps] = {}
        self._of_worker: dict[str, list[LaneSteps]] = {}
        self._open: dict[StepKey, int] = {}
        self._tools: dict[StepKey, dict[int, int]] = {}
        """The calls of tools that are under way, by the step of their prompt and their number."""
        self._outcome = OPENED
        self._ended = -1
        """The row that the outcome that is being added has closed."""
        # What few steps have.
        self._timeouts: dict[int, float] = {}
        self._reserved: dict[int, float] = {}
        self._questions: dict[int, str] = {}
        self._by: dict[int, str] = {}
        self._costs: dict[int, Cost] = {}
        self._errors: dict[int, ErrorFacts] = {}
        self._undone: dict[int, tuple[int, int]] = {}
        """Steps that were taken out of the history of their worker: the entry that did it, and their status before."""

    def __len__(self) -> int:
        return len(self._n)

    # What is observed.

    def opened(self, worker: WorkerState, step: OpenStep) -> None:
        """A step is open, or another attempt at it begins."""
        row = self._open.get(step.key)
        if row is None:
            row = self._open[step.key] = self.rows.open(self._current.seq)
            flags = (CLEANUP if step.cleanup else 0) | (ONCE if step.once else 0)
            self._add(row, worker, step.p, step.n, step.step, step.about, step.at, OPENED | flags)
            if step.timeout_s is not None:
                self._timeouts[row] = step.timeout_s
            if step.question:
                self._questions[row] = step.question
        if step.reserved_usd:
            self._reserved[row] = step.reserved_usd
        if step.attempt > 1 or step.due:
            began = step.at if step.in_worker else 0
            self.attempts.add(row, StepAttempt(self._current.seq, step.attempt, step.due, began))
        if step.step == "think":
            self.calls.opened(row, worker, step)

    def gone(self, step: StepKey) -> None:
        """A step is not open any longer."""
        row = self._open.pop(step, None)
        if row is None:
            return
        self._close(row, self._outcome or self._lost_as())
        self._ended = row
        for call in self._tools.pop(step, {}).values():
            self._close(call, self._lost_as())

    def settling(self, *, failed: bool) -> None:
        """A step has an outcome."""
        self._outcome = FAILED if failed else FINISHED
        self._ended = -1

    def settled(self, worker: WorkerState, step: StepKey, kind: str, *, cleanup: bool) -> None:
        """The outcome of a step was added."""
        row, status = self._ended, self._outcome
        self._outcome = OPENED
        data = self._current.data
        p, n = step
        if row < 0:
            row = self.rows.add(self._current.seq)
            took = data.took_us if isinstance(data, _OUTCOMES) else 0
            self._add(row, worker, p, n, kind, "", *self._beginning(worker, p, kind, took, status))
        if cleanup:
            self.status[row] |= CLEANUP
        self._by_path[p].last_us = self._current.at
        self.outcomes.add(worker.path, self._current.seq)
        if isinstance(data, _OUTCOMES):
            self._add_outcome(row, data)
        elif isinstance(data, _OF_MAIL):
            self.subject[row] = self._texts.add(data.mailbox)

    # Entries that change nothing that is observed.

    def retried(self, data: e.StepRetried) -> None:
        """An attempt at a step failed."""
        row = self._open.get((data.p, data.n))
        if row is not None:
            self.attempts.add(row, StepAttempt(self._current.seq, data.attempt + 1, data.due))
            self._errors[row] = error_facts(data.error)

    def tool_called(self, worker: WorkerState, data: e.ToolCalled) -> None:
        """The agent of a prompt called a tool."""
        row = self.rows.open(self._current.seq)
        place = CallPlace(data.p, data.n, data.call)
        self._add(row, worker, place.path, 0, TOOL, data.tool, self._current.at, OPENED)
        self._tools.setdefault((data.p, data.n), {})[data.call] = row

    def tool_ended(self, data: e.ToolFinished | e.ToolFailed) -> None:
        """A tool returned or raised."""
        row = self._tools.get((data.p, data.n), {}).pop(data.call, None)
        if row is None:
            return
        if isinstance(data, e.ToolFailed):
            self._errors[row] = error_facts(data.error)
        self._close(row, FAILED if isinstance(data, e.ToolFailed) else FINISHED)

    def rewound(self, worker: WorkerState, to: int) -> None:
        """What a worker did from an entry on is undone, except what its history has kept."""
        kept = set(worker.history)
        first = self.rows.opened_by(to - 1)
        rows = [*self.rows.at(to - 1), *range(first, len(self))]
        lanes, closed = self.lanes, self.rows.closed
        self._undo(
            row
            for row in rows
            if lanes[self._lane[row]].worker == worker.path and to <= closed[row] and closed[row] not in kept
        )

    def dropped(self, worker: str) -> None:
        """A worker was removed from the run: all that it did is undone."""
        if isinstance(self._current.data, _TAKES_BACK):
            self._undo(row for lane in self._of_worker.get(worker, ()) for row in lane.rows())

    # What is asked.

    def step(self, row: int, seq: int) -> StepSpan:
        """One step, as of an entry."""
        lane, closed, flags = self.lanes[self._lane[row]], self.rows.closed[row], self.status[row]
        is_open = closed > seq
        attempt = self.attempts.at(row, seq)
        cost = None if is_open else self._costs.get(row)
        return StepSpan(
            row=row,
            p=lane.path,
            n=self._n[row],
            worker=lane.worker,
            kind=self.kinds[self.kind[row]],
            status=STATUSES[self.status_at(row, seq)],
            about=self._texts[self.subject[row]],
            from_seq=self.rows.opened[row],
            to_seq=0 if closed == OPEN else closed,
            began_us=self.began[row],
            began="after" if flags & AFTER else "exact",
            ended_us=0 if closed == OPEN else self.times[closed],
            attempt=attempt.number,
            due_us=attempt.due_us,
            timeout_s=self._timeouts.get(row),
            usd=0.0 if cost is None else cost.usd,
            tokens=0 if cost is None else cost.tokens,
            reserved_usd=self._reserved.get(row, 0.0),
            by="" if is_open else self._by.get(row, ""),
            question=self._questions.get(row, ""),
            once=bool(flags & ONCE),
            cleanup=bool(flags & CLEANUP),
            error=self._errors.get(row),
        )

    def status_at(self, row: int, seq: int) -> int:
        """The number of the status of a step after an entry."""
        if self.rows.closed[row] > seq:
            return OPENED
        undone = self._undone.get(row)
        return self.status[row] & STATUS_BITS if undone is None or undone[0] <= seq else undone[1]

    def key(self, row: int) -> StepKey:
        """Path and number of a step."""
        return self.lanes[self._lane[row]].path, self._n[row]

    def lane_of(self, row: int) -> LaneSteps:
        """The lane of a step."""
        return self.lanes[self._lane[row]]

    def about(self, row: int) -> str:
        """What a step is about."""
        return self._texts[self.subject[row]]

    def reserved(self, rows: Iterable[int]) -> float:
        """The money that is reserved for these steps."""
        return sum(self._reserved.get(row, 0.0) for row in rows) if self._reserved else 0.0

    def costs(self) -> list[Cost]:
        """What steps have cost, in the order of their outcomes."""
        return list(self._costs.values())

    def rows_of(self, p: str) -> list[int]:
        """The steps of a path, in the order in which they began."""
        lane = self._by_path.get(p)
        return [] if lane is None else lane.rows()

    def entries_of(self, row: int) -> list[int]:
        """The entries of a step: its beginning, its attempts, its outcome, and what undid it."""
        closed, undone = self.rows.closed[row], self._undone.get(row)
        found = {self.rows.opened[row], *self.attempts.entries(row)}
        found |= {closed} if closed != OPEN else set()
        return sorted(found | ({undone[0]} if undone is not None else set()))

    def lanes_of(self, worker: str) -> list[LaneSteps]:
        """The paths of a worker: its own, those of its branches and of the tools that it ran."""
        return self._of_worker.get(worker, [])

    # Inside.

    def _add(
        self,
        row: int,
        worker: WorkerState,
        p: str,
        n: int,
        kind: str,
        about: str,
        began: int,
        status: int,
    ) -> None:
        lane = self._by_path.get(p)
        if lane is None:
            lane = self._new_lane(p, worker)
        self._lane.append(lane.id)
        self._n.append(n)
        self.subject.append(self._texts.add(about))
        self.began.append(began)
        self.kind.append(self._number_of(kind))
        self.status.append(status)
        lane.add(row)
        if kind in OUTPUTS:
            self.outputs.append(row)

    def _new_lane(self, p: str, worker: WorkerState) -> LaneSteps:
        around = self._by_path.get(outer(p))
        last = self.times[worker.seq] if around is None else around.last_us
        lane = self._by_path[p] = LaneSteps(len(self.lanes), p, worker.path, self, last)
        self.lanes.append(lane)
        self._of_worker.setdefault(worker.path, []).append(lane)
        return lane

    def _number_of(self, kind: str) -> int:
        found = self._kind_numbers.get(kind)
        if found is None:
            found = self._kind_numbers[kind] = len(self.kinds)
            self.kinds.append(kind)
        return found

    def _beginning(self, worker: WorkerState, p: str, kind: str, took: int, status: int) -> tuple[int, int]:
        """When a step began whose beginning is not in the journal, and its status."""
        at = self._current.at
        if took or kind not in BODIES:
            return at - took, status
        lane = self._by_path.get(p)
        if lane is None:
            lane = self._new_lane(p, worker)
        return min(max(lane.last_us, self._current.hub_us), at), status | AFTER

    def _add_outcome(self, row: int, data: e.StepFinished | e.StepFailed) -> None:
        if data.about:
            self.subject[row] = self._texts.add(data.about)
        if data.usd or data.used is not None:
            tokens = 0 if data.used is None else data.used.tokens
            self._costs[row] = Cost(row, self._current.seq, data.usd, tokens)
        if isinstance(data, e.StepFailed):
            self._errors[row] = error_facts(data.error)
            return
        self._errors.pop(row, None)
        if data.step == "think":
            self.calls.finished(row, (data.p, data.n), self._current.value)
        if data.by:
            self._by[row] = data.by

    def _lost_as(self) -> int:
        return UNDONE if isinstance(self._current.data, _TAKES_BACK) else ABORTED

    def _close(self, row: int, status: int) -> None:
        self.rows.close(row, self._current.seq)
        self.status[row] = self.status[row] & ~STATUS_BITS | status

    def _undo(self, rows: Iterable[int]) -> None:
        seq, changed = self._current.seq, dict[int, list[int]]()
        for row in rows:
            flags = self.status[row]
            if self.rows.closed[row] < seq and flags & STATUS_BITS != UNDONE:
                self.last_undo = seq
                self._undone[row] = (seq, flags & STATUS_BITS)
                self.status[row] = flags & ~STATUS_BITS | UNDONE
                changed.setdefault(self._lane[row], []).append(row)
        for lane, of_lane in changed.items():
            self.lanes[lane].redo(of_lane)


def error_facts(error: ErrorData) -> ErrorFacts:
    """What an error says, in short."""
    return ErrorFacts(error.type, error.message[:LONGEST_MESSAGE], error.code)
