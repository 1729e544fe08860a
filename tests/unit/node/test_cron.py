"""When a schedule is due: fields, time zones, and the days on which clocks change."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.errors import ScheduleError
from bartack.node._cron import local_zone, next_time

BERLIN = ZoneInfo("Europe/Berlin")


def times(cron: str, after: datetime, count: int, zone: str = "Europe/Berlin") -> list[str]:
    """The next times, each computed from the one before, as the node does."""
    found: list[str] = []
    place: tzinfo = UTC if zone == "UTC" else ZoneInfo(zone)
    now_us = int(after.timestamp()) * 1_000_000
    for _ in range(count):
        now_us = next_time("x", cron, zone, now_us)
        found.append(f"{datetime.fromtimestamp(now_us / 1e6, place):%m-%d %H:%M %z}")
    return found


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("0 3 * * *", ["01-05 03:00 +0000", "01-06 03:00 +0000"]),
        ("*/20 9-10 * * *", ["01-05 09:00 +0000", "01-05 09:20 +0000"]),
        ("15,45 * * * *", ["01-04 12:15 +0000", "01-04 12:45 +0000"]),
        ("0 0 1 jan,JUL *", ["07-01 00:00 +0000", "01-01 00:00 +0000"]),
        ("0 8 * * mon-fri", ["01-05 08:00 +0000", "01-06 08:00 +0000"]),
        ("0 8 * * 7", ["01-11 08:00 +0000", "01-18 08:00 +0000"]),
        ("0 0 29 2 *", ["02-29 00:00 +0000", "02-29 00:00 +0000"]),
    ],
)
def test_the_five_fields_take_names_ranges_lists_and_steps(cron: str, expected: list[str]) -> None:
    a_sunday = datetime(2026, 1, 4, 12, 0, tzinfo=UTC)

    assert times(cron, a_sunday, 2, "UTC") == expected


def test_the_next_time_is_after_the_given_one_and_never_that_one() -> None:
    three = datetime(2026, 1, 4, 3, 0, tzinfo=UTC)

    assert times("0 3 * * *", three, 1, "UTC") == ["01-05 03:00 +0000"]


@pytest.mark.requirement("schedule-daylight-saving")
def test_a_time_in_the_gap_of_daylight_saving_comes_when_the_gap_is_over() -> None:
    before = datetime(2026, 3, 28, 12, 0, tzinfo=BERLIN)

    assert times("30 2 * * *", before, 2) == ["03-29 03:00 +0200", "03-30 02:30 +0200"]
    assert times("30 2,3 * * *", before, 3) == ["03-29 03:00 +0200", "03-29 03:30 +0200", "03-30 02:30 +0200"]


@pytest.mark.requirement("schedule-daylight-saving")
def test_a_time_that_comes_twice_is_used_the_first_time_only() -> None:
    before = datetime(2026, 10, 24, 12, 0, tzinfo=BERLIN)
    in_the_second_pass = datetime(2026, 10, 25, 2, 10, fold=1, tzinfo=BERLIN)

    assert times("30 2 * * *", before, 2) == ["10-25 02:30 +0200", "10-26 02:30 +0100"]
    assert times("30 2 * * *", in_the_second_pass, 1) == ["10-26 02:30 +0100"]


@pytest.mark.requirement("schedule-daylight-saving")
def test_a_schedule_of_every_hour_follows_the_clock_through_both_changes() -> None:
    spring, autumn = (
        datetime(2026, 3, 29, 1, 0, tzinfo=BERLIN),
        datetime(2026, 10, 25, 1, 40, tzinfo=BERLIN),
    )

    assert times("30 * * * *", spring, 2) == ["03-29 01:30 +0100", "03-29 03:30 +0200"]
    assert times("30 * * * *", autumn, 3) == ["10-25 02:30 +0200", "10-25 02:30 +0100", "10-25 03:30 +0100"]


@pytest.mark.requirement("schedule-is-checked")
@pytest.mark.parametrize(
    ("cron", "problem"),
    [
        ("", "five fields"),
        ("0 3 * *", "five fields"),
        ("0 0 3 * * *", "five fields"),
        ("@daily", "five fields"),
        ("1" * 10_000, "five fields"),
        ("61 * * * *", "bad minute"),
        ("* 24 * * *", "bad hour"),
        ("* * 0 * *", "bad day-of-month"),
        ("* * * 13 *", "bad month"),
        ("* * * * 8", "bad day-of-week"),
        ("*/0 * * * *", "bad minute"),
        ("5-1 * * * *", "bad minute"),
        ("* * 32 2 *", "bad day-of-month"),
        ("one * * * *", "bad minute"),
        ("0 0 30 2 *", "never comes"),
        ("0 0 31 4,6 *", "never comes"),
        ("* * */20 * 1L", "never comes"),
    ],
)
def test_an_expression_that_is_wrong_or_never_comes_is_refused(cron: str, problem: str) -> None:
    with pytest.raises(ScheduleError, match=problem):
        next_time("x", cron, "UTC", 0)


@given(st.text(max_size=40) | st.text("0123456789*/,-#LW ", max_size=30))
def test_whatever_is_written_is_a_time_or_a_clear_error(cron: str) -> None:
    now_us = 1_800_000_000_000_000
    try:
        found = next_time("x", cron, "Europe/Berlin", now_us)
    except ScheduleError:
        return
    assert found > now_us


@pytest.mark.requirement("schedule-is-checked")
@pytest.mark.parametrize("zone", ["Mars/Base", "Europe", "../etc/passwd", "/etc/localtime", "", "a\0b", "ü"])
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(ScheduleError, match="there is no time zone"):
        next_time("x", "0 3 * * *", zone, 0)


def test_a_misspelt_zone_is_corrected() -> None:
    with pytest.raises(ScheduleError, match=r"did you mean Europe/Berlin\?"):
        next_time("x", "0 3 * * *", "Europe/Berln", 0)


def test_without_a_database_of_time_zones_utc_works_and_the_others_say_what_is_missing(
    tmp_path: Path,
) -> None:
    zoneinfo.reset_tzpath(to=[str(tmp_path)])
    ZoneInfo.clear_cache()
    try:
        assert next_time("x", "0 3 * * *", "UTC", 0) == 3 * 3600 * 1_000_000
        if zoneinfo.available_timezones():  # the package tzdata is installed
            return
        with pytest.raises(ScheduleError, match="install tzdata, or use UTC"):
            next_time("x", "0 3 * * *", "Europe/Berlin", 0)
    finally:
        zoneinfo.reset_tzpath()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        (":Asia/Tokyo", "Asia/Tokyo"),
        ("/usr/share/zoneinfo/Asia/Tokyo", "Asia/Tokyo"),
        ("CET-1CEST,M3.5.0,M10.5.0/3", "UTC"),
        ("/etc/passwd", "UTC"),
        ("", "UTC"),
    ],
)
def test_the_zone_of_the_machine_is_that_of_tz_first(given: str, expected: str) -> None:
    assert local_zone({"TZ": given}) == expected


def test_the_zone_of_the_machine_is_read_from_its_files(tmp_path: Path) -> None:
    link, text = tmp_path / "localtime", tmp_path / "timezone"

    assert local_zone({}, link, text) == "UTC"
    text.write_text("Asia/Tokyo\n")
    assert local_zone({}, link, text) == "Asia/Tokyo"
    link.symlink_to("/usr/share/zoneinfo/posix/Europe/Berlin")
    assert local_zone({}, link, text) == "Europe/Berlin"
