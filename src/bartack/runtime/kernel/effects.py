"""What the hub does for workers outside itself: commands, prompts, timers, deadlines; and what workers report of their own.

Work that is under way belongs to the hub. A worker that dies and comes back is attached to it; only when the hub itself was gone is
it done again, under the same key.
"""

from __future__ import annotations

import base64
import errno
import os
from collections.abc import Callable
from typing import Final

import msgspec

from bartack.errors import (
    AgentDeadlineError,
    AgentError,
    AgentRateLimitedError,
    BartackError,
    BudgetExceededError,
    LimitExceededError,
    MessageTooLargeError,
    OutcomeUnknownError,
    ShellError,
    ShellTimeoutError,
    StepCancelledError,
    StepTimeoutError,
)
from bartack.messaging import MAX_MESSAGE
from bartack.runtime.kernel.actions import Show, StartPrompt, StartShell, StopPrompt, StopShell
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.outcome import describe, step_failed, step_finished
from bartack.runtime.kernel.output_tail import cut_front, keep_end
from bartack.runtime.kernel.timers import Timer
from bartack.runtime.kernel.tools import TalkFails, TalkWaits, ToolCall, ToolDesk
from bartack.runtime.kernel.turn import NULL, Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.protocol.paths import is_inside
from bartack.runtime.protocol.steps import BODIES
from bartack.runtime.state import entries as e
from bartack.runtime.state.links import Abort
from bartack.runtime.state.units import NONE, Units, reserve, settle
from bartack.runtime.state.worker_state import FIRED, NO_VALUE, OpenStep, Value, Worker
from bartack.supervision.forms import CAPTURE_LIMIT

LIVE_LIMIT: Final = 256 * 1024 * 1024
"""What a command may write whose output is only shown, or refused in the end."""

_FIRED: Final = msgspec.Raw(FIRED)
_KEPT_IN_ERRORS: Final = 16 * 1024


SET_ASIDE: Final = (
    "set_aside",
    "a person has set the recorded answer aside: do the work again and give another one",
)
"""What an agent is told whose answer was set aside."""
LEAST_SPARE_S: Final = 0.5
"""While a tool runs its prompt is not looked at more often than this."""


NO_USD: Final = 1e-9
"""Sums of money that differ by less are equal: they are added up in another order after a resume."""


class ShellEnd(msgspec.Struct, frozen=True):
    """How commands ended. ``problem`` says why they did not even start, or were cut short."""

    status: int
    stdout: bytes = b""
    stderr: bytes = b""
    problem: str = ""
    errno: int = 0
    too_large: bool = False
    """They wrote more than a form may, and were ended or ended themselves."""
    by_itself: bool = False
    """They had ended before anything was done to stop them: their outcome counts, even if it arrives after that was decided."""


class Job:
    """Work under way outside the hub, for one step."""

    def __init__(self, token: int, worker: Worker, step: OpenStep, argv: list[str]) -> None:
        self.token = token
        self.worker = worker
        self.step = step
        self.argv = argv
        self.timer: Timer | None = None
        self.verdict: BartackError | None = None
        """Why it was ended from here: its time was over, or it was cancelled."""
        self.args: s.ShellArgs | None = None
        """What commands were asked for, if it is these."""
        self.start: StartShell | None = None


