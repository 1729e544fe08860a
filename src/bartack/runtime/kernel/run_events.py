"""Emits telemetry of the run itself: its workers and their processes, its steps, its failure, and waits that take long.

Events of entries are emitted when the entry is durable, by way of ``mail_events.py``; what happens to processes is not in the
journal, and its events are emitted at once. An entry without a handler costs one lookup in a dictionary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bartack.core.clock import Clock
from bartack.runtime.state import entries as e
from bartack.runtime.state.entries import SUPERVISOR
from bartack.runtime.state.run_state import State
from bartack.runtime.state.worker_state import OpenStep, Value, WorkerState
from bartack.telemetry import Event, StepStart, StepStop, Telemetry
from bartack.telemetry.catalogue import (
    CopyKept,
    ProcessOrphanKilled,
    ProcessSurvivor,
    QuestionAsked,
    QuestionSettled,
    RunException,
    RunStart,
    RunStop,
    SessionFailed,
    SessionFailureSeen,
    StepException,
    SupervisorChildEnded,
    SupervisorChildRestarted,
    SupervisorChildStarted,
    SupervisorEscalated,
    WaitSlow,
    WaitTimeout,
    WorkerException,
    WorkerStart,
    WorkerStop,
)

STRATEGY: Final = "one_for_one"

SLOW_US: Final = 60_000_000
"""After this time a wait is reported as slow; one without a limit again and again."""
CHECK_US: Final = 1_000_000

_NORMAL: Final = "exit:0"


class QuestionEventEmitter:
    """Makes events of the questions of agents. Those of programs are steps."""

    def __init__(
        self, telemetry: Telemetry, state: State, add: Callable[[Event | Callable[[], Event]], None]
    ) -> None:
        self._telemetry = telemetry
        self._state = state
        self._add = add
        self.makers: Mapping[type[e.EntryData], Callable[..., None]] = {
            e.QuestionAsked: self._asked,
            e.QuestionSettled: self._settled,
        }

    def _asked(self, data: e.QuestionAsked, at: int, value: Value) -> None:
        owner = self._state.worker_of(data.p)
        if self._telemetry.wanted(QuestionAsked):
            self._add(
                lambda: QuestionAsked(
                    open=len(self._state.questions),
                    run=self._state.run_id,
                    worker=owner.path if owner else data.p,
                    step=f"{data.p}:{data.n}",
                    question=data.id,
                    kind=data.ask,
                    agent=data.agent,
                    tool=data.tool,
                )
            )

    def _settled(self, data: e.QuestionSettled, at: int, value: Value) -> None:
        question = self._state.questions.get(data.id)
        if question is not None and self._telemetry.wanted(QuestionSettled):
            dead_us = self._state.dead_us - question.dead_us
            self._add(
                QuestionSettled(
                    duration_ns=max(at - question.at - dead_us, 0) * 1000,
                    run=self._state.run_id,
                    worker=question.worker,
                    step=f"{question.p}:{question.n}",
                    question=data.id,
                    kind=question.kind,
                    how=data.how,
                )
            )


class CopyEventEmitter:
    """Makes events of copies of the workspace; see ``RunEventEmitter``."""

    def __init__(self, state: State, add: Callable[[Event | Callable[[], Event]], None]) -> None:
        self._state = state
        self._add = add
        self.makers: Mapping[type[e.EntryData], Callable[..., None]] = {e.WorkspaceKept: self._kept}

    def _kept(self, data: e.WorkspaceKept, at: int, value: Value) -> None:
        self._add(CopyKept(duration_ns=data.took_us * 1000, run=self._state.run_id, during=data.during))


class RunEventEmitter:
    """Makes events of what happens to workers, steps and processes.

    Args:
        telemetry: Where events are emitted.
        state: The state of the run.
        clock: Measures how long something took.
        add: Emits an event when its entry is durable.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        state: State,
        clock: Clock,
        add: Callable[[Event | Callable[[], Event]], None],
    ) -> None:
        self._telemetry = telemetry
        self._state = state
        self._now_ns = clock.monotonic_ns
        self._add = add
        self._began: dict[str, int] = {}
        """When the hub, and each worker, began."""
        self._starts: dict[tuple[str, int], int] = {}
        """When each process was started, by path and incarnation; then since when it is ready."""
        self._seen: set[str] = set()
        self._slow: dict[tuple[str, int], int] = {}
        """When a step was reported as slow."""
        self._check_at = 0
        self.makers: Mapping[type[e.EntryData], Callable[..., None]] = {
            e.HubStarted: self._hub_started,
            e.HubStopped: self._hub_stopped,
            e.RunEnded: self._run_ended,
            e.WorkerSpawned: self._spawned,
            e.WorkerEnded: self._ended,
            e.WorkerCrashed: self._crashed,
            e.StepStarted: self._step_started,
            e.StepFinished: self._step_finished,
            e.StepFailed: self._step_failed,
            **QuestionEventEmitter(telemetry, state, add).makers,
            **CopyEventEmitter(state, add).makers,
            e.FailureRecorded: self._failed,
            e.WaitSlow: self._computes,
        }

    # The run.

    def _hub_started(self, data: e.HubStarted, at: int, value: Value) -> None:
        self._began[""] = at
        self._seen.clear()
        self._add(RunStart(run=self._state.run_id, hub=data.hub))
        for worker in self._state.workers.values():
            # One that failed is set back in the same line, and continues.
            if not worker.ended or (worker.status == "failed" and not worker.error_is_final):
                self._begin(worker.path, worker.parent, at)

    def _hub_stopped(self, data: e.HubStopped, at: int, value: Value) -> None:
        self._add(RunStop(duration_ns=self._since("", at), run=self._state.run_id, status=data.reason))

    def _run_ended(self, data: e.RunEnded, at: int, value: Value) -> None:
        event = RunStop if data.status == "completed" else RunException
        self._add(event(duration_ns=self._since("", at), run=self._state.run_id, status=data.status))

    def _failed(self, data: e.FailureRecorded, at: int, value: Value) -> None:
        if data.suppressed or self._state.failure is not None:
            return
        decided_ns = self._now_ns()
        self._add(
            lambda: SessionFailed(
                latency_ns=self._now_ns() - decided_ns,
                run=self._state.run_id,
                worker=data.worker,
                error=_class_of(data.error.type),
            )
        )

    def failure_seen(self, path: str, now_us: int) -> None:
        """A worker has reacted to the failure of the session, or its process is gone."""
        failure = self._state.failure
        if failure is None or path in self._seen or not self._telemetry.wanted(SessionFailureSeen):
            return
        self._seen.add(path)
        self._telemetry.emit(
            SessionFailureSeen(
                latency_ns=max(now_us - self._state.failed_at, 0) * 1000,
                run=self._state.run_id,
                worker=path,
                error=_class_of(failure.error.type),
            )
        )

    # Workers.

    def _spawned(self, data: e.WorkerSpawned, at: int, value: Value) -> None:
        self._begin(data.path, (data.p, data.n), at)

    def _begin(self, path: str, parent: tuple[str, int], at: int) -> None:
        self._began[path] = at
        if self._telemetry.wanted(WorkerStart):
            self._add(self._worker_start(path, parent))

    def _worker_start(self, path: str, parent: tuple[str, int]) -> WorkerStart:
        made_by = f"{parent[0]}:{parent[1]}" if parent[0] else ""
        return WorkerStart(run=self._state.run_id, worker=path, parent=made_by)

    def _ended(self, data: e.WorkerEnded, at: int, value: Value) -> None:
        took_ns = self._since(data.path, at)
        run = self._state.run_id
        if data.error is None:
            self._add(WorkerStop(duration_ns=took_ns, run=run, worker=data.path))
        else:
            error = _class_of(data.error.type)
            self._add(WorkerException(duration_ns=took_ns, run=run, worker=data.path, error=error))

    def _crashed(self, data: e.WorkerCrashed, at: int, value: Value) -> None:
        delay_ns = max(data.next_start - at, 0) * 1000
        if data.decision == "escalate":
            self.escalated(data.path, data.restarts, data.reason, add=self._add)
        else:
            self.restarted(
                data.path, data.restarts, data.reason, data.incarnation + 1, delay_ns, add=self._add
            )

    # Steps.

    def _step_started(self, data: e.StepStarted, at: int, value: Value) -> None:
        if self._telemetry.wanted(StepStart):
            self._add(
                StepStart(
                    attempt=data.attempt,
                    run=self._state.run_id,
                    worker=self._owner(data.p),
                    step=f"{data.p}:{data.n}",
                    kind=data.step,
                )
            )

    def _step_finished(self, data: e.StepFinished, at: int, value: Value) -> None:
        if self._telemetry.wanted(StepStop):
            self._add(
                StepStop(
                    duration_ns=self._took_ns(data.p, data.n, at, data.took_us),
                    run=self._state.run_id,
                    worker=self._owner(data.p),
                    step=f"{data.p}:{data.n}",
                    kind=data.step,
                )
            )

    def _step_failed(self, data: e.StepFailed, at: int, value: Value) -> None:
        worker, where = self._owner(data.p), f"{data.p}:{data.n}"
        if self._telemetry.wanted(StepException):
            self._add(
                StepException(
                    duration_ns=self._took_ns(data.p, data.n, at, data.took_us),
                    run=self._state.run_id,
                    worker=worker,
                    step=where,
                    kind=data.step,
                    error=_class_of(data.error.type),
                )
            )
        limit = data.error.facts.get("waited_s")
        if isinstance(limit, int | float) and "source" in data.error.facts:
            # Errors of this shape say that a deadline is over, whatever their class.
            self._add(
                WaitTimeout(
                    waited_ns=self._took_ns(data.p, data.n, at, data.took_us),
                    limit_ns=round(limit * 1e9),
                    run=self._state.run_id,
                    worker=worker,
                    kind=str(data.error.facts.get("kind", data.step)),
                    where=where,
                    source=str(data.error.facts["source"]),
                )
            )

    # Traces.

    def trace_of_worker(self, worker: WorkerState) -> str:
        """Where in its trace a worker is; empty if the run is not traced."""
        if not self._telemetry.traces:
            return ""
        return self._telemetry.traceparent(self._worker_start(worker.path, worker.parent))

    def trace_of_step(self, worker: WorkerState, step: OpenStep) -> str:
        """Where in its trace an open step is; empty if the run is not traced."""
        if not self._telemetry.traces:
            return ""
        return self._telemetry.traceparent(
            StepStart(
                attempt=step.attempt,
                run=self._state.run_id,
                worker=worker.path,
                step=f"{step.p}:{step.n}",
                kind=step.step,
            )
        )

    # Waits.

    def _computes(self, data: e.WaitSlow, at: int, value: Value) -> None:
        where = f"{data.stack[-1].file}:{data.stack[-1].line}" if data.stack else data.path
        self._emit_slow(data.path, "compute", where, round(data.seconds * 1e9), 0, "slow", self._add)

    def check(self, now_us: int) -> None:
        """Time has passed: report waits that take long."""
        if now_us < self._check_at or not self._telemetry.wanted(WaitSlow):
            return
        self._check_at = now_us + CHECK_US
        slow = {
            (step.p, step.n): (worker, step)
            for worker in self._state.workers.values()
            for step in worker.waits()
            if now_us - self._reference(step) >= SLOW_US
        }
        self._slow = {key: at for key, at in self._slow.items() if self._is_open(*key)}
        for key, (worker, step) in slow.items():
            if key in self._slow and step.timeout_s is not None:
                continue
            self._slow[key] = now_us
            limit_ns = 0 if step.timeout_s is None else round(step.timeout_s * 1e9)
            waited_ns = (now_us - step.at) * 1000
            source = "forever" if step.timeout_s is None else "limit"
            where = f"{step.p}:{step.n}"
            self._emit_slow(worker.path, step.step, where, waited_ns, limit_ns, source, self._telemetry.emit)

    def _reference(self, step: OpenStep) -> int:
        """The moment from which a wait is measured: its beginning, or when it was reported last."""
        return self._slow.get((step.p, step.n), step.at)

    def _is_open(self, p: str, n: int) -> bool:
        worker = self._state.worker_of(p)
        return worker is not None and (p, n) in worker.open

    def _emit_slow(
        self,
        worker: str,
        kind: str,
        where: str,
        waited_ns: int,
        limit_ns: int,
        source: str,
        emit: Callable[[Event], None],
    ) -> None:
        emit(
            WaitSlow(
                waited_ns=waited_ns,
                limit_ns=limit_ns,
                run=self._state.run_id,
                worker=worker,
                kind=kind,
                where=where,
                source=source,
            )
        )

    # Processes.

    def process_started(self, path: str, incarnation: int) -> None:
        """A process is started for a worker."""
        self._starts[path, incarnation] = self._now_ns()

    def process_ready(self, path: str, incarnation: int) -> None:
        """The process of a worker is there."""
        now_ns = self._now_ns()
        began_ns = self._starts.get((path, incarnation), now_ns)
        self._starts[path, incarnation] = now_ns
        if self._telemetry.wanted(SupervisorChildStarted):
            self._telemetry.emit(
                SupervisorChildStarted(
                    duration_ns=now_ns - began_ns,
                    supervisor=SUPERVISOR,
                    child=path,
                    incarnation=incarnation,
                    run=self._state.run_id,
                )
            )

    def process_gone(self, path: str, incarnation: int, reason: str) -> None:
        """The process of a worker is gone."""
        now_ns = self._now_ns()
        began_ns = self._starts.pop((path, incarnation), now_ns)
        if self._telemetry.wanted(SupervisorChildEnded):
            self._telemetry.emit(
                SupervisorChildEnded(
                    duration_ns=now_ns - began_ns,
                    supervisor=SUPERVISOR,
                    child=path,
                    incarnation=incarnation,
                    reason=reason,
                    normal=reason == _NORMAL,
                    run=self._state.run_id,
                )
            )

    def restarted(
        self,
        child: str,
        restarts: int,
        reason: str,
        incarnation: int,
        delay_ns: int,
        add: Callable[[Event], None] | None = None,
    ) -> None:
        """A worker, or a parent program, is started again."""
        if self._telemetry.wanted(SupervisorChildRestarted):
            (add or self._telemetry.emit)(
                SupervisorChildRestarted(
                    restarts=restarts,
                    delay_ns=delay_ns,
                    supervisor=SUPERVISOR,
                    child=child,
                    incarnation=incarnation,
                    reason=reason,
                    strategy=STRATEGY,
                    run=self._state.run_id,
                )
            )

    def escalated(
        self, child: str, restarts: int, reason: str, add: Callable[[Event], None] | None = None
    ) -> None:
        """A worker, or a parent program, is not started again: it died too often."""
        if self._telemetry.wanted(SupervisorEscalated):
            (add or self._telemetry.emit)(
                SupervisorEscalated(
                    restarts=restarts,
                    supervisor=SUPERVISOR,
                    child=child,
                    reason=reason,
                    strategy=STRATEGY,
                    run=self._state.run_id,
                )
            )

    def orphans_found(self, path: str, leftovers: Sequence[str], survivors: Sequence[str]) -> None:
        """A process ended and left orphans, which were terminated, or could not be."""
        for event, found in ((ProcessOrphanKilled, leftovers), (ProcessSurvivor, survivors)):
            if found and self._telemetry.wanted(event):
                self._telemetry.emit(
                    event(count=len(found), worker=path, commands=", ".join(found), run=self._state.run_id)
                )

    # Inside.

    def _since(self, what: str, at: int) -> int:
        return max(at - self._began.get(what, at), 0) * 1000

    def _took_ns(self, p: str, n: int, at: int, took_us: int) -> int:
        if took_us:
            return took_us * 1000
        worker = self._state.worker_of(p)
        opened = worker.open.get((p, n)) if worker is not None else None
        return 0 if opened is None else max(at - opened.at, 0) * 1000

    def _owner(self, p: str) -> str:
        worker: WorkerState | None = self._state.worker_of(p)
        return p if worker is None else worker.path


def _class_of(name: str) -> str:
    return name.rpartition(":")[2]
