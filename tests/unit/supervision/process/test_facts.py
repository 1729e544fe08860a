from __future__ import annotations

import pytest

from bartack.supervision.process.facts import ProcessFacts, ProcessId


def facts(state: str, threads: int = 1) -> ProcessFacts:
    return ProcessFacts(7, 1, 7, 7, state, threads, 99, "made-up")


@pytest.mark.parametrize(
    ("state", "dead"), [("R", False), ("S", False), ("T", False), ("Z", True), ("X", True)]
)
def test_a_zombie_is_dead(state: str, *, dead: bool) -> None:
    assert facts(state).dead is dead


def test_a_process_whose_first_thread_has_ended_before_the_others_is_not_dead() -> None:
    assert not facts("Z", threads=2).dead


def test_a_process_is_named_by_its_number_and_its_start() -> None:
    assert facts("R").id == ProcessId(7, 99)
    assert facts("R").id != ProcessId(7, 100)