class EffectDesk(Desk):
    """Handles the steps that do something outside, and the reports of bodies."""

    def __init__(self, shared: Shared, restart: Callable[[Worker], None]) -> None:
        super().__init__(shared)
        self._restart = restart
        self.tools = ToolDesk(shared)
        self._jobs: dict[int, Job] = {}
        self._by_step: dict[tuple[str, int], Job] = {}
        self._timers: dict[tuple[str, int], Timer] = {}
        self.begun: dict[tuple[str, int], tuple[Peer, Worker, f.Begin]] = {}
        """Bodies that began in this turn and have not ended in it."""

    @property
    def busy(self) -> int:
        """How many commands and prompts are under way."""
        return len(self._jobs)

    # Commands.

    def shell(self, peer: Peer, worker: Worker, step: f.Step, attempt: int = 1) -> None:
        """Run commands."""
        args = self.decode(step.a, s.ShellArgs)
        limit, source = self._limit("shell", args.timeout_s)
        opened = self.open_step(
            step, once=args.once, timeout_s=limit, attempt=attempt, sync=args.once or args.live
        )
        job = self._begin(worker, opened, args.words)
        job.args = args
        self._watch(job, ShellTimeoutError("shell", limit, source, job.argv), StopShell(job.token))
        key = self.turn.key(worker, step.p, step.n)
        trace = self._trace(worker, opened)
        job.start = StartShell(job.token, worker.path, key, args, Value(step.v, step.ref), trace)
        # What was printed before is shown when it is durable; what a command writes is shown behind it.
        if args.once or args.live:
            self.turn.after_commit(job.start)
        else:
            self.turn.before_commit(job.start)

    def shell_lost(self, token: int) -> None:
        """Commands died with the program that kept them."""
        job = self._jobs.get(token)
        if job is None or job.start is None:
            return
        if job.step.once:
            # If the session has failed it stays open, and its outcome is as unknown to the hub that resumes the run.
            if self._end(token) is not None and self.is_open(job.worker, job.step):
                error = OutcomeUnknownError(f"{job.step.p}:{job.step.n}", job.step.about)
                self.turn.fail_open(job.worker, job.step, error)
        elif job.verdict is not None:
            self.shell_ended(token, ShellEnd(0))
        else:
            self.turn.after_commit(job.start)

    def shell_too_large(self, token: int) -> None:
        """Commands write more than anybody could read: they are ended."""
        job = self._jobs.get(token)
        if job is not None and job.verdict is None:
            job.verdict = _too_large(job, MAX_MESSAGE + 1)
            self.turn.after_commit(StopShell(token))

    def shell_ended(self, token: int, end: ShellEnd) -> None:
        """Commands are over, and nothing of their tree is left."""
        job = self._end(token)
        is_open = job is not None and self.is_open(job.worker, job.step)
        if job is None or not (is_open or end.by_itself):
            return
        if end.by_itself:
            job.verdict = None
        end = self._kept(job, end)
        error = _shell_failure(job, end)
        if error is None:
            self.turn.end_open(job.worker, job.step, self.turn.pack(_shell_outcome(job.argv, end)))
        elif is_open or job.worker.suspended is None:
            late = self.is_unseen(job.worker) and not job.step.cleanup
            self.turn.fail_open(job.worker, job.step, error, late=late)

    def _kept(self, job: Job, end: ShellEnd) -> ShellEnd:
        """What is kept of an output: all of it, or its end without secrets."""
        if job.args is None or not job.args.kept_bytes:
            return end
        size = job.args.kept_bytes
        environ, rule = {**os.environ, **(job.args.env or {})}, self.settings.secrets
        stdout, stderr = (keep_end(output, size, environ, rule) for output in (end.stdout, end.stderr))
        return msgspec.structs.replace(end, stdout=stdout, stderr=stderr)

    # Prompts.

    def think(self, peer: Peer, worker: Worker, step: f.Step, attempt: int = 1) -> None:
        """Call an agent."""
        args = self.decode(step.a, s.ThinkArgs)
        known = worker.open.get((step.p, step.n))
        money = self._reserve(args, known)
        reserved = self._reserve_units(args, known)
        agent = args.agent or self.settings.agent
        own_limit = self.settings.prompt_limits.get(agent)
        limit, _ = self._limit("prompt", own_limit if args.timeout_s is None else args.timeout_s)
        opened = self.open_step(
            step,
            once=args.once,
            timeout_s=limit,
            attempt=attempt,
            reserved_usd=money,
            reserved=reserved,
            due=known.due if known is not None else 0,
            sync=True,
            asked=NO_VALUE if args.command is None else self.turn.pack(args),
        )
        job = self._begin(worker, opened, [args.name])
        self._watch(job, StepTimeoutError("prompt", limit, "explicit"), StopPrompt(job.token))
        self.tools.open(job.token, worker, opened, args.tools)
        key = self.turn.key(worker, step.p, step.n)
        start = StartPrompt(
            job.token,
            worker.path,
            key,
            attempt,
            args,
            step.p,
            step.n,
            limit,
            money,
            self._trace(worker, opened),
            worker.restarts,
            reserved,
            SET_ASIDE if (step.p, step.n) in worker.set_aside else ("", ""),
        )
        if opened.due > self.now_us():
            self._start_later(job, start)
        else:
            self.turn.after_commit(start)

    def _start_later(self, job: Job, start: StartPrompt) -> None:
        """An agent may not be asked yet, as a hub before this one has learned."""

        def go() -> None:
            if self._jobs.get(job.token) is job and job.verdict is None:
                self.turn.after_commit(start)

        self._set_alarm(job.step, self.timers.at(job.step.due, go))

    def prompt_waits(self, token: int, wait: TalkWaits) -> None:
        """An agent may not be asked before a moment: whoever runs the run then waits for the same one."""
        job = self._jobs.get(token)
        if job is None or job.verdict is not None:
            return
        step = job.step
        error = describe(AgentRateLimitedError(wait.agent, wait.problem, wait.code), job.worker.path)
        attempt = step.attempt - 1 if step.between else step.attempt
        retried = e.StepRetried(p=step.p, n=step.n, attempt=attempt, due=wait.until, error=error)
        self.turn.record((retried, NO_VALUE))

    def attempt_failed(self, token: int, failed: TalkFails) -> None:
        """An agent is asked again: the journal and people are told why."""
        job = self._jobs.get(token)
        if job is None or not self.is_open(job.worker, job.step):
            return
        agent, attempt, code, text = failed
        entry = e.AttemptFailed(
            p=job.step.p, n=job.step.n, agent=agent, attempt=attempt, code=code, text=text
        )
        self.turn.record((entry, NO_VALUE))
        self.turn.with_next_commit(Show("note", job.worker.path, f"{agent}  {text}"))

    def prompt_ended(self, token: int, outcome: s.ThinkOutcome | AgentError) -> None:
        """An agent replied, or could not."""
        job = self._end(token)
        if job is None:
            return
        if isinstance(outcome, AgentError):
            self._prompt_failed(job, outcome)
            return
        # It counts even if the call was being given up: the reply was on its way, and it is paid.
        if outcome.result is not None:
            outcome.took_s = self.waited_s(job.step)
        used = self._settle(job, _used_by(outcome))
        self.turn.end_open(job.worker, job.step, self.turn.pack(outcome), usd=outcome.usd, used=used)

    def _prompt_failed(self, job: Job, error: AgentError) -> None:
        if not self.is_open(job.worker, job.step):
            return  # it was given up because the session failed: the run asks again when it is resumed
        verdict = job.verdict
        if isinstance(verdict, StepTimeoutError) and not _given_up(error):
            verdict = None  # the agent's own deadline says more than ours
        used = self._settle(job, Units(error.tokens, error.turns))
        self.turn.fail_open(job.worker, job.step, verdict or error, usd=error.usd, used=used)

    def _settle(self, job: Job, used: Units) -> Units | None:
        """What a call counts as that is over: what it says that it used, and how long it took."""
        took = Units(wall_s=round(self.waited_s(job.step), 6))
        return settle(self.settings.caps, used + took, job.step.reserved) or None

    def tool_called(self, token: int, call: ToolCall) -> None:
        """The agent of a prompt calls a tool."""
        job = self._jobs.get(token)
        if job is not None and job.verdict is not None:
            self.tools.close(token)
        self.tools.called(token, call)

    def budget(self, peer: Peer, worker: Worker, step: f.Step) -> None:
        """The money of the run."""
        state = self.state
        outcome = s.BudgetOutcome(self.settings.max_usd, state.spent_usd, state.reserved_usd)
        self.finish_step(worker, step, outcome)

    # Timers and deadlines.

    def sleep(self, peer: Peer, worker: Worker, step: f.Step) -> None:
        """Wait until a moment on the wall."""
        args = self.decode(step.a, s.SleepArgs)
        now = self.now_us()
        due = args.until if args.until is not None else now + int((args.seconds or 0.0) * 1e6)
        if due <= now:
            self.finish_step_raw(worker, step, Value(NULL))
            return
        opened = self.open_step(step, due=due)
        self.watch_sleep(worker, step, opened)

    def watch_sleep(self, worker: Worker, step: f.Step, opened: OpenStep) -> None:
        """A timer is open: it fires at its moment, however often the hub was restarted since.

        One that was given as a duration also fires when a hub was alive for that long: the clock may have been set back.
        """

        def fire() -> None:
            if self.is_open(worker, opened):
                self.turn.end_open(worker, opened, Value(NULL))

        if self.decode(step.a, s.SleepArgs).seconds is None:
            self._set_alarm(opened, self.timers.at(opened.due, fire))
            return
        left_s = (opened.due - opened.at) / 1e6 - self.waited_s(opened)
        self._set_alarm(opened, self.timers.at_or_after(opened.due, left_s, fire))

    def left(self, peer: Peer, worker: Worker, step: f.Step) -> None:
        """Seconds left of the innermost deadline around a step."""
        limits = [
            self.left_s(opened)
            for opened in worker.open.values()
            if opened.step == "timeout" and (step.p == opened.p or is_inside(step.p, opened.p))
        ]
        self.finish_step(worker, step, min((left for left in limits if left is not None), default=None))

    def open_scope(self, peer: Peer, worker: Worker, begin: f.Begin) -> None:
        """A worker entered a scope with a deadline."""
        opened = worker.open.get((begin.p, begin.n))
        if opened is None:
            data = e.StepStarted(
                p=begin.p,
                n=begin.n,
                step="timeout",
                fp=begin.fp,
                timeout_s=begin.timeout_s,
                about=begin.about,
                cleanup=begin.cleanup,
            )
            opened = self.turn.open_step(data)
        scope = opened

        def fire() -> None:
            if not self.is_open(worker, scope):
                return
            data = step_finished(scope)
            self.turn.record((data, Value(_FIRED)))
            current = self.turn.by_worker.get(worker.path)
            if current is not None:
                self.turn.send(current, f.Fired(p=scope.p, n=scope.n))

        self._set_alarm(scope, self.timers.after(self.left_s(scope) or 0.0, fire))

    # What workers do themselves.

    def note(self, peer: Peer, worker: Worker, note: f.Note) -> None:
        """A harmless step was done in the worker; it is durable with the next commit."""
        if note.step == "timeout":
            self._drop_alarm(note.p, note.n)
            if (note.p, note.n) not in worker.open:
                return  # it ran out before it was left: that is its outcome
        if note.e is not None:
            failed = step_failed(note, note.e)
            self.turn.record((failed, NO_VALUE), sync=False)
        else:
            done = step_finished(note, about=note.about)
            self.turn.record((done, Value(note.v, note.ref)), sync=False)
        self.turn.exposed = True

    def out(self, peer: Peer, worker: Worker, out: f.Out) -> None:
        """A worker printed or logged; it is durable with the next commit, and shown after it."""
        data = e.Output(p=out.p, n=out.n, channel=out.channel, fp=out.fp, cleanup=out.cleanup)
        self.turn.record((data, self.turn.pack(out.text)), sync=False)
        self.turn.with_next_commit(Show("print" if out.channel == "print" else "log", worker.path, out.text))

    def begin(self, peer: Peer, worker: Worker, begin: f.Begin) -> None:
        """A scope with a deadline, or the body of a step begins. A body that ends within the same turn is not worth an entry."""
        if begin.step == "timeout":
            self.open_scope(peer, worker, begin)
        elif begin.i and not begin.cleanup and self.state.failure is not None:
            return  # it has not begun, and will not: its worker learns of the failure instead
        elif begin.i:
            self._begin_body(peer, worker, begin)
        else:
            self.begun[begin.p, begin.n] = (peer, worker, begin)

    def was_busy(self, worker: Worker, begin: f.Begin) -> None:
        """A process is gone, and this is a body it was in."""
        state = self.state
        known = (begin.p, begin.n) in worker.open
        if not known and not worker.ended and state.worker_of(begin.p) is worker and state.failure is None:
            self._start_attempt(worker, begin, None)
            self._drop_alarm(begin.p, begin.n)

    def settle(self) -> None:
        """Write down the bodies that began in this turn and have not ended in it."""
        while self.begun:
            _, begun = self.begun.popitem()
            self._begin_body(*begun)

    def _begin_body(self, peer: Peer, worker: Worker, begin: f.Begin) -> None:
        known = worker.open.get((begin.p, begin.n))
        if begin.i:
            peer.awaited[begin.p, begin.n] = begin.i
        if known is not None and known.abort is not None:
            self._cancel_begun(worker, known, begin, known.abort)
        elif known is not None and known.between and begin.attempt < known.attempt:
            # A restarted worker begins anew; the attempts that failed before count.
            self._say_attempt(worker, known, begin)
        elif known is not None and known.once and begin.once and begin.attempt == 1:
            error = OutcomeUnknownError(f"{begin.p}:{begin.n}", known.about)
            self.turn.fail_open(worker, known, error)
        elif worker.doubted.get((begin.p, begin.n)) == begin.fp:
            error = OutcomeUnknownError(f"{begin.p}:{begin.n}", begin.about)
            self.turn.fail_open(worker, self._start_attempt(worker, begin, None), error)
        else:
            opened = self._start_attempt(worker, begin, known)
            if begin.i and known is None:
                peer.begun.add((begin.p, begin.n))
            abort = worker.abort_next
            if abort is not None and not (worker.leaving and opened.step in s.CLEANUP):
                self._cancel_begun(worker, opened, begin, abort)
            elif begin.i:
                self._say_begun(worker, opened)

    def _start_attempt(self, worker: Worker, begin: f.Begin, known: OpenStep | None) -> OpenStep:
        data = e.StepStarted(
            p=begin.p,
            n=begin.n,
            step=begin.step,
            fp=begin.fp,
            about=begin.about,
            attempt=known.attempt if known is not None else begin.attempt,
            once=begin.once,
            timeout_s=begin.timeout_s or None,
            max_crashes=begin.max_crashes,
            cleanup=begin.cleanup,
            since=self._began_at(begin),
        )
        # Where an append began is told once: whoever goes on with it writes there.
        asked = known.asked if known is not None and known.step == "append" else Value(begin.a)
        opened = self.turn.open_step(data, asked, sync=bool(begin.i))
        opened.at = data.since or self.now_us()
        self._watch_body(worker, opened, begin)
        return opened

    def _began_at(self, begin: f.Begin) -> int:
        """When a body began that is recorded later; 0 if it is recorded at once."""
        return min(begin.since, self.now_us()) if begin.since else 0

    def _cancel_begun(self, worker: Worker, opened: OpenStep, begin: f.Begin, abort: Abort) -> None:
        error = abort.error()
        if begin.i:
            self._drop_alarm(opened.p, opened.n)
            self.turn.fail_open(worker, opened, error)
        else:
            self.end_body(worker, opened, error)

    def done(self, peer: Peer, worker: Worker, done: f.Done) -> None:
        """The body of a step ended in the worker."""
        step = (done.p, done.n)
        begun = self.begun.pop(step, None)
        about = begun[2].about if begun is not None else done.about
        opened = worker.open.get(step)
        if opened is not None:
            about = opened.about
            self._drop_alarm(done.p, done.n)
        peer.awaited[step] = done.i
        if peer.begun:
            peer.begun.discard(step)
        if done.e is not None and done.retry_in_s >= 0 and opened is not None:
            self._retry(worker, opened, done, done.e)
        elif done.e is not None:
            failed = step_failed(
                done,
                done.e,
                took_us=0 if opened is not None else done.took_us,
                late=self.is_unseen(worker) and (not done.cleanup),
            )
            self.turn.fail(worker, failed)
        else:
            finished = step_finished(done, about=about, took_us=0 if opened is not None else done.took_us)
            self.turn.finish(worker, finished, Value(done.v, done.ref))

    # Cancelling.

    def cancel(self, worker: Worker, opened: OpenStep, error: BartackError) -> None:
        """Give an open step up. Work outside is ended first, with its tree; everything else at once."""
        job = self._by_step.get((opened.p, opened.n))
        if job is None and opened.step in BODIES and not opened.between:
            self.end_body(worker, opened, error)
        elif job is None:
            self._drop_alarm(opened.p, opened.n)
            self.turn.fail_open(worker, opened, error)
        elif job.verdict is None:
            job.verdict = error
            self.turn.after_commit(self._stop(job))

    def not_begun(self, worker: Worker, opened: OpenStep, error: f.ErrorData) -> None:
        """A body whose beginning is durable will not be executed, because the session failed: so nothing about it is unknown."""
        if opened.step in BODIES and not opened.between:
            self._drop_alarm(opened.p, opened.n)
            self.turn.fail_open(worker, opened, error, late=True)

    def end_body(self, worker: Worker, opened: OpenStep, error: BartackError) -> None:
        """End a body. A thread cannot be stopped: the process goes, and replays to behind this step."""
        self._drop_alarm(opened.p, opened.n)
        self._restart(worker)
        self.turn.fail_open(worker, opened, error)

    def forget_process(self, worker: Worker) -> None:
        """The process of a worker is gone, and the bodies in it: their time begins anew with them."""
        for opened in worker.open.values():
            if opened.step in BODIES:
                self._drop_alarm(opened.p, opened.n)

    def drop(self, worker: Worker) -> None:
        """A worker has ended for good: end what is under way for it."""
        for job in self._jobs.values():
            if job.worker is worker and job.verdict is None:
                job.verdict = StepCancelledError("its worker has ended")
                self.turn.after_commit(self._stop(job))

    def abort_all(self) -> None:
        """The session failed: end everything that is under way, except clean-up."""
        for job in self._jobs.values():
            if not job.step.cleanup and job.verdict is None:
                job.verdict = StepCancelledError("the session failed")
                self.turn.after_commit(self._stop(job))

    def attach(self, worker: Worker, opened: OpenStep) -> bool:
        """Whether the work of an open step is still under way, so that a restarted worker only has to wait."""
        return (opened.p, opened.n) in self._by_step

    def step_of(self, token: int) -> str:
        """The step that work outside is done for: path and number."""
        job = self._jobs.get(token)
        return "" if job is None else f"{job.step.p}:{job.step.n}"

    def prompts(self) -> list[tuple[str, OpenStep]]:
        """The prompts that agents are busy with, and whose they are."""
        return [(job.worker.path, job.step) for job in self._jobs.values() if job.step.step == "think"]

    # Inside.

    def _trace(self, worker: Worker, opened: OpenStep) -> str:
        return "" if self.run_events is None else self.run_events.trace_of_step(worker, opened)

    def _begin(self, worker: Worker, opened: OpenStep, argv: list[str]) -> Job:
        job = Job(self.turn.next_token(), worker, opened, argv)
        self._jobs[job.token] = job
        self._by_step[opened.p, opened.n] = job
        return job

    def _end(self, token: int) -> Job | None:
        """Work is over; ``None`` if its step has its outcome already, or never was."""
        job = self._jobs.pop(token, None)
        if job is None:
            return None
        self._by_step.pop((job.step.p, job.step.n), None)
        self.tools.close(token)
        if job.timer is not None:
            job.timer.cancel()
        if job.step.step == "think":
            self._drop_alarm(job.step.p, job.step.n)
        current = self.state.workers.get(job.worker.path)
        # A worker that was cut off may be taken up again where it was: what was open then may still have its outcome.
        steps = job.worker.open if job.worker.suspended is None else job.worker.suspended
        is_wanted = current is job.worker and steps.get((job.step.p, job.step.n)) is job.step
        return job if is_wanted else None

    def _watch(self, job: Job, error: BartackError, stop: StopShell | StopPrompt) -> None:
        def late() -> None:
            if job.verdict is not None:
                return
            # An agent is not to blame for the time that tools took which it called.
            spare = self.tools.take_time_s(job.token)
            if spare > 0:
                job.timer = self.timers.after(max(spare, LEAST_SPARE_S), late)
                return
            job.verdict = error
            self.turn.after_commit(stop)

        job.timer = self.timers.after(job.step.timeout_s or 0.0, late)

    def _stop(self, job: Job) -> StopShell | StopPrompt:
        return StopPrompt(job.token) if job.step.step == "think" else StopShell(job.token)

    def _watch_body(self, worker: Worker, opened: OpenStep, begin: f.Begin) -> None:
        if not begin.timeout_s:
            return

        def late() -> None:
            if self.is_open(worker, opened):
                self.end_body(worker, opened, StepTimeoutError("step", begin.timeout_s, "explicit"))

        self._set_alarm(opened, self.timers.after(begin.timeout_s + begin.grace_s, late))

    def _retry(self, worker: Worker, opened: OpenStep, done: f.Done, error: f.ErrorData) -> None:
        due = self.now_us() + int(done.retry_in_s * 1e6)
        retried = e.StepRetried(p=done.p, n=done.n, attempt=done.attempt, due=due, error=error)
        self.turn.record((retried, NO_VALUE))
        begin = f.Begin(
            p=opened.p,
            n=opened.n,
            step=opened.step,
            fp=opened.fp,
            about=opened.about,
            i=done.i,
            once=opened.once,
            timeout_s=opened.timeout_s or 0.0,
            max_crashes=opened.max_crashes,
            cleanup=opened.cleanup,
        )
        self._say_attempt(worker, opened, begin)

    def _say_attempt(self, worker: Worker, opened: OpenStep, begin: f.Begin) -> None:
        """Tell the worker which attempt is next, when it is time for it and it is written down that it begins."""

        def go() -> None:
            if self.is_open(worker, opened):
                self._say_begun(worker, self._start_attempt(worker, begin, opened))

        if opened.due > self.now_us():
            self._set_alarm(opened, self.timers.at(opened.due, go))
        else:
            go()

    def _say_begun(self, worker: Worker, opened: OpenStep) -> None:
        """Let the body run that waits for it."""
        is_append = opened.step == "append"
        value = opened.asked if is_append else self.turn.pack({"attempt": opened.attempt})
        self.turn.answer(worker, opened.p, opened.n, value)

    def _reserve(self, args: s.ThinkArgs, known: OpenStep | None) -> float:
        """What a call may cost: what it wants or, if there is less, all that is left, as long as that is worth a call."""
        settings, state = self.settings, self.state
        limit = settings.max_usd
        if limit is None:
            return 0.0
        wanted = args.max_usd if args.max_usd is not None else settings.reserve_usd
        # What an attempt before this one reserved is for this one, too.
        taken = state.spent_usd + state.reserved_usd - (known.reserved_usd if known is not None else 0.0)
        left = limit - taken
        if left <= NO_USD or left < min(settings.min_reserve_usd, wanted, limit) - NO_USD:
            raise BudgetExceededError(limit, taken)
        return min(wanted, left)

    def _reserve_units(self, args: s.ThinkArgs, known: OpenStep | None) -> Units:
        """What a call may use beside money: its share of what is left."""
        caps, state, command = self.settings.caps, self.state, args.command
        # What an attempt before this one reserved is for this one, too.
        others = state.reserved - (known.reserved if known is not None else NONE)
        wanted = Units(turns=args.max_turns or 0, tokens=(command.max_tokens or 0) if command else 0)
        return reserve(caps, state.spent, others, wanted, command.share if command else 0)

    def _limit(self, kind: str, explicit: float | None) -> tuple[float, str]:
        return self.timeouts.explain(kind) if explicit is None else (explicit, "explicit")

    def _set_alarm(self, opened: OpenStep, timer: Timer) -> None:
        self._drop_alarm(opened.p, opened.n)
        self._timers[opened.p, opened.n] = timer

    def _drop_alarm(self, p: str, n: int) -> None:
        timer = self._timers.pop((p, n), None)
        if timer is not None:
            timer.cancel()


