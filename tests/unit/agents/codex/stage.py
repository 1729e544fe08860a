"""A call of Codex without Codex: the test writes what the app server would, and reads what it is sent."""

from __future__ import annotations

from functools import partial

import msgspec

from bartack.agents._permissions import Permissions
from bartack.agents._record import AgentRecord, Link
from bartack.agents._tool_permissions import ToolPermissions
from bartack.agents.codex._dialect import CodexDialect
from bartack.agents.codex._messages import CodexPlan
from bartack.agents.codex._schema import plan_value
from bartack.agents.codex._thread import CodexThread
from bartack.agents.contract import (
    AgentAnswer,
    AgentEvent,
    AgentQuestion,
    AgentRequest,
    Outcome,
    ToolOutcome,
)
from bartack.agents.conversation._actions import (
    Action,
    AskOut,
    CallOut,
    Done,
    NeedProcess,
    Report,
    Send,
    StopProcess,
)
from bartack.agents.conversation._conversation import Conversation
from bartack.agents.program._json_lines import Json, JsonRead, objects_of, read_json_line, text_of
from bartack.agents.program_config import CodexConfig
from bartack.agents.protocol.lines import BadLine
from bartack.agents.protocol.messages import Budget
from bartack.testing import VirtualClock

KEY = "ik:1"
RUN = "run-20260301-101500-0badcafe"
THREAD = "thread-1"
TURN = "turn-1"


def request_for(**given: object) -> AgentRequest:
    known: dict[str, object] = {
        "run_id": RUN,
        "key": KEY,
        "worker": "main",
        "cwd": "/ws",
        "inputs": {"text": "do it"},
    }
    return msgspec.convert({**known, **given}, type=AgentRequest)


def usage(tokens: int, turn: str = TURN, thread: str = THREAD, cached: int = 0) -> Json:
    last = {
        "inputTokens": tokens,
        "outputTokens": 10,
        "cachedInputTokens": cached,
        "totalTokens": tokens + 10,
    }
    return {"threadId": thread, "turnId": turn, "tokenUsage": {"last": last, "total": {"inputTokens": 10**9}}}


SECRET = "s3cr3t-of-the-test"  # noqa: S105 - of nothing


