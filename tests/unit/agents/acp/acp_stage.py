"""A conversation with an agent that speaks ACP, played by a test: no process, no file, a clock of its own.

Everything that is written to the agent is checked with the types of the protocol's own library.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec
from tests.unit.agents.acp.wire_types import check_from_client

from bartack.agents._record import AgentRecord, Link
from bartack.agents._tool_permissions import ToolPermissions
from bartack.agents.acp._dialect import AcpV1
from bartack.agents.acp._history import History
from bartack.agents.acp._messages import stdio_server
from bartack.agents.acp._opening import Start
from bartack.agents.acp._step_tools import step_tools
from bartack.agents.contract import (
    AgentAnswer,
    AgentEvent,
    AgentQuestion,
    AgentRequest,
    AgentResult,
    Outcome,
)
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
from bartack.agents.conversation._conversation import Conversation
from bartack.agents.program._json_lines import JsonRead, read_json_line
from bartack.agents.program_config import AcpConfig
from bartack.agents.protocol.lines import BadLine
from bartack.testing import VirtualClock

RUN = "run-20260301-101500-0badcafe"
SESSION = "s-1"
MISSING: Any = object()


class Files:
    """The files of a call, in memory."""

    def __init__(self) -> None:
        self.session = ""
        self.sent: list[int] = []
        self.tools: list[tuple[str, str, str]] = []
        self.stored: list[str] = []
        self.abandoned: list[str] = []
        self.texts: dict[str, str] = {}
        self.links: dict[str, str] = {}

    def save_session(self, session_id: str) -> None:
        self.session = session_id

    def prompt_sent(self, attempt: int) -> None:
        self.sent.append(attempt)

    def tool_ended(self, call_id: str, tool: str, text: str) -> None:
        self.tools.append((call_id, tool, text))

    def store_result(self, text: str) -> str:
        self.stored.append(text)
        return f"/results/{len(self.stored)}"

    def abandon(self, reason: str) -> None:
        self.abandoned.append(reason)

    def resolve(self, path: str) -> str:
        return self.links.get(path, path)

    def read_text(self, path: str, line: int = 0, limit: int | None = None) -> str:
        if path not in self.texts:
            raise FileNotFoundError(path)
        lines = self.texts[path].splitlines(keepends=True)
        first = max(line, 1) - 1
        return "".join(lines[first:] if limit is None else lines[first : first + limit])

    def write_text(self, path: str, text: str) -> None:
        self.texts[path] = text


class Stage:
    """See the module. ``say`` writes as the agent does, ``heard`` is what the agent got since the last look."""

    def __init__(
        self,
        root: Path,
        *,
        config: dict[str, object] | None = None,
        session: str = "",
        parent: str = "",
        history: History | None = None,
        **request: object,
    ) -> None:
        self.clock = VirtualClock()
        self.files = Files()
        self.events: list[AgentEvent] = []
        self.outcomes: list[Outcome] = []
        self.questions: list[AgentQuestion] = []
        self.withdrawn: list[str] = []
        self.calls: list[CallOut] = []
        self.bridge: list[bytes] = []
        self.stopped = 0
        self._heard: list[dict[str, Any]] = []
        self._begins = (session, parent, history or History())
        settings = msgspec.convert({"kind": "acp", "command": "stub", **(config or {})}, type=AcpConfig)
        given: dict[str, Any] = {"inputs": {"text": "Do it."}, **request}
        self.request = AgentRequest(run_id=RUN, key="ik:1", worker="main", cwd=str(root), **given)
        permissions = ToolPermissions(settings.permissions, self.request.role, str(root))
        self.talk: Conversation[JsonRead] = Conversation(
            "zed",
            self.request,
            settings.limits,
            AgentRecord("zed"),
            lambda talk: self._dialect(talk, settings, permissions),
            clock=self.clock,
            uniform=lambda low, high: low,
        )
        self.talk.begin()
        self.go()

    def _dialect(
        self, talk: Conversation[JsonRead], settings: AcpConfig, permissions: ToolPermissions
    ) -> AcpV1:
        self.dialect = AcpV1(
            talk, config=settings, permissions=permissions, files=self.files, redact=lambda data: data
        )
        return self.dialect

    def go(self) -> None:
        """Do what the conversation wants done."""
        while actions := self.talk.take():
            for action in actions:
                match action:
                    case NeedProcess():
                        self._start()
                    case Send(line=line):
                        message = msgspec.json.decode(line)
                        check_from_client(message)
                        self._heard.append(message)
                    case StopProcess():
                        self.stopped += 1
                        self.talk.exited(0)
                    case Report(event=event):
                        self.events.append(event)
                    case AskOut(question=question):
                        self.questions.append(question)
                    case WithdrawOut(question_id=question_id):
                        self.withdrawn.append(question_id)
                    case CallOut():
                        self.calls.append(action)
                    case Done(outcome=outcome):
                        self.outcomes.append(outcome)
                    case _:
                        raise AssertionError(action)

    def _start(self) -> None:
        session, parent, history = self._begins
        servers = [stdio_server(["/python", "bridge.py"], {"TOKEN": "t"})] if step_tools(self.request) else []
        self.dialect.prepare(Start(servers, self.bridge.append, session, parent, history))
        self.talk.attached(Link(pid=17))

    def restart_with(self, session: str = "", history: History | None = None) -> None:
        """What the next process begins with."""
        self._begins = (session, "", history or History())

    def say(self, *messages: dict[str, object]) -> None:
        """The agent writes."""
        for message in messages:
            self.talk.line(read_json_line(msgspec.json.encode({"jsonrpc": "2.0", **message})))
            self.go()

    def say_raw(self, line: bytes | BadLine) -> None:
        self.talk.line(line if isinstance(line, BadLine) else read_json_line(line))
        self.go()

    def heard(self) -> list[dict[str, Any]]:
        """What the agent got since the last look."""
        heard, self._heard = self._heard, []
        return heard

    def reply(self, result: object = MISSING, *, error: dict[str, object] | None = None) -> dict[str, Any]:
        """Answer the last request that the agent got; returns the request."""
        asked = [message for message in self.heard() if "method" in message and "id" in message][-1]
        answer: dict[str, object] = {"id": asked["id"]}
        self.say({**answer, "error": error} if error is not None else {**answer, "result": result})
        return asked

    def initialize(self, capabilities: dict[str, object] | None = None, **more: object) -> dict[str, Any]:
        """Answer ``initialize``."""
        result: dict[str, object] = {
            "protocolVersion": 1,
            "agentCapabilities": capabilities or {},
            "authMethods": [],
            **more,
        }
        return self.reply(result)

    def open(self, capabilities: dict[str, object] | None = None) -> dict[str, Any]:
        """Answer up to the prompt; returns the prompt."""
        self.initialize(capabilities)
        self.reply({"sessionId": SESSION})
        self._prompt = self._heard[-1]
        assert self._prompt["method"] == "session/prompt"
        self.heard()
        return self._prompt

    def update(self, kind: str, /, **fields: object) -> None:
        """The agent reports something about its session."""
        self.say(
            {
                "method": "session/update",
                "params": {"sessionId": SESSION, "update": {"sessionUpdate": kind, **fields}},
            }
        )

    def text(self, text: str, **more: object) -> None:
        self.update("agent_message_chunk", content={"type": "text", "text": text}, **more)

    def tool(self, update: str, call_id: str, /, **fields: object) -> None:
        self.update(update, toolCallId=call_id, **fields)

    def end(self, reason: str = "end_turn", **more: object) -> None:
        """The turn ends."""
        self.say({"id": self._prompt["id"], "result": {"stopReason": reason, **more}})

    def ask_permission(self, tool_call: dict[str, object], *kinds: str, number: int = 900) -> dict[str, Any]:
        """The agent asks for a permission; returns the answer, empty if there is none yet."""
        options = [
            {"optionId": f"o-{kind}", "name": kind, "kind": kind}
            for kind in kinds or ("allow_once", "allow_always", "reject_once", "reject_always")
        ]
        params = {"sessionId": SESSION, "toolCall": tool_call, "options": options}
        self.say({"id": number, "method": "session/request_permission", "params": params})
        return self.answer_to(number)

    def answer_to(self, number: int) -> dict[str, Any]:
        found = [message for message in self.heard() if message.get("id") == number]
        return found[-1] if found else {}

    def answer(self, text: str = "", **more: object) -> None:
        """A person answers the last question."""
        given: dict[str, Any] = {"text": text, "number": "q1", **more}
        self.talk.answered(self.questions[-1].id, AgentAnswer(**given))
        self.go()

    def mcp(self, message: dict[str, object]) -> list[dict[str, Any]]:
        """The agent writes over its bridge; returns what it gets back."""
        before = len(self.bridge)
        self.dialect.read_bridge(msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n")
        self.go()
        return [msgspec.json.decode(line) for line in self.bridge[before:]]

    def call(
        self, name: str, arguments: dict[str, object], number: int = 1, **meta: object
    ) -> list[dict[str, Any]]:
        params = {"name": name, "arguments": arguments, "_meta": meta}
        return self.mcp({"id": number, "method": "tools/call", "params": params})

    @property
    def result(self) -> AgentResult:
        assert len(self.outcomes) == 1, self.outcomes
        assert isinstance(self.outcomes[0], AgentResult), self.outcomes[0]
        return self.outcomes[0]

    def error(self, kind: type[Exception]) -> Exception:
        assert len(self.outcomes) == 1, self.outcomes
        assert type(self.outcomes[0]) is kind, repr(self.outcomes[0])
        return cast("Exception", self.outcomes[0])

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.talk.tick()
        self.go()
