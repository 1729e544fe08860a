"""The loop of a node, with hubs that are not processes; and many random kills of nodes and hubs."""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from tests.unit.node.fake_hubs import FakeHubs

from bartack.core.clock import Clock
from bartack.depot import FileDepot, Job, MemoryDepot, NodeFacts, Schedule, Standing
from bartack.node import Node, Policy, Schedules, choose_slots
from bartack.node._launch import StartOutcome
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
        self,
        look: Callable[[Node], int | None],
        *,
        boot: str = "boot-1",
        idle_s: float | None = 0.0,
        tidy: Callable[[], object] | None = None,
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

        def chores(now_us: int) -> int | None:
            return look(node)

        node = Node(
            self.depot, facts, self.hubs, self.lines.append, idle_s=idle_s, policy=Policy(), clock=clock,
            chores=chores, tidy=tidy,
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
        (0, 4, 3.9, 7),
        (0, 4, 0.5, 1),
        (0, 4, 0.2, 1),
        (0, 1, 64, 2),
        (1, 4, 64, 1),
        (5, 4, 64, 5),
        (5, 4, 2, 5),
        (100, 4, 64, 100),
        (100, 4, None, 100),
    ],
)
def test_slots_are_as_many_as_the_user_says_or_as_processors_and_memory_allow(
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


# What happens to a run outside of the node.


@pytest.mark.requirement("queue-learns-of-ends")
@pytest.mark.parametrize(("outcome", "follows"), [("cancelled", "held"), ("completed", "completed")])
@pytest.mark.parametrize("rests", ["for an answer", "for a time", "held"])
def test_nothing_waits_for_a_run_that_ended_outside_of_the_node(
    tmp_path: Path, outcome: str, follows: str, rests: str
) -> None:
    stage, looks, launched = Stage(), 0, list[str]()
    submit_in(stage, tmp_path, "run-1", use="alone", schedule="nightly")
    submit_in(stage, tmp_path, "run-follows", after=("run-1",))
    stage.depot.put_schedule(
        Schedule(name="nightly", cron="* * * * *", zone="UTC", workspace=str(tmp_path), words=())
    )

    def launch(schedule: Schedule, key: str) -> StartOutcome:
        launched.append(schedule.name)
        stage.depot.remove_schedule("nightly")
        return StartOutcome(run="run-2")

    schedules = Schedules(stage.depot, launch, stage.lines.append)

    def look(node: Node) -> int | None:
        nonlocal looks
        looks += 1
        assert looks < 30
        if looks == 1:
            end_to_rest(stage, "run-1", rests)
        if looks == 3:
            submit_in(stage, tmp_path, "run-works-there", use="alone")
        if looks == 5:
            if rests != "held":
                assert set(stage.states().values()) == {"resting", "queued"}
            assert stage.hubs.started == ["run-1"] or rests == "held"
            stage.hubs.outcomes["run-1"] = outcome
        if looks > 5:
            end_all(stage)(node)
        if looks == 6:
            schedules(stage.clock.now_us())
        return stage.clock.now_us() if looks < 6 else None

    stage.live(look)

    assert stage.states() == {"run-1": outcome, "run-follows": follows, "run-works-there": "completed"}
    assert launched == ["nightly"]
    assert f"run-1 {outcome} outside of this node" in stage.lines
    assert stage.depot.seated() is None


def end_to_rest(stage: Stage, run: str, rests: str) -> None:
    """A hub ends such that only something else than the node continues its run soon."""
    stage.hubs.do_step(run)
    if rests == "held":
        stage.hubs.raising[run] = {"ending"}
    later_us = stage.clock.now_us() + 3600 * 1_000_000
    stop, due_us = ("resting", later_us) if rests == "for a time" else ("waiting", 0)
    stage.hubs.end(run, stop=stop, due_us=due_us)


def submit_in(stage: Stage, place: Path, run: str, **changes: object) -> None:
    job = Job(run=run, path=str(place / "runs" / run), workspace=str(place))
    stage.depot.submit(msgspec.structs.replace(job, **changes), stage.clock.now_us())


@pytest.mark.requirement("queue-learns-of-ends")
def test_a_run_that_is_queued_again_between_the_look_and_the_decision_is_not_settled() -> None:
    stage, looks = Stage(), 0
    stage.submit("run-1")

    class Hasty(FakeHubs):
        def outcome(self, job: Job, since_us: int) -> str:
            stage.submit("run-1")  # a person queues it just now
            return "cancelled"

    stage.hubs = Hasty()

    def look(node: Node) -> int | None:
        nonlocal looks
        looks += 1
        if looks == 1:
            stage.hubs.end("run-1", stop="waiting")
        elif stage.hubs.alive:
            stage.hubs.end("run-1", status="completed")
        return None if stage.states()["run-1"] == "completed" else stage.clock.now_us()

    stage.live(look)

    assert stage.states() == {"run-1": "completed"}
    assert stage.hubs.started == ["run-1", "run-1"]


# A run that makes the node raise.


@pytest.mark.requirement("one-run-cannot-end-the-node")
@pytest.mark.parametrize(
    ("method", "state"),
    [
        ("start", "held"),
        ("ending", "held"),
        ("is_asking", "completed"),
        ("outcome", "completed"),
        ("has_mail", "resting"),
        ("is_gone", "completed"),
    ],
)
def test_whatever_one_run_makes_the_hubs_raise_the_others_are_run(method: str, state: str) -> None:
    stage, looks = Stage(), 0
    stage.hubs.raising["run-1"] = {method}
    for number in range(1, 4):
        stage.submit(f"run-{number}")

    def look(node: Node) -> int | None:
        nonlocal looks
        looks += 1
        if looks == 2 and method in {"outcome", "has_mail"}:
            stage.hubs.end("run-1", stop="waiting")
            stage.hubs.mail["run-1"] = stage.clock.now_us() + 700 * 1_000_000
        if looks > 1:
            end_all(stage)(node)
        stage.clock.advance(700)
        if looks == 20:
            node.stop()
        return None if set(stage.states().values()) <= {"completed", "held"} else stage.clock.now_us()

    stage.live(look)

    assert stage.states() == {"run-1": state, "run-2": "completed", "run-3": "completed"}
    assert len([line for line in stage.lines if "internal error, ValueError" in line]) == 1
    standing = stage.depot.find("run-1")
    assert standing is not None
    if state == "held":
        assert standing.reason == f"internal error, ValueError: {method} of run-1"


@pytest.mark.requirement("one-run-cannot-end-the-node")
@pytest.mark.parametrize("method", ["find", "ending"])
def test_a_run_of_an_earlier_node_that_cannot_be_taken_over_ends_nothing(method: str) -> None:
    stage = Stage()
    stage.submit("run-1")
    stage.submit("run-2")

    def die(node: Node) -> int | None:
        for run in list(stage.hubs.alive):
            stage.hubs.end(run)
        raise KilledError

    stage.live(die)
    stage.hubs.raising["run-1"] = {method}

    def look(node: Node) -> int | None:
        stage.clock.advance(5)
        return end_all(stage)(node)

    stage.live(look)

    assert stage.states() == {"run-1": "held" if method == "ending" else "completed", "run-2": "completed"}


@pytest.mark.requirement("one-run-cannot-end-the-node")
def test_a_hub_that_cannot_be_stopped_keeps_no_other_from_its_order_to_stop() -> None:
    stage = Stage()
    stage.submit("run-1")
    stage.submit("run-2")
    stage.hubs.raising["run-1"] = {"terminate"}

    def stop(node: Node) -> int | None:
        node.stop()
        stage.hubs.end("run-1")  # it is gone just then
        return stage.clock.now_us()

    stage.live(stop)

    assert stage.states() == {"run-1": "queued", "run-2": "queued"}
    assert not stage.hubs.alive
    assert "run-1: internal error, ValueError: terminate of run-1" in stage.lines


@pytest.mark.requirement("one-run-cannot-end-the-node")
def test_a_full_queue_leaves_a_run_with_an_answer_where_it_is_until_there_is_room() -> None:
    stage, looks = Stage(), 0
    stage.depot = MemoryDepot(most=1)
    stage.submit("run-1")

    def look(node: Node) -> int | None:
        nonlocal looks
        looks += 1
        if looks == 1:
            stage.hubs.end("run-1", stop="waiting")
        if looks == 2:
            stage.hubs.mail["run-1"] = stage.clock.now_us()
            stage.submit("run-2")
        if looks > 4:
            end_all(stage)(node)
        return None if set(stage.states().values()) == {"completed"} else stage.clock.now_us()

    stage.live(look)

    assert set(stage.states().values()) == {"completed"}
    refused = [line for line in stage.lines if "it is not resumed yet: the queue holds 1 runs" in line]
    assert len(refused) == 1


@pytest.mark.requirement("one-run-cannot-end-the-node")
def test_a_reason_that_names_a_file_of_any_bytes_can_be_kept(tmp_path: Path) -> None:
    stage = Stage()
    stage.depot = FileDepot(tmp_path / "depot")  # type: ignore[assignment]  # - the same contract
    stage.hubs.problems["run-1"] = "caf\udce9: it cannot be read"
    stage.submit("run-1")

    stage.live(lambda node: None)

    standing = stage.depot.find("run-1")
    assert standing is not None
    assert (standing.state, standing.reason) == ("held", "caf?: it cannot be read")


# A node that lives for months.


@pytest.mark.requirement("nodes-live-for-months")
def test_a_node_that_never_ends_forgets_and_tidies_once_a_day() -> None:
    stage, looks, tidied = Stage(), 0, list[int]()
    stage.submit("run-1")
    began_us = stage.clock.now_us()

    def look(node: Node) -> int | None:
        nonlocal looks
        looks += 1
        end_all(stage)(node)
        stage.clock.advance(6 * 3600)
        if looks == 4 * 32:
            node.stop()
        return stage.clock.now_us()

    stage.live(look, tidy=lambda: tidied.append(stage.clock.now_us()))

    day_us = 24 * 3600 * 1_000_000
    assert [(at_us - began_us) // day_us for at_us in tidied] == list(range(32))
    assert stage.states() == {}


@pytest.mark.requirement("nodes-live-for-months")
def test_a_clock_that_is_set_back_does_not_put_off_the_tidying() -> None:
    stage, looks, tidied = Stage(), 0, list[int]()

    def look(node: Node) -> int | None:
        nonlocal looks
        looks += 1
        if looks == 2:
            stage.clock.set_back(30 * 24 * 3600)
        if looks == 4:
            node.stop()
        return stage.clock.now_us()

    stage.live(look, tidy=lambda: tidied.append(looks))

    assert tidied == [0, 2]


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
