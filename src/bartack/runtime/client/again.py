"""Sets the recorded outcome of a step aside, so that the step is executed again.

A finished step is never executed again, so a run that fails because of a recorded value fails each time it is resumed. A person may
decide to execute the step again. The decision is one entry of the journal; the entries that it sets aside can still be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from bartack.errors import ResumeRefusedError, StepNotFoundError
from bartack.journal import Entry
from bartack.runtime.protocol.paths import DO
from bartack.runtime.protocol.steps import BODIES, HARMLESS
from bartack.runtime.rundir.find import TERMINAL, status_of
from bartack.runtime.rundir.inside import check_outside
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.owning import own_journal
from bartack.runtime.state import entries as e
from bartack.runtime.state.blame import follows
from bartack.runtime.state.history import outcome_of
from bartack.runtime.state.run_state import State, below
from bartack.runtime.state.timeline import StepRecord, Timeline
from bartack.runtime.state.worker_state import WorkerState

REPEATABLE: Final = HARMLESS | BODIES | {
    "shell", "think", "ask", "sleep", "delegate", "spawn", "join", "print", "log", "tool", "returned",
}  # fmt: skip
"""Kinds of steps that may be executed again. A message that was sent or received once cannot be taken back."""


class SetAside(NamedTuple):
    """What was set aside: the step in words, and the number of steps that followed from it."""

    step: str
    steps: int


def set_aside(run: RunDir, at: str) -> SetAside:
    """Set the outcome of a step aside, with everything that followed from it. Nothing runs yet; files are not changed.

    Args:
        run: The run; no process may be running it.
        at: The step: ``path:n``, or ``n`` of the first worker.

    Raises:
        StepNotFoundError: The run has no such step, or the step has no outcome.
        ResumeRefusedError: It is not part of the history of its worker, or steps that followed from it cannot be executed again.
        JournalLockedError: A process runs the run.
        JournalLostError: Its journal has lost acknowledged entries; nothing was changed.
        PeerRefusedError: This process belongs to a run.
    """
    check_outside(f"setting a step of {run.id} aside", run)
    with own_journal(run) as journal:
        plan = _Plan(run, list(journal.read()), at)
        entry = plan.entry()
        journal.stage(e.draft(entry))
        journal.commit()
    return SetAside(plan.words, plan.steps)


class _Plan:
    """Finds out what follows from a step, and whether it can be done again."""

    def __init__(self, run: RunDir, entries: list[Entry], at: str) -> None:
        self._run = run
        self._at = at
        self._entries = {entry.seq: entry for entry in entries}
        self._timeline = Timeline.of(entries)
        self._state = self._timeline.state
        self._step = self._find()
        self._key = (self._step.p, self._step.n)
        self.words = f"{self._step.p}:{self._step.n} ({f'{self._step.kind} {self._step.about}'.strip()})"
        self.steps = 0

    def entry(self) -> e.StepSetAside:
        """What is to be journaled."""
        worker = self._worker()
        gone = {place for place in worker.history if self._is_gone(place)}
        made = [
            child.path
            for child in self._state.workers.values()
            if self._state.worker_of(child.parent[0]) is worker and self._is_made_after(child)
        ]
        self._check(worker, gone, made)
        to = min(gone)
        kept = [place for place in worker.history if place >= to and place not in gone]
        self.steps = len(gone) - 1
        return e.StepSetAside(
            path=worker.path, p=self._step.p, n=self._step.n, to=to, kept=kept, workers=made
        )

    def _find(self) -> StepRecord:
        run, state = self._run, self._state
        if state.run is None:
            raise StepNotFoundError(run.id, self._at)
        status = status_of(run, state, active=False)
        if status in TERMINAL:
            raise ResumeRefusedError(run.id, f"it is {status}")
        step = self._timeline.find_ended(self._at)
        if step is None:
            raise StepNotFoundError(run.id, self._at)
        if step.cleanup or step.status == "undone":
            raise self._refusal("it is not part of the history of its worker")
        return step

    def _worker(self) -> WorkerState:
        worker = self._state.worker_of(self._step.p)
        if worker is None:
            raise self._refusal("its worker is not part of the run any more")
        if worker.status == "completed" or worker.error_is_final:
            p, n = worker.parent
            raise self._refusal(f"{worker.path} has ended; step {p}:{n} started it: set that one aside")
        if self._step.seq not in worker.history:
            raise self._refusal("it is not part of the history of its worker")
        return worker

    def _is_gone(self, place: int) -> bool:
        """Whether an outcome in the history of the worker is the step's, of a tool that was run for it, or follows from it."""
        past = outcome_of(self._entries[place])
        if place == self._step.seq or past is None:
            return place == self._step.seq
        of_its_tools = past.p.startswith(f"{self._step.p}{DO}{self._step.n}.")
        return of_its_tools or (place > self._step.seq and follows(past.p, self._key))

    def _is_made_after(self, child: WorkerState) -> bool:
        by_it = child.parent == self._key
        return by_it or (child.seq > self._step.seq and follows(child.parent[0], self._key))

    def _check(self, worker: WorkerState, gone: Iterable[int], made: list[str]) -> None:
        """Raise if something that would be done again must not be."""
        places = set(gone)
        roots = below(made)
        for step in self._timeline.steps:
            own = step.seq in places and self._state.worker_of(step.p) is worker
            if not own and not (step.p in made or step.p.startswith(roots)):
                continue
            if step.status == "undone" or step.cleanup:
                continue
            name = f"{step.p}:{step.n}"
            if step.kind not in REPEATABLE:
                raise self._refusal(f"step {name} ({step.kind}) came after it and cannot be taken back")
            if step.once and step is not self._step:
                raise self._refusal(f"step {name} came after it and must be executed only once")

    def _refusal(self, reason: str) -> ResumeRefusedError:
        return ResumeRefusedError(self._run.id, f"step {self._at} cannot be set aside: {reason}")


def last_answer(state: State, path: str, entries: Iterable[Entry]) -> str:
    """The last step of a worker that an agent has answered, as ``path:n``; empty if there is none.

    Args:
        state: The run.
        path: The worker.
        entries: The journal of the run.
    """
    worker = state.workers.get(path)
    places = set(worker.history) if worker is not None else set[int]()
    found = ""
    for entry in entries if places else ():
        if entry.seq in places and entry.kind == e.StepFinished.kind:
            data = entry.decode(e.StepFinished)
            found = f"{data.p}:{data.n}" if data.step == "think" else found
    return found
