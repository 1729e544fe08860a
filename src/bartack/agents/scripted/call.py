"""A scripted agent that obeys commands without being a process: the same engine as the shipped program, for runs in memory."""

from __future__ import annotations

from typing import Final

import msgspec

from bartack.agents._commands import make_command
from bartack.agents._permissions import Permissions
from bartack.agents.artifacts import verify_artifacts
from bartack.agents.contract import AgentRequest, AgentResult
from bartack.agents.protocol.codes import OWN_CODES, judge_agent_code, make_error
from bartack.agents.protocol.ids import conversation_id, new_message_id
from bartack.agents.protocol.lines import Line, read_line, write_line
from bartack.agents.protocol.messages import ENDING, Cause, Command, Event, Retry, Usage
from bartack.agents.replies import check_reply
from bartack.agents.scripted._side import ScriptedSide
from bartack.agents.scripted._writer import HANG, Ignored
from bartack.agents.scripted.scripted import Script, ScriptedAgent
from bartack.core.clock import SystemClock
from bartack.errors import AgentError

_ATTEMPTS: Final = 3


def obey(agent: ScriptedAgent, request: AgentRequest) -> AgentResult:
    """Have an agent do what a command asks, from the ``responses`` of its script.

    Raises:
        AgentError: The script says so, or its answer cannot be used.
    """
    if agent.engine is None:
        agent.engine = InProcess(agent.name, agent.script, agent.permissions)
    return agent.engine.obey(request)


class InProcess:
    """See the module. It does not wait: what a script says about delays and faults of processes has no effect here."""

    def __init__(self, name: str, script: Script, permissions: Permissions | None = None) -> None:
        self._name = name
        self._permissions = permissions
        self._script = script
        self._sides: dict[str, ScriptedSide] = {}
        self._lines: list[bytes] = []
        self.commands: list[Command] = []

    def obey(self, request: AgentRequest) -> AgentResult:
        """Do what is asked.

        Raises:
            AgentError: The script says so, or its answer cannot be used.
        """
        command = _command(request, self._name)
        self.commands.append(command)
        side = self._sides.get(request.cwd)
        if side is None:
            side = ScriptedSide(
                self._script,
                self,
                SystemClock(),
                name=self._name,
                root=request.cwd,
                heartbeat_s=0,
                permissions=self._permissions,
            )
            self._sides[request.cwd] = side
        self._lines.clear()
        side.line(write_line(command).rstrip(b"\n"))
        while side.next_due() < HANG:
            side.tick()
        return self._judge(request)

    def _judge(self, request: AgentRequest) -> AgentResult:
        messages = [read.message for line in self._lines if isinstance(read := read_line(line.strip()), Line)]
        ends = [message for message in messages if isinstance(message, Event) and message.event in ENDING]
        if not ends:
            raise self._error("agent_exited", "it did not answer")
        event = ends[0]
        if event.event == "error":
            payload = event.payload or {}
            retryable = payload.get("retryable")
            final = retryable if isinstance(retryable, bool) else None
            raise self._error(str(payload.get("code")), str(payload.get("message")), retryable=final)
        problem = check_reply(event)
        if problem:
            raise self._error("invalid_reply", problem)
        verdict = verify_artifacts(request, event.artifacts or [])
        if not isinstance(verdict, list):
            raise self._error(verdict.code, verdict.message)
        return AgentResult(
            event=event,
            artifacts=verdict,
            usage=event.usage or Usage(),
            conversation=conversation_id(request.run_id, request.key),
            attempts=request.attempt,
        )

    def _error(self, code: str, problem: str, *, retryable: bool | None = None) -> AgentError:
        kind = OWN_CODES.get(code) or judge_agent_code(code, retryable=retryable)
        return make_error(code, kind, self._name, problem)

    # Outside.

    def write(self, data: bytes) -> None:
        """See ``Outside.write``."""
        self._lines += [line for line in data.splitlines() if line.strip()]

    def write_stderr(self, data: bytes) -> None:
        """See ``Outside.write_stderr``."""

    def die(self, code: int, by: str = "") -> None:
        """See ``Outside.die``."""
        raise AgentError(self._name, f"it ended ({by or code})")

    def spawn(self, seconds: float, writes: str) -> None:
        """See ``Outside.spawn``."""

    def ignore(self, what: Ignored) -> None:
        """See ``Outside.ignore``."""


def _command(request: AgentRequest, agent: str) -> Command:
    rejected = bool(request.rejected) and request.attempt == 1
    again: Cause = "rejected" if rejected else "first" if request.attempt == 1 else "resend"
    retry = Retry(
        request.attempts_before + request.attempt,
        request.attempts_before + _ATTEMPTS,
        again,
        request.rejected or None,
        request.rejected_because or None,
    )
    # As it would arrive: values without the types that they have in memory.
    inputs = msgspec.json.decode(msgspec.json.encode(request.inputs))
    request = msgspec.structs.replace(request, inputs=inputs)
    deadline_us = int(request.timeout_s * 1e6)
    return make_command(request, agent, retry, message_id=new_message_id(), deadline_us=deadline_us)
