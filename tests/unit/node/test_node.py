"""The loop of a node, with hubs that are not processes; and many random kills of nodes and hubs."""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import pytest
from tests.unit.node.fake_hubs import FakeHubs

from bartack.core.clock import Clock
from bartack.depot import Job, MemoryDepot, NodeFacts, Standing
from bartack.node import Node, Policy, choose_slots
from bartack.testing import VirtualClock

KILLS = 500


class KilledError(Exception):
    """The node is gone, as if it had been killed."""


class Stage:
    """A depot, hubs, and nodes that are driven from the chores that they do at every look."""

    def __init__(self, slots: int = 2) -> None:
        self.depot = MemoryDepot()
        self.hubs = FakeHubs()
        self.clock = VirtualClock()
        self.slots = slots
        self.lines: list[str] = []
        self.lives = 0

    def submit(self, run: str) -> None:
        self.depot.submit(Job(run=run, path=run, workspace="w"), self.clock.now_us())

    def live(
        self, look: Callable[[Node], int | None], *, boot: str = "boot-1", idle_s: float | None = 0.0
    ) -> Node:
        """One life of a node; ``look`` is called at every look and says when to look again."""
        self.lives += 1
        facts = NodeFacts(
            id=f"node-{self.lives}-{boot[:8].replace('-', '')}",
            pid=1,
            boot=boot,
            version="1",
            slots=self.slots,
        )
        clock: Clock = self.clock
        node = Node(
            self.depot, facts, self.hubs, self.lines.append, idle_s=idle_s, policy=Policy(), clock=clock,
            chores=lambda now_us: look(node),
        )  # fmt: skip
        try:
            node.run()
        except KilledError:
            self.depot.leave_seat()
        return node

    def states(self) -> dict[str, str]:
        return {one.job.run: one.outcome or one.state for one in self.depot.standings()}


def end_all(stage: Stage) -> Callable[[Node], int | None]:
    def look(node: Node) -> int | None:
        for run in list(stage.hubs.alive):
            stage.hubs.end(run, status="completed")
        return None

    return look


@pytest.mark.parametrize(
    ("most", "processors", "memory_gib", "slots"),
    [
        (0, 4, None, 8),
        (0, 4, 64, 8),
        (0, 4, 3.9, 3),
        (0, 4, 0.5, 1),
        (0, 1, 64, 2),
        (1, 4, 64, 1),
        (5, 4, 64, 5),
        (5, 4, 2, 2),
        (100, 4, 64, 8),
        (100, 4, None, 8),
    ],
)
def test_slots_are_limited_by_processors_memory_and_the_user(
    most: int, processors: int, memory_gib: float | None, slots: int
) -> None:
    memory = None if memory_gib is None else int(memory_gib * 2**30)

    assert choose_slots(most, processors, memory) == slots


def test_queued_runs_are_run_up_to_the_slots_and_the_node_ends_when_nothing_is_left() -> None:
    stage = Stage(slots=2)
    for number in range(5):
        stage.submit(f"run-{number}")

    stage.live(end_all(stage))

    assert set(stage.states().values()) == {"completed"}
    assert sorted(stage.hubs.started) == [f"run-{number}" for number in range(5)]
    assert stage.hubs.most_at_once == 2


def test_a_run_that_waits_for_a_person_uses_no_slot() -> None:
    stage = Stage(slots=1)
    stage.submit("run-1")
    stage.hubs.asking.add("run-1")
    stage.submit("run-2")
    looks: list[set[str]] = []

    def look(node: Node) -> int | None:
        looks.append(set(stage.hubs.alive))
        if len(looks) == 3:
            node.stop()
        return stage.clock.now_us()

    stage.live(look)

    assert {"run-1", "run-2"} in looks


def test_a_stopped_node_stops_its_runs_and_the_next_one_resumes_them() -> None:
    stage = Stage()
    stage.submit("run-1")

    def stop(node: Node) -> int | None:
        node.stop()
        return stage.clock.now_us()

    stage.live(stop)
    assert stage.states() == {"run-1": "queued"}
    assert not stage.hubs.alive

    stage.live(end_all(stage))
    assert stage.states() == {"run-1": "completed"}


