"""Prompts to agents: the steps ``think`` and ``budget``.

A prompt is durable before its agent is called, and so is what it may cost. The reply counts even if it arrives after the call was
cancelled: it is paid. Read ``jobs.py`` for what prompts share with commands, ``tools.py`` for the tools that an agent calls,
``agent_questions.py`` for what it asks people, and ``hub/agents/prompts.py`` for the agents.
"""

from __future__ import annotations

from typing import Final

import msgspec

from bartack.agents import AgentQuestion
from bartack.core import typed
from bartack.errors import (
    AgentDeadlineError,
    AgentError,
    AgentRateLimitedError,
    BartackError,
    BudgetExceededError,
    OutcomeUnknownError,
    StepTimeoutError,
)
from bartack.runtime.kernel.actions import Show, StartPrompt, StopPrompt
from bartack.runtime.kernel.agent_questions import AgentQuestionDesk
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.handler import StepHandler
from bartack.runtime.kernel.jobs import Job, Jobs, StepTimers
from bartack.runtime.kernel.outcome import describe
from bartack.runtime.kernel.tools import TalkBegins, TalkFails, TalkWaits, ToolCall, ToolDesk
from bartack.runtime.kernel.turn import Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.state import entries as e
from bartack.runtime.state.units import NONE, Units, reserve, settle
from bartack.runtime.state.worker_state import NO_VALUE, OpenStep, WorkerState

SET_ASIDE: Final = (
    "set_aside",
    "a person has set the recorded answer aside: do the work again and give another one",
)
"""Why an agent is asked again whose answer was set aside."""

NO_USD: Final = 1e-9
"""Sums of money that differ by less are equal: they are added up in another order after a resume."""

HEARTBEAT_LIMIT_US: Final = 30_000_000
"""A hub that is alive records a heartbeat more often than this."""


class LimitWaits:
    """How long a prompt has to wait for limits of a provider: time that the deadline of the settings does not count."""

    def __init__(self) -> None:
        self._until_us = 0
        self._untaken_us = 0

    def add(self, now_us: int, until_us: int) -> None:
        """It waits until a moment, perhaps a later one than it knew of."""
        since = max(now_us, self._until_us)
        if until_us > since:
            self._untaken_us += until_us - since
            self._until_us = until_us

    def take_s(self) -> float:
        """How long, in seconds that were not taken yet."""
        taken, self._untaken_us = self._untaken_us, 0
        return taken / 1e6


