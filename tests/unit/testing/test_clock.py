"""The clock whose time a test decides."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bartack.core.clock import Clock
from bartack.testing import VirtualClock
from bartack.testing._clock import START_US


def test_stands_still_until_it_is_moved() -> None:
    clock = VirtualClock()
    as_clock: Clock = clock

    assert (as_clock.now_us(), as_clock.monotonic_ns()) == (START_US, 0)
    assert (as_clock.now_us(), as_clock.monotonic_ns()) == (START_US, 0)

    clock.advance(1.5)
    assert (as_clock.now_us(), as_clock.monotonic_ns()) == (START_US + 1_500_000, 1_500_000_000)


def test_starts_when_it_is_asked_to() -> None:
    assert VirtualClock(5).now_us() == 5


def test_can_be_set_back_without_time_running_backwards() -> None:
    clock = VirtualClock()
    clock.advance(10)

    clock.set_back(60)

    assert clock.now_us() == START_US - 50_000_000
    assert clock.monotonic_ns() == 10_000_000_000
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)


def test_timers_fire_by_time_then_by_age_and_see_their_own_time() -> None:
    clock = VirtualClock()
    fired: list[tuple[str, int]] = []

    def note(name: str) -> None:
        fired.append((name, clock.monotonic_ns()))

    for name, due in (("late", 30), ("first", 10), ("second", 10), ("never", 1000)):
        clock.call_at(due, partial(note, name))

    clock.advance(1e-7)

    assert fired == [("first", 10), ("second", 10), ("late", 30)]
    assert clock.monotonic_ns() == 100
    assert clock.next_timer() == 1000


def test_timers_made_by_timers_fire_in_the_same_advance() -> None:
    clock = VirtualClock()
    ticks: list[int] = []

    def tick() -> None:
        ticks.append(clock.monotonic_ns())
        clock.call_at(clock.monotonic_ns() + 1_000_000_000, tick)

    clock.call_at(0, tick)
    clock.advance(3)

    assert ticks == [0, 1_000_000_000, 2_000_000_000, 3_000_000_000]


def test_a_timer_whose_time_has_passed_fires_at_the_next_advance() -> None:
    clock = VirtualClock()
    clock.advance(1)
    fired: list[int] = []
    clock.call_at(5, lambda: fired.append(clock.monotonic_ns()))
    assert fired == []

    clock.advance(0)

    assert fired == [1_000_000_000]


def test_a_cancelled_timer_never_fires() -> None:
    clock = VirtualClock()
    fired: list[str] = []
    cancelled = clock.call_at(10, lambda: fired.append("cancelled"))
    kept = clock.call_at(20, lambda: fired.append("kept"))

    cancelled.cancel()
    assert clock.next_timer() == 20
    clock.advance(1)

    assert fired == ["kept"]
    assert not kept.waiting
    kept.cancel()


def test_can_go_from_timer_to_timer() -> None:
    clock = VirtualClock()
    fired: list[int] = []
    for due in (20, 10):
        clock.call_at(due, partial(fired.append, due))

    assert clock.advance_to_next()
    assert (fired, clock.monotonic_ns()) == ([10], 10)
    assert clock.advance_to_next()
    assert (fired, clock.monotonic_ns()) == ([10, 20], 20)
    assert not clock.advance_to_next()
    assert clock.next_timer() is None


@given(st.lists(st.integers(0, 50), max_size=20), st.lists(st.integers(0, 30), min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
def test_the_order_does_not_depend_on_the_size_of_the_steps(dues: list[int], steps: list[int]) -> None:
    def run(pieces: list[int]) -> list[tuple[int, int]]:
        clock = VirtualClock()
        fired: list[tuple[int, int]] = []
        for number, due in enumerate(dues):
            clock.call_at(due, partial(fired.append, (due, number)))
        for piece in pieces:
            clock.advance(piece * 1e-9)
        return fired

    assert run(steps) == run([sum(steps)])
    assert run(steps) == sorted(run(steps))
