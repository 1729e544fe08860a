"""Trees of real processes that stand still, and continue."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest
from tests.unit.supervision.process.tickers import Board

from bartack.supervision.process._hold import HeldTree, free_tree, hold, hold_round
from bartack.supervision.process.facts import ProcessFacts, ProcessId
from bartack.supervision.process.system import read_facts, system
from bartack.supervision.process.tree import descendants, find_trees, kill_tree

BOUND_S = 60.0
PATIENCE_S = 10.0
"""How long a tree may take to stand still on a busy machine."""

MOMENT_S = 0.05
"""In which a process that runs would count on."""

TICKERS = Path(__file__).with_name("tickers.py")


def hold_tree(*roots: ProcessId, timeout_s: float) -> HeldTree:
    """Stop processes and everything below them."""
    held = HeldTree(find_trees(roots))
    hold(held, timeout_s)
    return held


class Tree:
    """Processes that count as long as they run."""

    def __init__(self, path: Path, shape: str, size: int) -> None:
        self.board = Board(str(path))
        words = [sys.executable, "-I", "-S", str(TICKERS), str(path), shape, str(size)]
        self.root = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert self.root.stdout is not None
        self._output = self.root.stdout.fileno()
        self._text = b""

    @property
    def id(self) -> ProcessId:
        facts = read_facts(self.root.pid)
        assert facts is not None
        return facts.id

    def wait(self, count: int) -> list[int]:
        """The processes that have begun to count, when there are so many."""
        until = time.monotonic() + BOUND_S
        while self._text.count(b"\n") < count:
            ready, _, _ = select.select([self._output], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"only {self._text!r}"
            self._text += os.read(self._output, 65536)
        return [int(line) for line in self._text.split()]

    def members(self) -> list[ProcessFacts]:
        found = [facts for facts in descendants(self.root.pid) if not facts.dead]
        own = read_facts(self.root.pid)
        return found if own is None else [own, *found]

    def close(self) -> None:
        kill_tree(self.id)
        self.root.kill()
        self.root.wait()
        assert self.root.stdout is not None
        self.root.stdout.close()


class Grow(Protocol):
    """Starts a tree."""

    def __call__(self, shape: str, size: int = 0) -> Tree: ...


@pytest.fixture
def grow(tmp_path: Path) -> Iterator[Grow]:
    with ExitStack() as stack:

        def start(shape: str, size: int = 0) -> Tree:
            tree = Tree(tmp_path / shape, shape, size)
            stack.callback(tree.close)
            return tree

        yield start


def let_time_pass(seconds: float = MOMENT_S) -> None:
    """What is tested is that nothing happens meanwhile."""
    select.select([], [], [], seconds)


def stands_still(tree: Tree) -> bool:
    before = (tree.board.counts(), {facts.id for facts in tree.members()})
    let_time_pass()
    return before == (tree.board.counts(), {facts.id for facts in tree.members()})


def wait_moves(tree: Tree, pid: int) -> None:
    """Wait until a process counts."""
    place = pid % len(tree.board.counts())
    before = tree.board.counts()[place]
    until = time.monotonic() + BOUND_S
    while tree.board.counts()[place] == before:
        assert time.monotonic() < until, f"{pid} does not move"
        let_time_pass(0.001)


def states(pids: list[int]) -> set[str]:
    return {facts.state for pid in pids if (facts := read_facts(pid)) is not None}


def test_children_and_grandchildren_in_sessions_of_their_own_stand_still_and_continue(grow: Grow) -> None:
    tree = grow("family", 4)
    pids = tree.wait(9)

    held = hold_tree(tree.id, timeout_s=PATIENCE_S)

    assert held.moving == []
    assert states(pids) == {"T"}
    assert stands_still(tree)
    free_tree(held)
    for pid in pids:
        wait_moves(tree, pid)


def test_a_process_that_others_had_stopped_stays_stopped_when_its_tree_continues(grow: Grow) -> None:
    tree = grow("family", 2)
    pids = tree.wait(5)
    stopped = next(facts.pid for facts in tree.members() if facts.pid != tree.root.pid)
    os.kill(stopped, signal.SIGSTOP)
    wait_state(stopped, "T")

    held = hold_tree(tree.id, timeout_s=PATIENCE_S)
    free_tree(held)

    for pid in pids:
        if pid != stopped:
            wait_moves(tree, pid)
    assert states([stopped]) == {"T"}


def wait_state(pid: int, state: str) -> None:
    until = time.monotonic() + BOUND_S
    while states([pid]) != {state}:
        assert time.monotonic() < until, f"{pid} is never in state {state}"
        let_time_pass(0.001)


@pytest.mark.requirement("held-trees-stand-still")
@pytest.mark.parametrize(("size", "delay_ms"), [(40, 0), (40, 40), (200, 20), (200, 60), (200, 100)])
def test_a_tree_that_multiplies_while_it_is_held_is_caught_and_continues(
    grow: Grow, size: int, delay_ms: int
) -> None:
    tree = grow("bomb", size)
    let_time_pass(delay_ms / 1000)

    held = hold_tree(tree.id, timeout_s=PATIENCE_S)

    assert held.moving == []
    assert stands_still(tree)
    assert {facts.state for facts in tree.members()} <= {"T", "D"}
    free_tree(held)
    tree.wait(size)


def facts_of(pid: int, state: str) -> ProcessFacts:
    return ProcessFacts(pid=pid, ppid=1, group=pid, session=pid, state=state, threads=1, started=1, name="x")


def test_rounds_that_only_find_processes_that_have_just_died_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each starts the next and ends while the list is read, so that a round sees the dead one and misses the living one."""
    root = facts_of(2, "T")
    seen = [
        [facts_of(2, "R")],
        [root, facts_of(3, "Z")],
        [root, facts_of(3, "Z"), facts_of(4, "Z")],
        [root, facts_of(3, "Z"), facts_of(4, "Z"), facts_of(5, "R")],
        [root, facts_of(3, "Z"), facts_of(4, "Z"), facts_of(5, "T")],
    ]
    stopped: list[int] = []

    def send(facts: ProcessFacts, number: int) -> bool:
        stopped.append(facts.pid)
        return True

    monkeypatch.setattr(system, "send_signal", send)
    held = HeldTree(lambda: seen.pop(0) if len(seen) > 1 else seen[0])

    hold(held, PATIENCE_S)

    assert stopped == [2, 5]
    assert held.moving == []


