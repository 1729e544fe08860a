"""The schedules of a database: who starts what is due, how often, and under which key."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.unit.depot.yard import Yard

from bartack.depot.team import Team
from bartack.depot.timetable import FleetSchedule, Started, Timetable
from bartack.errors import DepotUnavailableError, ScheduleError, ScheduleNotFoundError
from bartack.journal import Draft

MINUTE_US = 60_000_000
DUE_US = 1_767_225_600_000_000
"""The beginning of 2026, long ago."""
DUE = "2026-01-01T00:00Z"


@pytest.fixture
def timetable(yard: Yard) -> Timetable:
    return Timetable(yard.team)


def following(schedule: FleetSchedule, after_us: int) -> int:
    return after_us + MINUTE_US


def first(job: bytes, run_id: str) -> Sequence[Draft]:
    return (Draft("run.created", {"run": run_id, "job": job.decode()}),)


def add(
    timetable: Timetable, name: str = "nightly", *, overlaps: bool = False, team: str = "default"
) -> None:
    made = FleetSchedule(
        name, team, "0 3 * * *", "UTC", ("night.py",), "batch", 7, ("gpu",), overlaps, DUE_US
    )
    timetable.add(made, b"the job", b"the program")


def start_all(timetable: Timetable) -> list[Started]:
    found: list[Started] = []
    while started := timetable.start_next(following, first):
        found.append(started)
    return found


@pytest.mark.requirement("fleet-schedules")
def test_a_schedule_that_is_due_makes_one_run_for_all_times_that_were_missed(
    yard: Yard, timetable: Timetable
) -> None:
    add(timetable)

    (started,) = start_all(timetable)

    assert (started.name, started.problem) == ("nightly", "")
    assert yard.rows("SELECT id, team, key FROM bartack.run") == [(started.run, "default", f"nightly@{DUE}")]
    assert yard.rows("SELECT state, pool, priority, needs FROM bartack.owner") == [
        ("queued", "batch", 7, ["gpu"])
    ]
    (row,) = yard.rows("SELECT convert_from(lines, 'UTF8') FROM bartack.journal")
    assert "the job" in str(row[0])
    (shown,) = timetable.schedules()
    assert shown.last_run == started.run
    assert shown.next_us > DUE_US + 86_400 * 1_000_000, "missed times are not made up for one by one"


@pytest.mark.requirement("fleet-schedules")
def test_each_time_is_used_once_by_nodes_that_look_at_the_same_time(yard: Yard) -> None:
    for number in range(6):
        add(Timetable(yard.team), f"schedule-{number}")
    found: list[Started] = []
    begin = threading.Barrier(3)

    def look() -> None:
        team = Team(yard.team.where)
        with team.database:
            begin.wait(10)
            found.extend(start_all(Timetable(team)))

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert sorted(started.name for started in found) == [f"schedule-{number}" for number in range(6)]
    assert yard.rows("SELECT count(*) FROM bartack.run") == [(6,)]


def test_a_time_whose_run_is_there_already_makes_no_second_one(yard: Yard, timetable: Timetable) -> None:
    add(timetable)
    known = yard.submit(key=f"nightly@{DUE}")

    (started,) = start_all(timetable)

    assert started == Started("nightly", known, "")
    assert yard.rows("SELECT count(*) FROM bartack.run") == [(1,)]


@pytest.mark.parametrize("overlaps", [False, True])
def test_a_time_is_skipped_while_the_last_run_has_not_ended(
    yard: Yard, timetable: Timetable, *, overlaps: bool
) -> None:
    add(timetable, overlaps=overlaps)
    (before,) = start_all(timetable)
    yard.rows("UPDATE bartack.schedule SET next = next - interval '1 hour'")

    (started,) = start_all(timetable)

    assert bool(started.run) is overlaps
    assert started.problem == "" if overlaps else f"{before.run} has not ended" in started.problem
    assert timetable.schedules()[0].problem == started.problem


def test_a_schedule_whose_next_time_is_unknown_starts_nothing_and_says_why(
    yard: Yard, timetable: Timetable
) -> None:
    add(timetable)

    def fail(schedule: FleetSchedule, after_us: int) -> int:
        raise ScheduleError(schedule.name, "there is no time zone 'Europe/Nowhere'")

    assert timetable.start_next(fail, first) == Started(
        "nightly", "", "there is no time zone 'Europe/Nowhere'"
    )
    assert timetable.start_next(fail, first) is None, "it does not hold up others"
    assert yard.rows("SELECT count(*) FROM bartack.run") == [(0,)]


@pytest.mark.parametrize("error", [ScheduleError("broken", "its job cannot be read"), ValueError("damaged")])
def test_what_cannot_be_made_is_noted_and_does_not_hold_up_others(
    yard: Yard, timetable: Timetable, error: Exception
) -> None:
    add(timetable, "broken")
    add(timetable, "good")

    def fail_for_one(job: bytes, run_id: str) -> Sequence[Draft]:
        if not yard.rows("SELECT count(*) FROM bartack.schedule WHERE problem <> ''")[0][0]:
            raise error
        return first(job, run_id)

    outcomes = [timetable.start_next(following, fail_for_one) for _ in range(2)]

    assert [bool(one and one.run) for one in outcomes] == [False, True]
    assert timetable.start_next(following, first) is None


def test_one_without_an_answer_of_the_database_is_tried_again_after_the_others(
    yard: Yard, timetable: Timetable
) -> None:
    add(timetable, "large")
    add(timetable, "small")
    errors = [DepotUnavailableError("db", "statement timeout")]

    def fail_once(job: bytes, run_id: str) -> Sequence[Draft]:
        if errors:
            raise errors.pop()
        return first(job, run_id)

    large, small = (timetable.start_next(following, fail_once) for _ in range(2))
    assert large is not None
    assert (large.name, large.run) == ("large", "")
    assert "statement timeout" in large.problem
    assert small is not None
    assert small.run
    assert timetable.start_next(following, fail_once) is None
    (started,) = start_all(timetable)

    assert (started.name, started.problem) == ("large", "")
    assert yard.rows("SELECT key FROM bartack.run WHERE id = %s", started.run) == [(f"large@{DUE}",)]


def test_names_are_used_once_and_a_schedule_that_is_removed_is_gone(
    timetable: Timetable, tmp_path: Path
) -> None:
    add(timetable)
    with pytest.raises(ScheduleError, match="there is one of this name"):
        add(timetable)

    timetable.remove("nightly")

    assert timetable.schedules() == []
    with pytest.raises(ScheduleNotFoundError):
        timetable.remove("nightly")
