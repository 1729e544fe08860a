from __future__ import annotations

import random

import pytest

from bartack import resilience
from bartack.core import backoff
from bartack.core.backoff import Backoff


def test_the_bounds_of_the_backoff_double_up_to_the_cap() -> None:
    backoff = Backoff(1.0, 300.0)

    assert [backoff.bound_s(n) for n in range(1, 11)] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    assert backoff.bound_s(10_000) == 300


def test_a_wait_is_drawn_between_zero_and_the_bound() -> None:
    drawn: list[tuple[float, float]] = []

    def highest(low: float, high: float) -> float:
        drawn.append((low, high))
        return high

    backoff = Backoff(2.0, 10.0, uniform=highest)

    assert [backoff.wait_s(n) for n in range(4)] == [0.0, 2.0, 4.0, 8.0]
    assert drawn == [(0.0, 0.0), (0.0, 2.0), (0.0, 4.0), (0.0, 8.0)]


def test_the_default_randomness_is_that_of_the_standard_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def middle(low: float, high: float) -> float:
        return (low + high) / 2

    monkeypatch.setattr(random, "uniform", middle)

    assert Backoff(8.0).wait_s(1) == 4.0


def test_resilience_exports_the_same_class() -> None:
    assert resilience.Backoff is backoff.Backoff
