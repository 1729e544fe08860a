"""Waits that end by the clock: sleeps, and blocks with a deadline."""

from __future__ import annotations

import pytest
from tests.unit.runtime.stage import (
    Stage,
    delegate,
    plain,
    raw,
)

from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.protocol.steps import MailboxArgs


def test_a_timer_fires_at_its_moment_however_often_the_hub_was_restarted() -> None:
    stage = Stage()
    stage.begin().step(1, "sleep", s.SleepArgs(seconds=100.0))
    stage.hub.flush()
    stage.wait(30.0)

    main = stage.again(dead_s=50.0)
    i = main.step(1, "sleep", s.SleepArgs(seconds=100.0))
    stage.wait(19.0)
    assert main.answer(i) is None
    stage.wait(1.1)

    assert main.value(i) is None
    assert stage.outcomes()["main", 1] == 1


def test_a_timer_that_passed_while_nobody_ran_the_run_fires_at_once() -> None:
    stage = Stage()
    stage.begin().step(1, "sleep", s.SleepArgs(seconds=100.0))
    stage.hub.flush()

    main = stage.again(dead_s=1000.0)
    i = main.step(1, "sleep", s.SleepArgs(seconds=100.0))
    stage.wait(0.001)

    assert main.value(i) is None


def test_a_timer_for_a_moment_that_has_passed_is_over() -> None:
    main = Stage().begin()

    assert main.value(main.step(1, "sleep", s.SleepArgs(until=1))) is None
    assert main.value(main.step(2, "sleep", s.SleepArgs(seconds=0.0))) is None


def test_a_deadline_scope_runs_out_and_that_is_its_outcome() -> None:
    stage = Stage()
    main = stage.begin()
    main.begin(1, "timeout", timeout_s=10.0)
    left = main.value(main.step(2, "left"))

    stage.wait(10.0)
    main.say(f.Note(p="main", n=1, step="timeout", fp="fp-timeout", v=raw(None)))

    assert left == 10.0
    assert main.pushed(f.Fired) == 1
    assert stage.outcomes()["main", 1] == 1
    assert [plain(past.v) for past in stage.again().past] == [10.0, "fired"]


def test_a_deadline_scope_that_is_left_in_time_does_not_run_out() -> None:
    stage = Stage()
    main = stage.begin()
    main.begin(1, "timeout", timeout_s=10.0)
    main.say(f.Note(p="main", n=1, step="timeout", fp="fp-timeout", v=raw(None)))

    stage.wait(20.0)

    assert main.pushed(f.Fired) == 0
    assert main.value(main.step(2, "left")) is None


def test_a_deadline_scope_counts_the_time_the_hub_was_alive() -> None:
    stage = Stage()
    stage.begin().begin(1, "timeout", timeout_s=100.0)
    stage.hub.flush()
    stage.wait(60.0)

    main = stage.again(dead_s=10_000.0)
    main.begin(1, "timeout", timeout_s=100.0)

    assert main.value(main.step(2, "left")) == pytest.approx(40.0)
    stage.wait(41.0)
    assert main.pushed(f.Fired) == 1


def test_the_innermost_deadline_around_a_step_counts() -> None:
    main = Stage().begin()
    main.begin(1, "timeout", timeout_s=100.0)
    main.begin(1, "timeout", timeout_s=10.0, p="main.2.1")
    main.begin(1, "timeout", timeout_s=5.0, p="main.2.2")

    assert main.value(main.step(2, "left", p="main.2.1")) == 10.0
    assert main.value(main.step(3, "left")) == 100.0


def test_deadlines_stand_still_while_somebody_replays_but_not_for_ever() -> None:
    stage = Stage()
    main = stage.begin()
    delegate(main, 1, ["a", "b"])
    first, second = stage.workers["main/1.1:a"], stage.workers["main/1.2:b"]
    first.value(first.step(1, "send", MailboxArgs(mailbox="box"), 1))
    waiting = second.step(1, "receive", s.ReceiveArgs(mailbox="other", timeout_s=30.0))
    stage.kill(first.path)

    stage.clock.advance(50.0)
    stage.hub.tick()
    assert second.answer(waiting) is None
    stage.clock.advance(41.0)
    stage.hub.tick()

    assert second.error(waiting) == "ReceiveTimeoutError"
