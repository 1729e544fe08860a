"""Workers that all wait for each other are known as soon as they do; a run that can continue is never taken for one."""

from __future__ import annotations

import pytest
from tests.unit.runtime.stage import Puppet, Stage

from bartack.runtime.kernel.idle import describe_deadlock, find_deadlock
from bartack.runtime.protocol import steps as s

CALL: dict[str, list[object]] = {"args": []}


@pytest.fixture
def pair() -> tuple[Stage, Puppet, Puppet]:
    """Two workers below a first one that waits for both."""
    stage = Stage()
    main = stage.begin()
    main.step(1, "delegate", s.DelegateArgs(workers=["m:a", "m:b"]), [CALL, CALL])
    return stage, stage.workers["main/1.1:a"], stage.workers["main/1.2:b"]


@pytest.mark.requirement("deadlocks-are-reported")
def test_workers_that_wait_for_each_other_are_found_with_what_each_waits_for(
    pair: tuple[Stage, Puppet, Puppet],
) -> None:
    stage, one, two = pair
    one.step(1, "receive", s.ReceiveArgs(mailbox="x"))
    before = find_deadlock(stage.core)
    two.step(1, "receive", s.ReceiveArgs(mailbox="y"))
    found = find_deadlock(stage.core)

    assert before == []
    assert [wait.split(" ")[0] for wait in found] == ["main", "main/1.1:a", "main/1.2:b"]
    assert describe_deadlock(found).startswith(
        "all workers wait for each other (main waits in step 1: delegate"
    )


@pytest.mark.parametrize(
    "other", ["computes", "sleeps", "runs a command", "has a deadline", "asks", "was killed"]
)
def test_a_worker_that_can_continue_is_no_deadlock(pair: tuple[Stage, Puppet, Puppet], other: str) -> None:
    stage, one, two = pair
    one.step(1, "receive", s.ReceiveArgs(mailbox="x"))
    match other:
        case "sleeps":
            two.step(1, "sleep", s.SleepArgs(seconds=5.0))
        case "runs a command":
            two.step(1, "shell", s.ShellArgs(pipeline=[["true"]]))
        case "has a deadline":
            two.step(1, "receive", s.ReceiveArgs(mailbox="y", timeout_s=5.0))
        case "asks":
            two.step(1, "ask", s.AskArgs(question="go?"))
        case "was killed":
            two.step(1, "receive", s.ReceiveArgs(mailbox="y"))
            stage.kill(two.path)
        case _:
            pass

    assert find_deadlock(stage.core) == []


def test_a_message_that_is_scheduled_ends_a_wait(pair: tuple[Stage, Puppet, Puppet]) -> None:
    stage, one, two = pair
    later = stage.clock.now_us() + 60_000_000
    two.step(1, "send", s.SendArgs(mailbox="x", not_before=later), 1)
    one.step(1, "receive", s.ReceiveArgs(mailbox="x"))
    two.step(2, "receive", s.ReceiveArgs(mailbox="y"))

    assert find_deadlock(stage.core) == []


def test_a_worker_that_starts_again_has_yet_to_come_to_its_wait(pair: tuple[Stage, Puppet, Puppet]) -> None:
    stage, one, two = pair
    one.step(1, "receive", s.ReceiveArgs(mailbox="x"))
    two.step(1, "receive", s.ReceiveArgs(mailbox="y"))
    assert find_deadlock(stage.core)

    one.die()
    stage.hub.run_ready()

    assert find_deadlock(stage.core) == []
