"""What a node of a database does beside its runs: chores in their thread, and directories that it needs no more."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import cast

import pytest
from tests.unit.depot.yard import Yard
from tests.waiting import until

from bartack.agents.pauses import Pause
from bartack.core.clock import SystemClock
from bartack.depot.chores import Chore
from bartack.depot.team import Team
from bartack.depot.timetable import Started, Timetable
from bartack.errors import DepotSchemaError, DepotUnavailableError
from bartack.node import _chores
from bartack.node._chores import KEPT_US, LOST, WORKSPACES, Chores, put_run_aside, remove_lost
from bartack.runtime.rundir.layout import RunDir
from bartack.supervision.process.lock import take_tree_lock

NOW_US = 2_000_000_000_000_000
HOUR_US = 3_600_000_000
OURS, THEIRS = "claude-0123456789ab.json", "codex-0123456789ab.json"


class FakeWorker:
    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.times = 0
        self.known = dict[str, tuple[int, str]]()

    def do_chores(self, team: object) -> Sequence[Chore]:
        self.times += 1
        if self._errors:
            raise self._errors.pop(0)
        return (Chore("content"), Chore("nodes", "it is full")) if self.times == 1 else ()

    def share_pauses(self, team: object, known: Mapping[str, tuple[int, str]]) -> dict[str, tuple[int, str]]:
        self.known.update(known)
        return {THEIRS: (SystemClock().now_us() + HOUR_US, "met elsewhere")}


class FakeTeam:
    """A database that nothing is connected to."""

    is_closed = False

    @property
    def database(self) -> FakeTeam:
        return self

    def close(self) -> None:
        self.is_closed = True


class FakeTimetable:
    def __init__(self, *started: Started) -> None:
        self._started = list(started)

    def start_next(self, *_: object) -> Started | None:
        return self._started.pop(0) if self._started else None


@contextmanager
def working(worker: FakeWorker, timetable: FakeTimetable, said: list[str], runs: Path) -> Generator[Chores]:
    woken, team = threading.Event(), FakeTeam()
    places = cast("Team", team), cast("Timetable", timetable), runs, runs / "pauses"
    with Chores(
        worker, *places, lambda path: None, lambda now_us: None, say=said.append, wake=woken.set
    ) as made:
        made.start()
        yield made
        assert woken.is_set() is (made.misfit is not None)
    assert team.is_closed


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_chores, "LOOK_S", 0.01)


def test_what_schedules_start_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    started = Started("nightly", "run-1", ""), Started("hourly", "", "it was skipped")

    with working(FakeWorker(), FakeTimetable(*started), said, tmp_path):
        until(lambda: len(said) == 3, "both schedules, and the chore")

    assert said == [
        "the chore 'nodes' failed: it is full",
        "schedule nightly: run-1 is queued",
        "schedule hourly: it was skipped",
    ]


@pytest.mark.requirement("fleet-chores")
@pytest.mark.parametrize("error", [DepotUnavailableError("db", "away"), RuntimeError("strange")])
def test_a_chore_that_fails_keeps_no_schedule_from_being_started(tmp_path: Path, error: Exception) -> None:
    said: list[str] = []
    worker = FakeWorker(*[error] * 1000)

    with working(worker, FakeTimetable(Started("nightly", "run-1", "")), said, tmp_path) as chores:
        until(lambda: "schedule nightly: run-1 is queued" in said, "the schedule")

    assert {*said} <= {"a chore failed: strange", "schedule nightly: run-1 is queued"}
    assert chores.misfit is None


@pytest.mark.requirement("fleet-upgrade")
def test_tables_of_a_version_that_the_node_does_not_know_end_it(tmp_path: Path) -> None:
    worker = FakeWorker(DepotSchemaError("db", "its tables are those of a newer version"))

    with working(worker, FakeTimetable(), [], tmp_path) as chores:
        until(lambda: chores.misfit is not None, "the misfit")

    assert worker.times == 1


def made(runs: Path, name: str, age_us: int) -> Path:
    path = runs / name
    path.mkdir()
    (path / "journal.ndjson").write_bytes(b"")
    for place in (path / "journal.ndjson", path):
        moment = (NOW_US - age_us) / 1e6
        os.utime(place, (moment, moment))
    return path


def find_none(ids: Sequence[str]) -> Sequence[str]:
    """No run is held."""
    return ()


@pytest.mark.requirement("fleet-lost-directories")
def test_directories_of_runs_that_the_node_lost_a_day_ago_are_removed(tmp_path: Path) -> None:
    old, owned = made(tmp_path, "run-old", KEPT_US + 1), made(tmp_path, "run-owned", 2 * KEPT_US)
    made(tmp_path, "run-young", KEPT_US - 1)
    made(tmp_path, f"{LOST}run-before", 0)
    made(tmp_path, "something", 2 * KEPT_US)

    def put_aside(path: Path) -> Path | None:
        return None if path == owned else path.rename(path.with_name(f"{LOST}{path.name}"))

    assert remove_lost(tmp_path, put_aside, NOW_US, find_none) == [old.name]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run-owned", "run-young", "something"]


@pytest.mark.requirement("fleet-lost-directories")
def test_the_workspace_and_the_worktrees_of_a_run_are_removed_with_its_directory(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    old, young = (
        made(tmp_path / "runs", name, age_us)
        for name, age_us in (("run-old", KEPT_US + 1), ("run-young", KEPT_US - 1))
    )
    for run in (old, young):
        (tmp_path / WORKSPACES / run.name / "node_modules").mkdir(parents=True)
        (tmp_path / WORKSPACES / f"{run.name}.setup").write_text("{}", "utf-8")
        (tmp_path / "worktrees" / run.name / "task").mkdir(parents=True)

    remove_lost(tmp_path / "runs", put_run_aside, NOW_US, find_none)

    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*"))
    assert left == ["runs/run-young", "work/run-young", "work/run-young.setup", "worktrees/run-young"]


@pytest.mark.requirement("held-directories-stay")
def test_the_directory_of_a_held_run_stays(tmp_path: Path) -> None:
    held, other = (made(tmp_path, name, 2 * KEPT_US) for name in ("run-held", "run-other"))
    asked: list[str] = []

    def find_held(ids: Sequence[str]) -> Sequence[str]:
        asked.extend(ids)
        return [held.name]

    assert remove_lost(tmp_path, put_run_aside, NOW_US, find_held) == [other.name]
    assert held.is_dir()
    assert asked == [held.name, other.name]


@pytest.mark.requirement("held-directories-stay")
def test_which_runs_are_held_is_what_the_database_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_chores, "TIDY_EVERY", 1)
    yard = Yard(tmp_path)
    with closing(yard):
        held, queued = yard.submit(), yard.submit()
        yard.rows(
            "UPDATE bartack.owner o SET state = 'held' FROM bartack.run r WHERE r.no = o.run AND r.id = %s",
            held,
        )
        for path in tmp_path.iterdir():
            for place in (*path.iterdir(), path):
                os.utime(place, (0, 0))
        places = yard.team, cast("Timetable", FakeTimetable()), tmp_path, tmp_path / "pauses"

        with Chores(
            FakeWorker(), *places, put_run_aside, lambda now_us: None, say=print, wake=lambda: None
        ) as chores:
            chores.start()
            until(lambda: not (tmp_path / queued).exists(), "the end of the directory")

        assert (tmp_path / held).is_dir()


def test_a_directory_whose_processes_still_run_is_kept(tmp_path: Path) -> None:
    path = made(tmp_path, "run-old", 2 * KEPT_US)
    lock = take_tree_lock(str(RunDir(path).tree_lock), 0)
    os.utime(path, (0, 0))
    try:
        assert remove_lost(tmp_path, lambda one: one, NOW_US, find_none) == []
    finally:
        os.close(lock)
    assert path.exists()


def test_a_limit_that_a_run_has_met_is_known_on_other_nodes_and_theirs_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_chores, "LOOK_S", 0.01)
    clock, worker = SystemClock(), FakeWorker()
    until_us = clock.now_us() + HOUR_US
    Pause(tmp_path / "pauses" / OURS, clock).begin(until_us, "met here")
    theirs = Pause(tmp_path / "pauses" / THEIRS, clock)

    with working(worker, FakeTimetable(), [], tmp_path):
        until(lambda: theirs.current().reason == "met elsewhere", "the pause of other nodes")

    assert worker.known[OURS] == (until_us, "met here")