class Stage:
    """One call, driven by hand."""

    def __init__(
        self,
        request: AgentRequest | None = None,
        *,
        thread: str = "",
        parent: str = "",
        permissions: Permissions | None = None,
        config: CodexConfig | None = None,
        min_version: str = "",
        may_ask: bool = False,
    ) -> None:
        self.request = request or request_for()
        self.clock = VirtualClock()
        self.thread = CodexThread(thread, parent)
        given = permissions or Permissions(mode="auto")
        plan = CodexPlan(
            request=self.request,
            value=plan_value(self.request.schema, may_decline=self.request.may_decline),
            mode=given.mode or "edit",
            may_ask=may_ask,
        )
        decider = ToolPermissions(given, "general", self.request.cwd)
        made: list[CodexDialect] = []
        self.stored: list[str] = []
        speak = partial(
            CodexDialect,
            plan=plan,
            thread=self.thread,
            permissions=decider,
            store=self._store,
            min_version=min_version,
            clean=lambda data: data.replace(SECRET.encode(), b"$env:TOKEN"),
        )

        def keep(talk: Conversation[JsonRead]) -> CodexDialect:
            made.append(speak(talk))
            return made[0]

        self.talk: Conversation[JsonRead] = Conversation(
            "codex",
            self.request,
            (config or CodexConfig()).limits,
            AgentRecord("codex"),
            keep,
            clock=self.clock,
            uniform=lambda low, high: low,
        )
        self.dialect = made[0]
        self.link = Link()
        self.sent: list[Json] = []
        self.events: list[AgentEvent] = []
        self.calls: list[CallOut] = []
        self.questions: list[AgentQuestion] = []
        self.outcome: Outcome | None = None
        self.stopping = False
        self.processes = 0

    # The loop of a hub.

    def _store(self, text: str) -> str:
        self.stored.append(text)
        return "/stored.json"

    def perform(self) -> None:
        while actions := self.talk.take():
            for action in actions:
                self._do(action)

    def _do(self, action: Action) -> None:
        match action:
            case NeedProcess():
                self.processes += 1
                self.stopping = False
                self.link = Link(100 + self.processes)
                self.dialect.begin_process()
                self.talk.attached(self.link)
            case Send(line=line):
                self.sent.append(msgspec.json.decode(line))
            case StopProcess():
                self.stopping = True
            case Report(event=event):
                self.events.append(event)
            case CallOut():
                self.calls.append(action)
            case AskOut(question=question):
                self.questions.append(question)
            case Done(outcome=outcome):
                assert self.outcome is None
                self.outcome = outcome
            case _:
                pass

    def begin(self) -> None:
        self.talk.begin()
        self.perform()

    def write(self, message: Json) -> str:
        """Codex writes a message."""
        return self.write_line(msgspec.json.encode(message))

    def write_line(self, line: bytes) -> str:
        case = self.talk.line(read_json_line(line))
        self.perform()
        return case

    def write_bad(self, read: BadLine) -> None:
        self.talk.line(read)
        self.perform()

    def exit(self, status: int = 0) -> None:
        self.talk.exited(status)
        self.perform()

    def tick(self, seconds: float = 0.0) -> None:
        self.clock.advance(seconds)
        self.talk.tick()
        self.perform()

    def cancel(self) -> None:
        self.talk.cancel("user")
        self.perform()

    def end_tool(self, outcome: ToolOutcome) -> None:
        self.talk.tool_ended(self.calls[-1].call_id, outcome)
        self.perform()

    def answer(self, text: str = "", refused: str = "") -> None:
        self.talk.answered(self.questions[-1].id, AgentAnswer(text=text, refused=refused, number="q1"))
        self.perform()

    # What Codex says.

    @property
    def last(self) -> Json:
        return self.sent[-1]

    def reply(self, result: Json) -> None:
        """Codex answers the last request of ours."""
        asked = [message for message in self.sent if "method" in message and "id" in message][-1]
        self.write({"id": asked["id"], "result": result})

    def refuse(self, text: str) -> None:
        self.write({"id": self.last["id"], "error": {"code": -32600, "message": text}})

    def note(self, method: str, params: Json) -> None:
        self.write({"method": method, "params": params})

    def ask(self, method: str, params: Json, number: int = 0) -> None:
        self.write({"id": number, "method": method, "params": {"threadId": THREAD, "turnId": TURN, **params}})

    def greet(self, version: str = "0.163.0") -> None:
        """The handshake, up to the request for the thread."""
        self.reply({"userAgent": f"bartack/{version} (Linux)"})

    def open_turn(self) -> None:
        """Everything up to a turn that runs."""
        self.begin()
        self.greet()
        self.reply({"thread": {"id": THREAD}, "model": "gpt-5"})
        self.start_turn()

    def start_turn(self, turn: str = TURN) -> None:
        self.reply({"turn": {"id": turn}})
        self.note("turn/started", {"threadId": THREAD, "turn": {"id": turn}})

    def say(self, text: str, thread: str = THREAD) -> None:
        item = {"type": "agentMessage", "id": "m", "text": text}
        self.note("item/completed", {"threadId": thread, "turnId": TURN, "item": item})

    def end_turn(
        self, status: str = "completed", error: Json | None = None, turn: str = TURN, thread: str = THREAD
    ) -> None:
        given: Json = {"id": turn, "status": status, "error": error, "items": []}
        self.note("turn/completed", {"threadId": thread, "turn": given})

    def prompts(self) -> list[str]:
        """The texts of the turns that were started."""
        turns = [message for message in self.sent if message.get("method") == "turn/start"]
        return [text_of(objects_of(turn, "params", "input")[0], "text") for turn in turns]


def budget(**given: float) -> Budget:
    return msgspec.convert(given, type=Budget)
