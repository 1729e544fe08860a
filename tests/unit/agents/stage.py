"""A conversation and a scripted agent face to face, in one process and with a clock of their own.

Everything that either of them writes, and everything that is told of them, is checked against the closed schemas.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import jsonschema_rs
import msgspec

from bartack.agents._record import AgentRecord, Link
from bartack.agents.artifacts import verify_artifacts
from bartack.agents.config import ProtocolConfig
from bartack.agents.contract import AgentEvent, AgentRequest, AgentResult, Outcome, ToolOutcome
from bartack.agents.conversation._actions import (
    Action,
    AskOut,
    CallOut,
    Done,
    JudgeFiles,
    NeedProcess,
    ReleaseProcess,
    Report,
    Send,
    StopProcess,
    Warn,
    WithdrawOut,
)
from bartack.agents.conversation._breaker import Breaker
from bartack.agents.conversation._conversation import Conversation
from bartack.agents.ndjson._dialect import open_line_conversation
from bartack.agents.program_config import NdjsonConfig
from bartack.agents.protocol.ids import command_key
from bartack.agents.protocol.lines import BadLine, Line, LineReader, Read, read_command
from bartack.agents.protocol.messages import ROLES, Command, Event, Role, ToAgent
from bartack.agents.replies import check_reply
from bartack.agents.schema import schema
from bartack.agents.scripted._side import ScriptedSide
from bartack.agents.scripted._writer import Ignored
from bartack.agents.scripted.scripted import read_script
from bartack.testing import VirtualClock

RUN = "run-20260301-101500-0badcafe"
ANSWERS: dict[str, dict[str, object]] = {
    "implement": {"type": "builder.completed", "payload": {"tests": {"status": "pass"}}},
    "implement_changes": {"type": "builder.completed", "payload": {"tests": {"status": "pass"}}},
    "review": {"type": "review.completed", "status": "approved"},
    "update_spec": {"type": "spec.no_changes_needed"},
    "intake": {
        "type": "orchestration.proposed_tasks",
        "payload": {"plan_candidates": [{"path": "PLAN.md"}]},
    },
    "task_discovery": {"type": "orchestration.needs_clarification", "payload": {"questions": ["Why?"]}},
    "prompt": {"type": "prompt.completed", "payload": {"result": "fine"}},
}
"""A good answer to each action."""


_NO_ANSWERS: dict[str, object] = {"clarifications": [], "conflict_resolutions": []}
_ROUND: dict[str, object] = {"iteration": {"cause": "start", "findings": [], "round": 1}}
_TASK: dict[str, object] = {"goal": "x", "task_files": [], **_NO_ANSWERS, **_ROUND}
_INTAKE: dict[str, object] = {
    "user_instruction": "x",
    "discovery": {"strategy": "s", "candidates": []},
    **_NO_ANSWERS,
    **_ROUND,
}
INPUTS: dict[str, dict[str, object]] = {
    "implement": _TASK,
    "implement_changes": _TASK,
    "review": {**_TASK, "changed_files": ["a"]},
    "update_spec": {**_TASK, "changed_files": [], "spec_file": "SPEC.md", "editable_sections": []},
    "intake": _INTAKE,
    "task_discovery": {**_INTAKE, "request_more_candidates": True},
    "prompt": {"text": "x", "iteration": {"epoch": 0, "step": 1}, "context": {}},
}
"""The least that a command of each action says."""


def request_for(action: str, root: Path, **changes: object) -> AgentRequest:
    """A request, with its key. Inputs that are given are put over the least that a command says."""
    inputs = INPUTS[action]
    given = msgspec.convert(changes.pop("inputs", {}), type=dict[str, object])
    role: Role = ROLES.get(action, "general")
    base = AgentRequest(
        run_id=RUN,
        key=command_key(action, "T-1", "none", inputs),
        worker="main",
        step=1,
        action=action,
        role=role,
        task_id="T-1",
        inputs={**inputs, **given},
        cwd=str(root),
    )
    return msgspec.structs.replace(base, **changes)


@cache
def validator(name: str, *, closed: bool) -> jsonschema_rs.Validator:
    """Says whether a value is what a schema wants."""
    return jsonschema_rs.validator_for(schema(name, closed=closed))


def valid(line: bytes, *, closed: bool) -> bool:
    """Whether a line is what the schema of its kind wants."""
    message: dict[str, object] = msgspec.json.decode(line)
    name = str(message["kind"]).replace("_", "-")
    return bool(validator(name, closed=closed).is_valid(message))


class Process:
    """One life of the scripted agent."""

    def __init__(self, stage: Stage) -> None:
        self.link = Link(pid=17)
        self.reader = LineReader()
        self.pipe = bytearray()
        self.status: int | None = None
        self.ignores: set[Ignored] = set()
        self.stderr_bytes = 0
        self.side = ScriptedSide(
            stage.script,
            self,
            stage.clock,
            name=stage.agent,
            root=str(stage.root),
            state=stage.state,
            heartbeat_s=stage.agent_heartbeat_s,
        )

    def write(self, data: bytes) -> None:
        if self.status is None:
            self.pipe += data

    def write_stderr(self, data: bytes) -> None:
        self.stderr_bytes += len(data)

    def die(self, code: int, by: str = "") -> None:
        self.status = -9 if by else code

    def spawn(self, seconds: float, writes: str) -> None:
        raise AssertionError("no process can be left behind in a test without any")

    def ignore(self, what: Ignored) -> None:
        self.ignores.add(what)


class Stage:
    """Everything around one command, or several one after the other."""

    def __init__(
        self,
        root: Path,
        script: dict[str, object],
        *,
        config: dict[str, object] | None = None,
        protocol: ProtocolConfig | None = None,
        remembers: bool = True,
        agent_heartbeat_s: float = 10.0,
    ) -> None:
        self.root = root
        self.agent = "stub"
        self.script = read_script(script, self.agent)
        self.clock = VirtualClock()
        self.state = str(root / "state.json") if remembers else ""
        self.agent_heartbeat_s = agent_heartbeat_s
        self.config = msgspec.convert(
            {"kind": "ndjson", "command": "stub", **(config or {})}, type=NdjsonConfig
        )
        self.protocol = protocol or ProtocolConfig()
        self.record = AgentRecord(self.agent)
        self.process: Process | None = None
        self.starts = 0
        self.sent: list[ToAgent] = []
        self.lines: list[bytes] = []
        self.heard: list[bytes] = []
        self.faults: list[BadLine] = []
        self.events: list[AgentEvent] = []
        self.warnings: list[str] = []
        self.tools: Callable[[CallOut], ToolOutcome | None] = lambda _: ToolOutcome("done")
        self.outcome: Outcome | None = None
        self.conversation: Conversation[Read] | None = None
        self.breaker: Breaker | None = None

    # Running.

    def ask(self, request: AgentRequest, harvested: Line | None = None) -> Outcome:
        """Ask, and wait for the outcome as long as it takes."""
        self.begin(request, harvested)
        for _ in range(200_000):
            if self.outcome is not None:
                return self.outcome
            self.turn()
        raise AssertionError("the conversation does not end")

    def result(self, request: AgentRequest) -> AgentResult:
        """Ask, and expect an answer."""
        outcome = self.ask(request)
        assert isinstance(outcome, AgentResult), outcome
        return outcome

    def begin(self, request: AgentRequest, harvested: Line | None = None) -> Conversation[Read]:
        self.outcome = None
        talk = self.conversation = open_line_conversation(
            self.agent,
            request,
            self.config,
            self.protocol,
            self.record,
            clock=self.clock,
            uniform=lambda low, high: (low + high) / 2,
            breaker=self.breaker,
        )
        talk.begin(harvested)
        self.perform()
        return talk

    def turn(self) -> None:
        """One thing happens: a line is read, a process ends, or time passes to the next moment that matters."""
        if self._read() or self._reap():
            return
        assert self.conversation is not None
        dues = [due for due in (self.conversation.next_due(),) if due is not None]
        if self.process is not None:
            dues.append(self.process.side.next_due())
        due = min(dues, default=float("inf"))
        assert due != float("inf"), f"nothing will ever happen ({self.conversation.state})"
        self.clock.advance(max(due - self.now(), 0.0))
        if self.process is not None and self.process.side.next_due() <= self.now():
            self.process.side.tick()
            if self._read() or self._reap():
                return
        self.conversation.tick()
        self.perform()

    def now(self) -> float:
        return self.clock.monotonic_ns() / 1e9

    def commands(self) -> list[Command]:
        return [message for message in self.sent if isinstance(message, Command)]

    # Inside.

    def _read(self) -> bool:
        process, talk = self.process, self.conversation
        if process is None or talk is None or not process.pipe:
            return False
        data = bytes(process.pipe)
        process.pipe.clear()
        for read in process.reader.feed(data):
            self.hear(read)
        return True

    def hear(self, read: Line | BadLine) -> None:
        """Give the conversation a line."""
        assert self.conversation is not None
        if isinstance(read, Line):
            refused = isinstance(read.message, Event) and check_reply(read.message)
            assert valid(read.raw, closed=True) or refused, read.raw
            self.heard.append(read.raw)
        else:
            self.faults.append(read)
        self.conversation.line(read)
        self.perform()

    def _reap(self) -> bool:
        process = self.process
        if process is None or process.status is None:
            return False
        self.process = None
        assert self.conversation is not None
        torn = process.reader.close()
        if torn is not None:
            self.hear(torn)
        self.conversation.exited(process.status, ("last words",))
        self.perform()
        return True

    def perform(self) -> None:
        assert self.conversation is not None
        while actions := self.conversation.take():
            for action in actions:
                self._do(self.conversation, action)

    def _do(self, talk: Conversation[Read], action: Action) -> None:  # noqa: C901, PLR0912 - one line for each action
        match action:
            case NeedProcess():
                if self.process is None:
                    self.starts += 1
                    self.process = Process(self)
                    self.process.side.begin()
                talk.attached(self.process.link)
            case Send(line=line):
                assert valid(line, closed=True), line
                message = read_command(line)
                assert message is not None
                self.sent.append(message)
                self.lines.append(line)
                if self.process is not None and self.process.status is None:
                    self._hand_over(self.process, line)
            case StopProcess():
                assert self.process is not None
                self.process.status = 0 if self.process.status is None else self.process.status
            case JudgeFiles(artifacts=artifacts):
                talk.judged(verify_artifacts(talk.request, artifacts))
            case CallOut():
                outcome = self.tools(action)
                if outcome is not None:
                    talk.tool_ended(action.call_id, outcome)
            case AskOut() | WithdrawOut():
                raise AssertionError("the line protocol has no questions")
            case Report(event=event):
                assert validator("agent-transcript-line", closed=True).is_valid(msgspec.to_builtins(event))
                self.events.append(event)
            case Warn(text=text):
                self.warnings.append(text)
            case Done(outcome=outcome):
                self.outcome = outcome
            case ReleaseProcess():
                pass

    def _hand_over(self, process: Process, line: bytes) -> None:
        if "stdin" not in process.ignores:
            process.side.line(line)
