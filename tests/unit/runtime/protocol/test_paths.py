"""Paths inside a worker, and what follows from a failure at one of them."""

from __future__ import annotations

import pytest

from bartack.runtime.protocol.paths import CallPlace, is_inside, number_inside, outer, parse_call
from bartack.runtime.state.blame import FailedStep, FailedSteps, follows
from bartack.runtime.state.worker_state import NO_VALUE, ToolRecord, ToolRun


@pytest.mark.parametrize(
    ("path", "around"),
    [
        ("main.4.1", "main"),
        ("main/do:5.1", "main"),
        ("main.4.1/do:3.2", "main.4.1"),
        ("main/do:5.1.3.1", "main/do:5.1"),
        ("main/do:5.1/do:2.1", "main/do:5.1"),
        ("main/7.2:analyst.4.1", "main/7.2:analyst"),
        ("main/7.2:analyst/do:4.1", "main/7.2:analyst"),
        ("main", ""),
        ("main/7.2:analyst", ""),
    ],
)
def test_a_path_has_one_around_it_or_is_that_of_a_worker(path: str, around: str) -> None:
    assert outer(path) == around
    assert is_inside(path, around) is bool(around)


def test_a_call_of_a_tool_is_told_by_its_path() -> None:
    assert parse_call("main.4.1/do:3.12") == CallPlace("main.4.1", 3, 12)
    assert CallPlace("main.4.1", 3, 12).path == "main.4.1/do:3.12"
    assert [parse_call(path) for path in ("main", "main/do:3", "main/do:x.1", "main/do:5.1.3.1")] == [
        None
    ] * 4


def test_what_is_inside_was_started_by_a_step() -> None:
    assert number_inside("main.4.1", "main") == 4
    assert number_inside("main/do:5.10/do:2.1", "main") == 5
    assert number_inside("main/do:5.10", "main/do:5.1") is None
    assert number_inside("main/7.2:analyst", "main") is None


@pytest.mark.parametrize(
    ("path", "failed", "does"),
    [
        ("main", ("main/do:5.1", 2), True),
        ("main/do:5.1", ("main", 3), True),
        ("main/do:5.1", ("main", 5), False),
        ("main/do:5.1", ("main", 6), False),
        ("main/do:5.2", ("main/do:5.1", 2), False),
        ("main/do:5.1.3.1", ("main/do:5.1", 2), True),
        ("main/do:5.1.3.1", ("main/do:5.1", 4), False),
    ],
)
def test_a_tool_follows_from_what_was_before_its_prompt(
    path: str, failed: tuple[str, int], does: bool
) -> None:
    assert follows(path, failed) is does


def test_that_a_tool_is_called_handles_no_failure_and_that_it_has_ended_does() -> None:
    blame = FailedSteps()
    blame.fail("main/do:5.1", 2, FailedStep(10, "shell", "fp"), cancelled=False)

    blame.finish("main/do:5.1.3.1/do:1.1", 0, "tool", 11)
    assert list(blame.steps) == [("main/do:5.1", 2)]
    blame.finish("main/do:5.1", 0, "returned", 12)

    assert not blame.steps


def test_calls_and_outcomes_that_were_set_back_never_happened() -> None:
    record = ToolRecord()
    for call, seq in ((1, 10), (2, 20), (3, 30)):
        record.runs.append(ToolRun(call, call, "do_1", "", seq, NO_VALUE, ended_seq=seq + 5))

    record.rewind(lambda place: place < 25)

    assert [(run.call, run.ended_seq) for run in record.runs] == [(1, 15), (2, 0)]
    assert record.running is record.runs[1]
