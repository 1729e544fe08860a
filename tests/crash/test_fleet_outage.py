"""A database that is away for half a minute, with the lease that nodes have by default: runs pause, and nothing else happens."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from tests.crash.test_fleet import LIMIT_S, Fleet, below, command_of
from tests.postgres import cluster
from tests.waiting import until

from bartack import Run

PROGRAMS = Path(__file__).with_name("programs")
PROGRAM = PROGRAMS / "outage.py"
AWAY_S = 30.0
NODES = ("one", "two")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes as Linux shows them")


class Result(msgspec.Struct):
    """What a run returns."""

    text: str
    reply: str
    sent: int
    received: list[int]


class Paused(Fleet):
    """Two nodes with a run each, which have a command and a prompt in flight until the gate opens.

    Args:
        folder: Where all of it is.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.place = folder
        self._followers: list[subprocess.Popen[bytes]] = []
        os.mkfifo(folder / "gate")
        self._gate = os.open(folder / "gate", os.O_RDWR)
        command = [sys.executable, str(PROGRAMS / "gated_agent.py"), str(folder)]
        settings = f'[agents.gated]\nkind = "ndjson"\ncommand = {json.dumps(command)}\n'
        (self._workspace / PROGRAM.name).write_bytes(PROGRAM.read_bytes())
        (self._workspace / "bartack.toml").write_text(settings, encoding="utf-8")

    def follow(self) -> subprocess.Popen[bytes]:
        """Submit a run and follow it."""
        made = self.start("run", "--on", self.url, PROGRAM.name, str(self.place))
        self._followers.append(made)
        return made

    def begun(self) -> list[str]:
        """A line for each execution of a command and of a prompt."""
        file = self.place / "begun"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []

    def entries(self) -> list[int]:
        """How many entries each run has."""
        rows = self.rows("SELECT max(last) FROM bartack.journal GROUP BY run ORDER BY run")
        return [int(str(last)) for (last,) in rows]

    def grows(self) -> Callable[[], bool]:
        """Whether each run has more entries than now, as a function to ask again and again."""
        before = self.entries()
        return lambda: all(now > then + 4 for now, then in zip(self.entries(), before, strict=True))

    def ownership(self) -> list[tuple[object, ...]]:
        """Who owns the runs, and what has ever happened to owners and nodes."""
        return [
            *self.rows("SELECT run, node, fence, state, strikes FROM bartack.owner ORDER BY run"),
            *self.rows("SELECT id, name, state FROM bartack.node ORDER BY id"),
        ]

    def processes(self) -> set[int]:
        """The hubs and everything below them that is still there after some messages: programs that look at files come and go."""
        before = self._processes()
        until(self.grows(), "messages of each run")
        found = before & self._processes()
        commands = [command_of(pid) for pid in found]
        assert sum(command.startswith("cat ") for command in commands) == len(NODES), commands
        assert sum("gated_agent.py" in command for command in commands) >= len(NODES), commands
        return found

    def _processes(self) -> set[int]:
        return {pid for hub in self.hub_pids() for pid in (hub, *below(hub))}

    def open_gate(self) -> None:
        """Let the commands and prompts in flight end. One that begins after this would wait for ever."""
        if self._gate >= 0:
            os.close(self._gate)
            self._gate = -1

    def close(self) -> None:
        """See ``Fleet``."""
        self.open_gate()
        super().close()
        for follower in self._followers:
            follower.kill()
            follower.wait(LIMIT_S)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Paused]:
    made = Paused(tmp_path)
    yield made
    made.close()


class Alive:
    """Processes that are not to end.

    Args:
        pids: Which ones.
        stack: Closes what refers to them.
    """

    def __init__(self, pids: set[int], stack: ExitStack) -> None:
        self._poll = select.poll()
        self._names: dict[int, str] = {}
        for pid in pids:
            fd = os.pidfd_open(pid)
            stack.callback(os.close, fd)
            self._names[fd] = f"{pid} {command_of(pid)}"
            self._poll.register(fd, select.POLLIN)

    def ended(self, until_s: float) -> list[str]:
        """Those that have ended by a moment of the monotonic clock; returns early if one has."""
        left = max(0.0, until_s - time.monotonic())
        return [self._names[fd] for fd, _ in self._poll.poll(left * 1e3)]


@pytest.mark.requirement("fleet-outage")
def test_nothing_but_a_pause_happens_when_the_database_is_away_for_half_a_minute(fleet: Paused) -> None:
    for name in NODES:
        fleet.node(name, "--max-runs", "1", lease="")
    followers = [fleet.follow() for _ in NODES]
    until(lambda: len(fleet.begun()) == 2 * len(NODES), "a command and a prompt of each run")
    leases = fleet.rows("SELECT DISTINCT lease::text FROM bartack.node")
    before, begun, pids = fleet.ownership(), sorted(fleet.begun()), fleet.processes()

    with ExitStack() as stack:
        alive = Alive(pids, stack)
        cluster().stop()
        back_s = time.monotonic() + AWAY_S
        try:
            until(
                lambda: fleet.hub_log().count("everything stands still") == len(NODES), "all to stand still"
            )
            ended = alive.ended(back_s)
        finally:
            cluster().start()
        until(lambda: fleet.hub_log().count("stood still for") == len(NODES), "all to continue")
        until(fleet.grows(), "further messages of each run")

        assert ended + alive.ended(0) == []
    assert leases == [("00:00:05",)], "it is the lease that nodes have by default"
    assert fleet.ownership() == before
    assert len({row[1] for row in before[: len(NODES)]}) == len(NODES), "each node has a run"

    fleet.open_gate()
    assert [follower.wait(LIMIT_S) for follower in followers] == [0] * len(NODES), fleet.output()
    assert sorted(fleet.begun()) == begun, "nothing was executed again"
    for (run_id,) in fleet.rows("SELECT id FROM bartack.run"):
        with Run.open(str(run_id), on=fleet.url) as run:
            result = msgspec.convert(run.result(), Result)
        assert (result.text, result.reply) == ("through", "waited")
        assert result.received == list(range(result.sent))
