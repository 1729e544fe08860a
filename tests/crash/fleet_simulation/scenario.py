"""A scenario: nodes, runs and faults by chance, from a seed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple
from zlib import crc32

from tests.crash.fleet_simulation.nodes import Fleet, Host, Program
from tests.crash.fleet_simulation.witness import Witness
from tests.crash.fleet_simulation.world import Network, Tables, World

from bartack.depot.taken import LEASE_S
from bartack.journal.shared import Commit

FAULTY_S: Final = 40.0
"""How long faults happen; then all is repaired."""
LIMIT_S: Final = 400.0

FLAWS: Final = (
    "append without fence",
    "fence raised at claim only",
    "anybody buries",
    "steady by lateness",
    "hold at the end of the lease",
    "no gap check",
    "resend with new bytes",
    "settle before the commit",
    "copy after the finish",
    "burial resets strikes",
    "steps of the clock",
    "lost beats",
    "late joins",
)


class Outcome(NamedTuple):
    """What became of a scenario.

    Attributes:
        problems: What was wrong.
        seconds: How long it took, in virtual time.
        events: How much has happened.
    """

    problems: list[str]
    seconds: float
    events: int


class Scenario:
    """See the module.

    Args:
        seed: The same seed is the same scenario.
        flaws: Mistakes that are planted.
    """

    def __init__(self, seed: int, flaws: frozenset[str] = frozenset()) -> None:
        self.world = world = World(seed)
        self.tables = Tables(world, flaws)
        self.network = Network(world, self.tables)
        self.witness = Witness(world, self.tables, self._take_down)
        self.fleet = Fleet(world, self.tables, self.network, self.witness, flaws)
        random = world.random
        slots = random.choice((1, 2, 5, 5))
        self.hosts = [Host(self.fleet, f"node-{number}", slots) for number in range(random.randint(2, 4))]
        for host in self.hosts:
            world.after(random.uniform(0, 2), host.start)
        for _ in range(random.randint(5, 12)):
            world.after(random.uniform(0, 25), self._submit)
        faults: list[Callable[[], object]] = [
            *(self._kill, self._lose_power, self._kill_hub, self._stop, self._drain, self._restart_and_lose),
            *(self._cut, self._cut_off, self._cut_off, self._lose_answers, self._lose_answers),
            *(self._outage, self._step_clock, self._step_and_cut, self._step_and_cut, self._crash_and_cut),
            self._restart_and_lose,
        ]
        faults = random.sample(faults, random.randint(1, 2))
        for _ in range(random.randint(3, 10)):
            world.after(random.uniform(2, FAULTY_S), random.choice(faults))
        world.after(FAULTY_S, self._repair)
        self._stepped = 0.0

    def run(self) -> Outcome:
        """Let it happen, and check what has."""
        self.world.run(LIMIT_S, self._is_over)
        self.world.run(self.world.now + 1.0, lambda: False)
        return Outcome(self.witness.check(), self.world.now, self.world.events)

    def _is_over(self) -> bool:
        if self.world.now < FAULTY_S or self.world.events % 16:
            return False
        return all(self.tables.standing(run).state in {"over", "held"} for run in self.fleet.programs)

    # What happens by itself.

    def _submit(self) -> None:
        random = self.world.random
        steps = tuple(random.choice((0.05, 0.3, 3.0, 8.0, 12.0)) for _ in range(random.randint(1, 5)))
        poison = random.randrange(len(steps)) if random.random() < 0.08 else -1
        lines = b"created\n"
        number = self.tables.submit(
            f"run-{len(self.fleet.programs)}", Commit(1, 1, 1, crc32(lines, 0), lines)
        )
        self.fleet.programs[number] = Program(steps, poison)
        self.tables.enqueue(number, "default", 0, ())
        for _ in range(random.randint(0, 5)):
            self.world.after(random.uniform(0, 20), partial(self._ask, number))

    def _ask(self, run: int) -> None:
        self.tables.requests[len(self.tables.requests) + 1] = [run, 0]

    def _take_down(self, host: Host) -> None:
        host.kill()
        self._start_later(host)

    def _start_later(self, host: Host) -> None:
        self.world.after(self.world.random.uniform(0.5, 8), host.start)

    # Faults.

    def _host(self) -> Host:
        return self.world.random.choice(self.hosts)

    def _kill(self) -> None:
        self._take_down(self._host())

    def _lose_power(self) -> None:
        host = self._host()
        host.kill(power=True)
        self._start_later(host)

    def _cut(self) -> None:
        link = self._host().link
        link.is_cut, link.is_silent = True, self.world.random.random() < 0.5
        self.world.after(self.world.random.uniform(0.5, 20), partial(self._mend, link))

    def _cut_off(self) -> None:
        """For so long that its runs are taken over."""
        link = self._host().link
        link.is_cut = True
        self.world.after(self.world.random.uniform(7, 12), partial(self._mend, link))

    def _mend(self, link: object) -> None:
        for host in self.hosts:
            if host.link is link:
                host.link.is_cut = False

    def _stop(self) -> None:
        node = self._host().node
        if node is not None and not node.is_stopped:
            node.stop()
            random = self.world.random
            self.world.after(random.choice((random.uniform(0.2, 15), random.uniform(5, 8))), node.wake)

    def _drain(self) -> None:
        host = self._host()
        if host.node is not None:
            host.node.signals += 1
            self._start_later(host)

    def _lose_answers(self) -> None:
        random = self.world.random
        for host in self.hosts:
            host.link.losing, host.link.dropping, host.link.late = 0.2, 0.2, 0.2
        self.world.after(random.uniform(1, 10), self._lose_none)
        for run in self.fleet.programs:
            self.world.after(random.uniform(0, 3), partial(self._ask, run))
        for _ in range(random.randint(0, 4)):
            self.world.after(random.uniform(0, 4), self._restart)

    def _restart(self) -> None:
        host = self._host()
        host.kill()
        self.world.after(0.5, host.start)

    def _restart_and_lose(self) -> None:
        """Requests to join, and the first ones after that, arrive late."""
        self._lose_answers()
        self._restart()

    def _lose_none(self) -> None:
        for host in self.hosts:
            host.link.losing = host.link.dropping = host.link.late = 0.0

    def _outage(self, seconds: float | None = None) -> None:
        if not self.network.is_up:
            return
        self.network.is_up = False
        self.tables.crash()
        random = self.world.random
        if random.random() < 0.3:
            run = random.randint(1, max(len(self.fleet.programs), 1))
            if run in self.fleet.programs:
                self.tables.forget_last(run)
        seconds = seconds or random.choice((0.1, 1.0, 4.4, random.uniform(1, 25)))
        self.world.after(seconds, self._recover)

    def _recover(self) -> None:
        self.network.is_up = True
        self.tables.start()

    def _step_clock(self) -> None:
        random = self.world.random
        if self.world.now < self._stepped + LEASE_S:
            return  # no rule can see one step back and one ahead between two beats
        self._stepped = self.world.now
        self.tables.offset_s += random.choice((-10.0, -1.0, 0.4, 0.8, 1.3, 1.3, 1.3, 10.0))

    def _step_and_cut(self) -> None:
        self._cut_off()
        self.world.after(self.world.random.uniform(0, 3), self._step_clock)

    def _crash_and_cut(self) -> None:
        """The database loses the last beat of a host, which is cut off from then on."""
        host = self._host()
        if host.node is not None:
            host.node.after_beat = partial(self._cut_and_crash, host)

    def _cut_and_crash(self, host: Host) -> None:
        host.link.is_cut = True
        self.world.after(self.world.random.uniform(7, 12), partial(self._mend, host.link))
        self.world.after(self.world.random.uniform(0, 0.3), partial(self._outage, 0.1))

    def _kill_hub(self) -> None:
        node = self._host().node
        if node is not None and node.hubs:
            self.world.random.choice([*node.hubs.values()]).die()

    def _repair(self) -> None:
        self._lose_none()
        for host in self.hosts:
            host.link.is_cut = False
            self._start_later(host)