@pytest.mark.skipif(not system.SUBREAPER, reason="orphans do not come to a subreaper here")
@pytest.mark.parametrize("delay_ms", [0, 30, 90])
def test_a_tree_that_runs_away_below_a_subreaper_is_caught_and_continues(grow: Grow, delay_ms: int) -> None:
    tree = grow("fugitive", 300)
    let_time_pass(delay_ms / 1000)

    held = hold_tree(tree.id, timeout_s=PATIENCE_S)

    assert held.moving == []
    assert stands_still(tree)
    free_tree(held)
    wait_moves(tree, tree.wait(1)[0])


def test_a_process_that_another_lets_continue_is_stopped_again_by_the_next_round(grow: Grow) -> None:
    tree = grow("family", 2)
    pids = tree.wait(5)
    held = hold_tree(tree.id, timeout_s=PATIENCE_S)
    os.kill(pids[0], signal.SIGCONT)
    wait_moves(tree, pids[0])

    assert [facts.pid for facts in hold_round(held)] == [pids[0]]
    wait_state(pids[0], "T")
    assert hold_round(held) == []
    assert stands_still(tree)
    free_tree(held)
    wait_moves(tree, pids[0])


def test_a_process_that_was_stopped_and_is_continued_by_others_meanwhile_is_held_and_continues(
    grow: Grow,
) -> None:
    tree = grow("alone")
    (pid,) = tree.wait(1)
    os.kill(pid, signal.SIGSTOP)
    wait_state(pid, "T")
    held = hold_tree(tree.id, timeout_s=PATIENCE_S)
    assert (held.spared, held.stopped) == ({tree.id}, {})
    os.kill(pid, signal.SIGCONT)
    wait_moves(tree, pid)

    hold_round(held)
    wait_state(pid, "T")
    free_tree(held)

    wait_moves(tree, pid)


def test_a_held_tree_can_be_killed(grow: Grow) -> None:
    tree = grow("family", 3)
    pids = tree.wait(7)
    hold_tree(tree.id, timeout_s=PATIENCE_S)

    assert kill_tree(tree.id) == []
    assert all(facts is None or facts.dead for facts in map(read_facts, pids))


def test_a_root_whose_number_was_given_again_is_left_alone(grow: Grow) -> None:
    tree = grow("alone")
    (pid,) = tree.wait(1)
    stale = ProcessId(pid, tree.id.started - 1)

    held = hold_tree(stale, timeout_s=PATIENCE_S)

    assert (held.stopped, held.moving) == ({}, [])
    wait_moves(tree, pid)


def test_what_cannot_be_stopped_is_named_when_the_time_is_over(
    grow: Grow, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = grow("alone")
    (pid,) = tree.wait(1)

    def refuse(facts: ProcessFacts, number: int) -> bool:
        return False

    with monkeypatch.context() as patch:
        patch.setattr(system, "send_signal", refuse)
        held = hold_tree(tree.id, timeout_s=0.02)

    assert [facts.pid for facts in held.moving] == [pid]


def process(pid: int, state: str) -> ProcessFacts:
    return ProcessFacts(pid, 1, pid, pid, state, 1, 7, "x")


def test_a_process_that_the_kernel_keeps_waiting_counts_as_still_when_it_waits_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    signalled: list[int] = []

    def note(facts: ProcessFacts, number: int) -> bool:
        signalled.append(facts.pid)
        return True

    monkeypatch.setattr(system, "send_signal", note)
    held = HeldTree(lambda: [process(5, "D")])

    assert [facts.pid for facts in hold_round(held)] == [5]
    assert hold_round(held) == []
    assert signalled == [5]
