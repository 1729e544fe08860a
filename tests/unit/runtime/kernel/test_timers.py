"""When waits end: on the wall, and by the time that counts."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bartack.runtime.kernel.timers import PURGE_SIZE, Timer, Timers
from bartack.testing import VirtualClock

MINUTE = 60.0


def start() -> tuple[VirtualClock, Timers, list[str]]:
    clock = VirtualClock()
    return clock, Timers(clock), []


def test_alarms_ring_in_the_order_of_their_time_and_those_of_one_time_in_the_order_they_were_set() -> None:
    clock, works, rung = start()
    for name, seconds in (("c", 3.0), ("a", 1.0), ("b1", 2.0), ("b2", 2.0)):
        works.after(seconds, partial(rung.append, name))

    clock.advance(3.0)
    works.tick()

    assert rung == ["a", "b1", "b2", "c"]


@pytest.mark.parametrize("seconds", [1e300, float("inf")])
def test_what_never_comes_does_not_ring_and_keeps_nobody_from_waiting_for_other_things(
    seconds: float,
) -> None:
    clock, works, rung = start()
    works.after(seconds, lambda: rung.append("never"))
    works.after(1.0, lambda: rung.append("soon"))

    clock.advance(1000 * MINUTE)
    works.tick()

    assert rung == ["soon"]


@pytest.mark.parametrize("seconds", [-1.0, -1e300, float("-inf")])
def test_what_should_have_come_before_it_was_asked_for_rings_at_once(seconds: float) -> None:
    _, works, rung = start()
    works.after(seconds, lambda: rung.append("late"))

    assert works.next_in_s() == 0
    works.tick()
    assert rung == ["late"]


def test_an_alarm_rings_once_and_not_if_it_is_called_off() -> None:
    clock, works, rung = start()
    works.after(1.0, lambda: rung.append("once"))
    called_off = works.after(1.0, lambda: rung.append("never"))
    called_off.cancel()

    for _ in range(3):
        clock.advance(1.0)
        works.tick()

    assert rung == ["once"]
    assert works.next_in_s() is None


def test_an_alarm_that_is_set_by_another_and_is_due_rings_in_the_same_tick() -> None:
    clock, works, rung = start()

    def set_another() -> None:
        works.after(0.0, partial(rung.append, "second"))

    works.after(1.0, set_another)

    clock.advance(1.0)
    works.tick()

    assert rung == ["second"]


def test_a_timer_follows_the_clock_on_the_wall_and_a_deadline_does_not() -> None:
    clock, works, rung = start()
    works.at(clock.now_us() + 10_000_000, lambda: rung.append("timer"))
    works.after(10.0, lambda: rung.append("deadline"))
    clock.set_back(3600.0)

    clock.advance(10.0)
    works.tick()
    assert rung == ["deadline"]
    assert works.next_in_s() == 3600.0
    clock.advance(3600.0)
    works.tick()
    assert rung == ["deadline", "timer"]


@pytest.mark.parametrize(("paused_s", "late_s"), [(10.0, 10.0), (59.0, 59.0), (3600.0, 60.0)])
def test_a_pause_makes_deadlines_later_but_never_by_more_than_a_minute(
    paused_s: float, late_s: float
) -> None:
    clock, works, rung = start()
    works.after(5.0, lambda: rung.append("x"))
    works.pause()
    works.pause()
    clock.advance(paused_s)
    works.resume()
    works.resume()

    left = 5.0 + late_s - paused_s
    assert works.next_in_s() == pytest.approx(max(left, 0.0))
    clock.advance(max(left, 0.0))
    works.tick()
    assert rung == ["x"]


def test_alarms_that_were_called_off_do_not_pile_up() -> None:
    _, works, _ = start()
    for _ in range(10 * PURGE_SIZE):
        works.after(MINUTE, lambda: None).cancel()

    assert len(works._alive) <= 2 * PURGE_SIZE


def test_alarms_that_nobody_wants_any_more_neither_ring_nor_pile_up() -> None:
    clock, works, rung = start()
    open_steps = {"last"}
    for number in range(10 * PURGE_SIZE):
        works.after(1.0, partial(rung.append, "late"), partial(open_steps.__contains__, number))
    works.after(1.0, partial(rung.append, "last"), partial(open_steps.__contains__, "last"))

    assert len(works._alive) <= 2 * PURGE_SIZE
    clock.advance(1.0)
    works.tick()
    assert rung == ["last"]


class ClockworkMachine(RuleBasedStateMachine):
    """Deadlines against a model that adds up the seconds which count, in whole seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock()
        self.works = Timers(self.clock)
        self.counted = 0
        self.pausing: int | None = None
        self.alarms: dict[int, tuple[Timer, int]] = {}
        self.rung: list[int] = []
        self.made = 0

    @rule(seconds=st.integers(0, 100))
    def set(self, seconds: int) -> None:
        self.made += 1
        number = self.made
        timer = self.works.after(float(seconds), lambda: self.rung.append(number))
        self.alarms[number] = (timer, self.counted + seconds)

    @precondition(lambda self: self.alarms)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.alarms)))
        self.alarms.pop(number)[0].cancel()

    @rule()
    def pause(self) -> None:
        self.works.pause()
        self.pausing = 0 if self.pausing is None else self.pausing

    @rule()
    def go_on(self) -> None:
        self.works.resume()
        self.pausing = None

    @rule(seconds=st.integers(1, 90))
    def let_time_pass(self, seconds: int) -> None:
        self.clock.advance(float(seconds))
        if self.pausing is None:
            self.counted += seconds
        else:
            before, self.pausing = self.pausing, self.pausing + seconds
            self.counted += max(self.pausing - 60, 0) - max(before - 60, 0)
        self.rung.clear()
        self.works.tick()
        due = sorted((at, number) for number, (_, at) in self.alarms.items() if at <= self.counted)
        assert self.rung == [number for _, number in due]
        for _, number in due:
            del self.alarms[number]

    @invariant()
    def the_time_that_counts_adds_up(self) -> None:
        assert self.works.alive_ns() == self.counted * 1_000_000_000

    @invariant()
    def the_next_alarm_is_known(self) -> None:
        first = min((at for _, at in self.alarms.values()), default=None)
        expected = None if first is None else float(max(first - self.counted, 0))
        assert self.works.next_in_s() == expected


TestClockwork = ClockworkMachine.TestCase
TestClockwork.settings = settings(max_examples=100, stateful_step_count=40)