def test_a_killed_node_leaves_its_hubs_and_the_next_one_watches_them() -> None:
    stage = Stage()
    stage.submit("run-1")

    def die(node: Node) -> int | None:
        raise KilledError

    stage.live(die)
    assert stage.states() == {"run-1": "owned"}
    assert list(stage.hubs.alive) == ["run-1"]

    stage.live(end_all(stage))
    assert stage.states() == {"run-1": "completed"}
    assert stage.hubs.started == ["run-1"]


@pytest.mark.parametrize(("boot", "strikes"), [("boot-1", 1), ("reboot-2", 0)])
def test_after_a_reboot_everything_goes_on_and_nobody_is_blamed(boot: str, strikes: int) -> None:
    stage = Stage()
    stage.submit("run-1")

    def all_die(node: Node) -> int | None:
        stage.hubs.end("run-1")
        raise KilledError

    def stop(node: Node) -> int | None:
        node.stop()
        return stage.clock.now_us()

    stage.live(all_die)
    stage.live(stop, boot=boot)

    standing = stage.depot.find("run-1")
    assert standing is not None
    assert (standing.state, standing.strikes) == ("queued", strikes)


@pytest.mark.requirement("resting-runs-cost-nothing")
def test_a_run_that_rests_is_woken_at_its_time_and_the_node_stays_for_it() -> None:
    stage, looks = Stage(), list[tuple[int, tuple[str, ...]]]()
    due_us = stage.clock.now_us() + 3600 * 1_000_000
    stage.submit("run-1")

    def look(node: Node) -> int | None:
        alive = tuple(stage.hubs.alive)
        looks.append((stage.clock.now_us(), alive))
        if alive and len(looks) == 1:
            stage.hubs.end("run-1", stop="resting", due_us=due_us)
        elif alive:
            stage.hubs.end("run-1", status="completed")
        stage.clock.advance(600)
        return None if stage.states()["run-1"] == "completed" else stage.clock.now_us()

    stage.live(look)

    assert stage.states() == {"run-1": "completed"}
    assert [now_us >= due_us for now_us, alive in looks if alive] == [False, True]
    assert "run-1 rests for 3000 s: timer of main" in stage.lines


@pytest.mark.requirement("resting-runs-cost-nothing")
@pytest.mark.parametrize("late_s", [-5, 20])
def test_a_run_that_rests_is_woken_by_what_is_left_for_it_also_while_its_hub_stopped(late_s: int) -> None:
    stage, looks = Stage(), 0
    stage.submit("run-1")
    stopped_us = stage.clock.now_us()

    def look(node: Node) -> int | None:
        nonlocal looks
        looks += 1
        if looks == 1:
            stage.hubs.end("run-1", stop="waiting")
        if looks == 3:
            assert stage.states() == {"run-1": "resting"}
            stage.hubs.mail["run-1"] = stopped_us + late_s * 1_000_000
        if looks > 3 and stage.hubs.alive:
            stage.hubs.end("run-1", status="completed")
        return None if stage.states()["run-1"] == "completed" else stage.clock.now_us()

    stage.live(look)

    assert stage.states() == {"run-1": "completed"}
    assert stage.hubs.started == ["run-1", "run-1"]


def test_what_was_left_long_before_a_run_rested_does_not_wake_it_again_and_again() -> None:
    stage, looks = Stage(), 0
    stage.clock.advance(100)
    stage.submit("run-1")
    stage.hubs.mail["run-1"] = stage.clock.now_us() - 60 * 1_000_000

    def look(node: Node) -> int | None:
        nonlocal looks
        looks += 1
        if looks == 1:
            stage.hubs.end("run-1", stop="waiting")
        if looks == 5:
            node.stop()
        return stage.clock.now_us()

    stage.live(look)

    assert stage.hubs.started == ["run-1"]


@pytest.mark.parametrize("hours", [-24, 24])
def test_a_clock_that_is_set_between_two_looks_neither_stops_nor_doubles_anything(hours: int) -> None:
    stage, looks = Stage(), 0
    for number in range(3):
        stage.submit(f"run-{number}")

    def look(node: Node) -> int | None:
        nonlocal looks
        looks += 1
        for run in list(stage.hubs.alive):
            stage.hubs.do_step(run)
            stage.hubs.end(run, status="completed" if stage.hubs.steps[run] == 2 else "interrupted")
        stage.clock.set_back(-hours * 3600)
        assert looks < 20
        return None if set(stage.states().values()) == {"completed"} else stage.clock.now_us()

    stage.live(look)

    assert set(stage.states().values()) == {"completed"}
    assert sorted(stage.hubs.executed) == [
        (f"run-{number}", step) for number in range(3) for step in range(2)
    ]


