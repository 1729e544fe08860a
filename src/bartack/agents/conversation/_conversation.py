"""One command to an agent, over all its attempts. Decides everything about a call and does no I/O.

The caller reports what happens: lines, ends of processes, ticks of the clock, cancels. It takes what is to be done with ``take``.
So a conversation can be driven by a hub's loop as well as by a test with a clock of its own.

    new ──begin──▶ starting ──attached──▶ running ──answer──▶ judging ──accepted──▶ done
                      ▲                    │  │ └──cancel──▶ cancelling ──▶ done
                      │                    │  └──must stop──▶ stopping ──exited──▶ waiting or done
                      └───────waiting◀─────┘

This file owns the states and what follows from a failure. Its parts own the rest: ``_attempts.py`` counts, ``_watchdog.py`` knows
the time limits, ``_tool_calls.py`` the tools, ``_answer.py`` what an answer must be, ``_dialect.py`` how the agent is spoken to.

**Why no finished call is paid twice.** Hub, keeper and agent may be killed between any two statements. The promise is: if the agent
had given a whole answer, no model is asked again for it. It holds because each part of a call is on disk before the next begins:

1. *The step, before the start.* The kernel records ``step.started`` with the key, the number of the attempt and the reserved money,
   and starts the call after that commit (``PromptDesk._start`` in ``runtime/kernel/prompts.py``). So an agent works only for a step
   that the journal has open. The next hub finds it open and counts one attempt more: any attempt after the first
   means that an agent may have been called for this step. At the first none was: what its directory may have belongs to an earlier
   step of the same key that failed, or whose answer was refused.
2. *One place, one speaker.* The id of the conversation is made of the run and the key of the step, so every attempt looks into
   the same directory. Its ``stream.ndjson`` is locked by the process that speaks (``program/_lease.py``). A new hub starts
   nothing before the process trees of the last one are gone (``supervision/parent/guardian.py``), so nothing is added to the
   stream while it is read.
3. *The prompt, before it is sent.* ``copy_out`` is called before the bytes go to the process (``ProgramCall._do``): it marks the
   stream. What follows the newest mark answers the newest prompt. An answer before it was refused, or another prompt followed it.
4. *The answer, before it is an outcome.* Claude Code writes to the stream itself; the keeper copies the lines of an ACP agent to
   it; Codex keeps its thread on disk. No hub has to be there for that. The lines of the line protocol come through a pipe, and
   are copied when they are read. In every kind the line is in the stream before ``Done`` leaves: ``ProgramCall.line_came`` copies
   before it performs actions.
5. *The outcome, before it is seen.* ``Done`` becomes ``step.finished``, and the worker gets the value after that commit. From then
   on the replay has the value, and no call is made.
6. *The harvest.* A hub that dies between 4 and 5 leaves an open step and an answer. From the second attempt on, the next hub asks
   ``recover`` for it before anything is started (``ProgramCall.begin``). ``begin`` gives it to ``take_answer``, as if it had come
   now: with the same checks of the schema and the files, and without ``NeedProcess``. Codex is the exception: only it can read its
   thread, so its process is started. But a turn that was completed for this key is found by the id of its message
   (``codex/_history.py``), and no turn is begun.

What can cost something again is a call that was *not* finished: the agent continues its session, with the outcomes of the tools
that have ended, and what the killed process had used is counted (``Attempts.used_before``). An agent of the line protocol whose
answer was still in the pipe gets the same command again, with the same idempotency key, and answers from its own memory. Streams
are not synced: after a power cut an answer that was not recorded may be lost, and is asked for again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from bartack.agents._permissions import Denial
from bartack.agents._record import AgentRecord, Link
from bartack.agents.contract import (
    AgentAnswer,
    AgentRequest,
    AgentResult,
    CallFinished,
    CallNotice,
    CallRateLimit,
    CallRetry,
    CallStarted,
    CallUsage,
    Outcome,
    Rejection,
    ToolOutcome,
    Verdict,
    VerifiedArtifact,
)
from bartack.agents.conversation._actions import (
    Action,
    ActionQueue,
    Done,
    JudgeFiles,
    NeedProcess,
    ReleaseProcess,
    State,
    StopProcess,
)
from bartack.agents.conversation._answer import Answer
from bartack.agents.conversation._attempts import Attempts
from bartack.agents.conversation._breaker import Breaker
from bartack.agents.conversation._dialect import AgentFailure, Dialect
from bartack.agents.conversation._limits import Limits
from bartack.agents.conversation._questions import Questions
from bartack.agents.conversation._tool_calls import ToolCalls
from bartack.agents.conversation._watchdog import Watchdog
from bartack.agents.pauses import LONGEST_S
from bartack.agents.process._vitals import Activity
from bartack.agents.protocol.codes import OWN_CODES, Code, judge_agent_code
from bartack.agents.protocol.ids import conversation_id, moment
from bartack.agents.protocol.messages import Cause, Event, Reason, Usage
from bartack.agents.replies import reply_text
from bartack.agents.reply import ReplyFaultsError, repair_request
from bartack.agents.usage import is_unpriced, over_budget
from bartack.core.clock import Clock
from bartack.errors import AgentCancelledError, AgentCapabilityError, AgentError, ReplyInvalidError

LEFT_SHOWN: Final = 5
"""Names of processes that outlived an agent, in one notice."""
TEMPORARY: Final = frozenset({"temporary_failure", "overloaded"})
"""Failures of the service that an agent uses, for which no call is to blame."""
WHY: Final = 512
"""Characters of a rate limit's message."""

