"""The trees of a parent program stand still: by control groups, where there are some, and one by one."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from bartack.supervision.parent import _holding
from bartack.supervision.parent._holding import HeldTrees
from bartack.supervision.process.cgroup import CgroupTree
from bartack.supervision.process.facts import ProcessFacts
from bartack.supervision.process.system import read_facts

BOUND_S = 60.0


class Groups(CgroupTree):
    """Control groups that are as frozen as the test says.

    Args:
        members: The processes that are in a group.
        can_freeze: Whether the kernel freezes them in time.
    """

    def __init__(self, members: set[int], *, can_freeze: bool = True) -> None:
        super().__init__("/nowhere", -1)
        self._members = members
        self._can_freeze = can_freeze
        self.written: list[str] = []

    def freeze(self) -> None:
        self.written.append("freeze")

    def thaw(self) -> None:
        self.written.append("thaw")

    def is_frozen(self) -> bool:
        return self._can_freeze and self.written[-1:] == ["freeze"]

    def token_of(self, pid: int) -> int | None:
        return 1 if pid in self._members else None


class Family:
    """Two processes that wait: one could be in a control group."""

    def __init__(self) -> None:
        self._started = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
        self.grouped, self.loose = (process.pid for process in self._started)

    def find(self) -> Iterator[ProcessFacts]:
        for process in self._started:
            facts = read_facts(process.pid)
            if facts is not None:
                yield facts

    def stopped(self) -> set[int]:
        return {facts.pid for facts in self.find() if facts.state == "T"}

    def wait_stopped(self, pids: set[int]) -> None:
        until = time.monotonic() + BOUND_S
        while self.stopped() != pids:
            assert time.monotonic() < until, f"{self.stopped()} are stopped, and not {pids}"

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()


@pytest.fixture
def family() -> Iterator[Family]:
    made = Family()
    yield made
    made.close()


def test_groups_are_frozen_and_only_what_is_in_none_is_stopped_one_by_one(family: Family) -> None:
    groups = Groups({family.grouped})
    holding = HeldTrees(family.find, groups)

    holding.hold()
    assert (holding.is_on, groups.written, family.stopped()) == (True, ["freeze"], {family.loose})

    holding.free()
    family.wait_stopped(set())
    assert (holding.is_on, groups.written) == (False, ["freeze", "thaw"])


def test_groups_that_are_not_frozen_in_time_are_stopped_one_by_one(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_holding, "_FREEZE_S", 0.01)
    holding = HeldTrees(family.find, Groups({family.grouped}, can_freeze=False))

    holding.hold()
    assert family.stopped() == {family.grouped, family.loose}

    holding.free()
    family.wait_stopped(set())


def test_what_moves_again_while_everything_stands_still_is_stopped_again(family: Family) -> None:
    holding = HeldTrees(family.find, None)
    holding.hold()
    os.kill(family.loose, signal.SIGCONT)
    family.wait_stopped({family.grouped})

    holding.hold()

    family.wait_stopped({family.grouped, family.loose})
    holding.free()
    family.wait_stopped(set())


def test_the_clock_stands_still_with_the_trees_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    holding = HeldTrees(lambda: iter(()), None)

    def pass_seconds(seconds: float) -> float:
        now[0] += seconds
        return holding.now()

    assert pass_seconds(1) == 101
    holding.hold()
    assert pass_seconds(10) == 101
    holding.hold()
    assert pass_seconds(10) == 101
    holding.free()
    assert pass_seconds(1) == 102
    holding.free()
    holding.hold()
    assert pass_seconds(5) == 102
    holding.free()
    assert holding.now() == 102
