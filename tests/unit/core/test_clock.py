"""The clock of the machine."""

from __future__ import annotations

import time

from bartack.core.clock import Clock, SystemClock


def test_the_system_clock_shows_the_time_in_microseconds() -> None:
    clock: Clock = SystemClock()
    before = time.time_ns()
    now = clock.now_us()
    after = time.time_ns()

    assert before // 1000 <= now <= after // 1000


def test_the_system_clock_counts_nanoseconds_that_never_go_back() -> None:
    clock: Clock = SystemClock()
    before = time.monotonic_ns()
    now = clock.monotonic_ns()

    assert before <= now <= clock.monotonic_ns()
