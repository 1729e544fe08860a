"""Every kind of agents keeps the contract: scripted ones, programs of the line protocol, Claude Code, programs that speak ACP."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import pytest

from bartack.agents import Agent, AgentRequest, open_agent
from bartack.agents.config import ProtocolConfig
from bartack.agents.ndjson.agent import program_config, scripted_argv
from bartack.agents.program.adapter import Surroundings
from bartack.agents.program_config import AcpConfig, ClaudeConfig, CodexConfig, ProgramConfig
from bartack.core.clock import SystemClock
from bartack.runtime.hub.agents.host import HubHost
from bartack.runtime.hub.poller import READ, open_poller
from bartack.supervision.parent.client import KEEPER, ParentClient
from bartack.supervision.process.tree import find_by_environment, kill_tree
from bartack.testing import AgentContract, AgentEngine, Behaviour

STUB: Final = Path(__file__).with_name("agent_stub.py")
QUICK: Final[dict[str, object]] = {"retries": 1, "cancel_grace_s": 0.5}
GRACES: Final = (
    "bartack.agents.process.process.EOF_GRACE_S",
    "bartack.agents.process.process.TERM_GRACE_S",
)


@pytest.fixture(autouse=True)
def short_graces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that resists is asked in the same ways and order, but has less time for each of them."""
    for name in GRACES:
        monkeypatch.setattr(name, 0.3)


class _Hub:
    """One loop with its keeper, as a hub has them."""

    def __init__(self, root: Path) -> None:
        self.agents: list[Agent] = []
        self.poller = open_poller()
        self._tokens = 0
        self.keeper = ParentClient.start(KEEPER, str(root / "lock.tree"), os.environ, str(root))
        self.host = HubHost(self.poller, lambda: self.keeper, self._new_token, _show_nothing, SystemClock())
        self.poller.register(self.keeper, READ, self._events)

    def _new_token(self) -> int:
        self._tokens += 1
        return self._tokens

    def _events(self, events: int) -> None:
        for event in self.keeper.read_events():
            self.host.event(event)

    def turn(self, most_s: float) -> None:
        dues = [due for agent in self.agents if (due := agent.next_due()) is not None]
        wait_s = min([most_s, *(due - time.monotonic() for due in dues)])
        for call, events in self.poller.wait(max(wait_s, 0.0)):
            call(events)
        for agent in self.agents:
            agent.tick()

    def close(self) -> None:
        for agent in self.agents:
            agent.close()
        self.keeper.close()
        self.poller.close()


def _show_nothing(channel: str, worker: str, text: str) -> None:
    """Nothing is shown in a test."""


