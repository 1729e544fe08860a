"""A conversation with Claude Code: lines into what they mean for the call, and what is to be said into lines.

The first line of a process is a request of ours, ``initialize``; the prompt follows when it is answered. From then on the program
asks us about every tool call (``_approvals.py``), uses the tools of the step (``_own_tools.py``), and ends a turn with a ``result``
(``_turn.py``, ``_outcome.py``). ``_reporter.py`` writes the transcript. ``_agent.py`` says which process is started, and with which
text it begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from bartack.agents._record import Link
from bartack.agents._tool_permissions import ToolPermissions
from bartack.agents.claude._approvals import Approvals
from bartack.agents.claude._lines import DECIDE, initialize, interrupt, prompt, refusal
from bartack.agents.claude._outcome import (
    INTERRUPTED,
    LOST,
    SUCCESS,
    TAKEN,
    UNMET,
    Judgement,
    judge_exit,
)
from bartack.agents.claude._own_tools import OwnTools
from bartack.agents.claude._reporter import Reporter
from bartack.agents.claude._schemas import unwrapped
from bartack.agents.claude._spent import StreamUsage
from bartack.agents.claude._turn import Turn
from bartack.agents.contract import AgentAnswer
from bartack.agents.conversation._actions import Send
from bartack.agents.conversation._conversation import Conversation
from bartack.agents.conversation._dialect import AgentFailure
from bartack.agents.program._answers import completed
from bartack.agents.program._bad_lines import BadLines
from bartack.agents.program._json_lines import (
    Json,
    JsonRead,
    count_of,
    object_of,
    text_of,
)
from bartack.agents.program._tool_results import Store
from bartack.agents.program.cli_facts import CLAUDE, is_older
from bartack.agents.program_config import Price
from bartack.agents.protocol.ids import new_message_id
from bartack.agents.protocol.lines import BadLine
from bartack.agents.protocol.messages import Event, Reason, ToolProblem, Usage
from bartack.errors import AgentStartError, ReplyInvalidError

SETTLE_S: Final = 10.0
"""How long a turn may take to end after its result."""
DECIDING: Final = (
    ("hooks_applied", "decisions about tool calls by its host"),
    ("hook_on_failure_supported", "blocking a tool call without a decision"),
)
"""Members of its answer to ``initialize`` that have to be true, and what each of them is."""
NO_PROGRESS: Final = frozenset({"tool_progress", "keep_alive"})
"""Lines that only say that the program lives."""


class DialectSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a conversation needs of the settings.

    Attributes:
        permissions: Decides about its tools.
        asks: Whether people are asked about permissions.
        min_version: An older version is refused; empty: the oldest that is known to work.
        background_s: How long subagents may work on after a turn.
        prices: Prices of models.
        clean: Takes secrets out of what people read.
        home: What to do if it has no credentials, for messages.
        store: Stores a result of a tool that is too long for the model, and returns where.
    """

    permissions: ToolPermissions
    asks: bool = True
    min_version: str = ""
    background_s: float = SETTLE_S
    prices: Mapping[str, Price] = {}
    clean: Callable[[bytes], bytes] = bytes
    home: str = ""
    store: Store