R = TypeVar("R")
"""One thing that is read from the agent."""


# Long because it is the one state machine of a call: which state follows from what is to be read in one place.
class Conversation(Generic[R]):
    """See the module.

    A dialect may use its attributes and call ``take_answer``, ``fail``, ``reject``, ``end_attempt``, ``end``, ``note_usage`` and
    ``refuse_tools``; everything else is for the caller.

    Args:
        agent: The agent's name.
        request: What it is asked.
        limits: How often it is asked, and how long it may take.
        record: What is remembered of the agent over its calls.
        speak: Makes the dialect of the agent.
        clock: What time it is.
        look: Measures the activity of a process tree: see ``Watchdog``.
        uniform: Where the randomness of waits comes from.
        breaker: Holds back all calls of the agent after temporary failures; ``None``: nothing does.
    """

    def __init__(
        self,
        agent: str,
        request: AgentRequest,
        limits: Limits,
        record: AgentRecord,
        speak: Callable[[Conversation[R]], Dialect[R]],
        *,
        clock: Clock,
        look: Callable[[int], Activity] | None = None,
        uniform: Callable[[float, float], float] = random.uniform,
        breaker: Breaker | None = None,
    ) -> None:
        self._breaker = breaker
        self.agent = agent
        self.request = request
        self.record = record
        self.clock = clock
        self.state: State = "new"
        self.conversation = conversation_id(request.run_id, request.key)
        self.generation = 0
        """How many conversations were abandoned before this one."""
        self.denials: list[Denial] = []
        """What the agent wanted to do and was not allowed to."""
        self.usd_estimated = False
        """Its cost was computed from prices, or in part."""
        self.judge_exit: Callable[[int | None, tuple[str, ...]], bool] | None = None
        """A dialect may set it: is called when a process ends during an attempt, and returns whether it has dealt with that."""
        self.verdict: AgentError | None = None
        """Why the command was given up, once it was."""
        self.actions = ActionQueue(request.key, clock)
        self.watchdog = Watchdog(limits, request, clock, look)
        self.attempts = Attempts(agent, request, limits, uniform)
        self.answer = Answer(request)
        self._dialect = speak(self)
        self.tools = ToolCalls(request, self.actions, self.watchdog, self._dialect.send_result)
        self.questions = Questions(self.actions, self.watchdog, self._dialect.send_answer)
        self._limits = limits
        self._link: Link | None = None
        self._repaired = False
        """The agent was asked to fix its reply: once is enough."""
        self._unannounced = False
        """A process got the command; this is not reported yet because its pid is unknown."""
        self._outcome: Outcome | None = None

    # What is to be done.

    def take(self) -> list[Action]:
        """What is to be done now, in this order."""
        self.watchdog.expect(self.state)
        return self.actions.take()

    def next_due(self) -> float | None:
        """When ``tick`` is to be called at the latest, in seconds of the monotonic clock."""
        return self.watchdog.next_due(self.state)

    @property
    def deadline_in_s(self) -> float:
        """Seconds left until the deadline, of those that count."""
        return self.watchdog.deadline_in_s

    # What happens.

    def begin(self, earlier: R | None = None) -> None:
        """Begin.

        Args:
            earlier: An answer to the same key that came before a hub died.
        """
        self.watchdog.begin()
        found = None if earlier is None else self._dialect.recover(earlier)
        if isinstance(found, AgentFailure):
            self.fail(found)
        elif found is not None:
            self.answer.recovered = True
            self.take_answer(found)
        if found is None or self.state == "waiting":
            self._start()

    def was_repaired(self) -> None:
        """An earlier hub has asked the agent to fix its reply: once is enough."""
        self._repaired = True

    def attached(self, link: Link) -> None:
        """A process is there, and can be written to."""
        self._link = link
        self.watchdog.attached(link)
        if not self.refuse_tools(link):
            self._send_command()

    def announce(self) -> None:
        """Report which process got the command: its pid is known now, or will never be."""
        if not self._unannounced:
            return
        self._unannounced = False
        link = self._link or Link()
        self.actions.report(
            CallStarted(
                **self.actions.stamp(),
                pid=link.pid,
                conversation=self.conversation,
                attempt=self.attempts.number,
                version=link.version,
                generation=self.generation,
                model=link.model,
                delivered=list(self._dialect.delivered()),
            )
        )

    def line(self, read: R) -> str:
        """The process wrote something; returns what is wrong with it, empty if nothing is."""
        link = self._link
        if link is None or self.state in {"stopping", "done"}:
            return "late"
        self.announce()
        self.watchdog.line_came()
        return self._dialect.read(link, read)

    def exited(
        self,
        status: int | None,
        stderr_tail: tuple[str, ...] = (),
        leftovers: Sequence[str] = (),
        suspicion: str = "",
    ) -> None:
        """The process has ended, with its tree. A status of ``None`` is unknown; ``leftovers`` had to be terminated.

        ``suspicion`` is why it may have been killed, for the message.
        """
        self.announce()
        self._report_leftovers(leftovers)
        link, self._link = self._link, None
        self.watchdog.end_hold()
        if self.state == "stopping":
            self._stopped()
        elif self.state == "cancelling":
            self._give_up()
        elif self.state == "running":
            if status in {126, 127} and link is not None and not link.has_written:
                self.start_failed(f"it ended with {status}", stderr_tail)
                return
            if self.judge_exit is not None and self.judge_exit(status, stderr_tail):
                return
            problem = f"its process {_ended(status)}{suspicion}"
            self.end_attempt("agent_exited", problem, stderr_tail=stderr_tail)

    def _report_leftovers(self, names: Sequence[str]) -> None:
        if names and self.state != "done":
            processes = "1 process" if len(names) == 1 else f"{len(names)} processes"
            shown = ", ".join(names[:LEFT_SHOWN])
            text = f"{processes} left by the agent: {shown}; terminated"
            stamp = self.actions.stamp()
            self.actions.report(CallNotice(**stamp, level="warn", text=text, case="leftovers"))

    def start_failed(self, problem: str, stderr_tail: tuple[str, ...] = ()) -> None:
        """The program could not be started."""
        self._link = None
        if self.state == "stopping":
            self._stopped()
        elif self.state != "done":
            self.end_attempt("start_failed", problem, stderr_tail=stderr_tail)

    def cancel(self, reason: Reason, error: AgentError | None = None) -> None:
        """Give the command up. The first reason counts."""
        if self.state == "done" or self.verdict is not None:
            return
        if reason == "deadline":
            if self.state == "judging":
                return  # the answer came in time
            late = f"it did not answer within {self.request.timeout_s:g} s"
            error = self.attempts.error("deadline_exceeded", late)
        self.verdict = error or AgentCancelledError(self.agent, "the call was given up", reason)
        self.watchdog.end_hold()
        if self.state == "running" and self._link is not None:
            self.state = "cancelling"
            self.watchdog.cancel_sent()
            self._dialect.send_cancel(reason)
        elif self.state in {"waiting", "starting", "new"}:
            self._give_up()

    def judged(self, verdict: Verdict) -> None:
        """The files of an answer were verified."""
        if self.state != "judging" or self.answer.event is None:
            return
        if self.verdict is not None:
            self._give_up()
        elif isinstance(verdict, Rejection):
            self.reject(verdict)
        else:
            self._accept(self.answer.event, verdict)

    def tool_ended(self, call_id: str, outcome: ToolOutcome) -> None:
        """A tool has ended."""
        self.tools.ended(call_id, outcome)

    def answered(self, question_id: str, answer: AgentAnswer) -> None:
        """A person has answered a question of the agent."""
        if self.state in {"running", "cancelling"}:
            self.questions.answered(question_id, answer)

    def tick(self) -> None:
        """Time has passed."""
        expired = self.watchdog.tick(self.state)
        if expired is None:
            return
        if expired.limit == "attempt" and not self._limits.keep:
            self._dialect.send_cancel("stalled")  # so that it ends at once when its input does
        match expired.limit:
            case "retry":
                self._start()
            case "deadline":
                self.cancel("deadline")
            case "wall":
                self.cancel("budget", self.attempts.error("budget_exceeded", expired.problem))
            case "grace":
                self._give_up(restart=True)
            case "attempt" if expired.code in OWN_CODES:
                self.end_attempt(expired.code, expired.problem)
            case "attempt":
                self.fail(AgentFailure(expired.code, expired.problem))

    # What the agent wrote.

    def refuse_tools(self, link: Link) -> bool:
        """An agent that cannot call tools is not asked for what needs them; returns whether the call ended with that."""
        if not self.request.tools or link.can_call_tools or self.state == "cancelling":
            return False
        problem = "it says that it cannot call tools, and this prompt has some"
        error = AgentCapabilityError(self.agent, problem, "no_tools")
        self.end(error, restart=self.state == "running")
        return True

    def note_usage(self, usage: Usage, *, final: bool) -> None:
        """The attempt has used this much so far; a call over its budget is cancelled unless it has ended with it.

        The budget is that of the whole call: what failed attempts have used counts, those of dead hubs included.
        """
        self.attempts.used(usage)
        self.actions.report(CallUsage(**self.actions.stamp(), usage=usage))
        over = over_budget(self.request.budget, self.attempts.usage())
        if over and not final:
            self.cancel("budget", self.attempts.error("budget_exceeded", over))

    def take_answer(self, event: Event) -> None:
        """The agent answered."""
        self._note_service(is_temporary=False)
        try:
            refused = self.answer.take(event)
        except ReplyFaultsError as faults:
            self._repair(faults, reply_text(event))
            return
        if refused is not None:
            self.reject(refused)
            return
        self.watchdog.trust()
        if self.state == "cancelling":
            self.verdict = None
        if self.answer.has_files:
            self.state = "judging"
            self.actions.add(JudgeFiles(self.answer.files))
        else:
            self._accept(event, [])

    def reject(self, rejection: Rejection) -> None:
        """An answer cannot be used."""
        self.answer.drop()
        self.end_attempt(rejection.code, rejection.message)

    def fail(self, failure: AgentFailure) -> None:
        """The agent reports that it failed."""
        code, message, retryable, until, after_s = failure
        wait_s = self.attempts.rate_limit_s(failure, self.clock.now_us())
        if wait_s is not None and self._breaker is not None:
            self._breaker.limited(wait_s, message)  # other runs learn of it, whatever becomes of this call
        if self.state == "cancelling":
            self._give_up()
            return
        self._note_service(is_temporary=code in TEMPORARY)
        kind = judge_agent_code(code, retryable=retryable)
        if wait_s is None:
            self.end_attempt(code, message, kind=kind, least_s=after_s, until=until)
            return
        excused = bool(until or after_s) and self._is_excused(wait_s)
        if not excused and wait_s >= self.watchdog.deadline_in_s:
            self.end_attempt(code, message, kind=kind._replace(again="no"), until=until)
            return
        self._note_failure(code, message)
        self.attempts.excuse()
        resets_at = until or moment(self.clock.now_us() + int(wait_s * 1e6))
        self.actions.report(
            CallRateLimit(**self.actions.stamp(), status=code, resets_at=resets_at, error=message[:WHY])
        )
        self._wait(code, message, "failed", wait_s, excused=excused)
        self._stop_unless_kept()

    def _is_excused(self, wait_s: float) -> bool:
        """Whether the deadline does not count a wait for the end of a limit. A program's own deadline counts every wait."""
        return not self.request.limits_count and self.watchdog.excused_s + wait_s <= LONGEST_S

    def _note_service(self, *, is_temporary: bool) -> None:
        """Temporary failures hold back every call of the agent. While they do, they do not count against one of them."""
        if self._breaker is None:
            return
        if not is_temporary:
            self._breaker.worked()
            return
        self._breaker.failed()
        if self._breaker.is_open:
            self.attempts.excuse()

    # The end of an attempt.

    def end_attempt(
        self,
        code: str,
        problem: str,
        *,
        kind: Code | None = None,
        least_s: float = 0.0,
        until: str = "",
        stderr_tail: tuple[str, ...] = (),
    ) -> None:
        """The attempt has failed: wait for another one, or end the call."""
        kind = kind or OWN_CODES[code]
        self.watchdog.end_hold()
        if self.verdict is not None:
            self._give_up(restart=kind.restart)
            return
        self._note_failure(code, problem)
        allowed = self.attempts.may_repeat(code, kind)
        if (
            allowed
            and kind.restart
            and not self.record.may_restart(
                self.watchdog.watch.real_s(), self._limits.max_restarts, self._limits.restart_window_s
            )
        ):
            problem, allowed = f"{problem}; its process was started again too often", False
        if not allowed:
            error = self.attempts.error(code, problem, kind, until=until, stderr_tail=stderr_tail)
            self.end(error, restart=kind.restart)
            return
        self._wait(code, problem, kind.cause, self.attempts.backoff_s(least_s))
        self._stop_unless_kept(restart=kind.restart)

    def _stop_unless_kept(self, *, restart: bool = False) -> None:
        """An attempt has failed: its process gets the next one only if it is kept."""
        if self._link is not None and (restart or not self._limits.keep):
            self.state = "stopping"
            self.actions.add(StopProcess())

    def end(self, outcome: Outcome, *, restart: bool = False) -> None:
        """The call is over; its process is released first, or stopped if it must not serve another call."""
        self._outcome = outcome
        if self._link is not None and (restart or not self._limits.keep):
            self.state = "stopping"
            self.actions.add(StopProcess())
            return
        if self._link is not None:
            self._link = None
            self.actions.add(ReleaseProcess())
        self._finish(outcome)

    def _start(self) -> None:
        if self._link is not None:
            self._send_command()
            return
        wait_s = 0.0 if self._breaker is None else self._breaker.wait_s()
        if wait_s > 0:
            self._hold_back(wait_s)
            return
        self.state = "starting"
        self.actions.add(NeedProcess())

    def _hold_back(self, wait_s: float) -> None:
        """Other calls of this agent have failed again and again, or its provider has a limit: this one waits, uncounted."""
        assert self._breaker is not None
        resets_at = moment(self.clock.now_us() + int(wait_s * 1e6))
        error = self._breaker.reason
        limited = self._breaker.is_paused
        excused = limited and self._is_excused(wait_s)
        if limited and not excused and wait_s >= self.watchdog.deadline_in_s:
            kind = judge_agent_code("rate_limited", retryable=None)
            self.end(self.attempts.error("rate_limited", error, kind, until=resets_at))
            return
        self.watchdog.retry_in(wait_s, excused=excused)
        self.state = "waiting"
        self.actions.report(
            CallRateLimit(**self.actions.stamp(), status="unavailable", resets_at=resets_at, error=error)
        )

    def _send_command(self) -> None:
        self.state = "running"
        self.attempts.begin()
        self.answer.begin_attempt()
        self.watchdog.attempt_began()
        if not self._dialect.send_command():
            return
        self.watchdog.is_active()  # what it has done before does not count
        self._unannounced = True
        if self._link is not None and self._link.pid:
            self.announce()

    def _repair(self, faults: ReplyFaultsError, text: str) -> None:
        """Ask the agent once to fix its reply. That is part of the conversation, not a failed attempt."""
        self.answer.drop()
        if self.verdict is not None:
            self._give_up()
            return
        self._note_failure("invalid_reply", repair_request(faults.faults, self.request.schema or {}))
        if self._repaired:
            self.end(ReplyInvalidError(self.agent, str(faults), text))
            return
        self._repaired = True
        self.attempts.excuse()
        self._wait("invalid_reply", str(faults), "rejected", 0.0)

    def _note_failure(self, code: str, problem: str) -> None:
        self.attempts.fail(code, problem)
        self.watchdog.trust()
        self.tools.forget()
        self.questions.forget()

    def _wait(self, code: str, problem: str, cause: Cause, wait_s: float, *, excused: bool = False) -> None:
        self.attempts.cause = cause
        if cause != "resend":
            self._dialect.refuse_answers()
        self.watchdog.retry_in(wait_s, excused=excused)
        self.state = "waiting"
        number = self.attempts.number
        self.actions.report(
            CallRetry(**self.actions.stamp(), code=code, error=problem[:2048], attempt=number, delay_s=wait_s)
        )

    def _stopped(self) -> None:
        outcome = self._outcome or self.verdict
        if outcome is not None:
            self._finish(outcome)
        else:
            self.state = "waiting"

    def _accept(self, event: Event, artifacts: list[VerifiedArtifact]) -> None:
        reply = self.answer.reply
        self.end(
            AgentResult(
                event=event,
                text=reply.text,
                value=reply.value,
                declined=reply.declined,
                artifacts=artifacts,
                usage=self.attempts.usage(event.usage),
                usd_estimated=self.usd_estimated,
                conversation=self.conversation,
                generation=self.generation,
                attempts=self.attempts.made,
                harvested=self.answer.recovered,
                notes=self._dialect.notes(),
                denials=list(self.denials),
                command_id=self._dialect.command_id,
                failed=list(self.attempts.failed),
            )
        )

    def _give_up(self, *, restart: bool = False) -> None:
        """End a call that was cancelled."""
        assert self.verdict is not None
        self.end(self.verdict, restart=restart)

    def _finish(self, outcome: Outcome) -> None:
        self.state = "done"
        self._dialect.close()
        reason = "completed"
        if isinstance(outcome, AgentError):
            used = self.attempts.usage()
            outcome.usd, outcome.tokens, outcome.turns = used.cost_usd or 0.0, used.tokens, used.turns or 0
            outcome.usd_estimated = self.usd_estimated
            outcome.usd_unknown = is_unpriced(used)
            reason = outcome.reason or type(outcome).__name__
        took_s = round(max(self.watchdog.took_s, 0.0), 6)
        self.actions.report(CallFinished(**self.actions.stamp(), reason=reason, duration_s=took_s))
        self.actions.add(Done(outcome))


def _ended(status: int | None) -> str:
    if status is None:
        return "was lost"
    return f"ended with {status}" if status >= 0 else f"was killed by signal {-status}"
