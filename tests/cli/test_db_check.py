"""``bartack db check`` and ``journal verify --on`` read the database itself: whatever is damaged there is found, each time."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.postgres import new_database

from bartack.cli.nodes._db import PROGRESS_S, Progress
from bartack.depot.elsewhere import Elsewhere
from bartack.depot.placed import PlacedRun
from bartack.depot.postgres._database import Database
from bartack.depot.team import Team
from bartack.journal import Draft

Call = Callable[..., subprocess.CompletedProcess[str]]
RUN = "run-20260101-000000-00000001"
LARGE = b'"' + b"x" * 2_500_000 + b'"'
"""A value of three pieces."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "state"


@pytest.fixture
def database() -> Iterator[Database]:
    with Database(new_database()) as made:
        yield made


@pytest.fixture
def on(database: Database, tmp_path: Path) -> tuple[str, str]:
    """A database with a run of five rows and two large values."""
    ((name,),) = database.shared.rows("SELECT current_database()")
    ((folder,),) = database.shared.rows("SHOW unix_socket_directories")
    where = f"postgresql://bartack@/{name}?host={folder}"
    path = tmp_path / "made" / RUN
    (path / "program").mkdir(parents=True)
    (path / "program" / "main.py").write_bytes(b"pass\n")
    run = PlacedRun(path)
    run.create([[Draft("test", {"text": "first"})]])
    team = Team(Elsewhere(where))
    team.move_in(run)
    with team.database, PlacedRun(path).own() as journal:
        for number in range(3):
            journal.append("test", {"text": str(number)}, LARGE if number == 1 else None)
    return "--on", where


DAMAGE = {
    "a changed line": "UPDATE bartack.journal SET lines = overlay(lines placing 'Z'::bytea from 40) WHERE seq = 4",
    "a missing row": "DELETE FROM bartack.journal WHERE seq = 4",
    "a missing end": "WITH gone AS (DELETE FROM bartack.journal WHERE seq = (SELECT max(seq) FROM bartack.journal) RETURNING last) "
    "UPDATE bartack.run SET at_least = (SELECT last FROM gone)",
    "no rows": "DELETE FROM bartack.journal",
    "another end beside a line": "UPDATE bartack.journal SET crc = crc + 1 WHERE seq = 4",
    "a changed piece": "UPDATE bartack.part SET bytes = overlay(bytes placing 'Z'::bytea from 40) WHERE no = 1",
    "a missing piece": "DELETE FROM bartack.part WHERE no = 2",
    "no content": "WITH gone AS (DELETE FROM bartack.blob) DELETE FROM bartack.content WHERE size > 1000000",
    "unheld content": "DELETE FROM bartack.blob b USING bartack.content c WHERE c.sha256 = b.sha256 AND c.size > 999999",
    "a changed program": "UPDATE bartack.part p SET bytes = 'x' FROM bartack.run r WHERE p.sha256 = r.program",
}


@pytest.mark.requirement("db-check")
@pytest.mark.parametrize("damage", DAMAGE)
def test_each_damage_is_found_also_by_the_second_check_on_the_same_machine(
    call: Call, database: Database, on: tuple[str, str], damage: str
) -> None:
    assert call("log", RUN, *on).returncode == 0, "from here on this machine has a copy of the journal"
    assert call("journal", "export", RUN, *on).returncode == 0, "and its large values"
    for words in (("db", "check"), ("journal", "verify", RUN)):
        assert call(*words, *on).returncode == 0
    database.shared.rows("ALTER TABLE bartack.blob DROP CONSTRAINT IF EXISTS blob_team_sha256_fkey")

    database.shared.rows(DAMAGE[damage])

    for _ in range(2):
        checked = call("db", "check", *on)
        assert checked.returncode == 10
        assert RUN in checked.stderr
        assert "1 run checked, 1 damaged" in checked.stderr
        facts = json.loads(call("db", "check", RUN, "--json", *on).stdout)
        assert (facts["problems"], facts["checked"], facts["of"]) == (1, 1, 1)
        assert isinstance(facts["runs"][RUN], str)
        verified = call("journal", "verify", RUN, *on)
        assert verified.returncode == 10
        assert "damaged" in verified.stdout


@pytest.mark.requirement("db-check")
def test_a_check_keeps_nothing_on_this_machine(call: Call, on: tuple[str, str], home: Path) -> None:
    assert call("db", "check", *on).returncode == 0
    assert [*home.rglob("journal.ndjson")] == []
    assert call("journal", "verify", RUN, *on).returncode == 0
    assert [*home.rglob("blobs")] == []


def multiply(database: Database, copies: int) -> None:
    """Make copies of the one run, all of them older than it."""
    database.shared.rows(
        "INSERT INTO bartack.run (no, id, team, at_least, program, program_size) OVERRIDING SYSTEM VALUE "
        "SELECT -n, 'run-20250101-000000-' || lpad(to_hex(n), 8, '0'), team, at_least, program, program_size "
        "FROM bartack.run, generate_series(1, %s) n",
        copies,
    )
    database.shared.rows(
        "CREATE TABLE bartack.journal_older PARTITION OF bartack.journal FOR VALUES FROM (MINVALUE) TO (0)"
    )
    for statement in (
        "INSERT INTO bartack.journal SELECT -n, seq, last, fence, crc, lines FROM bartack.journal, generate_series(1, %s) n",
        "INSERT INTO bartack.blob SELECT -n, team, sha256 FROM bartack.blob, generate_series(1, %s) n",
    ):
        database.shared.rows(statement, copies)


@pytest.mark.requirement("db-check")
def test_all_of_more_than_a_thousand_runs_are_checked(
    call: Call, database: Database, on: tuple[str, str]
) -> None:
    multiply(database, 1_100)
    database.shared.rows("DELETE FROM bartack.journal WHERE run = -1100 AND seq = 4")

    for _ in range(2):
        done = call("db", "check", *on)
        assert done.returncode == 10
        assert f"run-20250101-000000-{1100:08x}: " in done.stderr
        assert "1101 runs checked, 1 damaged" in done.stderr
    sample = json.loads(call("db", "check", "--sample", "7", "--json", *on).stdout)
    assert (sample["checked"], sample["of"], len(sample["runs"])) == (7, 1101, 7)
    assert "7 of 1101 runs checked" in call("db", "check", "--sample", "7", *on).stderr
    assert "[BT1002]" in call("db", "check", RUN, "--sample", "7", *on).stderr


def test_a_check_reports_from_time_to_time_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    progress = Progress(lambda: f"at {now[0]:g}", lambda: now[0])
    for moment in (1.0, PROGRESS_S, PROGRESS_S + 1, 2 * PROGRESS_S):
        now[0] = moment
        progress.look()

    assert [line.rpartition(" ")[2] for line in capsys.readouterr().err.splitlines()] == ["5", "10"]
