"""A loop with a real keeper, for tests of agents that are real processes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bartack.agents import (
    Agent,
    AgentEvent,
    AgentQuestion,
    AgentRequest,
    AgentResult,
    Outcome,
    open_agent,
)
from bartack.agents.config import ProtocolConfig
from bartack.agents.ndjson.agent import open_line_agent, program_config
from bartack.agents.program._agent import ProgramAgent
from bartack.agents.program.adapter import Surroundings
from bartack.agents.program_config import AcpConfig
from bartack.agents.protocol.lines import Read
from bartack.core.clock import SystemClock
from bartack.runtime.hub.agents.host import HubHost
from bartack.runtime.hub.poller import READ, open_poller
from bartack.supervision.parent.client import KEEPER, ParentClient
from bartack.supervision.process.tree import find_by_environment, kill_tree

PATIENCE_S = 60.0


def _show_nobody(channel: str, worker: str, text: str) -> None:
    """What agents want people to see is told to the sink of a test as well."""


class Loop:
    """Drives agents until something has happened."""

    def __init__(self, tmp_path: Path) -> None:
        self.root = tmp_path
        self.warnings: list[str] = []
        self.poller = open_poller()
        self.keeper = ParentClient.start(KEEPER, str(tmp_path / "lock.tree"), os.environ, str(tmp_path))
        self._tokens = 0
        self.host = HubHost(self.poller, lambda: self.keeper, self._new_token, _show_nobody, SystemClock())
        self.agents: list[Agent] = []
        self.poller.register(self.keeper, READ, self._events)

    def _new_token(self) -> int:
        self._tokens += 1
        return self._tokens

    def _events(self, events: int) -> None:
        for event in self.keeper.read_events():
            self.host.event(event)

    def agent(self, argv: list[str], **config: object) -> ProgramAgent[Read]:
        """An agent with this command. Its waits are short."""
        settings = program_config(argv, {"backoff_initial_s": 0.01, **config})
        around = Surroundings(
            run={"BARTACK_RUN": "run-20260301-101500-0badcafe", "BARTACK_RUN_DIR": str(self.root)},
            folder=self.root / "agents",
            environ=dict(os.environ),
            protocol=ProtocolConfig(suspect_grace_s=0.2),
        )
        agent = open_line_agent("stub", settings, self.host, around)
        self.agents.append(agent)
        return agent

    def acp(
        self,
        argv: list[str],
        environ: dict[str, str] | None = None,
        *,
        travels: bool = False,
        **config: object,
    ) -> Agent:
        """An agent that speaks ACP, with this command. Its waits are short."""
        given = {"kind": "acp", "command": argv, "backoff_initial_s": 0.01, **config}
        around = Surroundings(
            run={"BARTACK_RUN": "run-20260301-101500-0badcafe", "BARTACK_RUN_DIR": str(self.root)},
            folder=self.root / "agents",
            environ=dict(os.environ) if environ is None else environ,
            travels=travels,
        )
        agent = open_agent("stub", msgspec.convert(given, type=AcpConfig), self.host, around)
        self.agents.append(agent)
        return agent

    def scripted(self, script: Path, *more: str, **config: object) -> ProgramAgent[Read]:
        """The scripted agent as a program."""
        argv = [sys.executable, "-m", "bartack", "agents", "scripted", "--script", str(script), *more]
        return self.agent(argv, **config)

    def ask(self, agent: Agent, request: AgentRequest) -> Outcome:
        """Ask, and wait for the outcome."""
        sink = Sink()
        agent.start(request, sink)
        self.until(lambda: bool(sink.outcomes))
        self.warnings += sink.warnings
        return sink.outcomes[0]

    def result(self, agent: Agent, request: AgentRequest) -> AgentResult:
        outcome = self.ask(agent, request)
        assert isinstance(outcome, AgentResult), outcome
        return outcome

    def until(self, done: Callable[[], bool]) -> None:
        """Go on until something is so."""
        end = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < end, "it takes too long"
            dues = [due for agent in self.agents if (due := agent.next_due()) is not None]
            wait = min(max(min(dues) - time.monotonic(), 0.0), 1.0) if dues else 1.0
            for call, events in self.poller.wait(wait):
                call(events)
            for agent in self.agents:
                agent.tick()


class Sink:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.events: list[AgentEvent] = []
        self.warnings: list[str] = []
        self.outcomes: list[Outcome] = []

    def emit(self, event: AgentEvent) -> None:
        self.events.append(event)

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def call_tool(self, call_id: str, name: str, arguments: dict[str, object]) -> None:
        raise AssertionError("nobody offered a tool")

    def ask(self, question: AgentQuestion) -> None:
        raise AssertionError("nobody is there to be asked")

    def withdraw(self, question_id: str) -> None:
        raise AssertionError("nobody was asked")

    def done(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


@contextmanager
def open_loop(tmp_path: Path) -> Generator[Loop]:
    loop = Loop(tmp_path)
    try:
        yield loop
    finally:
        for agent in loop.agents:
            agent.close()
        loop.keeper.close()
        kill_tree(*(facts.id for facts in find_by_environment("BARTACK_RUN_DIR", str(tmp_path))))
        loop.poller.close()
