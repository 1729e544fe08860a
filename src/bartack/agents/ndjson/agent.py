"""Agents that speak the line protocol: which process is started, and where both directions are copied to.

What a line means is decided in ``_dialect.py``; calls and processes are in ``program/_agent.py``.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from bartack.agents._permissions import Permissions
from bartack.agents._record import AgentRecord, Link
from bartack.agents.contract import AgentCapabilities, AgentRequest
from bartack.agents.conversation._breaker import Breaker
from bartack.agents.ndjson._dialect import open_line_conversation
from bartack.agents.ndjson._files import CallFiles
from bartack.agents.pauses import Pause
from bartack.agents.process._vitals import Vitals
from bartack.agents.process.process import Host, Launch
from bartack.agents.program._agent import ProgramAgent
from bartack.agents.program.adapter import Surroundings, call_environment, secrets_of, shared_pause
from bartack.agents.program_config import NdjsonConfig
from bartack.agents.protocol.lines import MAX_LINE, BadLine, LineReader, Read
from bartack.agents.protocol.messages import Heartbeat, Hello
from bartack.core import typed
from bartack.core.clock import Clock


class LineAdapter:
    """See ``Adapter``."""

    def __init__(
        self,
        name: str,
        config: NdjsonConfig,
        clock: Clock,
        surroundings: Surroundings,
        *,
        kind: str = "ndjson",
        uniform: Callable[[float, float], float] | None = None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.config = config
        self.clock = clock
        self.surroundings = surroundings
        self.record = AgentRecord(name)
        self.breaker = surroundings.breakers.setdefault(name, Breaker(clock, self._pause(), most=None))
        self.redact = secrets_of(surroundings, config.env)
        self.uniform = uniform

    def _pause(self) -> Pause | None:
        """The pause of all agents with the same command and account. A scripted one has no provider."""
        if self.kind != "ndjson":
            return None
        digest = hashlib.sha256("\0".join(self.config.argv).encode()).hexdigest()[:12]
        agent = f"ndjson-{os.path.basename(self.program)}-{digest}"
        return shared_pause(agent, self.config.env, self.surroundings, self.clock)

    @property
    def capabilities(self) -> AgentCapabilities:
        """See ``Adapter.capabilities``."""
        return AgentCapabilities(schema=False, tools=True, resume=True, budget=True, cost=True, actions=True)

    @property
    def program(self) -> str:
        """See ``Adapter.program``."""
        return self.config.argv[0]

    @property
    def keep_s(self) -> float:
        """See ``Adapter.keep_s``."""
        return self.config.idle_stop_s

    @property
    def env(self) -> Mapping[str, str]:
        """See ``Adapter.env``."""
        return self.config.env

    def check(self, request: AgentRequest) -> None:
        """See ``Adapter.check``: the program says itself what it cannot do."""

    def open_call(self, request: AgentRequest, folder: Path) -> LineCall:
        """See ``Adapter.open_call``."""
        return LineCall(self, request, folder)

    def idle_line(self, link: Link, read: Read) -> None:
        """See ``Adapter.idle_line``: whatever it is, it is too late or too early."""
        if isinstance(read, BadLine):
            return
        link.has_written = True
        if isinstance(read.message, Heartbeat):
            link.take_heartbeat(read.message)
        elif isinstance(read.message, Hello):
            link.take_hello(read.message)


class LineCall:
    """See ``OpenCall``."""

    def __init__(self, adapter: LineAdapter, request: AgentRequest, folder: Path) -> None:
        self._adapter = adapter
        self._request = request
        given = {} if adapter.uniform is None else {"uniform": adapter.uniform}
        self.talk = open_line_conversation(
            adapter.name,
            request,
            adapter.config,
            adapter.surroundings.protocol,
            adapter.record,
            clock=adapter.clock,
            look=Vitals().look,
            breaker=adapter.breaker,
            **given,
        )
        self.folder = folder / self.talk.conversation
        self._files = CallFiles.open(adapter.name, self.folder, adapter.clock, adapter.redact)

    def recover(self) -> Read | None:
        """See ``OpenCall.recover``."""
        return self._files.find_answer(anew=bool(self._request.rejected))

    def launch(self) -> Launch[Read]:
        """See ``OpenCall.launch``."""
        adapter, request = self._adapter, self._request
        config = adapter.config
        env = {
            **config.environment(adapter.surroundings.environ),
            **call_environment(adapter.surroundings, adapter.name, request),
            "BARTACK_PROTOCOL": "1",
            "BARTACK_MAX_LINE": str(MAX_LINE),
            "BARTACK_HEARTBEAT_S": f"{config.heartbeat_s:g}",
        }
        return Launch(config.argv, request.cwd, env, LineReader(adapter.redact))

    def copy_in(self, read: Read, case: str) -> None:
        """See ``OpenCall.copy_in``."""
        self._files.copy_in(read, case)

    def copy_out(self, line: bytes) -> None:
        """See ``OpenCall.copy_out``."""
        self._files.copy_out(line)

    def save(self) -> None:
        """See ``OpenCall.save``: such an agent keeps what it has to in the directory that it is given."""

    def close(self) -> None:
        """See ``OpenCall.close``."""
        self._files.close()


def open_line_agent(
    name: str,
    config: NdjsonConfig,
    host: Host,
    surroundings: Surroundings,
    *,
    kind: str = "ndjson",
    uniform: Callable[[float, float], float] | None = None,
) -> ProgramAgent[Read]:
    """An agent that is a program speaking the line protocol."""
    adapter = LineAdapter(name, config, host.clock, surroundings, kind=kind, uniform=uniform)
    return ProgramAgent(name, adapter, host, surroundings, adapter.redact)


def scripted_argv(python: str, script: str, state: str, permissions: Permissions | None = None) -> list[str]:
    """The command of the scripted agent as a program."""
    argv = [python, "-m", "bartack", "agents", "scripted", "--script", script, "--state", state]
    if permissions is None or permissions == Permissions():
        return argv
    return [*argv, "--permissions", msgspec.json.encode(permissions).decode()]


def program_config(argv: list[str], given: Mapping[str, object] | None = None) -> NdjsonConfig:
    """The settings of a program that speaks the line protocol, where none are given."""
    return typed.convert({"kind": "ndjson", "command": argv, **(given or {})}, type=NdjsonConfig)
