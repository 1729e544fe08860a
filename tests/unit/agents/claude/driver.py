"""A conversation with Claude Code whose lines a test writes, with a clock of its own."""

from __future__ import annotations

from pathlib import Path

import msgspec

from bartack.agents._permissions import Permissions
from bartack.agents._record import AgentRecord, Link
from bartack.agents._tool_permissions import ToolPermissions
from bartack.agents.claude._dialect import ClaudeDialect, DialectSettings
from bartack.agents.contract import AgentEvent, AgentQuestion, AgentRequest, Outcome
from bartack.agents.conversation._actions import (
    AskOut,
    CallOut,
    Done,
    NeedProcess,
    Report,
    Send,
    StopProcess,
    WithdrawOut,
)
from bartack.agents.conversation._breaker import Breaker
from bartack.agents.conversation._conversation import Conversation
from bartack.agents.program._json_lines import Json, JsonRead, object_of, read_json_line, text_of
from bartack.agents.program_config import ClaudeConfig
from bartack.testing import VirtualClock

READY: Json = {"hooks_applied": True, "hook_on_failure_supported": True, "claude_code_version": "2.1.325"}
IDLE: Json = {"type": "system", "subtype": "session_state_changed", "state": "idle"}
MODEL = "claude-opus-4-5"


def request_of(root: Path, **changes: object) -> AgentRequest:
    """A prompt."""
    base = AgentRequest(
        run_id="run-20260301-101500-0badcafe",
        key="ik:1",
        worker="main",
        inputs={"text": "do it"},
        cwd=str(root),
    )
    return msgspec.structs.replace(base, **changes)


def result(**members: object) -> Json:
    """The line of a turn that ended well, unless members say otherwise."""
    line: Json = {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "result": "fine",
        "model_usage_since_last_result": {MODEL: used(0.25)},
    }
    return {**line, **members}


def used(usd: float, basis: str = "list") -> Json:
    """What a result says of a model."""
    return {"inputTokens": 100, "outputTokens": 10, "costUSD": usd, "costBasis": basis}


def reply(reply_id: str, *content: Json, model: str = MODEL, **members: object) -> Json:
    """A part of a reply of a model."""
    usage = {"input_tokens": 1000, "output_tokens": 100}
    message = {"id": reply_id, "model": model, "usage": usage, "content": list(content)}
    return {"type": "assistant", "message": message, **members}


class Driver:
    """Reports to a conversation what its program writes, and remembers what it wants done."""

    def __init__(
        self,
        root: Path,
        *,
        config: ClaudeConfig | None = None,
        permissions: Permissions | None = None,
        settings: dict[str, object] | None = None,
        clock: VirtualClock | None = None,
        breaker: Breaker | None = None,
        **request: object,
    ) -> None:
        self.clock = clock or VirtualClock()
        self.request = request_of(root, **request)
        self.config = config or ClaudeConfig()
        own = [f"mcp__bartack__{tool.name}" for tool in self.request.tools]
        allowed = permissions or Permissions()
        base = DialectSettings(
            permissions=ToolPermissions(allowed, "general", str(root), own_tools=own),
            asks=allowed.on_ask == "question",
            home="log in",
            store=self._store,
        )
        self.settings = msgspec.structs.replace(base, **(settings or {}))
        self.sent: list[Json] = []
        self.stored: list[str] = []
        self.events: list[AgentEvent] = []
        self.outcome: Outcome | None = None
        self.calls: list[tuple[str, str, dict[str, object]]] = []
        self.questions: list[AgentQuestion] = []
        self.withdrawn: list[str] = []
        self.starts = 0
        self.stops = 0
        self.opening = "do it"
        self.alive = False
        self.talk: Conversation[JsonRead] = Conversation(
            "claude",
            self.request,
            self.config.limits,
            AgentRecord("claude"),
            self._speak,
            clock=self.clock,
            uniform=lambda _low, high: high,
            breaker=breaker,
        )

    def _speak(self, talk: Conversation[JsonRead]) -> ClaudeDialect:
        self.dialect = ClaudeDialect(talk, self.settings)
        return self.dialect

    def _store(self, text: str) -> str:
        self.stored.append(text)
        return "/stored.json"

    def begin(self) -> Driver:
        """Begin, and answer the first request of the process."""
        self.talk.begin()
        self.perform()
        self.greet()
        return self

    def greet(self, **members: object) -> None:
        """Answer the first request."""
        self.answer_greeting({**READY, **members})

    def answer_greeting(self, about: Json, subtype: str = "success") -> None:
        """The same, with these members alone."""
        response = {"subtype": subtype, "request_id": self.sent[-1]["request_id"], "response": about}
        self.write({"type": "control_response", "response": response})

    def write(self, *lines: Json) -> None:
        """The program writes lines."""
        for line in lines:
            self.talk.line(read_json_line(msgspec.json.encode(line)))
            self.perform()

    def ask(self, request_id: str, **request: object) -> Json:
        """The program asks us; returns the answer, empty if there is none yet."""
        before = len(self.sent)
        self.write({"type": "control_request", "request_id": request_id, "request": request})
        return self.sent[-1] if len(self.sent) > before else {}

    def decide(self, tool: str, **given: object) -> str:
        """What is decided about a tool call."""
        asked: Json = {"tool_name": tool, "tool_input": given, "tool_use_id": "t1"}
        answer = self.ask("h1", subtype="hook_callback", callback_id="decide", input=asked)
        response = object_of(answer, "response", "response", "hookSpecificOutput")
        return text_of(response, "permissionDecision")

    def exit(self, status: int | None = 0, *stderr: str) -> None:
        """The process ends."""
        self.alive = False
        self.talk.exited(status, stderr)
        self.perform()

    def advance(self, seconds: float) -> None:
        """Time passes."""
        end = self.clock.monotonic_ns() / 1e9 + seconds
        while (due := self.talk.next_due()) is not None and due <= end:
            self.clock.advance(max(due - self.clock.monotonic_ns() / 1e9, 0.0) + 1e-6)
            self.talk.tick()
            self.perform()
        self.clock.advance(max(end - self.clock.monotonic_ns() / 1e9, 0.0))

    def perform(self) -> None:
        """Do what the conversation wants done."""
        while actions := self.talk.take():
            for action in actions:
                self._do(action)

    def _do(self, action: object) -> None:
        match action:
            case Send(line=line):
                self.sent.append(msgspec.json.decode(line, type=dict[str, object]))
            case NeedProcess():
                self.starts += 1
                self.alive = True
                self.dialect.begin_process(self.opening)
                self.talk.attached(Link(pid=17))
            case StopProcess():
                self.stops += 1
                self.alive = False
                self.talk.exited(0)
            case Report(event=event):
                self.events.append(event)
            case CallOut(call_id=call_id, name=name, arguments=arguments):
                self.calls.append((call_id, name, arguments))
            case AskOut(question=question):
                self.questions.append(question)
            case WithdrawOut(question_id=question_id):
                self.withdrawn.append(question_id)
            case Done(outcome=outcome):
                self.outcome = outcome
            case _:
                pass

    @property
    def prompts(self) -> list[str]:
        """The prompts that were sent."""
        found: list[str] = []
        for line in self.sent:
            if line["type"] == "user":
                message = msgspec.convert(line["message"], type=dict[str, object])
                (block,) = msgspec.convert(message["content"], type=list[dict[str, str]])
                found.append(block["text"])
        return found
