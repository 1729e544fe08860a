"""The clock on the wall is set while a run waits, with and without a hub: no timeout regains or loses time, no sleep is stuck."""

from __future__ import annotations

import pytest
from tests.unit.runtime.stage import Puppet, Stage

from bartack.runtime.protocol import steps as s

HOUR = 3600.0


def receive(main: Puppet, timeout_s: float) -> int:
    return main.step(1, "receive", s.ReceiveArgs(mailbox="nothing", timeout_s=timeout_s))


def sleep(main: Puppet, seconds: float) -> int:
    return main.step(1, "sleep", s.SleepArgs(seconds=seconds))


def is_answered(main: Puppet, i: int) -> bool:
    return main.answer(i) is not None


@pytest.mark.requirement("timeouts-count-only-life")
@pytest.mark.parametrize("set_back_s", [HOUR, -HOUR])
def test_a_clock_that_was_set_while_a_hub_lived_neither_ends_nor_prolongs_a_timeout(
    set_back_s: float,
) -> None:
    stage = Stage()
    receive(stage.begin(), 100.0)
    stage.wait(40.0)
    stage.clock.set_back(set_back_s)
    stage.wait(30.0)
    stage.hub.flush()
    main = stage.again(dead_s=10.0)
    i = receive(main, 100.0)

    stage.wait(29.0)
    assert not is_answered(main, i)
    stage.wait(2.0)
    assert is_answered(main, i)
    assert [entry.data["by_us"] for entry in stage.entries("clock.set")] == [round(-set_back_s * 1e6)]


@pytest.mark.requirement("timeouts-count-only-life")
def test_a_clock_that_was_set_back_while_nobody_ran_the_run_gives_no_time_back() -> None:
    stage = Stage()
    receive(stage.begin(), 100.0)
    stage.wait(70.0)
    stage.clock.set_back(HOUR)
    stage.hub.flush()
    main = stage.again(dead_s=-HOUR)
    i = receive(main, 100.0)

    stage.wait(29.0)
    assert not is_answered(main, i)
    stage.wait(2.0)
    assert is_answered(main, i)


@pytest.mark.requirement("sleep-survives-a-clock-set-back")
def test_a_sleep_ends_in_time_when_the_clock_is_set_back_meanwhile() -> None:
    stage = Stage()
    main = stage.begin()
    i = sleep(main, 100.0)
    stage.wait(40.0)
    stage.clock.set_back(HOUR)

    stage.wait(59.0)
    assert not is_answered(main, i)
    stage.wait(2.0)
    assert is_answered(main, i)


@pytest.mark.requirement("sleep-survives-a-clock-set-back")
@pytest.mark.parametrize("alive", [True, False], ids=["while a hub lived", "while nobody ran it"])
def test_a_sleep_ends_in_time_when_it_is_resumed_after_the_clock_was_set_back(alive: bool) -> None:
    stage = Stage()
    sleep(stage.begin(), 100.0)
    stage.wait(40.0)
    stage.clock.set_back(HOUR)
    if alive:
        stage.wait(20.0)
    stage.hub.flush()
    main = stage.again(dead_s=0.0 if alive else -HOUR)
    i = sleep(main, 100.0)
    left = 40.0 if alive else 60.0

    stage.wait(left - 1)
    assert not is_answered(main, i)
    stage.wait(2.0)
    assert is_answered(main, i)


def test_a_sleep_until_a_moment_goes_by_the_clock_on_the_wall() -> None:
    stage = Stage()
    main = stage.begin()
    i = main.step(1, "sleep", s.SleepArgs(until=stage.clock.now_us() + 100_000_000))
    stage.clock.set_back(HOUR)

    stage.wait(HOUR + 99.0)
    assert not is_answered(main, i)
    stage.wait(2.0)
    assert is_answered(main, i)
