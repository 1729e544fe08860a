"""The clock of a hub, and a hub that stands still."""

from __future__ import annotations

import math
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pytest

from bartack.runtime.hub.clock import HubClock
from bartack.runtime.hub.holding import HOLD_S, Holding
from bartack.supervision.process.lease import LeasePage

SECOND_NS = 1_000_000_000


class Lease(NamedTuple):
    """A lease page and its descriptor."""

    page: LeasePage
    fd: int


@pytest.fixture
def lease() -> Iterator[Lease]:
    made = Lease(*LeasePage.create(LeasePage.now_ns() + 60 * SECOND_NS))
    yield made
    made.page.close()
    os.close(made.fd)


def test_a_clock_that_stood_still_does_not_count_that_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "monotonic_ns", lambda: int(now[0] * 1e9))
    clock = HubClock()
    before = clock.seconds()
    now[0] += 30.0
    clock.stood_still(29.0)

    assert clock.seconds() - before == 1.0
    now[0] += 1.5
    clock.continued()  # a signal right after it counts nothing twice
    assert clock.seconds() - before == 2.5


class StoodStill:
    """A clock of the machine that only runs while a hub stands still: each look at the lease takes a second.

    Args:
        patch: Replaces the functions of the machine.
        at: What happens after so many seconds.
    """

    def __init__(self, patch: pytest.MonkeyPatch, at: Mapping[int, Callable[[], object]]) -> None:
        self.at = at
        self.seconds = 0
        patch.setattr(time, "monotonic", lambda: 100.0 + self.seconds)
        patch.setattr(time, "monotonic_ns", lambda: (100 + self.seconds) * SECOND_NS)
        patch.setattr(select, "select", self._pass)

    def _pass(self, *waits: object) -> None:
        self.seconds += 1
        self.at.get(self.seconds, lambda: None)()
        assert self.seconds < 1000, "it stands still for good"


def hold(lease: Lease, clock: HubClock, stop_signals: Sequence[int] = ()) -> tuple[Holding, list[str]]:
    notes: list[str] = []
    return Holding(lease.fd, clock, notes.append, stop_signals), notes


def test_a_hub_with_a_valid_lease_does_not_wait(lease: Lease) -> None:
    holding, notes = hold(lease, HubClock(), [signal.SIGTERM])

    assert holding.heed()
    assert 59 < holding.left_s <= 60
    assert notes == []


@pytest.mark.parametrize("for_good", [False, True])
def test_a_hub_stands_still_until_its_lease_is_renewed_or_gone(
    lease: Lease, monkeypatch: pytest.MonkeyPatch, for_good: bool
) -> None:
    lease.page.renew(0)
    change = lease.page.end if for_good else lambda: lease.page.renew(LeasePage.now_ns() + 60 * SECOND_NS)
    passed = StoodStill(monkeypatch, {7: change})
    clock = HubClock()
    before = clock.seconds()
    holding, notes = hold(lease, clock)
    assert holding.left_s == 0

    assert holding.heed() is not for_good

    assert passed.seconds == 7
    assert clock.seconds() == before
    assert notes == ["the right to run it was not renewed; everything stands still", "stood still for 7.0 s"]
    assert holding.heed() is not for_good
    assert len(notes) == 2


def test_a_hub_that_is_stopped_by_a_signal_while_it_stands_still_counts_no_time_twice(
    lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease.page.renew(0)
    passed = StoodStill(monkeypatch, {})
    clock = HubClock()
    passed.at = {10: clock.continued, 12: lambda: lease.page.renew(LeasePage.now_ns() + 60 * SECOND_NS)}
    before = clock.seconds()

    assert hold(lease, clock)[0].heed()

    assert clock.seconds() == before
    passed.seconds += 5
    assert clock.seconds() - before == 5


def test_a_hub_whose_lease_is_never_renewed_gives_up(lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    lease.page.renew(0)
    passed = StoodStill(monkeypatch, {})

    assert not hold(lease, HubClock())[0].heed()
    assert passed.seconds == HOLD_S


def test_a_hub_that_gets_a_signal_to_stop_while_it_stands_still_does(
    lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease.page.renew(0)
    seen: list[int] = []
    passed = StoodStill(monkeypatch, {3: lambda: seen.append(signal.SIGTERM)})

    assert not hold(lease, HubClock(), seen)[0].heed()
    assert passed.seconds == 3


def test_a_hub_without_a_lease_needs_none() -> None:
    holding = Holding(None, HubClock(), lambda text: None, [signal.SIGTERM])

    assert holding.heed()
    assert holding.left_s == math.inf
