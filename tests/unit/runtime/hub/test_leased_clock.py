"""The clock of a hub whose run is kept in a database, with clocks of the machine and of the database that a test sets."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from bartack.runtime.hub.leased_clock import SLOWER, LeasedClock
from bartack.supervision.process.lease import LeasePage

SECOND_US = 1_000_000
HOUR_US = 3600 * SECOND_US
START_US = 1_767_225_600 * SECOND_US


class Clocks:
    """The clocks: of lease pages, on the wall, and of the database, which is known by the page.

    Args:
        patch: Replaces those of the machine.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.page, self.fd = LeasePage.create()
        self.page_us = 77 * SECOND_US
        self.wall_us = START_US + 2 * HOUR_US
        patch.setattr(LeasePage, "now_ns", staticmethod(lambda: self.page_us * 1000))
        patch.setattr(time, "time_ns", lambda: self.wall_us * 1000)

    def set_database(self, now_us: int) -> None:
        """What the last beat has found the clock of the database to show now."""
        self.page.set_offset(now_us - self.page_us)

    def pass_time(self, seconds: float) -> None:
        self.page_us += int(seconds * SECOND_US)
        self.wall_us += int(seconds * SECOND_US)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clocks]:
    made = Clocks(monkeypatch)
    made.set_database(START_US)
    yield made
    made.page.close()
    os.close(made.fd)


@pytest.mark.requirement("fleet-time")
def test_it_shows_what_the_database_shows_whatever_becomes_of_the_clock_on_the_wall(clocks: Clocks) -> None:
    clock = LeasedClock(clocks.page)
    assert clock.now_us() == START_US
    clocks.pass_time(10)
    clocks.wall_us -= 5 * HOUR_US

    assert clock.now_us() == START_US + 10 * SECOND_US


@pytest.mark.requirement("fleet-time")
def test_it_never_goes_back_and_comes_level_with_a_database_whose_clock_did(clocks: Clocks) -> None:
    clock = LeasedClock(clocks.page)
    shown = [clock.now_us()]
    clocks.set_database(START_US - SECOND_US)
    shown.append(clock.now_us())
    for _ in range(2 * SLOWER):
        clocks.pass_time(1)
        shown.append(clock.now_us())

    assert shown == sorted(shown)
    assert shown[3] - shown[2] == SECOND_US - SECOND_US // SLOWER, "waits take as long as ever"
    assert shown[-1] == START_US - SECOND_US + 2 * SLOWER * SECOND_US


def test_it_follows_a_database_whose_clock_is_set_ahead(clocks: Clocks) -> None:
    clock = LeasedClock(clocks.page)
    clock.now_us()
    clocks.set_database(START_US + HOUR_US)

    assert clock.now_us() == START_US + HOUR_US


@pytest.mark.requirement("fleet-time")
def test_it_begins_after_the_last_entry_and_the_time_in_which_no_hub_was_alive(clocks: Clocks) -> None:
    clock = LeasedClock(clocks.page, seen_us=START_US - 30 * SECOND_US)
    for at_us in (START_US + HOUR_US, START_US + HOUR_US - 5):
        clock.not_before(at_us)

    assert clock.now_us() == START_US + HOUR_US + 30 * SECOND_US
    assert clock.dead_us(START_US + HOUR_US) == 30 * SECOND_US


def test_no_hub_was_alive_since_the_database_has_last_seen_one(clocks: Clocks) -> None:
    long_ago = START_US - HOUR_US

    assert LeasedClock(clocks.page, START_US - 7).dead_us(long_ago) == 7, "nothing was recorded for a while"
    assert LeasedClock(clocks.page, long_ago).dead_us(START_US - 9) == 9, (
        "what was recorded, a hub has recorded"
    )
    assert LeasedClock(clocks.page).dead_us(long_ago) == HOUR_US
    assert LeasedClock(clocks.page, START_US + 5).dead_us(long_ago) == 0


def test_it_is_the_clock_on_the_wall_until_the_database_has_answered(clocks: Clocks) -> None:
    clocks.page.set_offset(0)
    clock = LeasedClock(clocks.page)

    assert clock.now_us() == clocks.wall_us


def test_what_others_know_by_the_clock_on_the_wall_is_converted(clocks: Clocks) -> None:
    clock = LeasedClock(clocks.page)

    assert clock.wall.now_us() == clocks.wall_us
    assert clock.from_wall_us(clocks.wall_us + 5) == START_US + 5
    assert clocks.page_us + clock.ahead_us() == START_US
