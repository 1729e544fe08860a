"""Runs that move into a database and out of it, also when that is interrupted: they have one home at every moment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.history import check_history, rows_of
from tests.postgres import new_database
from tests.unit.depot.postgres.history import commit_after, submit

from bartack.depot import team as moving
from bartack.depot._directory import FileRun
from bartack.depot._order import note_newest
from bartack.depot.elsewhere import KEPT_FILE, Elsewhere, write_elsewhere
from bartack.depot.folder import FileRuns
from bartack.depot.placed import PlacedRun
from bartack.depot.postgres._run import PostgresRun
from bartack.depot.team import Team, listed
from bartack.errors import DepotError, JournalLockedError, RunNotFoundError
from bartack.journal import Draft
from bartack.journal.mirror import End, lines_after

RUN = "run-20260101-000000-00000001"
LARGE = b'"' + b"x" * 100_000 + b'"'


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def team() -> Iterator[Team]:
    made = Team(Elsewhere(new_database()))
    yield made
    made.database.close()


@pytest.fixture
def run(tmp_path: Path) -> PlacedRun:
    """A run in a directory, which had three owners."""
    path = tmp_path / "one" / RUN
    (path / "program").mkdir(parents=True)
    (path / "program" / "main.py").write_bytes(b"pass\n")
    made = PlacedRun(path)
    made.create([[Draft("test", {"text": "first"})]])
    for number in range(2):
        with made.own() as journal:
            journal.stage(Draft("test", {"text": str(number)}, LARGE if number else None))
            journal.commit()
    return made


def texts(run: FileRun) -> list[object]:
    with run.open_reader() as reader:
        found = [entry for entry in reader.read() if entry.kind == "test"]
        assert [reader.load_value(entry) for entry in found if entry.ref] == [LARGE]
        return [entry.data["text"] for entry in found]


def fences(run: FileRun) -> list[int]:
    with run.open_reader() as reader:
        return [int(str(entry.data["fence"])) for entry in reader.read() if entry.kind == "journal.opened"]


def die(*values: object, **options: object) -> None:
    raise Killed


def test_a_run_moves_in_and_out_and_keeps_everything(team: Team, run: PlacedRun, tmp_path: Path) -> None:
    team.move_in(run)
    assert PlacedRun(run.path).is_kept_elsewhere
    assert texts(PlacedRun(run.path)) == ["first", "0", "1"]
    other = team.fetch(RUN, tmp_path / "two")
    assert (other / "program" / "main.py").read_bytes() == b"pass\n"
    with PlacedRun(other).own() as journal:
        journal.append("test", {"text": "there"})

    home = team.move_out(RUN, tmp_path / "three")

    assert team.ids() == []
    assert texts(FileRun(home)) == ["first", "0", "1", "there"]
    assert fences(FileRun(home)) == sorted(set(fences(FileRun(home)))), "fences rise, whatever kept the run"
    assert not (home / KEPT_FILE).exists()


def test_a_move_that_was_interrupted_is_completed_by_the_next_one(
    team: Team, run: PlacedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(moving, "write_elsewhere", die)
        with pytest.raises(Killed):
            team.move_in(run)
    assert not PlacedRun(run.path).is_kept_elsewhere, "its home is still the directory"
    with PlacedRun(run.path).own() as journal:
        journal.append("test", {"text": "meanwhile"})

    team.move_in(PlacedRun(run.path))

    assert PlacedRun(run.path).is_kept_elsewhere
    assert texts(PlacedRun(run.path)) == ["first", "0", "1", "meanwhile"]
    ((number,),) = team.database.shared.rows("SELECT no FROM bartack.run")
    check_history(rows_of(team.database.shared, number))


def test_a_move_onto_another_run_of_the_same_id_is_refused(team: Team, run: PlacedRun) -> None:
    number = submit(team.database.shared, RUN)
    before = rows_of(team.database.shared, number)

    with pytest.raises(DepotError, match="another run"):
        team.move_in(run)
    assert rows_of(team.database.shared, number) == before
    assert not PlacedRun(run.path).is_kept_elsewhere
    assert texts(PlacedRun(run.path)) == ["first", "0", "1"]


def test_a_run_that_is_owned_moves_neither_in_nor_out(team: Team, run: PlacedRun, tmp_path: Path) -> None:
    with run.own(), pytest.raises(JournalLockedError):
        team.move_in(PlacedRun(run.path))
    assert team.ids() == []
    team.move_in(PlacedRun(run.path))
    with PlacedRun(run.path).own() as journal:
        for place in (tmp_path / "one", tmp_path / "two"):
            with pytest.raises(JournalLockedError):
                team.move_out(RUN, place)
        journal.append("test", {"text": "still here"})
    assert PlacedRun(run.path).is_kept_elsewhere


@pytest.mark.parametrize("point", ["_check_complete", "forget"])
def test_a_pull_that_was_interrupted_leaves_one_home_and_is_completed_by_the_next_one(
    team: Team, run: PlacedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    team.move_in(run)
    with monkeypatch.context() as patch:
        patch.setattr(Team if point == "_check_complete" else PostgresRun, point, die)
        with pytest.raises(Killed):
            team.move_out(RUN, tmp_path / "two")
    with pytest.raises(JournalLockedError, match="pulled"), PlacedRun(run.path).own():
        pass  # no other directory can have it
    with pytest.raises(JournalLockedError, match="pulled"):
        team.move_out(RUN, tmp_path / "three")

    home = team.move_out(RUN, tmp_path / "two")

    assert team.ids() == []
    assert texts(FileRun(home)) == ["first", "0", "1"]


def test_a_directory_of_the_same_id_that_is_another_run_stays_as_it_is(
    team: Team, run: PlacedRun, tmp_path: Path
) -> None:
    submit(team.database.shared, RUN)

    for fetch in (team.fetch, team.move_out, team.place):
        with pytest.raises(DepotError, match="stays as it is"):
            fetch(RUN, tmp_path / "one")
    assert texts(PlacedRun(run.path)) == ["first", "0", "1"]

    write_elsewhere(run.path, Elsewhere("service:other"))
    with pytest.raises(DepotError, match="kept in service:other, and stays"):
        team.place(RUN, tmp_path / "one")


@pytest.mark.parametrize("name", ["../../x", "/tmp/x", "run-1", "", ".", "run-20260101-000000-00000001/.."])
def test_an_id_in_the_database_that_is_not_one_makes_no_directory(
    team: Team, tmp_path: Path, name: str
) -> None:
    submit(team.database.shared, name or " ")

    for ask in (team.ids, lambda: team.find("latest"), lambda: listed(team, tmp_path / "runs")):
        with pytest.raises(DepotError, match="not the id of a run"):
            ask()
    assert not (tmp_path / "runs").exists()


def test_a_run_is_found_by_its_id_or_a_unique_beginning(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "MOST_LISTED", 1)
    for number in (1, 2, 3):
        submit(team.database.shared, f"run-2026010{number}-000000-00000001")

    assert team.find("latest") == "run-20260103-000000-00000001"
    assert team.find("run-20260101-000000-00000001") == "run-20260101-000000-00000001"
    assert team.find("20260102") == "run-20260102-000000-00000001"
    for asked in ("", "nothing", "run-2026", "2026", "%", "run-_"):
        with pytest.raises(RunNotFoundError):
            team.find(asked)


def test_the_runs_of_a_database_are_listed_in_the_order_of_their_creation(team: Team, tmp_path: Path) -> None:
    runs = FileRuns(tmp_path / "runs")
    early, late, made_here = (f"run-{day}-000000-00000001" for day in ("20260101", "20250101", "20240101"))
    for run_id in (early, late):
        submit(team.database.shared, run_id)
    listed(team, runs.directory)
    note_newest(runs.directory, made_here)
    submit(team.database.shared, made_here)
    last = "run-20230101-000000-00000001"
    submit(team.database.shared, last)

    listed(team, runs.directory)

    assert [path.name for path in runs.paths()] == [last, made_here, late, early]


def test_a_program_is_changed_by_the_owner_only(team: Team, run: PlacedRun, tmp_path: Path) -> None:
    team.move_in(run)
    late = PlacedRun(run.path)
    with late.own() as journal:
        with team.database.session() as session:
            session.rows("UPDATE bartack.node SET until = until - interval '1 day'")
        other = PlacedRun(team.fetch(RUN, tmp_path / "two"))
        (other.path / "program" / "main.py").write_bytes(b"new\n")
        with other.own():
            other.keep_program()
        (run.path / "program" / "main.py").write_bytes(b"late\n")
        with pytest.raises(Exception, match="another owner"):
            late.keep_program()
        with pytest.raises(Exception, match="another owner"):
            journal.append("test")

    assert (team.fetch(RUN, tmp_path / "three") / "program" / "main.py").read_bytes() == b"new\n"


def test_the_rest_of_a_history_is_what_follows_its_beginning() -> None:
    first = commit_after(0, 0, 1, "a", "b")
    second = commit_after(2, first.crc, 1, "c")
    whole = first.lines + second.lines

    assert lines_after(whole, End(2, first.crc)) == second.lines
    assert lines_after(whole, End(3, second.crc)) == b""
    assert lines_after(whole, End()) == whole
    assert lines_after(whole, End(2, first.crc + 1)) is None
    assert lines_after(whole, End(4, second.crc)) is None