class FullDepot(MemoryDepot):
    """A depot whose disk is full at random moments: nothing, or only the first of several changes, is written."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance
        self.troubles = 0

    def _put(self, standing: Standing) -> Standing:
        if standing.state != "queued" and self._chance.random() < 0.4:
            self.troubles += 1
            raise OSError(errno.ENOSPC, "full")
        return super()._put(standing)


@pytest.mark.requirement("detached-runs-outlive-everything")
def test_a_queue_whose_disk_is_full_loses_no_run_and_starts_none_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bartack.node._node.TROUBLE_S", 0.0)
    chance, stage = random.Random(11), Stage(slots=3)
    stage.depot = depot = FullDepot(chance)
    for number in range(30):
        stage.submit(f"run-{number}")

    def look(node: Node) -> int | None:
        for run in list(stage.hubs.alive):
            if stage.hubs.steps.get(run, 0) == 3:
                stage.hubs.end(run, status="completed")
            else:
                stage.hubs.do_step(run)
        stage.clock.advance(700)
        return None if set(stage.states().values()) == {"completed"} else stage.clock.now_us()

    for _ in range(50):  # a node may find its disk full while it takes over, and ends
        with suppress(OSError):
            stage.live(look)
        stage.depot.leave_seat()
        for one in depot.standings():
            if one.state == "held":
                depot.submit(one.job, stage.clock.now_us())

    assert depot.troubles > 20
    assert set(stage.states().values()) == {"completed"}
    assert sorted(stage.hubs.executed) == sorted(
        (f"run-{number}", step) for number in range(30) for step in range(3)
    )
    assert any("the queue cannot be written: full" in line for line in stage.lines)


def test_a_run_that_cannot_be_started_is_held_and_the_others_go_on() -> None:
    stage = Stage()
    stage.hubs.problems["run-1"] = "BT368: its workspace is gone"
    stage.submit("run-1")
    stage.submit("run-2")

    stage.live(end_all(stage))

    assert stage.states() == {"run-1": "held", "run-2": "completed"}
    assert "run-1 is held: BT368: its workspace is gone" in stage.lines


@pytest.mark.parametrize("seed", range(5))
def test_random_kills_of_nodes_and_hubs_lose_nothing_and_do_nothing_twice(
    seed: int, record_property: Callable[[str, object], None]
) -> None:
    """A step may be executed and not recorded when its hub is killed; what is recorded is never executed again."""
    chance, stage, kills = random.Random(seed), Stage(slots=3), 0
    unrecorded = Counter[tuple[str, int]]()
    wanted = {f"run-{number}": chance.randint(15, 25) for number in range(8)}
    for run in wanted:
        stage.submit(run)

    def look(node: Node) -> int | None:
        nonlocal kills
        for run in list(stage.hubs.alive):
            if stage.hubs.steps.get(run, 0) >= wanted[run]:
                stage.hubs.end(run, status="completed")
            elif chance.random() < 0.4:
                stage.hubs.do_step(run)
            elif kills < KILLS // 5 and chance.random() < 0.6:
                kills += 1
                unrecorded.update(stage.hubs.kill(run, in_step=chance.random() < 0.5))
        if kills < KILLS // 5 and chance.random() < 0.3:
            kills += 1
            raise KilledError
        stage.clock.advance(700)
        is_over = set(stage.states().values()) <= {"completed", "held"}
        return None if is_over else stage.clock.now_us()

    for _ in range(10_000):
        stage.live(look, boot=chance.choice(["boot-1", "reboot-2"]))
        for one in stage.depot.standings():
            if one.state == "held":  # a person looks at it, and queues it again
                stage.depot.submit(one.job, stage.clock.now_us())
        if set(stage.states().values()) == {"completed"}:
            break

    assert set(stage.states().values()) == {"completed"}
    assert kills == KILLS // 5
    assert len(unrecorded) > 5
    assert Counter(stage.hubs.executed) - unrecorded == Counter(
        (run, step) for run, steps in wanted.items() for step in range(steps)
    )
    record_property("simulated_node_kills", kills)
