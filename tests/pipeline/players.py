"""Agents that are programs, played in this process: everything of the hub's side is real but the processes, and time is virtual.

The hub has real pipes to each of them, and copies what goes over them to real files. It can be killed at any line of the wire.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from bartack.agents.bridge import Bridge
from bartack.agents.config import AgentsConfig
from bartack.agents.process.process import AgentProcess
from bartack.agents.program_config import NdjsonConfig
from bartack.agents.protocol.lines import BadLine, Splitter, read_command
from bartack.agents.protocol.messages import Command
from bartack.agents.scripted._choices import Memory
from bartack.agents.scripted._side import ScriptedSide
from bartack.agents.scripted._writer import HANG, Ignored
from bartack.agents.scripted.scripted import Script, read_script
from bartack.config.load import Config
from bartack.runtime.hub.agents.programs import Programs, Ready
from bartack.runtime.memory.hub import KilledError
from bartack.runtime.memory.run import RUN_ID
from bartack.testing import VirtualClock


class Player:
    """One life of the scripted agent."""

    def __init__(
        self, cast: Cast, owner: AgentProcess[Any], cwd: str, name: str, fds: tuple[int, int, int]
    ) -> None:
        self.owner = owner
        self.number = cast.starts
        self.status: int | None = None
        self._cast = cast
        self._stdin, self._stdout, self._stderr = (os.dup(fd) for fd in fds)
        for fd in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(fd, False)
        self._splitter = Splitter()
        self._ignores: set[Ignored] = set()
        self._memory = cast.folder / f"memory-{name}.json"
        self.side = ScriptedSide(cast.script, self, cast.clock, root=cwd, state=str(self._memory))

    def begin(self) -> None:
        """Introduce itself; one that talks too much gives its last answer once more, which nobody has asked for."""
        self.side.begin()
        if self._cast.echoes and self._memory.exists():
            answers = msgspec.json.decode(self._memory.read_bytes(), type=Memory).answers
            for answer in list(answers.values())[-1:]:
                self.write(bytes(answer) + b"\n")

    def take(self) -> bool:
        """Read what the hub has written; whether it was anything."""
        if self.status is not None or "stdin" in self._ignores:
            return False
        with suppress(BlockingIOError):
            data = os.read(self._stdin, 65_536)
            if not data:
                self._ignores.add("stdin")
                self.status = None if "eof" in self._ignores else 0
                return True
            for line in self._splitter.feed(data):
                self._obey(line)
            return True
        return False

    def _obey(self, line: bytes | BadLine) -> None:
        assert not isinstance(line, BadLine)
        if self.status is None:
            message = read_command(line)
            if isinstance(message, Command):
                self._cast.commands.append(message)
            self.side.line(line)

    def tick(self, now: float) -> bool:
        """Let time pass for it; whether anything was due."""
        if self.status is None and self.side.next_due() <= now:
            self.side.tick()
            return True
        return False

    def close(self) -> None:
        for fd in (self._stdin, self._stdout, self._stderr):
            os.close(fd)

    # Outside.

    def write(self, data: bytes) -> None:
        self._write(self._stdout, data)

    def write_stderr(self, data: bytes) -> None:
        self._write(self._stderr, data)

    def die(self, code: int, by: str = "") -> None:
        self.status = -9 if by else code

    def spawn(self, seconds: float, writes: str) -> None:
        raise AssertionError("nothing can be left behind where there are no processes")

    def ignore(self, what: Ignored) -> None:
        self._ignores.add(what)

    def _write(self, fd: int, data: bytes) -> None:
        """A pipe holds little: the hub reads meanwhile."""
        view = memoryview(data)
        while view and self.status is None:
            try:
                view = view[os.write(fd, view) :]
            except BlockingIOError:
                self._cast.let_hub_read()


class Cast:
    """All agents of a run, over all its hubs; and the loop that they live in."""

    def __init__(self, folder: Path, script: Mapping[str, object], clock: VirtualClock) -> None:
        self.folder = folder
        self.script: Script = read_script(script, "cast")
        self.clock = clock
        self.commands: list[Command] = []
        """Everything that an agent was told and has read."""
        self.shown: list[str] = []
        self.starts = 0
        self.echoes = False
        self.wire = 0
        """How often something went over the wire."""
        self.dies_at: int | None = None
        """The hub is killed then."""
        self._players: list[Player] = []
        self._watched: dict[int, tuple[bool, Callable[[], None]]] = {}
        self._programs: _Programs | None = None

    def play(self, script: Mapping[str, object]) -> None:
        """From the next life on they play another script."""
        self.script = read_script(script, "cast")

    def make_programs(self) -> Programs:
        """The agents for a new hub. Those of the one before are gone with it."""
        self.kill()
        names = ("builder", "reviewer", "spec_maintainer", "orchestration", "general")
        config = msgspec.convert({"kind": "ndjson", "command": ["agent"]}, type=NdjsonConfig)
        self._programs = _Programs(
            Config(agents=AgentsConfig(named=dict.fromkeys(names, config))),
            folder=self.folder / "agents",
            workspace=os.getcwd(),
            environment={"BARTACK_RUN": RUN_ID, "BARTACK_RUN_DIR": str(self.folder)},
        )
        self._programs.cast = self
        self._programs.attach(self)
        return self._programs

    def kill(self) -> None:
        """The hub is gone, and all of them with it."""
        for player in self._players:
            player.close()
        self._players.clear()
        if self._programs is not None:
            self._programs.abandon()
            self._programs = None
        assert not self._watched

    # The loop.

    def go_on(self) -> None:
        """Let everybody do what can be done without time passing."""
        while self._tick() or self._take() or self.let_hub_read() or self._bury():
            pass

    def next_due(self) -> float:
        """When one of them has something to do."""
        return min((player.side.next_due() for player in self._players), default=HANG)

    def let_hub_read(self) -> bool:
        """Let the hub read and write what it can."""
        if not self._watched:
            return False
        reads = [fd for fd, (write, _) in self._watched.items() if not write]
        writes = [fd for fd, (write, _) in self._watched.items() if write]
        ready_reads, ready_writes, _ = select.select(reads, writes, [], 0)
        for fd in [*ready_reads, *ready_writes]:
            if fd in self._watched:
                self._come()
                self._watched[fd][1]()
        return bool(ready_reads or ready_writes)

    def _take(self) -> bool:
        taken = False
        for player in list(self._players):
            if player.take():
                taken = True
                self._come()
        return taken

    def _tick(self) -> bool:
        now = self.clock.monotonic_ns() / 1e9
        ticked = [player.tick(now) for player in list(self._players)]
        return any(ticked)

    def _bury(self) -> bool:
        dead = [player for player in self._players if player.status is not None]
        for player in dead:
            self._players.remove(player)
            player.close()
            player.owner.exited(player.status)
            player.owner.gone()
        return bool(dead)

    def _come(self) -> None:
        self.wire += 1
        if self.wire == self.dies_at:
            raise KilledError

    # Host.

    def start(
        self,
        owner: AgentProcess[Any],
        argv: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
        fds: tuple[int, int, int],
        *,
        relayed: bool = False,
    ) -> int:
        self.starts += 1
        player = Player(self, owner, cwd, env["BARTACK_AGENT"], fds)
        self._players.append(player)
        player.begin()
        return self.starts

    def stop(self, number: int, grace_s: float) -> None:
        for player in self._players:
            if player.number == number and player.status is None:
                player.status = -15

    def sweep(self, number: int) -> None: ...

    def watch(self, fd: int, ready: Callable[[], None], *, write: bool = False) -> None:
        assert fd not in self._watched
        self._watched[fd] = (write, ready)

    def unwatch(self, fd: int) -> None:
        del self._watched[fd]

    def open_bridge(self, on_bytes: Callable[[bytes], None], on_closed: Callable[[], None]) -> Bridge:
        raise AssertionError("no player starts an MCP server")

    @property
    def alive(self) -> bool:
        return bool(self._players)

    def show(self, channel: Literal["note"], worker: str, text: str, /) -> None:
        self.shown.append(text)

    def pump(self, timeout_s: float) -> None:
        self.go_on()


class _Programs(Programs):
    """The programs of one hub: what is due for the agents themselves is due, too."""

    cast: Cast

    def next_in_s(self) -> float | None:
        own = super().next_in_s()
        due = self.cast.next_due()
        if due == HANG:
            return own
        left = max(due - self._now(), 0.0)
        return left if own is None else min(own, left)

    def take_ready(self) -> list[tuple[int, Ready]]:
        self.cast.go_on()
        return super().take_ready()

    def abandon(self) -> None:
        for agent in self._agents.values():
            agent.close()
