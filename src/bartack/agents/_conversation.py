"""One command to an agent that speaks the line protocol, over all its attempts. Decides everything and does nothing.

What happens is told to it: lines, ends of processes, ticks of the clock, cancels. What is to be done is taken from it with
``take``. So it can be driven by a hub's loop as well as by a test with a clock of its own.

    new ──begin──▶ starting ──attached──▶ running ──answer──▶ judging ──accepted──▶ done
                      ▲                    │  │ └──cancel──▶ cancelling ──▶ done
                      │                    │  └──must end──▶ stopping ──gone──▶ waiting or done
                      └───────waiting◀─────┘
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Final, Literal, TypedDict

import msgspec

from bartack.agents._actions import (
    Action,
    CallOut,
    Done,
    Judge,
    NeedProcess,
    Rejection,
    ReleaseProcess,
    Send,
    StopProcess,
    Tell,
    Verdict,
    Warn,
)
from bartack.agents._config import NdjsonConfig, ProtocolConfig
from bartack.agents._contract import (
    AgentEvent,
    AgentRequest,
    AgentResult,
    CallFinished,
    CallNotice,
    CallRateLimit,
    CallRetry,
    CallStarted,
    CallText,
    CallTool,
    CallUsage,
    Outcome,
    ToolOutcome,
    VerifiedArtifact,
)
from bartack.agents._record import AgentRecord, Link
from bartack.agents._replies import check_reply, check_version, read_prompt, reply_text
from bartack.agents._reply import ReadReply, ReplyFaultsError, repair_request
from bartack.agents._times import Stopwatch, Times
from bartack.agents._usage import over_budget, total_usage
from bartack.agents._vitals import Activity
from bartack.agents.protocol._codes import OWN_CODES, Code, judge_agent_code, make_error
from bartack.agents.protocol._ids import conversation_id, correlation_id, moment, new_message_id, parse_moment
from bartack.agents.protocol._lines import EXCERPT, BadLine, Line, Read, write_line
from bartack.agents.protocol._messages import (
    ENDING,
    PASSING,
    TERMINAL,
    Artifact,
    Cancel,
    Cause,
    Command,
    Event,
    Heartbeat,
    Hello,
    Log,
    Notice,
    Party,
    Reason,
    Retry,
    ToAgent,
    ToolCall,
    ToolProblem,
    ToolResult,
    Usage,
)
from bartack.agents.protocol._sound import find_unsound
from bartack.core import Clock
from bartack.errors import (
    AgentCancelledError,
    AgentCapabilityError,
    AgentError,
    LineTooLongError,
    ReplyInvalidError,
)

LATE_S: Final = 5.0
"""A tick that comes later than this was not the agent's fault: the machine slept, or the hub was stopped."""
TOLD: Final = 5
"""So many bad lines of each case are told in full."""
OPEN_TOOLS: Final = 64
"""So many calls of tools may wait for their results."""
LONGEST_S: Final = 1e9
WHY: Final = 512
"""Characters of why there is another attempt."""
LOOK_S: Final = 30.0
"""How often the processes of an agent are looked at that says nothing."""
CODE: Final = 128
"""Characters of a code that an agent makes up."""
REPAIR: Final = 4096
"""The same, if a reply is to be mended."""

State = Literal["new", "starting", "running", "judging", "cancelling", "stopping", "waiting", "done"]


class _Stamp(TypedDict):
    """What every happening has."""

    key: str
    at: str
    n: int