class PromptDesk(Desk, StepHandler):
    """Calls agents."""

    def __init__(
        self,
        shared: Shared,
        jobs: Jobs,
        step_timers: StepTimers,
        tools: ToolDesk,
        questions: AgentQuestionDesk,
    ) -> None:
        super().__init__(shared)
        self._jobs = jobs
        self._step_timers = step_timers
        self._tools = tools
        self._questions = questions
        self._previous_alive_until = 0
        self._limit_waits: dict[int, LimitWaits] = {}
        """Of each prompt whose program gave no deadline of its own."""

    def previous_was_alive_until(self, moment_us: int) -> None:
        """Until when the previous hub is known to have been alive: microseconds since 1970, UTC."""
        self._previous_alive_until = moment_us

    def start(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """Call an agent."""
        self._start(worker, step, 1)

    def resume(self, peer: Peer, worker: WorkerState, step: f.Step, opened: OpenStep) -> None:
        """A restarted worker waits again. If the hub was restarted, the agent is called again, unless it must be called once."""
        if self._jobs.is_under_way(opened):
            return
        unsent = self._is_unsent(opened)
        if opened.once and not unsent:
            self.turn.fail_open(worker, opened, OutcomeUnknownError(f"{opened.p}:{opened.n}", opened.about))
        else:
            self._start(worker, step, opened.attempt + (0 if opened.between or unsent else 1))

    def cancel(self, worker: WorkerState, opened: OpenStep, error: BartackError) -> None:
        """Stop the call; the step has its outcome when the agent has stopped, or has replied all the same."""
        self._jobs.cancel(worker, opened, error)

    def budget(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """The step ``budget``: the money of the run."""
        state = self.state
        outcome = s.BudgetOutcome(self.settings.max_usd, state.spent_usd, state.reserved_usd)
        self.finish_step(worker, step, outcome)

    def _is_unsent(self, opened: OpenStep) -> bool:
        """Whether the previous hub died while it waited for the moment at which the agent may be called."""
        return opened.due > self._previous_alive_until + HEARTBEAT_LIMIT_US

    def _start(self, worker: WorkerState, step: f.Step, attempt: int) -> None:
        args = self.decode(step.a, s.ThinkArgs)
        known = worker.open.get((step.p, step.n))
        money = self._reserve(args, known)
        reserved = self._reserve_units(args, known)
        own_limit = self.settings.prompt_limits.get(args.agent or self.settings.agent)
        limit, _ = self.limit("prompt", own_limit if args.timeout_s is None else args.timeout_s)
        opened = self.open_step(
            step,
            once=args.once,
            timeout_s=limit,
            attempt=attempt,
            reserved_usd=money,
            reserved=reserved,
            due=known.due if known is not None else 0,
            sync=True,
            asked=self.turn.pack_raw(bytes(step.a)),
        )
        job = self._jobs.begin(worker, opened, StopPrompt)
        self._jobs.watch(job, StepTimeoutError("prompt", limit, "explicit"), self._take_spare_s)
        if not args.has_own_deadline:
            self._limit_waits[job.token] = LimitWaits()
            self._limit_waits[job.token].add(self.now_us(), opened.due)
        self._tools.open(job.token, worker, opened, args.tools)
        self._questions.open(job.token, worker, opened, args.agent or self.settings.agent)
        start = StartPrompt(
            job.token,
            worker.path,
            self.turn.key(worker, step.p, step.n),
            attempt,
            args,
            step.p,
            step.n,
            limit,
            money,
            self._jobs.trace_of(worker, opened),
            worker.restarts,
            reserved,
            SET_ASIDE if opened.key in worker.set_aside else ("", ""),
        )
        if opened.due > self.now_us():
            self._start_later(job, start)
        else:
            self.turn.after_commit(start)

    def _take_spare_s(self, token: int) -> float:
        """Time that the agent is not to blame for: that of tools which it called, of people whom it asked, and of limits."""
        waits = self._limit_waits.get(token)
        limited_s = 0.0 if waits is None else waits.take_s()
        return self._tools.take_time_s(token) + self._questions.take_time_s(token) + limited_s

    def _start_later(self, job: Job, start: StartPrompt) -> None:
        """The agent must not be called yet, as a previous hub has learned."""

        def call() -> None:
            if self._jobs.get(job.token) is job and job.verdict is None:
                self.turn.after_commit(start)

        self._step_timers.set(job.step.key, self.timers.at(job.step.due, call))

    # What becomes of them.

    def waits(self, token: int, wait: TalkWaits) -> None:
        """An agent must not be called before a moment: recorded, so that the next hub waits for the same one."""
        job = self._jobs.get(token)
        if job is None or job.verdict is not None:
            return
        if token in self._limit_waits:
            self._limit_waits[token].add(self.now_us(), wait.until)
        step = job.step
        error = describe(AgentRateLimitedError(wait.agent, wait.problem, wait.code), job.worker.path)
        attempt = step.attempt - 1 if step.between else step.attempt
        retried = e.StepRetried(p=step.p, n=step.n, attempt=attempt, due=wait.until, error=error)
        self.turn.record((retried, NO_VALUE))

    def attempt_failed(self, token: int, failed: TalkFails) -> None:
        """An agent is called again: record why, and show it to people."""
        job = self._jobs.get(token)
        if job is None or not self.is_open(job.worker, job.step):
            return
        agent, attempt, code, text = failed
        entry = e.AttemptFailed(
            p=job.step.p, n=job.step.n, agent=agent, attempt=attempt, code=code, text=text
        )
        self.turn.record((entry, NO_VALUE))
        self.turn.with_next_commit(Show("note", job.worker.path, f"{agent}  {text}"))

    def ended(self, token: int, outcome: s.ThinkOutcome | AgentError) -> None:
        """An agent replied, or could not."""
        started = self._jobs.get(token)
        self._limit_waits.pop(token, None)
        if started is not None:
            self._tools.close(token)
            self._questions.close(token)
            self._step_timers.cancel(started.step.key)
        job = self._jobs.end(token)
        if job is None:
            return
        if isinstance(outcome, AgentError):
            self._fail(job, outcome)
            return
        self._questions.supersede(job.step)
        # It counts even if the call was being cancelled: the reply was on its way, and it is paid.
        if outcome.result is not None:
            outcome.took_s = self.waited_s(job.step)
        used = self._settle(job, _used_by(outcome))
        value, estimated = self.turn.pack(outcome), outcome.usd_estimated
        self.turn.end_open(job.worker, job.step, value, usd=outcome.usd, usd_estimated=estimated, used=used)

    def _fail(self, job: Job, error: AgentError) -> None:
        if not self.is_open(job.worker, job.step):
            return  # it was stopped because the session failed: the agent is called again when the run is resumed
        self._questions.supersede(job.step)
        verdict = job.verdict
        if isinstance(verdict, StepTimeoutError) and isinstance(error, AgentDeadlineError):
            verdict = None  # the agent's own deadline explains more than ours
        used = self._settle(job, Units(error.tokens, error.turns))
        failure, estimated = verdict or error, error.usd_estimated
        self.turn.fail_open(job.worker, job.step, failure, usd=error.usd, usd_estimated=estimated, used=used)

    def tool_called(self, token: int, call: ToolCall) -> None:
        """The agent of a prompt calls a tool. One that is being stopped gets no answer from it."""
        job = self._jobs.get(token)
        if job is not None and job.verdict is not None:
            self._tools.close(token)
        self._tools.called(token, call)

    def person_asked(self, token: int, question: AgentQuestion) -> None:
        """The agent of a prompt asks a person. One that is being stopped gets no answer."""
        job = self._jobs.get(token)
        if job is not None and job.verdict is not None:
            self._questions.close(token)
        self._questions.asked(token, question)

    def question_withdrawn(self, token: int, own_id: str) -> None:
        """The agent of a prompt does not wait for an answer any longer. If it is being stopped, the question stays open."""
        job = self._jobs.get(token)
        if job is not None and job.verdict is None:
            self._questions.withdrawn(token, own_id)

    def begins_again(self, token: int, again: TalkBegins) -> None:
        """The agent of a prompt is called once more."""
        self._tools.begin_again(token, again.delivered)
        self._questions.begin_again(token)

    # Money and other units.

    def _settle(self, job: Job, used: Units) -> Units | None:
        """What a call counts as that has ended: what it reports that it used, and how long it took."""
        took = Units(wall_s=round(self.waited_s(job.step), 6))
        return settle(self.settings.caps, used + took, job.step.reserved) or None

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
        tokens = args.max_tokens if command is None else command.max_tokens
        wanted = Units(turns=args.max_turns or 0, tokens=tokens or 0)
        return reserve(caps, state.spent, others, wanted, command.share if command else 0)


class _Reported(msgspec.Struct):
    """What the result of a command reports that it used."""

    class Usage(msgspec.Struct):
        """See ``bartack.agents.Usage``."""

        turns: int | None = None

    usage: Usage = msgspec.field(default_factory=Usage)


def _used_by(outcome: s.ThinkOutcome) -> Units:
    """What an answer reports that it used."""
    if outcome.result is None:
        return Units(outcome.tokens, outcome.turns)
    return Units(outcome.tokens, typed.decode(outcome.result, type=_Reported).usage.turns or 0)
