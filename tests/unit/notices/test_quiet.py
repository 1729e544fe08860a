"""Quiet hours by the clock on the wall, also on the days on which it is set."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from bartack.config.notices import NoticesConfig
from bartack.notices import quiet_left_s

BERLIN = ZoneInfo("Europe/Berlin")
NIGHT = (22 * 60, 7 * 60)
HOUR = 3600.0


def at(text: str, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold).timestamp()


@pytest.mark.requirement("quiet-hours-hold-notices")
@pytest.mark.parametrize(
    ("now", "left_h"),
    [
        ("2026-01-10T21:59:59", 0.0),
        ("2026-01-10T22:00:00", 9.0),
        ("2026-01-11T00:00:00", 7.0),
        ("2026-01-11T06:59:00", 1 / 60),
        ("2026-01-11T07:00:00", 0.0),
        ("2026-01-11T12:00:00", 0.0),
    ],
)
def test_hours_over_midnight(now: str, left_h: float) -> None:
    assert quiet_left_s(NIGHT, at(now), BERLIN) == pytest.approx(left_h * HOUR)


def test_hours_within_a_day() -> None:
    assert quiet_left_s((12 * 60, 13 * 60), at("2026-01-10T12:30:00"), BERLIN) == 0.5 * HOUR
    assert quiet_left_s((12 * 60, 13 * 60), at("2026-01-10T13:30:00"), BERLIN) == 0.0


def test_no_hours() -> None:
    assert quiet_left_s(NoticesConfig().quiet_minutes, at("2026-01-11T00:00:00"), BERLIN) == 0.0
    assert NoticesConfig(quiet="22:00-07:30").quiet_minutes == (22 * 60, 7 * 60 + 30)


@pytest.mark.requirement("quiet-hours-follow-the-wall-clock")
def test_the_night_in_which_the_clock_is_set_forward_is_an_hour_shorter() -> None:
    assert quiet_left_s(NIGHT, at("2026-03-28T22:00:00"), BERLIN) == 8 * HOUR


@pytest.mark.requirement("quiet-hours-follow-the-wall-clock")
def test_the_night_in_which_the_clock_is_set_back_is_an_hour_longer() -> None:
    assert quiet_left_s(NIGHT, at("2026-10-24T22:00:00"), BERLIN) == 10 * HOUR


def test_an_end_that_the_clock_shows_twice_is_never_in_the_past() -> None:
    hours = (22 * 60, 2 * 60 + 30)

    assert quiet_left_s(hours, at("2026-10-25T02:10:00", fold=0), BERLIN) == 20 * 60
    assert quiet_left_s(hours, at("2026-10-25T02:10:00", fold=1), BERLIN) == 20 * 60


def test_an_end_that_the_clock_skips_comes_with_the_hour_after_it() -> None:
    left = quiet_left_s((22 * 60, 2 * 60 + 30), at("2026-03-29T01:59:00"), BERLIN)

    assert 60 <= left <= HOUR + 60
