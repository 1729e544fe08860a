"""Workers and questions as spans: the columns that ``spans.py`` keeps of them."""

from __future__ import annotations

from array import array
from typing import Final

import msgspec

from bartack.runtime.state import entries as e
from bartack.runtime.state.naming import label_of, one_line_arguments
from bartack.runtime.state.spans.columns import OPEN, Intervals, Texts
from bartack.runtime.state.spans.observed import Current
from bartack.runtime.state.spans.rows import ErrorFacts, LifeStatus, QuestionSpan, WorkerSpan
from bartack.runtime.state.spans.steps import StepColumns, error_facts
from bartack.runtime.state.worker_state import AskedQuestion, StepKey, WorkerState

LIVES: Final[tuple[LifeStatus, ...]] = ("running", "completed", "failed", "cancelled", "aborted", "undone")
RUNNING, COMPLETED, FAILED, CANCELLED, ABORTED, UNDONE = range(len(LIVES))


class WorkerColumns:
    """The lives of all workers of a run.

    Attributes:
        lives: From which entry to which each lasts.
    """

    def __init__(self, current: Current, times: array[int], texts: Texts, steps: StepColumns) -> None:
        self.lives = Intervals()
        self._current = current
        self._times = times
        self._texts = texts
        self._steps = steps
        self._path = array("I")
        self._worker = array("I")
        self._parent = array("I")
        self._parent_n = array("I")
        self._spawned = array("I")
        self._status = array("B")
        self._label = array("I")
        self._arguments = array("I")
        self._crashes: dict[str, array[int]] = {}
        """Of few workers: the entries of the crashes of its processes."""
        self._errors: dict[int, ErrorFacts] = {}
        self._gone: dict[int, int] = {}
        """Lives that were over when their worker was removed from the run: the entry that removed it."""
        self._live: dict[str, int] = {}
        self._latest: dict[str, int] = {}

    # What is observed.

    def added(self, worker: WorkerState) -> None:
        """A worker belongs to the run."""
        self._begin(worker, self._current.seq)

    def changed(self, worker: WorkerState) -> None:
        """A worker may have ended, or may have come back to life."""
        row = self._live.get(worker.path)
        if worker.ended and row is not None:
            self._end(worker.path, _status_of(worker))
            if worker.error is not None:
                self._errors[row] = error_facts(worker.error)
        elif not worker.ended and row is None:
            self._begin(worker, worker.seq)

    def dropped(self, worker: WorkerState) -> None:
        """A worker does not belong to the run any longer."""
        if worker.path in self._live:
            self._end(worker.path, UNDONE)
        latest = self._latest.pop(worker.path, None)
        if latest is not None and not isinstance(self._current.data, e.WorkerRestarted):
            self._gone[latest] = self._current.seq
        self._steps.dropped(worker.path)

    def crashed(self, data: e.WorkerCrashed) -> None:
        """The process of a worker crashed."""
        self._crashes.setdefault(data.path, array("I")).append(self._current.seq)

    # What is asked.

    def worker(self, row: int, seq: int) -> WorkerSpan:
        """One life of a worker, as of an entry."""
        closed, path, spawned = self.lives.closed[row], self._texts[self._path[row]], self._spawned[row]
        crashes = self._crashes.get(path, ())
        undone = self._gone.get(row, OPEN) <= seq
        status = RUNNING if closed > seq else UNDONE if undone else self._status[row]
        return WorkerSpan(
            row=row,
            path=path,
            worker=self._texts[self._worker[row]],
            parent=(self._texts[self._parent[row]], self._parent_n[row]),
            status=LIVES[status],
            spawned_seq=spawned,
            from_seq=self.lives.opened[row],
            to_seq=0 if closed == OPEN else closed,
            since_us=self._times[self.lives.opened[row]],
            ended_us=0 if closed == OPEN else self._times[closed],
            error=None if closed > seq else self._errors.get(row),
            label=self._texts[self._label[row]],
            arguments=self._texts[self._arguments[row]],
            steps=self._steps.outcomes.count(path, spawned, seq),
            crashes=sum(spawned < crash <= seq for crash in crashes),
        )

    def path(self, row: int) -> str:
        """The path of the worker that a life belongs to."""
        return self._texts[self._path[row]]

    def changed_since(self, seq: int) -> set[str]:
        """The workers that began or ended after an entry."""
        lives = self.lives
        ended = [row for row in lives.at(seq) if lives.closed[row] != OPEN]
        return {self.path(row) for row in (*ended, *range(lives.opened_by(seq), len(lives)))}

    # Inside.

    def _begin(self, worker: WorkerState, spawned: int) -> None:
        self._live[worker.path] = self._latest[worker.path] = self.lives.open(self._current.seq)
        texts, (p, n) = self._texts, worker.parent
        self._path.append(texts.add(worker.path))
        self._worker.append(texts.add(worker.worker))
        self._parent.append(texts.add(p))
        self._parent_n.append(n)
        self._spawned.append(spawned)
        self._status.append(RUNNING)
        self._label.append(texts.add(label_of(worker.worker, worker.given.raw)))
        self._arguments.append(texts.add(one_line_arguments(worker.given.raw)))

    def _end(self, path: str, status: int) -> None:
        row = self._live.pop(path)
        self._status[row] = status
        self.lives.close(row, self._current.seq)


def _status_of(worker: WorkerState) -> int:
    if worker.error is None:
        return COMPLETED
    if worker.end_reason != "aborted":
        return FAILED
    return CANCELLED if worker.cancelled else ABORTED


class QuestionColumns:
    """All questions of a run.

    Attributes:
        rows: From which entry to which each was open.
    """

    def __init__(self, current: Current, times: array[int]) -> None:
        self.rows = Intervals()
        self._current = current
        self._times = times
        self._asked: list[QuestionSpan] = []
        self._open: dict[str, int] = {}
        self._of_prompt: dict[StepKey, list[int]] = {}
        """The questions of agents, by the step of their prompt."""

    def asked(self, question: AskedQuestion) -> None:
        """A question is open."""
        row = self._open[question.id] = self.rows.open(self._current.seq)
        self._asked.append(
            QuestionSpan(
                row=row,
                id=question.id,
                worker=question.worker,
                p=question.p,
                n=question.n,
                from_seq=self._current.seq,
                asked_seq=question.seq,
                asked_us=question.at,
                by_agent=question.by_agent,
                agent=question.agent,
                about=question.about,
                kind=question.kind,
                tool=question.tool,
                timeout_s=question.timeout_s,
            )
        )
        if question.by_agent:
            self._of_prompt.setdefault(question.key, []).append(row)

    def over(self, question: AskedQuestion) -> None:
        """A question is not open any longer."""
        self.rows.close(self._open.pop(question.id), self._current.seq)

    def question(self, row: int) -> QuestionSpan:
        """One question."""
        closed = self.rows.closed[row]
        if closed == OPEN:
            return self._asked[row]
        return msgspec.structs.replace(self._asked[row], to_seq=closed, ended_us=self._times[closed])

    def of_prompt(self, step: StepKey) -> list[int]:
        """The questions that the agent of a prompt asked, in order."""
        return self._of_prompt.get(step, [])
