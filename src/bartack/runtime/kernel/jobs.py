"""Work under way outside the hub, and the timers of open steps: what commands, prompts, sleeps and bodies share.

A *job* is the commands or the call of an agent for one open step. It belongs to the hub, not to the worker: a worker that is
restarted waits for it again. Only when the hub itself has died is the work done again, under the same key. Read next:
``commands.py``, ``prompts.py``, ``sleeps.py``, ``bodies.py``.

A hub that is going to stop at a moment without a step in flight *drains*: it begins no step that has an effect outside. It records
the end of a body and does not answer it, since the worker might begin another one. A worker that is not answered waits, replays
before the next hub, and asks again there. ``idle.find_effects`` lists what is in flight; ``hub/draining.py`` waits for its end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bartack.errors import BartackError, SessionFailedError, StepCancelledError
from bartack.runtime.kernel.actions import StopPrompt, StopShell
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.timers import Timer
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.paths import DO
from bartack.runtime.protocol.steps import BODIES, CHANGING
from bartack.runtime.state.worker_state import OpenStep, StepKey, WorkerState

LEAST_SPARE_S: Final = 0.5
"""While a tool runs, the deadline of its prompt is checked at most this often."""


class Job:
    """Work under way outside the hub, for one step."""

    def __init__(self, token: int, worker: WorkerState, step: OpenStep, stop: StopShell | StopPrompt) -> None:
        self.token = token
        self.worker = worker
        self.step = step
        self.stop = stop
        self.timer: Timer | None = None
        self.verdict: BartackError | None = None
        """Why the hub has stopped it: its time was over, or it was cancelled."""


class StepTimers:
    """At most one timer for each open step: when it ends, when its next attempt begins, when it is too late."""

    def __init__(self) -> None:
        self._by_step: dict[StepKey, Timer] = {}

    def set(self, step: StepKey, timer: Timer) -> None:
        """A step has this timer, in place of the one that it had."""
        self.cancel(step)
        self._by_step[step] = timer

    def cancel(self, step: StepKey) -> None:
        """A step has no timer any more."""
        timer = self._by_step.pop(step, None)
        if timer is not None:
            timer.cancel()


class Jobs(Desk):
    """Keeps account of the work under way, and stops it."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._jobs: dict[int, Job] = {}
        self._by_step: dict[StepKey, Job] = {}
        self.drains = False

    def puts_off(self, worker: WorkerState, frame: f.ToHub) -> bool:
        """Whether a frame is left to the next hub, since this one drains. The tools that an agent calls are part of its prompt."""
        if not self.drains or not isinstance(frame, f.Done | f.Step | f.Begin) or DO in frame.p:
            return False
        if isinstance(frame, f.Done):
            if frame.retry_in_s < 0:
                frame.i = 0  # it is recorded, and not answered
            return False
        opened = worker.open.get((frame.p, frame.n))
        if isinstance(frame, f.Step):
            return frame.step in CHANGING and (opened is None or not self.is_under_way(opened))
        return bool(frame.i) and opened is None and frame.step in BODIES

    # One of them.

    def begin(self, worker: WorkerState, opened: OpenStep, stop: type[StopShell | StopPrompt]) -> Job:
        """Work begins for a step."""
        token = self.turn.next_token()
        job = Job(token, worker, opened, stop(token))
        self._jobs[token] = job
        self._by_step[opened.key] = job
        return job

    def get(self, token: int) -> Job | None:
        """The work of this number, while it is under way."""
        return self._jobs.get(token)

    def is_under_way(self, opened: OpenStep) -> bool:
        """Whether a step has work under way, so that a restarted worker only has to wait."""
        return opened.key in self._by_step

    def may_change_files(self, token: int) -> bool:
        """Whether work may change files of the workspace. What is not known may."""
        job = self._jobs.get(token)
        return job is None or job.step.may_change_files

    def hold(self, token: int) -> tuple[str, StepKey | None]:
        """Work has ended, and its outcome waits for a copy: its time is not over meanwhile. Returns its worker and its step."""
        job = self._jobs.get(token)
        if job is None:
            return "", None
        if job.timer is not None:
            job.timer.cancel()
        return job.worker.path, job.step.key

    def end(self, token: int) -> Job | None:
        """Work has ended; ``None`` if its step has its outcome already, or never was."""
        job = self._jobs.pop(token, None)
        if job is None:
            return None
        if self._by_step.get(job.step.key) is job:
            del self._by_step[job.step.key]
        if job.timer is not None:
            job.timer.cancel()
        current = self.state.workers.get(job.worker.path)
        # A worker that was ended by another may continue where it was: what was open then may still have its outcome.
        steps = job.worker.open if job.worker.suspended is None else job.worker.suspended
        is_wanted = current is job.worker and steps.get(job.step.key) is job.step
        return job if is_wanted else None

    def watch(
        self, job: Job, error: BartackError, take_spare_s: Callable[[int], float] | None = None
    ) -> None:
        """Stop work whose time is over.

        Args:
            job: The work.
            error: What its step then fails with.
            take_spare_s: Seconds that do not count, since it was asked last.
        """

        def late() -> None:
            if job.verdict is not None:
                return
            spare_s = 0.0 if take_spare_s is None else take_spare_s(job.token)
            if spare_s > 0:
                job.timer = self.timers.after(max(spare_s, LEAST_SPARE_S), late)
            else:
                self.stop(job, error)

        job.timer = self.timers.after(job.step.timeout_s or 0.0, late)

    def stop(self, job: Job, error: BartackError) -> None:
        """Stop work, with its process tree; its step has this outcome when that is done."""
        if job.verdict is None:
            job.verdict = error
            self.turn.after_commit(job.stop)

    def cancel(self, worker: WorkerState, opened: OpenStep, error: BartackError) -> None:
        """A step is cancelled: stop its work first, if there is any."""
        job = self._by_step.get(opened.key)
        if job is None:
            self.turn.fail_open(worker, opened, error)
        else:
            self.stop(job, error)

    def trace_of(self, worker: WorkerState, opened: OpenStep) -> str:
        """Where in its trace a step is; empty if the run is not traced."""
        return "" if self.run_events is None else self.run_events.trace_of_step(worker, opened)

    # All of them.

    def worker_ended(self, worker: WorkerState) -> None:
        """Stop what is under way for a worker that has ended."""
        for job in self._jobs.values():
            if job.worker is worker:
                self.stop(job, StepCancelledError("its worker has ended"))

    def session_failed(self, error: SessionFailedError) -> None:
        """Stop what is under way, except clean-up."""
        for job in self._jobs.values():
            if not job.step.cleanup:
                self.stop(job, StepCancelledError("the session failed"))

    def step_of(self, token: int) -> str:
        """The step that work is done for: path and number."""
        job = self._jobs.get(token)
        return "" if job is None else f"{job.step.p}:{job.step.n}"

    def prompts(self) -> list[tuple[str, OpenStep]]:
        """The prompts that agents are busy with, and whose they are."""
        return [
            (job.worker.path, job.step) for job in self._jobs.values() if isinstance(job.stop, StopPrompt)
        ]