class Conversation:
    """See the module.

    Args:
        agent: The agent's name.
        request: What it is asked.
        config: How patient we are with it.
        protocol: How much of bad lines is borne.
        record: What is remembered of the agent.
        clock: What time it is.
        look: Says what the tree of a process has done since it was asked last; without it silence is all there is to go by.
        uniform: Where the randomness of waits comes from.
    """

    # Long because all that a conversation remembers is listed here; it decides nothing.
    def __init__(
        self,
        agent: str,
        request: AgentRequest,
        config: NdjsonConfig,
        protocol: ProtocolConfig,
        record: AgentRecord,
        *,
        clock: Clock,
        look: Callable[[int], Activity] | None = None,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.agent = agent
        self.request = request
        self.state: State = "new"
        self.task_id = request.task_id or request.worker
        self.conversation = conversation_id(request.run_id, request.key)
        self.correlation = correlation_id(
            request.run_id, self.task_id, request.action, request.worker, request.epoch, request.step
        )
        self._config = config
        self._protocol = protocol
        self._record = record
        self._clock = clock
        self._watch = Stopwatch(clock)
        self._times = Times(self._watch.now(), request.timeout_s)
        self._uniform = uniform
        self._look = look
        self._actions: list[Action] = []
        self._link: Link | None = None
        self._n = 0
        # Attempts.
        self._tries = 0
        self._uncounted = 0
        self._cause: Cause = "first" if request.attempt == 1 else "resend"
        self._why: tuple[str, str] = ("", "")
        if request.rejected and request.attempt == 1:
            told = request.rejected_because or "the answer was refused"
            self._cause, self._why = "rejected", (request.rejected, told)
        self._attempts: list[str] = []
        self._once: set[str] = set()
        self._sent: str = ""
        self._refused: set[str] = set()
        self._produced: dict[str, Artifact] = {}
        self._usage = Usage()
        self._spent: list[Usage] = []
        self._answer: Event | None = None
        self._reply = ReadReply("")
        self._mended = False
        """The agent was asked to mend its reply: once is enough."""
        self._unsaid = False
        """A process got the command, and it is not told yet because nobody knows which."""
        self._harvested = False
        self._outcome: Outcome | None = None
        # Faults.
        self._faults: Counter[str] = Counter()
        self._violations = 0
        self._case = ""
        self._tools: dict[str, bytes] = {}
        self._open_tools: set[str] = set()
        self._verdict: AgentError | None = None
        self._expected: float | None = None

    # What is to be done.

    def take(self) -> list[Action]:
        """What is to be done now, in this order."""
        actions, self._actions = self._actions, []
        self._expected = self.next_due()
        return actions

    def next_due(self) -> float | None:
        """When ``tick`` is to be called at the latest, in seconds of the monotonic clock."""
        if self._watch.stands:
            return None
        dues = [due for due, _ in self._watches()]
        return min(dues) + self._watch.stood_s if dues else None

    @property
    def deadline_in_s(self) -> float:
        """Seconds left, of those that count."""
        return self._times.deadline - self._watch.now()

    # What happens.

    def begin(self, harvested: Line | None = None) -> None:
        """Begin.

        Args:
            harvested: An answer to the same key that came before a hub died.
        """
        self._times.began = self._watch.now()
        self._times.deadline = self._times.began + self.request.timeout_s
        if harvested is not None and self._harvest(harvested):
            return
        self._start()

    def attached(self, link: Link) -> None:
        """A process is there, and can be written to."""
        self._link = link
        now = self._watch.now()
        self._times.start_by = None if link.heard else now + self._config.start_s
        if not self._refuse_tools(link):
            self._send_command()

    def line(self, read: Read) -> str:
        """The process wrote a line; returns what is wrong with it, empty if nothing is."""
        link = self._link
        if link is None or self.state in {"stopping", "done"}:
            return "late"
        self._case = ""
        self.process_known()
        self._catch_up()
        self._times.last_line = self._watch.now()
        if isinstance(read, BadLine):
            self._fault(read) if read.event is None else self._flawed(read, read.event)
        else:
            self._message(link, read)
        return self._case

    def _message(self, link: Link, read: Line) -> None:
        link.heard = True
        self._times.start_by = None
        match read.message:
            case Hello() as hello:
                self._hello(link, hello)
            case Heartbeat() as beat:
                if link.take_heartbeat(beat):
                    self._times.last_progress = self._times.last_line
            case Log() as log:
                self._log(log)
            case ToolCall() as call:
                self._tool_call(call, read.raw)
            case Event() as event:
                self._event(event, read.raw)

    def exited(self, status: int | None, stderr_tail: tuple[str, ...] = ()) -> None:
        """The process has ended, with its tree; ``None``: nobody knows how."""
        self.process_known()
        link, self._link = self._link, None
        self._watch.go_on()
        if self.state == "stopping":
            self._stopped()
        elif self.state == "cancelling":
            assert self._verdict is not None
            self._over(self._verdict)
        elif self.state == "running":
            if status in {126, 127} and link is not None and not link.heard:
                self.start_failed(f"it ended with {status}", stderr_tail)
                return
            self._end_attempt("agent_exited", f"its process {_ended(status)}", stderr_tail=stderr_tail)

    def start_failed(self, problem: str, stderr_tail: tuple[str, ...] = ()) -> None:
        """The program could not be started."""
        self._link = None
        if self.state == "stopping":
            self._stopped()
        elif self.state != "done":
            self._end_attempt("start_failed", problem, stderr_tail=stderr_tail)

    def cancel(self, reason: Reason, error: AgentError | None = None) -> None:
        """Give the command up. The first reason counts."""
        if self.state == "done" or self._verdict is not None:
            return
        if reason == "deadline" and self.state == "judging":
            return  # the answer came in time
        self._verdict = error or self._cancelled(reason)
        self._watch.go_on()
        if self.state == "running" and self._link is not None:
            self.state = "cancelling"
            self._times.grace_by = self._watch.now() + self._config.cancel_grace_s
            message = Cancel(message_id=new_message_id(), correlation_id=self.correlation, reason=reason)
            self._send(message)
        elif self.state in {"waiting", "starting", "new"}:
            self._over(self._verdict)

    def judged(self, verdict: Verdict) -> None:
        """The files of an answer were looked at."""
        if self.state != "judging" or self._answer is None:
            return
        if self._verdict is not None:
            self._over(self._verdict)
        elif isinstance(verdict, Rejection):
            self._reject(verdict.code, verdict.message)
        else:
            self._accept(self._answer, verdict)

    def tool_ended(self, call_id: str, outcome: ToolOutcome) -> None:
        """A tool has ended."""
        if call_id not in self._open_tools:
            return
        self._open_tools.discard(call_id)
        problem = ToolProblem(outcome.code, outcome.message) if outcome.code else None
        self._answer_tool(call_id, outcome.result, problem)
        phase: Literal["finished", "failed"] = "failed" if problem else "finished"
        self._tell(CallTool(**self._stamp(), id=call_id, tool="", phase=phase))
        if not self._open_tools:
            self._watch.go_on()
        self._times.last_progress = self._times.last_line = self._watch.now()

    def tick(self) -> None:
        """Time has passed."""
        if self._watch.stands or self.state == "done":
            return
        self._catch_up()
        now = self._watch.now()
        for due, ring in sorted(self._watches(), key=lambda watch: watch[0]):
            if due <= now:
                ring()
                return

    # Starting and sending.

    def _start(self) -> None:
        if self._link is not None:
            self._send_command()
            return
        self.state = "starting"
        self._actions.append(NeedProcess())

    def _send_command(self) -> None:
        self.state = "running"
        self._tries += 1
        self._sent = new_message_id()
        self._produced = {}
        self._usage = Usage()
        self._times.suspect = None
        self._violations = 0
        self._faults.clear()
        self._tools.clear()
        now = self._watch.now()
        self._times.last_line = self._times.last_progress = self._times.last_look = now
        if not self._send(self._command()):
            return
        self._is_active()  # what it has done before does not count
        self._unsaid = True
        if self._link is not None and self._link.pid:
            self.process_known()

    def process_known(self) -> None:
        """It is known which process got the command, or it never will be: tell that it did."""
        if not self._unsaid:
            return
        self._unsaid = False
        pid = self._link.pid if self._link is not None else 0
        hello = self._link.hello if self._link is not None else None
        version = f"{hello.name} {hello.version}" if hello is not None else ""
        self._tell(
            CallStarted(
                **self._stamp(),
                pid=pid,
                conversation=self.conversation,
                attempt=self.attempt,
                version=version,
            )
        )

    @property
    def attempt(self) -> int:
        """The number of the attempt that is under way."""
        return self.request.attempts_before + self.request.attempt + max(self._tries, 1) - 1

    def _command(self) -> Command:
        request = self.request
        code, message = self._why
        return Command(
            protocol=1,
            message_id=self._sent,
            correlation_id=self.correlation,
            run_id=request.run_id,
            task_id=self.task_id,
            idempotency_key=request.key,
            to=Party(request.role, self.agent),
            action=request.action,
            inputs=request.inputs,
            expected_outputs=request.expected_outputs,
            version=request.version,
            deadline=moment(self._clock.now_us() + int(self.deadline_in_s * 1e6)),
            retry=Retry(
                self.attempt,
                self._config.retries + self._uncounted + request.attempts_before + request.attempt - 1,
                self._cause,
                code or None,
                message[: REPAIR if code == "invalid_reply" else WHY] or None,
            ),
            budget=None if request.budget == type(request.budget)() else request.budget,
            conversation=self.conversation,
            tools=request.tools or None,
            priority=5,
        )

    def _send(self, message: ToAgent) -> bool:
        try:
            line = write_line(message, self.agent)
        except LineTooLongError as error:
            if isinstance(message, Command):
                self._over(error)
            return False
        self._actions.append(Send(line, message))
        return True

    def _harvest(self, line: Line) -> bool:
        event = line.message
        if not isinstance(event, Event) or event.event not in TERMINAL.get(self.request.action, ()):
            return False
        if self._misfit(event) is not None:
            return False
        self._harvested = True
        self._tries = 0
        self._take_answer(event)
        return self.state != "waiting"

    # Lines.

    def _hello(self, link: Link, hello: Hello) -> None:
        if 1 not in hello.protocol:
            spoken = ", ".join(map(str, hello.protocol)) or "none"
            self._end_attempt("start_failed", f"it speaks protocol version {spoken}, not 1")
            return
        link.take_hello(hello)
        self._refuse_tools(link)

    def _refuse_tools(self, link: Link) -> bool:
        """An agent that says it cannot call tools is not asked for what needs them; whether it was refused."""
        if not self.request.tools or link.can_call_tools or self.state == "cancelling":
            return False
        told = "it says that it cannot call tools, and this prompt has some"
        self._over(AgentCapabilityError(self.agent, told, "no_tools"), restart=self.state == "running")
        return True

    def _log(self, log: Log) -> None:
        self._times.last_progress = self._times.last_line
        self._tell(CallNotice(**self._stamp(), level=log.level, text=log.message[:4096]))
        if log.level in {"warn", "error"}:
            text = self._record.log_for_console(
                self._watch.real_s(), f"agent {self.agent}: {log.message.strip()[:200]}"
            )
            if text:
                self._actions.append(Warn(text))

    def _misfit(self, event: Event | ToolCall) -> tuple[str, str] | None:
        """Why an event is not of this command: the case and what is wrong."""
        if event.correlation_id != self.correlation:
            late = event.correlation_id in self._record.ended
            return ("late" if late else "wrong_correlation"), f"it is of {event.correlation_id}"
        return None if isinstance(event, ToolCall) else self._wrong_content(event)

    def _wrong_content(self, event: Event) -> tuple[str, str] | None:
        sender = event.sender
        if event.in_reply_to in self._refused:
            return "late", "it answers an attempt that is over"
        if sender.agent_type != self.request.role or sender.agent_id not in {None, self.agent}:
            return "wrong_sender", f"it is from {sender.agent_type} {sender.agent_id or ''}".strip()
        if event.idempotency_key not in {None, self.request.key}:
            return "wrong_key", f"it has the key {event.idempotency_key}"
        if event.task_id != self.task_id:
            return "wrong_task", f"it is of task {event.task_id!r}"
        return None

    def _event(self, event: Event, raw: bytes) -> None:
        ends = event.event in ENDING
        if self._record.is_repeated(event.message_id):
            self._fault(_fault("duplicate", raw, "its message_id was seen before"))
            return
        misfit = self._misfit(event)
        if misfit is not None:
            case, detail = misfit
            suspect = ends and case != "late"
            self._fault(_fault(case, raw, detail, suspect=suspect))
            return
        fits = event.event == "error" or event.event in TERMINAL.get(self.request.action, ())
        if ends and not fits:
            detail = f"{event.event} does not end {self.request.action}"
            self._fault(_fault("unexpected_event", raw, detail, suspect=True))
            return
        if self.state in {"judging", "waiting"} or (self.state == "cancelling" and self._is_too_late(event)):
            self._fault(_fault("late", raw, "the command has its answer, or was given up"))
            return
        self._record.remember(event.message_id)
        self._times.suspect = None
        self._times.last_progress = self._watch.now()
        self._note_usage(event)
        if event.event == "error":
            self._agent_error(event)
        elif ends:
            self._take_answer(event)
        else:
            self._passing(event, raw)

    def _flawed(self, read: BadLine, event: Event) -> None:
        """An event came that is right but for the files it names: nothing better is to be expected of this attempt."""
        misfit = self._misfit(event)
        ends = event.event in TERMINAL.get(self.request.action, ())
        again = self._record.is_repeated(event.message_id)
        strange = misfit is not None and misfit[0] != "late"
        self._fault(read._replace(suspect=strange and not again and event.event in ENDING))
        if again or misfit is not None or self.state != "running":
            return
        if event.event == "error":
            self._event(event, read.excerpt)
        elif ends:
            self._record.remember(event.message_id)
            self._note_usage(event)
            self._reject("artifact_mismatch", read.detail)

    def _is_too_late(self, event: Event) -> bool:
        """After a cancel only an error counts, and what was on its way when the time was over."""
        if event.event == "error" or event.event not in ENDING:
            return False
        return not isinstance(self._verdict, OWN_CODES["deadline_exceeded"].error)

    def _passing(self, event: Event, raw: bytes) -> None:
        if event.event not in PASSING:
            self._fault(_fault("unknown_event", raw, f"event {event.event!r}"))
        for artifact in event.artifacts or ():
            self._produced[artifact.path] = artifact
        told = (event.payload or {}).get("message")
        if isinstance(told, str):
            self._tell(CallText(**self._stamp(), text=told[:4096]))

    def _note_usage(self, event: Event) -> None:
        if event.usage is None:
            return
        usage = self._usage = event.usage
        self._tell(CallUsage(**self._stamp(), usage=usage))
        over = over_budget(self.request.budget, usage)
        if over and event.event not in ENDING:
            self.cancel("budget", self._own_error("budget_exceeded", over))

    # Bad lines.

    def _fault(self, fault: BadLine) -> None:
        case = self._case = fault.case
        self._faults[case] += 1
        seen = self._faults[case]
        if seen <= TOLD:
            excerpt = fault.excerpt[:EXCERPT].decode("utf-8", "replace")
            level: Literal["info", "warn"] = "info" if fault.is_text or not fault.counted else "warn"
            self._tell(CallNotice(**self._stamp(), level=level, text=f"{fault.detail}: {excerpt}", case=case))
        if not fault.counted:
            return
        self._violations += 1
        text = f"agent {self.agent}: {case}: {fault.detail}"
        shown = self._record.fault_for_console(case, self._watch.real_s(), text)
        if shown:
            self._actions.append(Warn(shown))
        if self.state != "running":
            return
        if seen == 1:
            notice = Notice(
                message_id=new_message_id(),
                correlation_id=self.correlation,
                code=case,
                message=fault.detail[:512],
            )
            self._send(notice)
        if fault.suspect and self._times.suspect is None:
            self._times.suspect = (self._watch.now() + self._protocol.suspect_grace_s, case, fault.detail)
        if self._violations > self._protocol.max_violations:
            self._end_attempt(
                "protocol_violation", f"{self._violations} lines cannot be used, the last: {case}"
            )

    # Tools.

    def _tool_call(self, call: ToolCall, raw: bytes) -> None:
        misfit = self._misfit(call)
        if misfit is not None:
            self._fault(_fault(*misfit[:1], raw, misfit[1]))
            return
        self._times.last_progress = self._times.last_line
        if self.state != "running" or call.call_id in self._open_tools:
            return
        known = self._tools.get(call.call_id)
        if known is not None:
            self._actions.append(Send(known, msgspec.json.decode(known, type=ToolResult)))
            return
        if call.name not in {tool.name for tool in self.request.tools}:
            self._answer_tool(
                call.call_id, None, ToolProblem("unknown_tool", f"there is no tool {call.name!r}")
            )
            return
        unsound = find_unsound(call.arguments, keyed=False, place="arguments")
        if unsound:
            self._answer_tool(call.call_id, None, ToolProblem("invalid_arguments", unsound))
            return
        if len(self._open_tools) >= OPEN_TOOLS:
            told = f"{OPEN_TOOLS} calls wait already; call again when one has its result"
            self._answer_tool(call.call_id, None, ToolProblem("too_many_calls", told))
            return
        self._open_tools.add(call.call_id)
        self._watch.stop()
        self._tell(CallTool(**self._stamp(), id=call.call_id, tool=call.name, phase="started"))
        self._actions.append(CallOut(call))

    def _answer_tool(self, call_id: str, result: object, problem: ToolProblem | None) -> None:
        def answer(result: object, problem: ToolProblem | None) -> ToolResult:
            return ToolResult(
                message_id=new_message_id(),
                correlation_id=self.correlation,
                call_id=call_id,
                ok=problem is None,
                result=result,
                error=problem,
            )

        message = answer(result, problem)
        if not self._send(message):
            message = answer(None, ToolProblem("result_too_large", "the result does not fit into a line"))
            self._send(message)
        self._tools[call_id] = write_line(message, self.agent)

    # Answers.

    def _take_answer(self, event: Event) -> None:
        problem = check_reply(event)
        if problem:
            self._reject("invalid_reply", problem)
            return
        pinning = self.request.pinning
        problem = check_version(event, self.request.version, required=pinning == "require")
        if problem and pinning != "warn":
            self._reject("version_mismatch", problem)
            return
        for artifact in event.artifacts or ():
            self._produced[artifact.path] = artifact
        self._answer = event
        self._times.suspect = None
        if self.request.action == "prompt" and not self._read_prompt(event):
            return
        if self.state == "cancelling":
            self._verdict = None
        if self._produced or self.request.expected_outputs:
            self.state = "judging"
            self._actions.append(Judge(list(self._produced.values())))
        else:
            self._accept(event, [])

    def _read_prompt(self, event: Event) -> bool:
        """Read a reply as what was asked for; one that is something else is to be mended, once."""
        try:
            self._reply = read_prompt(event, self.request)
        except ReplyFaultsError as faults:
            self._answer = None
            self._harvested = False
            self._mend(faults, reply_text(event))
            return False
        return True

    def _mend(self, faults: ReplyFaultsError, text: str) -> None:
        """Have the agent mend its reply. That is part of the conversation and no failed attempt."""
        if self._verdict is not None:
            self._over(self._verdict)
            return
        schema = self.request.schema or {}
        self._note_attempt("invalid_reply", repair_request(faults.faults, schema))
        if self._mended:
            self._over(ReplyInvalidError(self.agent, str(faults), text))
            return
        self._mended = True
        self._uncounted += 1
        self._wait("invalid_reply", str(faults), "rejected", 0.0)

    def _accept(self, event: Event, artifacts: list[VerifiedArtifact]) -> None:
        notes = [f"{count} lines: {case}" for case, count in sorted(self._faults.items())]
        usage = total_usage([*self._spent, event.usage or self._usage])
        result = AgentResult(
            event=event,
            text=self._reply.text,
            value=self._reply.value,
            declined=self._reply.declined,
            artifacts=artifacts,
            usage=usage,
            conversation=self.conversation,
            attempts=self.request.attempt - 1 + max(self._tries, 1),
            harvested=self._harvested,
            notes=notes,
            command_id=self._sent,
            failed=list(self._attempts),
        )
        self._over(result)

    def _reject(self, code: str, message: str) -> None:
        self._answer = None
        self._harvested = False
        self._end_attempt(code, message)

    def _agent_error(self, event: Event) -> None:
        payload = event.payload or {}
        code = payload.get("code")
        code = code[:CODE] if isinstance(code, str) and code else "internal_error"
        told = payload.get("message")
        message = (told if isinstance(told, str) and told else code)[:2048]
        if self.state == "cancelling":
            assert self._verdict is not None
            self._over(self._verdict)
            return
        retryable = payload.get("retryable")
        kind = judge_agent_code(code, retryable=retryable if isinstance(retryable, bool) else None)
        resets = payload.get("resets_at")
        after = payload.get("retry_after_s")
        until = resets if isinstance(resets, str) and parse_moment(resets) is not None else ""
        least = float(min(after, LONGEST_S)) if isinstance(after, int | float) else 0.0
        if until and code in {"rate_limited", "quota_exhausted"} and retryable is not False:
            self._wait_for_reset(code, kind, message, until)
        else:
            self._end_attempt(code, message, kind=kind, least_s=least, until=until)

    def _wait_for_reset(self, code: str, kind: Code, message: str, until: str) -> None:
        """The agent says when it may be asked again: that is waited for, and is no failed attempt."""
        wait = max(((parse_moment(until) or 0) - self._clock.now_us()) / 1e6, 0.0)
        if wait >= self.deadline_in_s:
            self._end_attempt(code, message, kind=kind._replace(again="no"), until=until)
            return
        self._note_attempt(code, message)
        self._uncounted += 1
        self._tell(CallRateLimit(**self._stamp(), status=code, resets_at=until, error=message[:WHY]))
        self._wait(code, message, "failed", wait)

    # The end of an attempt.

    def _end_attempt(
        self,
        code: str,
        problem: str,
        *,
        kind: Code | None = None,
        least_s: float = 0.0,
        until: str = "",
        stderr_tail: tuple[str, ...] = (),
    ) -> None:
        kind = kind or OWN_CODES[code]
        self._watch.go_on()
        if self._verdict is not None:
            self._over(self._verdict, restart=kind.restart)
            return
        self._note_attempt(code, problem)
        allowed = self._may_repeat(code, kind)
        if allowed and kind.restart and not self._may_restart():
            problem, allowed = f"{problem}; its process was started again too often", False
        if not allowed:
            error = make_error(
                code,
                kind,
                self.agent,
                problem,
                until=until,
                stderr_tail=stderr_tail,
                attempts=tuple(self._attempts),
            )
            self._over(error, restart=kind.restart)
            return
        bound = min(
            self._config.backoff_max_s,
            self._config.backoff_initial_s
            * self._config.backoff_factor ** min(self._tries - self._uncounted - 1, 60),
        )
        self._wait(code, problem, kind.cause, max(self._uniform(0.0, bound), least_s))
        if kind.restart and self._link is not None:
            self.state = "stopping"
            self._actions.append(StopProcess())

    def _note_attempt(self, code: str, problem: str) -> None:
        self._attempts.append(f"{self.attempt} {code}")
        self._why = (code, problem)
        self._spent.append(self._usage)
        self._usage = Usage()
        self._times.suspect = None
        self._open_tools.clear()

    def _wait(self, code: str, problem: str, cause: Cause, wait_s: float) -> None:
        self._cause = cause
        if cause != "resend":
            self._refused.add(self._sent)
        self._times.retry_at = self._watch.now() + wait_s
        self.state = "waiting"
        number = self.attempt
        self._tell(
            CallRetry(**self._stamp(), code=code, error=problem[:2048], attempt=number, delay_s=wait_s)
        )

    def _may_repeat(self, code: str, kind: Code) -> bool:
        if kind.again == "no" or self._tries - self._uncounted >= self._config.retries:
            return False
        if kind.again == "once":
            if code in self._once:
                return False
            self._once.add(code)
        return True

    def _may_restart(self) -> bool:
        config = self._config
        return self._record.may_restart(self._watch.real_s(), config.max_restarts, config.restart_window_s)

    def _stopped(self) -> None:
        if self._outcome is not None:
            self._finish(self._outcome)
        elif self._verdict is not None:
            self._finish(self._verdict)
        else:
            self.state = "waiting"

    def _over(self, outcome: Outcome, *, restart: bool = False) -> None:
        """The call is over; its process is let go first, or ended if it must not serve anybody else."""
        self._outcome = outcome
        if self._link is not None and (restart or not self._config.keep):
            self.state = "stopping"
            self._actions.append(StopProcess())
            return
        if self._link is not None:
            self._link = None
            self._actions.append(ReleaseProcess())
        self._finish(outcome)

    def _finish(self, outcome: Outcome) -> None:
        self.state = "done"
        self._record.ended.add(self.correlation)
        if isinstance(outcome, AgentError):
            used = total_usage([*self._spent, self._usage])
            outcome.usd, outcome.tokens, outcome.turns = used.cost_usd or 0.0, used.tokens, used.turns or 0
        for case, count in sorted(self._faults.items()):
            if count > TOLD:
                told = f"{count - TOLD} more lines: {case}"
                self._tell(CallNotice(**self._stamp(), level="info", text=told, case=case))
        reason = outcome.reason or type(outcome).__name__ if isinstance(outcome, AgentError) else "completed"
        took = self._watch.real_s() - self._times.began - self._watch.stood_s
        self._tell(CallFinished(**self._stamp(), reason=reason, duration_s=round(max(took, 0.0), 6)))
        self._actions.append(Done(outcome))

    # Watches.

    def _watches(self) -> list[tuple[float, Callable[[], None]]]:
        """What is waited for, each until when."""
        match self.state:
            case "running":
                return self._running_watches()
            case "cancelling":
                return [(self._times.grace_by, self._grace_over)]
            case "waiting":
                return [(self._times.retry_at, self._start), *self._limits()]
            case "starting":
                return self._limits()
            case _:
                return []

    def _limits(self) -> list[tuple[float, Callable[[], None]]]:
        wall_s = self.request.budget.wall_s
        found = [(self._times.deadline, self._deadline_over)]
        return found if wall_s is None else [*found, (self._times.began + wall_s, self._wall_over)]

    def _running_watches(self) -> list[tuple[float, Callable[[], None]]]:
        config = self._config
        found = self._limits()
        if self._times.start_by is not None:
            found.append((self._times.start_by, self._never_spoke))
        if self._link is not None and self._link.beats and config.heartbeat_s:
            silence = config.heartbeat_s * config.missed_heartbeats
            found.append((self._times.last_line + silence, self._heartbeat_lost))
        if config.stall_s:
            found.append((self._times.last_progress + config.stall_s, self._stalled))
            if self._look is not None:
                found.append((self._times.last_look + min(LOOK_S, config.stall_s / 4), self._look_at_it))
        if self._times.suspect is not None:
            found.append((self._times.suspect[0], self._suspicion_over))
        return found

    def _deadline_over(self) -> None:
        self.cancel("deadline")

    def _wall_over(self) -> None:
        spent = f"it took {self.request.budget.wall_s:g} s, all that was reserved"
        self.cancel("budget", self._own_error("budget_exceeded", spent))

    def _grace_over(self) -> None:
        assert self._verdict is not None
        self._over(self._verdict, restart=True)

    def _look_at_it(self) -> None:
        """See whether a silent agent works: then it is not stalled, whatever it does not say."""
        self._times.last_look = self._watch.now()
        if self._is_active():
            self._times.last_progress = self._times.last_look
            self._times.last_active = self._times.last_look

    def _is_active(self) -> bool:
        """Whether its processes did anything since they were looked at last.

        One that sends heartbeats uses a little for that, and says itself whether it gets on.
        """
        if self._look is None or self._link is None:
            return False
        activity = self._look(self._link.pid)
        return activity == "much" or (activity == "some" and not self._link.beats)

    def _never_spoke(self) -> None:
        since = self._watch.now() - self._times.last_active
        if self._look is not None and since <= LOOK_S + 1.0:
            # It works, and nothing says that it had to introduce itself.
            self._times.start_by = self._watch.now() + LOOK_S
            return
        self._end_attempt("start_timeout", f"it said nothing within {self._config.start_s:g} s")

    def _heartbeat_lost(self) -> None:
        silence = self._config.heartbeat_s * self._config.missed_heartbeats
        self._end_attempt("heartbeat_lost", f"no line came for {silence:g} s")

    def _stalled(self) -> None:
        self._end_attempt("stalled", f"it did not get on for {self._config.stall_s:g} s")

    def _suspicion_over(self) -> None:
        assert self._times.suspect is not None
        _, case, detail = self._times.suspect
        self._end_attempt(case, f"a line that may have been the answer cannot be used: {detail}")

    def _catch_up(self) -> None:
        """If we are late ourselves, because the machine slept, every watch begins anew and the deadline moves."""
        expected, self._expected = self._expected, None
        late_s = 0.0 if expected is None else self._watch.real_s() - expected
        if late_s <= LATE_S:
            return
        self._times.forgive(self._watch.now(), late_s, self._config.start_s, self._protocol.suspect_grace_s)

    # Telling.

    def _tell(self, event: AgentEvent) -> None:
        self._actions.append(Tell(event))

    def _stamp(self) -> _Stamp:
        self._n += 1
        return {"key": self.request.key, "at": moment(self._clock.now_us()), "n": self._n}

    def _own_error(self, code: str, problem: str) -> AgentError:
        return make_error(code, OWN_CODES[code], self.agent, problem, attempts=tuple(self._attempts))

    def _cancelled(self, reason: Reason) -> AgentError:
        if reason == "deadline":
            spent = f"it did not answer within {self.request.timeout_s:g} s"
            return self._own_error("deadline_exceeded", spent)
        return AgentCancelledError(self.agent, "the call was given up", reason)


def _fault(case: str, raw: bytes, detail: str, *, suspect: bool = False) -> BadLine:
    return BadLine(case, raw[:EXCERPT], len(raw) + 1, suspect, detail)


def _ended(status: int | None) -> str:
    if status is None:
        return "was lost"
    return f"ended with {status}" if status >= 0 else f"was killed by signal {-status}"
