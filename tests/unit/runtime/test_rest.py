"""Which runs need no process until a time, an answer or a message; one that can continue by itself is never taken for one."""

from __future__ import annotations

import pytest
from tests.unit.runtime.stage import Puppet, Stage

from bartack.runtime.kernel.idle import Rest, find_rest
from bartack.runtime.kernel.tools import TalkWaits
from bartack.runtime.protocol import steps as s

CALL: dict[str, list[object]] = {"args": []}
HOUR_US = 3600 * 1_000_000


@pytest.fixture
def pair() -> tuple[Stage, Puppet, Puppet]:
    """Two workers below a first one that waits for both."""
    stage = Stage()
    main = stage.begin()
    main.step(1, "delegate", s.DelegateArgs(workers=["m:a", "m:b"]), [CALL, CALL])
    return stage, stage.workers["main/1.1:a"], stage.workers["main/1.2:b"]


@pytest.mark.requirement("resting-runs-cost-nothing")
def test_a_run_rests_until_the_first_of_its_timers(pair: tuple[Stage, Puppet, Puppet]) -> None:
    stage, one, two = pair
    one.step(1, "sleep", s.SleepArgs(seconds=7200.0))
    before = find_rest(stage.core)
    two.step(1, "sleep", s.SleepArgs(seconds=3600.0))

    assert before is None
    assert find_rest(stage.core) == Rest(stage.clock.now_us() + HOUR_US, "timer of main/1.2:b")


def test_a_run_that_waits_for_an_answer_alone_rests_without_a_time(
    pair: tuple[Stage, Puppet, Puppet],
) -> None:
    stage, one, two = pair
    one.step(1, "receive", s.ReceiveArgs(mailbox="x"))
    two.step(1, "ask", s.AskArgs(question="go?"))

    assert find_rest(stage.core) == Rest(0, "an answer")


def test_a_run_whose_agent_must_not_be_called_rests_until_then_and_calls_it_then(
    pair: tuple[Stage, Puppet, Puppet],
) -> None:
    stage, one, two = pair
    one.step(1, "receive", s.ReceiveArgs(mailbox="x"))
    two.step(1, "think", s.ThinkArgs("Begin.", "think"))
    (token,) = stage.prompts
    under_way = find_rest(stage.core)
    due_us = stage.clock.now_us() + HOUR_US
    wait = TalkWaits(agent="scripted", problem="limited", code="", until=due_us)
    stage.hub.post(lambda core: core.prompt_waits(token, wait))
    stage.hub.run_ready()

    assert under_way is None
    assert find_rest(stage.core) == Rest(due_us, "limit of the agent of main/1.2:b")


@pytest.mark.parametrize(
    "other",
    [
        "computes",
        "runs a command",
        "calls an agent",
        "receives with a limit",
        "asks with a limit",
        "is in a block with a limit",
        "was killed",
    ],
)
def test_a_run_that_can_continue_does_not_rest(pair: tuple[Stage, Puppet, Puppet], other: str) -> None:
    stage, one, two = pair
    two.step(1, "sleep", s.SleepArgs(seconds=3600.0))
    match other:
        case "runs a command":
            one.step(1, "shell", s.ShellArgs(pipeline=[["true"]]))
        case "calls an agent":
            one.step(1, "think", s.ThinkArgs("Begin.", "think"))
        case "receives with a limit":
            one.step(1, "receive", s.ReceiveArgs(mailbox="x", timeout_s=7200.0))
        case "asks with a limit":
            one.step(1, "ask", s.AskArgs(question="go?", timeout_s=7200.0))
        case "is in a block with a limit":
            one.begin(1, "timeout", timeout_s=7200.0)
            one.step(2, "receive", s.ReceiveArgs(mailbox="x"))
        case "was killed":
            one.step(1, "receive", s.ReceiveArgs(mailbox="x"))
            stage.kill(one.path)
        case _:
            pass

    assert find_rest(stage.core) is None


def test_a_run_that_waits_for_a_message_alone_keeps_its_process(pair: tuple[Stage, Puppet, Puppet]) -> None:
    """Its workers may wait for each other, and only its process reports that."""
    stage, one, two = pair
    one.step(1, "receive", s.ReceiveArgs(mailbox="x"))
    two.step(1, "receive", s.ReceiveArgs(mailbox="y"))

    assert find_rest(stage.core) is None


def test_a_scheduled_message_keeps_the_run_awake(pair: tuple[Stage, Puppet, Puppet]) -> None:
    stage, one, two = pair
    two.step(1, "send", s.SendArgs(mailbox="x", not_before=stage.clock.now_us() + HOUR_US), 1)
    one.step(1, "receive", s.ReceiveArgs(mailbox="x"))
    two.step(2, "sleep", s.SleepArgs(seconds=7200.0))

    assert find_rest(stage.core) is None


def test_a_run_that_rested_sleeps_until_the_same_moment(pair: tuple[Stage, Puppet, Puppet]) -> None:
    stage, one, two = pair
    for puppet in (one, two):
        puppet.step(1, "sleep", s.SleepArgs(seconds=3600.0))
    rest = find_rest(stage.core)
    assert rest is not None
    stage.hub.post(lambda core: core.stop("resting", *rest))
    stage.hub.run_ready()
    assert (stage.core.state.rests_until, stage.core.state.rests_for) == rest

    main = stage.again(dead_s=3000.0)
    assert stage.core.state.rests_until == 0
    main.step(1, "delegate", s.DelegateArgs(workers=["m:a", "m:b"]), [CALL, CALL])
    for path in ("main/1.1:a", "main/1.2:b"):
        stage.workers[path].step(1, "sleep", s.SleepArgs(seconds=3600.0))

    assert find_rest(stage.core) == rest
    stage.wait(601.0)
    assert find_rest(stage.core) is None