class ClaudeDialect:
    """See the module, and ``Dialect`` for what each method promises."""

    def __init__(self, talk: Conversation[JsonRead], settings: DialectSettings) -> None:
        self.command_id = ""
        self.lost = ""
        """Why the conversation cannot be resumed; empty if it can."""
        self.taken = False
        """The program says that the id of the conversation is in use."""
        self.tools = OwnTools(talk.request.tools, self._write, self._call_tool, settings.store)
        self._talk = talk
        self._settings = settings
        self._approvals = Approvals(
            talk, settings.permissions, asks=settings.asks, send=self._write, clean=settings.clean
        )
        self._reporter = Reporter(talk, settings.clean)
        self._opening = ""
        """The text that the process begins with."""
        self._delivered: Sequence[str] = ()
        self._greeting = ""
        """The id of our first request, until it is answered."""
        self._is_ready = False
        """The process has answered it."""
        self._turn = Turn()
        self._spending = self._new_spending()
        self._bad_lines = BadLines(talk, settings.clean)
        talk.judge_exit = self.judge_exit

    # To the program.

    def begin_process(self, text: str, delivered: Iterable[str] = ()) -> None:
        """A new process is started; this is the text that it begins with, and the results of tools that it has already."""
        self._opening = text
        self._delivered = sorted(delivered)
        self._is_ready = False
        self._bad_lines.renew()
        self.lost, self.taken = "", False
        self.tools.begin_process()
        self._approvals.begin_process()

    def send_command(self) -> bool:
        """See ``Dialect.send_command``: in the same process it is a request to fix the reply."""
        self._talk.usd_estimated |= self._spending.is_estimated
        self.command_id = new_message_id()
        self._turn = Turn()
        self._spending = self._new_spending()
        self._reporter.begin_attempt()
        if self._is_ready:
            self._write(prompt(self._talk.attempts.why[1]))
        else:
            self._greeting = new_message_id()
            self._write(initialize(self._greeting))
        return True

    def send_cancel(self, reason: Reason) -> None:
        """See ``Dialect.send_cancel``."""
        self._write(interrupt(new_message_id()))

    def send_result(self, call_id: str, result: object, problem: ToolProblem | None) -> None:
        """See ``Dialect.send_result``."""
        self.tools.end(call_id, result, problem)

    def send_answer(self, question_id: str, answer: AgentAnswer) -> None:
        """See ``Dialect.send_answer``."""
        self._approvals.answered(question_id, answer)

    def _write(self, line: bytes) -> None:
        self._talk.actions.add(Send(line))

    def _call_tool(self, call_id: str, name: str, arguments: dict[str, object]) -> None:
        self._talk.tools.call(call_id, name, arguments)

    # From the program.

    def read(self, link: Link, read: JsonRead) -> str:
        """See ``Dialect.read``."""
        if isinstance(read, BadLine):
            self._bad_lines.take(read)
            return read.case
        line = read.value
        kind = text_of(line, "type")
        link.has_written = True
        self._talk.watchdog.message_came()
        if kind not in NO_PROGRESS and text_of(line, "subtype") != "api_retry":
            self._talk.watchdog.progress()
        self._turn.take(line)
        self._message(link, kind, line)
        return ""

    def recover(self, read: JsonRead) -> Event | AgentFailure | None:
        """See ``Dialect.recover``: what an earlier process ended with, if that is final."""
        if isinstance(read, BadLine):
            return None
        self._turn = Turn()
        self._turn.take(read.value)
        judged = self._turn.judge()
        if judged.code == SUCCESS:
            return self._reply(read.value)
        final = {"auth_failed", "not_found", "context_too_long", "bad_request", "refused"}
        return AgentFailure(judged.code, judged.message) if judged.code in final else None

    def recovered(self, spending: StreamUsage) -> None:
        """What the process had used that wrote the answer which ``recover`` gets."""
        self._spending = spending
        self._talk.usd_estimated |= spending.is_estimated

    def refuse_answers(self) -> None:
        """See ``Dialect.refuse_answers``: a turn is over with its result."""

    def delivered(self) -> Iterable[str]:
        """See ``Dialect.delivered``."""
        return self._delivered

    def notes(self) -> list[str]:
        """See ``Dialect.notes``."""
        return []

    def close(self) -> None:
        """See ``Dialect.close``."""

    def judge_exit(self, status: int | None, stderr_tail: tuple[str, ...]) -> bool:
        """The process has ended; returns whether that is dealt with here. Its status alone is never a success."""
        if self._turn.result is not None:
            self._end_turn()
            return True
        judged = judge_exit(stderr_tail)
        if judged is None:
            return False
        self._dispatch(judged)
        return True

    def _message(self, link: Link, kind: str, line: Json) -> None:
        match kind:
            case "control_request":
                self._control(line)
            case "control_response":
                self._answered(link, object_of(line, "response"))
            case "control_cancel_request":
                self._approvals.withdraw(text_of(line, "request_id"))
            case "system":
                self._system(link, line)
            case "assistant":
                self._note_usage(line, final=False)
                self._reporter.reply(line)
            case "user":
                self._reporter.results(line)
            case "result":
                self._note_usage(line, final=True)
                wait_s = self._settings.background_s if self._turn.works_in_background else SETTLE_S
                self._talk.watchdog.remind(wait_s, self._end_turn)
                self._end_if_over()
            case _:
                return

    def _control(self, line: Json) -> None:
        request_id, request = text_of(line, "request_id"), object_of(line, "request")
        subtype = text_of(request, "subtype")
        if subtype == "hook_callback" and text_of(request, "callback_id") == DECIDE:
            self._approvals.decide(request_id, object_of(request, "input"))
        elif subtype == "can_use_tool":
            self._approvals.ask(request_id, request)
        elif subtype == "mcp_message":
            is_open = self._talk.state == "running"
            self.tools.take(request_id, object_of(request, "message"), is_open=is_open)
        else:
            self._write(refusal(request_id, f"{subtype or 'this'} is not supported"))

    def _answered(self, link: Link, response: Json) -> None:
        """A request of ours was answered; the first one says what the program can do."""
        if text_of(response, "request_id") != self._greeting or self._is_ready:
            return
        about = object_of(response, "response")
        version = text_of(about, "claude_code_version")
        link.introduction = f"Claude Code {version}" if version else ""
        lacks = _missing(response, about, version, self._settings.min_version)
        if lacks:
            name = f"Claude Code {version or '(unknown version)'}"
            problem = (
                f"{name} {lacks}; version {self._settings.min_version or CLAUDE.oldest} or newer is needed"
            )
            self._talk.end(AgentStartError(self._talk.agent, problem, "start_failed"), restart=True)
            return
        self._is_ready = True
        if self._talk.state == "running":
            self._write(prompt(self._opening))

    def _system(self, link: Link, line: Json) -> None:
        match text_of(line, "subtype"):
            case "init":
                link.model = text_of(line, "model")
                self._reporter.notice("info", f"{link.introduction} with {link.model}", "version")
            case "api_retry":
                self._repeats(line)
            case "informational":
                self._reporter.notice("info", text_of(line, "content"), text_of(line, "tag"))
            case _:
                pass
        self._end_if_over()

    def _repeats(self, line: Json) -> None:
        """The program repeats a request; one without credentials is hopeless."""
        status, error = count_of(line, "error_status"), text_of(line, "error")
        problem = f"{error or 'a request failed'}{f' ({status})' if status else ''}"
        if status in {401, 403}:
            self._write(interrupt(new_message_id()))
            self._dispatch(Judgement("auth_failed", problem))
            return
        code = "rate_limited" if error == "rate_limit" else "temporary_failure"
        self._talk.watchdog.repeats(code, f"it only repeats its requests: {problem}")
        self._reporter.repeats(code, problem, count_of(line, "retry_delay_ms") / 1000)

    # The end of a turn.

    def _new_spending(self) -> StreamUsage:
        return StreamUsage(self._settings.prices, self._talk.request.budget.usd)

    def _note_usage(self, line: Json, *, final: bool) -> None:
        if self._spending.take(line) and self._talk.state in {"running", "cancelling"}:
            self._talk.note_usage(self._spending.usage, final=final)

    def _end_if_over(self) -> None:
        if self._turn.is_over:
            self._end_turn()

    def _end_turn(self) -> None:
        if self._turn.result is None or self._talk.state not in {"running", "cancelling"}:
            return
        self._dispatch(self._turn.judge())

    def _dispatch(self, judged: Judgement) -> None:
        """Report to the conversation what a turn, or a process without a result, comes to."""
        talk, (code, message, until) = self._talk, judged
        talk.usd_estimated |= self._spending.is_estimated
        if talk.state == "cancelling" and code != SUCCESS:
            talk.fail(AgentFailure("cancelled", message))
        elif code == SUCCESS:
            talk.take_answer(self._reply(self._turn.result or {}))
        elif code == UNMET:
            talk.end(
                ReplyInvalidError(talk.agent, "it did not answer as the schema wants", message), restart=True
            )
        elif code in {LOST, TAKEN}:
            self.lost, self.taken = message if code == LOST else "", code == TAKEN
            talk.attempts.excuse()
            talk.end_attempt("agent_exited", message)
        elif code == INTERRUPTED:
            talk.fail(AgentFailure("temporary_failure", f"its turn was interrupted: {message}"))
        elif code in {"budget_exceeded", "misconfigured", "start_failed"}:
            talk.end_attempt(code, message)
        else:
            hint = f"; {self._settings.home}" if code == "auth_failed" and self._settings.home else ""
            talk.fail(AgentFailure(code, f"{message}{hint}", until=until))

    def _reply(self, result: Json) -> Event:
        request = self._talk.request
        value = unwrapped(request, result)
        usage: Usage = self._spending.usage
        text = text_of(result, "result")
        return completed(request, self._talk.agent, text, value, usage, self._talk.clock.now_us())


def _missing(response: Json, about: Json, version: str, wanted: str) -> str:
    """What the program lacks that we cannot do without; empty if it has everything."""
    if text_of(response, "subtype") != "success":
        return f"does not support permission requests: {text_of(response, 'error')[:200]}"
    lacks = [words for member, words in DECIDING if about.get(member) is not True]
    if lacks:
        return f"lacks {' and '.join(lacks)}"
    return "is too old" if version and is_older(version, wanted or CLAUDE.oldest) else ""
