from __future__ import annotations

from bartack.agents.conversation._breaker import Breaker
from bartack.testing import VirtualClock


def test_calls_wait_after_failures_in_a_row() -> None:
    clock = VirtualClock()
    breaker = Breaker(clock)

    for _ in range(4):
        breaker.failed()
    assert breaker.wait_s() == 0.0
    breaker.worked()
    for _ in range(4):
        breaker.failed()
    assert breaker.wait_s() == 0.0
    breaker.failed()

    assert breaker.is_open
    assert breaker.wait_s() == 30.0


def test_one_call_tries_and_holds_the_others_back() -> None:
    clock = VirtualClock()
    breaker = Breaker(clock)
    for _ in range(5):
        breaker.failed()

    clock.advance(30)
    assert breaker.wait_s() == 0.0
    assert breaker.wait_s() == 30.0
    breaker.failed()
    assert breaker.wait_s() == 60.0
    breaker.worked()

    assert breaker.wait_s() == 0.0


def test_the_longest_wait_is_five_minutes() -> None:
    breaker = Breaker(VirtualClock())

    for _ in range(50):
        breaker.failed()

    assert breaker.wait_s() == 300.0
