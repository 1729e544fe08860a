"""The Agent Client Protocol in one conversation: which message follows which, and what it means for the call. Without I/O.

    initialize ──▶ session/new | load | resume | fork ──▶ [session/set_config_option] ──▶ session/prompt ──▶ stop reason

One attempt is one process with one session. The parts: ``_opening.py`` opens the session, ``_turn.py`` puts updates together,
``_requests.py`` decides what the agent asks its client for, ``_step_tools.py`` serves our tools, ``_outcomes.py`` has the tables.
``_agent.py`` does the I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, Protocol

import msgspec

from bartack.agents._record import Link
from bartack.agents._tool_permissions import ToolPermissions
from bartack.agents.acp import _messages as m
from bartack.agents.acp._history import History
from bartack.agents.acp._opening import Opening, SessionFiles, Start
from bartack.agents.acp._outcomes import STOPS, Stop, failure_of
from bartack.agents.acp._prompts import task_text
from bartack.agents.acp._reporter import UpdateReporter
from bartack.agents.acp._requests import AgentWishes, TextFiles
from bartack.agents.acp._step_tools import StepTools, step_tools
from bartack.agents.acp._tools import ToolReports, own_tool
from bartack.agents.acp._turn import PromptTurn
from bartack.agents.acp._wire import Wire
from bartack.agents.contract import AgentAnswer
from bartack.agents.conversation._conversation import Conversation
from bartack.agents.conversation._dialect import AgentFailure
from bartack.agents.program._answers import completed
from bartack.agents.program._bad_lines import BadLines
from bartack.agents.program._continuation import continuation_text
from bartack.agents.program._json_lines import Json, JsonLine, JsonRead, object_of, text_of
from bartack.agents.program._json_rpc import (
    NO_SUCH_METHOD,
    RpcFailure,
    RpcFlaw,
    RpcNotification,
    RpcReply,
    RpcRequest,
)
from bartack.agents.program_config import AcpConfig
from bartack.agents.protocol.ids import new_message_id
from bartack.agents.protocol.lines import BadLine
from bartack.agents.protocol.messages import Event, Reason, ToolProblem

Phase = Literal["opening", "prompt", "over"]


class AcpFiles(SessionFiles, TextFiles, Protocol):
    """What a conversation wants written down, and text files."""

    def prompt_sent(self, attempt: int) -> None:
        """A prompt is about to be sent."""
        ...

    def tool_ended(self, call_id: str, tool: str, text: str) -> None:
        """The agent is about to get the reply of a tool of ours."""
        ...

    def store_result(self, text: str) -> str:
        """Store a result of a tool of ours that is too long for the model; returns where."""
        ...


class AcpV1:
    """See the module, and ``Dialect`` for what each method promises.

    Args:
        talk: The call.
        config: The settings of the agent.
        permissions: Decides what its own tools may do.
        files: Writes down what has to survive.
        redact: Takes secrets out of what people see.
    """

    def __init__(
        self,
        talk: Conversation[JsonRead],
        *,
        config: AcpConfig,
        permissions: ToolPermissions,
        files: AcpFiles,
        redact: Callable[[bytes], bytes],
    ) -> None:
        self.command_id = ""
        self._talk = talk
        self._files = files
        self._wire = Wire(talk.actions)
        self._faults = BadLines(talk, redact)
        self._opening = Opening(talk, config, files, self._wire, self._faults, self._begin_prompt)
        self._wishes = AgentWishes(talk, permissions, files, self._wire, redact)
        self._reporter = UpdateReporter(talk, redact)
        self._own_tools = [tool.name for tool in step_tools(talk.request)]
        self._phase: Phase = "opening"
        self._start: Start | None = None
        self._tools: StepTools | None = None
        self._reports = ToolReports()
        self._turn = PromptTurn()
        self._cost_usd = 0.0
        """What the session has cost, as the agent counts it."""
        self._is_titled = False
        """Whether the session got a title from this process."""
        self._past = History()
        """What a dead hub has read."""

    def prepare(self, start: Start) -> None:
        """A new process is about to be started; nothing of an earlier one counts any longer."""
        self._start = start
        self._wire.renew()
        self._faults.renew()
        self._opening.prepare(start)
        self._wishes.forget()
        self._phase = "opening"
        self._is_titled = False
        self._reports = ToolReports()
        self._cost_usd = start.history.cost_usd if start.session else 0.0

    def read_bridge(self, data: bytes) -> None:
        """Bytes came from the agent over its bridge."""
        if self._tools is not None:
            self._tools.read(data)

    # To the agent.

    def send_command(self) -> bool:
        """See ``Dialect.send_command``: the prompt follows when the session is open."""
        self.command_id = new_message_id()
        if self._phase == "over" and self._opening.session:
            self._send_prompt(self._talk.attempts.why[1])
            return True
        assert self._start is not None, "prepare was not called"
        number = self._talk.attempts.number
        files = self._files
        self._tools = StepTools(self._talk, self._start.send, number, files.tool_ended, files.store_result)
        self._opening.begin()
        return True

    def send_cancel(self, reason: Reason) -> None:
        """See ``Dialect.send_cancel``. Before the prompt there is nothing to cancel."""
        if self._phase != "prompt":
            if self._talk.state == "cancelling":  # else only this attempt ends
                self._talk.fail(AgentFailure("cancelled", "there was no prompt yet"))
            return
        self._wire.notify(m.CANCEL, {"sessionId": self._opening.session})
        self._wishes.cancel()

    def send_result(self, call_id: str, result: object, problem: ToolProblem | None) -> None:
        """See ``Dialect.send_result``."""
        if self._tools is not None:
            self._tools.send_result(call_id, result, problem)

    def send_answer(self, question_id: str, answer: AgentAnswer) -> None:
        """See ``Dialect.send_answer``."""
        if self._tools is None or not self._tools.send_answer(question_id, answer):
            self._wishes.answered(question_id, answer)

    def _begin_prompt(self) -> None:
        """The session is open: send the task, or what follows where it was begun before."""
        talk = self._talk
        code, why = talk.attempts.why
        is_refused = talk.attempts.cause == "rejected" and bool(code)
        if self._start is not None and self._start.session and self._start.history.was_begun:
            outcomes = [(end.tool, end.text) for end in self._start.history.undelivered]
            text = why if is_refused else continuation_text(outcomes)
        else:
            text = task_text(talk.request)
            text += f"\n\n{why}" if is_refused and why not in text else ""
        self._send_prompt(text)

    def _send_prompt(self, text: str) -> None:
        self._files.prompt_sent(self._talk.attempts.number)
        self._turn = PromptTurn(self._cost_usd, self._reports)
        if self._tools is not None:
            self._tools.value = msgspec.UNSET
        self._phase = "prompt"
        self._wire.request(m.PROMPT, m.prompt(self._opening.session, text))

    # From the agent.

    def read(self, link: Link, read: JsonRead) -> str:
        """See ``Dialect.read``."""
        if isinstance(read, BadLine):
            self._faults.take(read)
            return read.case
        link.has_written = True
        self._talk.watchdog.message_came()
        message = self._wire.read(read.value)
        match message:
            case RpcReply():
                self._answered(link, message)
            case RpcFailure():
                self._refused(message)
            case RpcRequest():
                self._requested(message)
            case RpcNotification(method=m.UPDATE, params=params):
                self._updated(params)
            case RpcNotification():
                pass
            case RpcFlaw(case=case, detail=detail):
                self._faults.add(case, detail)
                return case
        return ""

    def recover(self, read: JsonRead) -> Event | AgentFailure | None:
        """See ``Dialect.recover``. ``take_past`` was called before."""
        if not isinstance(read, JsonLine):
            return None
        result = object_of(read.value, "result")
        stop = STOPS.get(text_of(result, "stopReason"))
        if stop is None or stop.code:
            return None  # what a dead hub did not take in is asked again, in the same session
        return self._event(self._past.turn, result, self._past.value)

    def take_past(self, past: History) -> None:
        """What a dead hub has read, before ``recover``."""
        self._past = past

    def refuse_answers(self) -> None:
        """See ``Dialect.refuse_answers``: the phase says whether an answer counts."""

    def delivered(self) -> Iterable[str]:
        """See ``Dialect.delivered``."""
        return self._start.history.delivered if self._start is not None and self._start.session else ()

    def notes(self) -> list[str]:
        """See ``Dialect.notes``."""
        return self._faults.notes

    def close(self) -> None:
        """See ``Dialect.close``."""
        self._reporter.flush()
        if self._tools is not None:
            self._tools.close()

    # Answers to our requests.

    def _answered(self, link: Link, reply: RpcReply) -> None:
        if self._talk.state not in {"running", "cancelling"}:
            return
        if reply.method == m.PROMPT:
            self._turn_ended(reply.result)
        else:
            self._opening.answered(link, reply)

    def _refused(self, failure: RpcFailure) -> None:
        talk = self._talk
        if talk.state not in {"running", "cancelling"}:
            return
        if failure.method != m.PROMPT:
            self._opening.refused(failure)
            return
        self._end_turn()
        if self._turn.replies or self._turn.cost_seen is not None:
            talk.note_usage(self._turn.usage(), final=True)
        refused = self._opening.login_failure if self._opening.wants_login(failure) else failure_of
        found = refused(failure)
        talk.fail(found)

    def _end_turn(self) -> None:
        self._phase = "over"
        self._reporter.flush()
        self._cost_usd = self._cost_usd if self._turn.cost_seen is None else self._turn.cost_seen
        if self._opening.is_claude and not self._is_titled:  # see ``History.lacks_title``
            self._talk.usd_estimated = True

    def _turn_ended(self, result: Json) -> None:
        talk, turn = self._talk, self._turn
        self._end_turn()
        talk.note_usage(turn.usage(object_of(result, "usage")), final=True)
        reason = text_of(result, "stopReason")
        stop = STOPS.get(reason) or Stop(
            "protocol_violation", f"its stop reason is {reason[:64]!r}", is_own=True
        )
        if stop.code == "protocol_violation":
            self._faults.end(stop.code, stop.problem)
        elif stop.is_own:
            talk.end_attempt(stop.code, stop.problem)
        elif stop.code:
            talk.fail(AgentFailure(stop.code, stop.problem))
        else:
            value = msgspec.UNSET if self._tools is None else self._tools.value
            talk.take_answer(self._event(turn, result, value))

    def _event(self, turn: PromptTurn, result: Json, value: object) -> Event:
        talk = self._talk
        usage = turn.usage(object_of(result, "usage"))
        return completed(talk.request, talk.agent, turn.text, value, usage, talk.clock.now_us())

    # Requests and reports of the agent.

    def _requested(self, request: RpcRequest) -> None:
        if request.method not in {m.ASK_PERMISSION, m.READ_FILE, m.WRITE_FILE}:
            self._wire.refuse(request.id, NO_SUCH_METHOD, f"this client has no method {request.method[:64]}")
        elif self._talk.state != "running" or self._phase != "prompt":
            self._wishes.refuse(request)
        else:
            self._talk.watchdog.progress()
            self._decide(request)

    def _decide(self, request: RpcRequest) -> None:
        if request.method == m.ASK_PERMISSION:
            report = self._reports.complete(object_of(request.params, "toolCall"))
            self._wishes.permission(request, report, own=bool(own_tool(report, self._own_tools)))
        else:
            self._wishes.file(request)

    def _updated(self, params: Json) -> None:
        """What comes before the prompt is history of the session, and what comes after its answer is too late."""
        talk, turn = self._talk, self._turn
        belongs = self._phase == "prompt" and text_of(params, "sessionId") == self._opening.session
        if not belongs or talk.state not in {"running", "cancelling"}:
            return
        update = object_of(params, "update")
        replies = turn.replies
        match text_of(update, "sessionUpdate"):
            case "agent_message_chunk":
                self._reporter.text(turn.say(update), update)
            case "agent_thought_chunk":
                turn.think(update)
            case "tool_call" | "tool_call_update":
                report, phase = turn.tool(update)
                self._reporter.tool(report, phase, own=bool(own_tool(report, self._own_tools)))
            case "plan":
                self._reporter.plan(update)
            case "usage_update":
                if turn.spend(update):
                    talk.note_usage(turn.usage(), final=False)
                return
            case "session_info_update":
                self._is_titled = self._is_titled or bool(text_of(update, "title"))
                return
            case _:
                return
        talk.watchdog.progress()
        if turn.replies != replies and talk.state == "running":
            self._note_reply(turn)

    def _note_reply(self, turn: PromptTurn) -> None:
        """A reply is paid, even if the agent is killed before it reports its cost."""
        if self._talk.request.budget.turns is not None:
            self._talk.note_usage(turn.usage(), final=False)
        else:
            self._talk.attempts.used(turn.usage())
