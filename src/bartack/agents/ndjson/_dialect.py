"""The line protocol in one conversation: commands into lines, and lines into what they mean for the call.

Which line belongs to which command is decided here; what follows from it, in ``conversation/_conversation.py``. Bad lines are
counted in ``_faults.py``; the form of a line is checked in ``protocol/lines.py``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from bartack.agents._commands import correlation_of, make_command, task_of
from bartack.agents._record import AgentRecord, Link
from bartack.agents.config import ProtocolConfig
from bartack.agents.contract import AgentAnswer, AgentRequest, CallNotice, CallText, Rejection
from bartack.agents.conversation._actions import Send, Warn
from bartack.agents.conversation._breaker import Breaker
from bartack.agents.conversation._conversation import Conversation
from bartack.agents.conversation._dialect import AgentFailure
from bartack.agents.ndjson._faults import LineFaults
from bartack.agents.process._vitals import Activity
from bartack.agents.program_config import NdjsonConfig
from bartack.agents.protocol.ids import new_message_id, parse_moment
from bartack.agents.protocol.lines import EXCERPT, BadLine, Line, Read, write_line
from bartack.agents.protocol.messages import (
    ENDING,
    PASSING,
    TERMINAL,
    Cancel,
    Command,
    Event,
    Heartbeat,
    Hello,
    Log,
    Notice,
    Reason,
    Retry,
    ToAgent,
    ToolCall,
    ToolProblem,
    ToolResult,
)
from bartack.core.clock import Clock
from bartack.errors import AgentDeadlineError, LineTooLongError

LONGEST_S: Final = 1e9
WHY: Final = 512
"""Characters of why there is another attempt."""
REPAIR: Final = 4096
"""The same, if a reply is to be fixed."""
CODE: Final = 128
"""Characters of a code that is not one of ours."""


def open_line_conversation(
    agent: str,
    request: AgentRequest,
    config: NdjsonConfig,
    protocol: ProtocolConfig,
    record: AgentRecord,
    *,
    clock: Clock,
    look: Callable[[int], Activity] | None = None,
    uniform: Callable[[float, float], float] = random.uniform,
    breaker: Breaker | None = None,
) -> Conversation[Read]:
    """A conversation with an agent that speaks the line protocol; ``protocol`` limits bad lines."""
    speak = partial(LineDialect, protocol=protocol)
    return Conversation(
        agent,
        request,
        config.limits,
        record,
        speak,
        clock=clock,
        look=look,
        uniform=uniform,
        breaker=breaker,
    )


class LineDialect:
    """See the module, and ``Dialect`` for what each method promises."""

    def __init__(self, talk: Conversation[Read], *, protocol: ProtocolConfig) -> None:
        self.command_id = ""
        self.correlation = correlation_of(talk.request)
        self._talk = talk
        self._faults = LineFaults(talk, protocol, self._send_notice)
        self._refused: set[str] = set()
        """Commands whose answers do not count any longer."""
        self._results: dict[str, bytes] = {}
        """Results of tools that were sent, by call."""

    # To the agent.

    def send_command(self) -> bool:
        """See ``Dialect.send_command``."""
        self.command_id = new_message_id()
        self._faults.begin_attempt()
        self._results.clear()
        try:
            self._write(self._command())
        except LineTooLongError as error:
            self._talk.end(error)
            return False
        return True

    def send_cancel(self, reason: Reason) -> None:
        """See ``Dialect.send_cancel``."""
        self._write(Cancel(message_id=new_message_id(), correlation_id=self.correlation, reason=reason))

    def send_result(self, call_id: str, result: object, problem: ToolProblem | None) -> None:
        """See ``Dialect.send_result``."""
        try:
            self._write_result(call_id, result, problem)
        except LineTooLongError:
            too_large = ToolProblem("result_too_large", "the result does not fit into a line")
            self._write_result(call_id, None, too_large)

    def _write_result(self, call_id: str, result: object, problem: ToolProblem | None) -> None:
        self._results[call_id] = self._write(
            ToolResult(
                message_id=new_message_id(),
                correlation_id=self.correlation,
                call_id=call_id,
                ok=problem is None,
                result=result,
                error=problem,
            )
        )

    def _send_notice(self, case: str, detail: str) -> None:
        self._write(
            Notice(
                message_id=new_message_id(),
                correlation_id=self.correlation,
                code=case,
                message=detail[:512],
            )
        )

    def _write(self, message: ToAgent) -> bytes:
        line = write_line(message, self._talk.agent)
        self._talk.actions.add(Send(line, may_drop=isinstance(message, Notice)))
        return line

    def _command(self) -> Command:
        talk = self._talk
        attempts, (code, message) = talk.attempts, talk.attempts.why
        retry = Retry(
            attempts.number,
            attempts.most,
            attempts.cause,
            code or None,
            message[: REPAIR if code == "invalid_reply" else WHY] or None,
        )
        deadline_us = talk.clock.now_us() + int(talk.deadline_in_s * 1e6)
        return make_command(
            talk.request, talk.agent, retry, message_id=self.command_id, deadline_us=deadline_us
        )

    # From the agent.

    def read(self, link: Link, read: Read) -> str:
        """See ``Dialect.read``."""
        self._faults.case = ""
        if isinstance(read, Line):
            self._message(link, read)
        elif read.event is None:
            self._faults.add(read)
        else:
            self._flawed(read, read.event)
        return self._faults.case

    def recover(self, read: Read) -> Event | None:
        """See ``Dialect.recover``."""
        event = read.message if isinstance(read, Line) else None
        if not isinstance(event, Event) or event.event not in TERMINAL.get(self._talk.request.action, ()):
            return None
        return event if self._misfit(event) is None else None

    def refuse_answers(self) -> None:
        """See ``Dialect.refuse_answers``."""
        self._refused.add(self.command_id)

    def send_answer(self, question_id: str, answer: AgentAnswer) -> None:
        """See ``Dialect.send_answer``: the line protocol has no questions."""

    def delivered(self) -> Iterable[str]:
        """See ``Dialect.delivered``: every attempt begins anew."""
        return ()

    def notes(self) -> list[str]:
        """See ``Dialect.notes``."""
        return self._faults.notes()

    def close(self) -> None:
        """See ``Dialect.close``."""
        self._talk.record.ended.add(self.correlation)
        self._faults.report_rest()

    def _message(self, link: Link, read: Line) -> None:
        link.has_written = True
        self._talk.watchdog.message_came()
        match read.message:
            case Hello() as hello:
                self._hello(link, hello)
            case Heartbeat() as beat:
                if link.take_heartbeat(beat):
                    self._talk.watchdog.progress()
            case Log() as log:
                self._log(log)
            case ToolCall() as call:
                self._tool_call(call, read.raw)
            case Event() as event:
                self._event(event, read.raw)

    def _hello(self, link: Link, hello: Hello) -> None:
        if 1 not in hello.protocol:
            spoken = ", ".join(map(str, hello.protocol)) or "none"
            self._talk.end_attempt("start_failed", f"it speaks protocol version {spoken}, not 1")
            return
        link.take_hello(hello)
        self._talk.refuse_tools(link)

    def _log(self, log: Log) -> None:
        talk = self._talk
        talk.watchdog.progress()
        talk.actions.report(CallNotice(**talk.actions.stamp(), level=log.level, text=log.message[:4096]))
        if log.level in {"warn", "error"}:
            text = f"agent {talk.agent}: {log.message.strip()[:200]}"
            shown = talk.record.log_for_console(talk.watchdog.watch.real_s(), text)
            if shown:
                talk.actions.add(Warn(shown))

    def _tool_call(self, call: ToolCall, raw: bytes) -> None:
        talk = self._talk
        misfit = self._misfit(call)
        if misfit is not None:
            case, detail = misfit
            self._fault(case, raw, detail)
            return
        talk.watchdog.progress()
        if talk.state != "running" or talk.tools.is_open(call.call_id):
            return
        sent = self._results.get(call.call_id)
        if sent is not None:
            talk.actions.add(Send(sent))
            return
        talk.tools.call(call.call_id, call.name, call.arguments)

    # Events.

    def _misfit(self, event: Event | ToolCall) -> tuple[str, str] | None:
        """Why an event does not belong to this command: the case and what is wrong."""
        if event.correlation_id != self.correlation:
            late = event.correlation_id in self._talk.record.ended
            return ("late" if late else "wrong_correlation"), f"it belongs to {event.correlation_id}"
        return None if isinstance(event, ToolCall) else self._wrong_content(event)

    def _wrong_content(self, event: Event) -> tuple[str, str] | None:
        sender, request = event.sender, self._talk.request
        if event.in_reply_to in self._refused:
            return "late", "it answers an attempt that is over"
        if sender.agent_type != request.role or sender.agent_id not in {None, self._talk.agent}:
            return "wrong_sender", f"it is from {sender.agent_type} {sender.agent_id or ''}".strip()
        if event.idempotency_key not in {None, request.key}:
            return "wrong_key", f"it has the key {event.idempotency_key}"
        if event.task_id != task_of(request):
            return "wrong_task", f"it is of task {event.task_id!r}"
        return None

    def _event(self, event: Event, raw: bytes) -> None:
        talk, ends = self._talk, event.event in ENDING
        if talk.record.is_repeated(event.message_id):
            self._fault("duplicate", raw, "its message_id was seen before")
            return
        misfit = self._misfit(event)
        if misfit is not None:
            case, detail = misfit
            self._fault(case, raw, detail, suspect=ends and case != "late")
            return
        if ends and event.event not in {"error", *TERMINAL.get(talk.request.action, ())}:
            detail = f"{event.event} does not end {talk.request.action}"
            self._fault("unexpected_event", raw, detail, suspect=True)
            return
        if talk.state in {"judging", "waiting"} or (talk.state == "cancelling" and self._is_too_late(event)):
            self._fault("late", raw, "the command has its answer, or was given up")
            return
        talk.record.remember(event.message_id)
        talk.watchdog.trust()
        talk.watchdog.progress()
        if event.usage is not None:
            talk.note_usage(event.usage, final=ends)
        if event.event == "error":
            self._error(event)
        elif ends:
            talk.take_answer(event)
        else:
            self._passing(event, raw)

    def _flawed(self, read: BadLine, event: Event) -> None:
        """Only the files that an event names are wrong: nothing better can be expected of this attempt."""
        talk = self._talk
        misfit = self._misfit(event)
        again = talk.record.is_repeated(event.message_id)
        foreign = misfit is not None and misfit[0] != "late"
        self._faults.add(read._replace(suspect=foreign and not again and event.event in ENDING))
        if again or misfit is not None or talk.state != "running":
            return
        if event.event == "error":
            self._event(event, read.excerpt)
        elif event.event in TERMINAL.get(talk.request.action, ()):
            talk.record.remember(event.message_id)
            if event.usage is not None:
                talk.note_usage(event.usage, final=True)
            talk.reject(Rejection("artifact_mismatch", read.detail))

    def _is_too_late(self, event: Event) -> bool:
        """After a cancel only an error counts, and an answer that was on its way when the deadline passed."""
        if event.event == "error" or event.event not in ENDING:
            return False
        return not isinstance(self._talk.verdict, AgentDeadlineError)

    def _passing(self, event: Event, raw: bytes) -> None:
        talk = self._talk
        if event.event not in PASSING:
            self._fault("unknown_event", raw, f"event {event.event!r}")
        talk.answer.add_files(event.artifacts or ())
        text = (event.payload or {}).get("message")
        if isinstance(text, str):
            talk.actions.report(CallText(**talk.actions.stamp(), text=text[:4096]))

    def _error(self, event: Event) -> None:
        payload = event.payload or {}
        code = payload.get("code")
        code = code[:CODE] if isinstance(code, str) and code else "internal_error"
        text = payload.get("message")
        retryable = payload.get("retryable")
        until, after = payload.get("resets_at"), payload.get("retry_after_s")
        failure = AgentFailure(
            code,
            (text if isinstance(text, str) and text else code)[:2048],
            retryable if isinstance(retryable, bool) else None,
            until if isinstance(until, str) and parse_moment(until) is not None else "",
            float(min(after, LONGEST_S)) if isinstance(after, int | float) else 0.0,
        )
        self._talk.fail(failure)

    def _fault(self, case: str, raw: bytes, detail: str, *, suspect: bool = False) -> None:
        self._faults.add(BadLine(case, raw[:EXCERPT], len(raw) + 1, suspect, detail))