class ProgramEngine(AgentEngine, ABC):
    """Agents that are programs. Each agent has a hub of its own."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="agents-"))
        self._hubs: list[_Hub] = []

    @property
    def behaviours(self) -> frozenset[Behaviour]:
        return frozenset({"replies", "hangs", "exits", "floods", "resists"})

    @abstractmethod
    def settings(self, behaviour: Behaviour) -> ProgramConfig:
        """The settings of an agent that behaves like this."""

    def open(self, behaviour: Behaviour) -> Agent:
        hub = _Hub(self.root)
        around = Surroundings(
            run={"BARTACK_RUN": "run-1", "BARTACK_RUN_DIR": str(self.root)},
            folder=self.root / "agents",
            environ=dict(os.environ),
            protocol=ProtocolConfig(suspect_grace_s=0.2),
        )
        agent = open_agent("stub", self.settings(behaviour), hub.host, around)
        hub.agents.append(agent)
        self._hubs.append(hub)
        return agent

    def request(self, behaviour: Behaviour) -> AgentRequest:
        inputs: dict[str, object] = {"text": behaviour, "iteration": {"epoch": 0, "step": 1}, "context": {}}
        key = "ik:" + hashlib.sha256(f"{self.root} {behaviour}".encode()).hexdigest()
        return AgentRequest(run_id="run-1", key=key, worker="main", inputs=inputs, cwd=str(self.root))

    def counter(self, behaviour: Behaviour) -> Path:
        return self.root / f"{behaviour}.count"

    def asked(self, behaviour: Behaviour) -> int:
        path = self.counter(behaviour)
        return path.stat().st_size if path.exists() else 0

    def processes(self) -> list[int]:
        return [facts.pid for key in self._keys() for facts in find_by_environment("BARTACK_STEP", key)]

    def _keys(self) -> list[str]:
        return [self.request(behaviour).key for behaviour in sorted(self.behaviours)]

    def drive(self, is_over: Callable[[], bool], timeout_s: float) -> bool:
        limit = time.monotonic() + timeout_s
        while not is_over():
            if time.monotonic() >= limit:
                return False
            for hub in self._hubs:
                hub.turn(0.02)
        return True

    def kill(self, agent: Agent) -> None:
        hub = next(hub for hub in self._hubs if agent in hub.agents)
        self._hubs.remove(hub)
        hub.close()
        kill_tree(*(facts.id for facts in find_by_environment("BARTACK_RUN_DIR", str(self.root))))

    def close(self) -> None:
        for hub in self._hubs:
            hub.close()
        kill_tree(*(facts.id for facts in find_by_environment("BARTACK_RUN_DIR", str(self.root))))
        shutil.rmtree(self.root)


class AcpEngine(ProgramEngine):
    def settings(self, behaviour: Behaviour) -> ProgramConfig:
        argv = [sys.executable, str(STUB), "acp", behaviour, str(self.counter(behaviour))]
        return msgspec.convert({"kind": "acp", "command": argv, **QUICK}, type=AcpConfig)


class ClaudeEngine(ProgramEngine):
    def settings(self, behaviour: Behaviour) -> ProgramConfig:
        argv = [sys.executable, str(STUB), "claude", behaviour, str(self.counter(behaviour))]
        return msgspec.convert({"kind": "claude", "command": argv, "home": "run", **QUICK}, type=ClaudeConfig)


class CodexEngine(ProgramEngine):
    def settings(self, behaviour: Behaviour) -> ProgramConfig:
        argv = [sys.executable, str(STUB), "codex", behaviour, str(self.counter(behaviour))]
        return msgspec.convert({"kind": "codex", "command": argv, "home": "run", **QUICK}, type=CodexConfig)


class LineEngine(ProgramEngine):
    def settings(self, behaviour: Behaviour) -> ProgramConfig:
        argv = [sys.executable, str(STUB), "ndjson", behaviour, str(self.counter(behaviour))]
        return program_config(argv, {"keep": False, "heartbeat_s": 0, **QUICK})


class ScriptedEngine(ProgramEngine):
    """The scripted agent as a program. What it has taken is in the file that it writes."""

    _FAULTS: Final[dict[Behaviour, list[dict[str, object]]]] = {
        "replies": [],
        "hangs": [{"do": "hang", "at": "before"}],
        "exits": [{"do": "exit", "code": 0, "at": "before"}],
        "floods": [{"do": "oversize", "instead": True}],
        "resists": [
            {"do": "ignore_term", "at": "start"},
            {"do": "ignore_eof", "at": "start"},
            {"do": "spawn", "at": "before", "seconds": 60},
            {"do": "hang", "at": "before"},
        ],
    }

    def settings(self, behaviour: Behaviour) -> ProgramConfig:
        reply = {
            "write": [{"path": f"{behaviour}.count", "content": ".", "append": True}],
            "inject": [{"times": 99, **fault} for fault in self._FAULTS[behaviour]],
            "events": [{"type": "prompt.completed", "payload": {"text": "hello"}}],
        }
        script = self.root / f"{behaviour}.json"
        script.write_text(json.dumps({"dedupe": False, "responses": {"prompt": reply}}))
        argv = scripted_argv(sys.executable, str(script), str(self.root / f"{behaviour}.state"))
        return program_config(argv, {"keep": False, "heartbeat_s": 0, **QUICK})


class TestAcpAgents(AgentContract):
    def make_engine(self) -> AgentEngine:
        return AcpEngine()


class TestClaudeCode(AgentContract):
    def make_engine(self) -> AgentEngine:
        return ClaudeEngine()


class TestCodex(AgentContract):
    def make_engine(self) -> AgentEngine:
        return CodexEngine()


class TestLineAgents(AgentContract):
    def make_engine(self) -> AgentEngine:
        return LineEngine()


class TestScriptedAgents(AgentContract):
    def make_engine(self) -> AgentEngine:
        return ScriptedEngine()