class _Said(msgspec.Struct):
    """What the result of a command says of what was used."""

    class Usage(msgspec.Struct):
        """See ``bartack.agents.Usage``."""

        turns: int | None = None

    usage: Usage = msgspec.field(default_factory=Usage)


def _used_by(outcome: s.ThinkOutcome) -> Units:
    """What an answer says that it used."""
    if outcome.result is None:
        return Units(outcome.tokens, outcome.turns)
    return Units(outcome.tokens, msgspec.json.decode(outcome.result, type=_Said).usage.turns or 0)


def _explain(argv: list[str], end: ShellEnd) -> str:
    """Why commands did not start. One word with blanks in it is most likely a command line that was meant for a shell."""
    if end.errno == errno.ENOENT and len(argv) == 1 and " " in argv[0]:
        return (
            f"{end.problem}; {argv[0]!r} is one word: give a command and its arguments as words of their own"
        )
    return end.problem


def _shell_failure(job: Job, end: ShellEnd) -> BartackError | None:
    """The error that the end of commands is, if it is one."""
    assert job.args is not None
    size = len(end.stdout) + len(end.stderr)
    if job.verdict is not None:
        if isinstance(job.verdict, ShellError):
            job.verdict.stdout, job.verdict.stderr = _last(end.stdout), _last(end.stderr)
        return job.verdict
    if end.problem:
        return ShellError(job.argv, end.status, problem=_explain(job.argv, end))
    if end.too_large:
        return _too_large(job, size)
    if job.args.check and end.status != 0:
        error = ShellError(job.argv, end.status, _last(end.stderr))
        error.stdout = _last(end.stdout)
        return error
    if job.args.form is None and size > MAX_MESSAGE:
        return _too_large(job, size)
    return None


def _given_up(error: AgentError) -> bool:
    """Whether a call ended because we wanted it to."""
    return not isinstance(error, AgentDeadlineError)


def _too_large(job: Job, size: int) -> BartackError:
    if job.args is not None and job.args.form is not None:
        limit = LIVE_LIMIT if job.args.live else CAPTURE_LIMIT
        return LimitExceededError(f"bytes of output of {job.argv[0]}", limit)
    return MessageTooLargeError(f"the output of {job.argv[0]}", size, MAX_MESSAGE)


def _last(output: bytes) -> str:
    """The end of an output, as much of it as an error keeps."""
    return cut_front(output, _KEPT_IN_ERRORS).decode("utf-8", "replace")


def _shell_outcome(argv: list[str], end: ShellEnd) -> s.ShellOutcome:
    stdout, stdout64 = _text(end.stdout)
    stderr, stderr64 = _text(end.stderr)
    return s.ShellOutcome(argv, end.status, stdout, stderr, stdout64, stderr64)


def _text(data: bytes) -> tuple[str, str]:
    try:
        return data.decode(), ""
    except UnicodeDecodeError:
        return "", base64.b64encode(data).decode()
