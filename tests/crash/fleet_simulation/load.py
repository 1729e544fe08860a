"""Many nodes and many small runs, of which some hosts die: whether every run ends, and how long a takeover takes."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple
from zlib import crc32

from tests.crash.fleet_simulation.nodes import Fleet, Host, Program
from tests.crash.fleet_simulation.witness import Witness
from tests.crash.fleet_simulation.world import Network, Tables, World

from bartack.journal.shared import Commit

SLOTS = 4
LIMIT_S = 3_600.0


class LoadOutcome(NamedTuple):
    """What became of it.

    Attributes:
        problems: What was wrong.
        over: How many runs have ended.
        taken_over: For each run of a host that died, the seconds until another one worked on it.
        seconds: How long it took, in virtual time.
        events: How much has happened.
    """

    problems: list[str]
    over: int
    taken_over: list[float]
    seconds: float
    events: int


class Load:
    """See the module.

    Args:
        nodes: How many there are, one on each host.
        runs: How many wait for them.
        kills: How many hosts lose power for good.
        seed: Decides the rest.
    """

    def __init__(self, nodes: int, runs: int, kills: int, seed: int = 1) -> None:
        self._world = world = World(seed)
        self._tables = Tables(world, frozenset())
        self._witness = Witness(world, self._tables, lambda host: host.kill())
        fleet = Fleet(world, self._tables, Network(world, self._tables), self._witness, frozenset())
        self._fleet = fleet
        self._hosts = [Host(fleet, f"node-{number}", SLOTS) for number in range(nodes)]
        self._runs = runs
        for host in self._hosts:
            world.after(world.random.uniform(0, 2), host.start)
        self._submit(runs)
        busy_s = runs * 3.0 / (nodes * SLOTS)
        for host in world.random.sample(self._hosts, kills):
            world.after(world.random.uniform(4, 4 + busy_s / 2), partial(self._kill, host))

    def _submit(self, runs: int) -> None:
        random = self._world.random
        first = Commit(1, 1, 1, crc32(b"created\n"), b"created\n")
        for number in range(1, runs + 1):
            self._tables.submit(f"run-{number}", first)
            self._fleet.programs[number] = Program((random.uniform(0.5, 4), random.uniform(0, 1)))
            self._tables.enqueue(number, "default", 0, ())

    def _kill(self, host: Host) -> None:
        if host.node is not None:
            for hub in host.node.hubs.values():
                self._witness.expect_takeover(hub.run.no)
        host.kill(power=True)

    def run(self) -> LoadOutcome:
        """Let it happen, and check what has."""
        self._world.run(LIMIT_S, self._is_over)
        over = sum(self._tables.standing(run).state == "over" for run in range(1, self._runs + 1))
        problems = self._witness.check()
        return LoadOutcome(problems, over, self._witness.taken_over, self._world.now, self._world.events)

    def _is_over(self) -> bool:
        return self._tables.is_over_for(self._runs)
