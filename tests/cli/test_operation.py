"""Operating a database of runs from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.postgres import new_database

from bartack.cli.nodes._fleet import node_telemetry
from bartack.depot.elsewhere import Elsewhere
from bartack.depot.postgres._database import Database
from bartack.depot.team import Team
from bartack.depot.timetable import Timetable
from bartack.node._cron import next_time
from bartack.runtime.hub.planned import first_entries
from bartack.runtime.rundir.find import read_state
from bartack.runtime.rundir.layout import RunDir
from bartack.telemetry.catalogue import NodeJoined

Call = Callable[..., subprocess.CompletedProcess[str]]
PROGRAM = """\
from bartack import Context, worker

@worker
async def main(ctx: Context, name: str) -> str:
    return str(await ctx.shell("echo", name))
"""


MAKE = """
from bartack import step

@step
def make(name: str) -> str:
    return name[:1] * 2_000_000
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "main.py").write_text(PROGRAM, encoding="utf-8")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def database() -> Iterator[Database]:
    with Database(new_database()) as made:
        yield made


@pytest.fixture
def on(database: Database) -> tuple[str, str]:
    (name,) = database.shared.rows("SELECT current_database()")[0]
    (folder,) = database.shared.rows("SHOW unix_socket_directories")[0]
    return "--on", f"postgresql://bartack@/{name}?host={folder}"


def submit(run: Call, on: tuple[str, str], *words: str) -> str:
    done = run("run", *on, "--detach", "--view", "json", *words, "main.py", "Ann")
    assert done.returncode == 0, done.stderr
    made: str = json.loads(done.stdout.splitlines()[-1])["run"]
    return made


@pytest.mark.requirement("fleet-teams")
def test_a_run_of_a_team_that_is_at_its_limit_stays_queued_and_status_says_so(
    run: Call, database: Database, on: tuple[str, str]
) -> None:
    assert "at most 0 runs" in run("teams", "set", "slow", "--max-running", "0", *on).stderr
    run_id = submit(run, on, "--team", "slow")
    database.shared.rows(
        "SELECT bartack.join_fleet('alpha', gen_random_uuid(), 'boot', '0', 4, 60, ARRAY['default'], ARRAY[]::text[], 1, 3)"
    )

    shown = run("status", run_id)

    assert "the team 'slow' has 0 runs at once, and that many now" in shown.stdout, shown.stderr
    assert json.loads(run("status", run_id, "--json").stdout)["queue"].startswith("queued: the team 'slow'")
    listed = run("teams", "list", *on).stdout.splitlines()
    assert [" ".join(line.split()) for line in listed] == [
        "default 0 running, 0 queued",
        "slow 0 of 0 running, 1 queued",
    ]
    refused = run("run", *on, "--team", "nobody", "main.py", "Ann")
    assert "bartack teams set nobody" in refused.stderr


@pytest.mark.requirement("fleet-teams")
def test_settings_choose_the_team_and_the_nodes_of_a_run(
    run: Call, database: Database, on: tuple[str, str], place: Path
) -> None:
    (place / "bartack.toml").write_text(
        '[run]\nteam = "slow"\npool = "batch"\nneeds = ["gpu"]\npriority = 5\n', encoding="utf-8"
    )
    run("teams", "set", "slow", *on)

    submit(run, on)
    submit(run, on, "--team", "default", "--pool", "fast", "--need", "tpu", "--priority", "-1")
    added = run("schedules", "add", "nightly", *on, "--cron", "0 3 * * *", "--", "run", "main.py", "Ann")

    assert added.returncode == 0, added.stderr
    chosen = "SELECT r.team, o.pool, o.needs, o.priority FROM bartack.owner o JOIN bartack.run r ON r.no = o.run ORDER BY r.no"
    assert database.shared.rows(chosen) == [("slow", "batch", ["gpu"], 5), ("default", "fast", ["tpu"], -1)]
    assert database.shared.rows("SELECT team, pool, needs, priority FROM bartack.schedule") == [
        ("slow", "batch", ["gpu"], 5)
    ]


@pytest.mark.requirement("fork-keeps-its-nodes")
def test_a_fork_is_for_the_nodes_of_the_run_that_it_was_forked_from(
    run: Call, database: Database, on: tuple[str, str], place: Path
) -> None:
    (place / "bartack.toml").write_text('[run]\npool = "settings"\npriority = 3\n', encoding="utf-8")
    run("teams", "set", "slow", *on)
    assert run("run", *on, "--here", "--team", "slow", "main.py", "Ann").returncode == 0
    ((origin,),) = database.shared.rows("SELECT id FROM bartack.run")
    (place / "bartack.toml").unlink()

    def forked(*words: str) -> list[tuple[object, ...]]:
        done = run("fork", origin, "--at", "1", *on)
        assert done.returncode == 0, done.stderr
        made = done.stdout.strip()
        resumed = run("resume", made, *on, "--detach", *words)
        assert resumed.returncode == 0, resumed.stderr
        return database.shared.rows(
            "SELECT r.team, o.pool, o.needs, o.priority FROM bartack.owner o JOIN bartack.run r ON r.no = o.run WHERE r.id = %s",
            made,
        )

    assert forked() == [("slow", "settings", [], 3)], "no node was given the first run"
    database.shared.rows(
        "UPDATE bartack.owner SET pool = 'batch', needs = '{gpu}', priority = 5 FROM bartack.run r "
        "WHERE r.no = run AND r.id = %s",
        origin,
    )
    assert forked() == [("slow", "batch", ["gpu"], 5)]
    assert forked("--pool", "fast", "--need", "tpu") == [("slow", "fast", ["tpu"], 5)]


@pytest.mark.requirement("environment-strict-label")
def test_a_strict_run_needs_a_node_with_its_python(
    run: Call, database: Database, on: tuple[str, str], place: Path
) -> None:
    mine = f"python:{sys.version_info.major}.{sys.version_info.minor}"
    needs = "SELECT needs FROM bartack.owner ORDER BY run DESC LIMIT 1"
    run_id = ""
    for rule, labels in (("same", ["gpu"]), ("strict", ["gpu", mine])):
        (place / "bartack.toml").write_text(f'[run]\nenvironment = "{rule}"\n', encoding="utf-8")
        run_id = submit(run, on, "--need", "gpu")
        assert database.shared.rows(needs) == [(labels,)]

    database.shared.rows(
        "SELECT bartack.join_fleet('alpha', gen_random_uuid(), 'boot', '0', 4, 60, ARRAY['default'], '{gpu,python:2.7}', 1, 3)"
    )
    assert f"no node of pool 'default' has the label '{mine}'" in run("status", run_id).stdout

    database.shared.rows("UPDATE bartack.owner SET needs = '{gpu,python:2.7}'")
    assert run("resume", run_id, *on, "--detach").returncode == 0
    assert database.shared.rows(needs) == [(["gpu", mine],)], "an update may have recorded another version"


@pytest.mark.requirement("runs-have-a-team")
def test_runs_of_this_machine_and_moved_ones_belong_to_the_chosen_team(
    run: Call, database: Database, on: tuple[str, str], place: Path
) -> None:
    (place / "bartack.toml").write_text('[run]\nteam = "slow"\n', encoding="utf-8")
    refused = run("run", *on, "--here", "main.py", "Ann")
    assert "bartack teams set slow" in refused.stderr
    assert database.shared.rows("SELECT count(*) FROM bartack.run") == [(0,)]
    run("teams", "set", "slow", *on)
    run("teams", "set", "fast", *on)

    assert run("run", *on, "--here", "main.py", "Ann").returncode == 0
    assert run("run", *on, "--here", "--team", "fast", "main.py", "Ann").returncode == 0
    for words in ((), ("--team", "default")):
        assert run("run", "main.py", "Ann").returncode == 0
        moved = run("move", "latest", *on, *words)
        assert moved.returncode == 0, moved.stderr

    teams = "SELECT team FROM bartack.run ORDER BY no"
    assert database.shared.rows(teams) == [("slow",), ("fast",), ("slow",), ("default",)]


@pytest.mark.parametrize(
    "words", [("--team", "default"), ("--key", "k"), ("--at", "2999-01-01"), ("--carry", "none")]
)
def test_options_of_runs_for_nodes_take_the_database_of_the_user(
    run: Call,
    database: Database,
    on: tuple[str, str],
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BARTACK_ON", on[1])

    done = run("run", *words, "--detach", "main.py", "Ann")

    assert done.returncode == 0, done.stderr
    assert database.shared.rows("SELECT state FROM bartack.owner") == [("queued",)]


@pytest.mark.requirement("fleet-keys")
def test_a_key_that_is_known_shows_its_run_and_makes_none(
    run: Call, database: Database, on: tuple[str, str], place: Path
) -> None:
    first = submit(run, on, "--key", "order-7")

    assert submit(run, on, "--key", "order-7") == first
    assert submit(run, on, "--key", "order-8") != first
    assert database.shared.rows("SELECT count(*) FROM bartack.run") == [(2,)]
    assert len([*(place / ".bartack/runs").iterdir()]) == 2


@pytest.mark.requirement("fleet-keys")
def test_repeating_an_interrupted_submission_with_its_key_queues_its_run(
    run: Call, database: Database, on: tuple[str, str]
) -> None:
    first = submit(run, on, "--key", "order-7", "--pool", "batch", "--priority", "5")
    # What is left of a submitter that queued its run in a statement of its own, and was killed before that.
    database.shared.rows(
        "UPDATE bartack.owner SET state = 'resting', pool = NULL, priority = 0, needs = '{}', queued = NULL"
    )

    again = run(
        "run", *on, "--detach", "--key", "order-7", "--pool", "batch", "--priority", "5", "main.py", "Ann"
    )

    assert again.returncode == 0, again.stderr
    assert "its submission was interrupted" in again.stderr
    assert f"{first} is queued" in again.stderr
    chosen = "SELECT state, pool, priority FROM bartack.owner"
    assert database.shared.rows(chosen) == [("queued", "batch", 5)]


def repeated(run: Call, on: tuple[str, str]) -> tuple[int, str, dict[str, str]]:
    """The exit code, the text and the JSON of a submission whose key is known."""
    words = ("run", *on, "--detach", "--key", "order-7", "main.py", "Ann")
    said = run(*words)
    as_json = run(*words, "--json")
    assert as_json.returncode == said.returncode, as_json.stderr
    return said.returncode, said.stderr, json.loads(as_json.stdout.splitlines()[-1])


@pytest.mark.requirement("fleet-keys")
def test_a_repeated_submission_says_what_its_run_is_doing(
    run: Call, database: Database, on: tuple[str, str]
) -> None:
    run_id = submit(run, on, "--key", "order-7")

    code, text, facts = repeated(run, on)
    assert (code, facts["state"]) == (0, "queued")
    assert f"{run_id} is queued" in text

    ((node,),) = database.shared.rows(
        "SELECT bartack.join_fleet('alpha', gen_random_uuid(), 'boot', '0', 4, 60, ARRAY['default'], ARRAY[]::text[], 1, 3)"
    )
    database.shared.rows("SELECT bartack.claim(%s, 1)", node)
    database.shared.rows("UPDATE bartack.owner SET alive = true")
    code, text, facts = repeated(run, on)
    assert (code, facts["state"]) == (0, "owned")
    assert f"{run_id} is running on node alpha" in text

    database.shared.rows(
        "UPDATE bartack.owner SET state = 'resting', node = NULL, alive = false, reason = 'it waits for an answer'"
    )
    code, text, facts = repeated(run, on)
    assert (code, facts["state"], facts["reason"]) == (0, "resting", "it waits for an answer")
    assert f"{run_id} rests" in text
    assert "it waits for an answer" in text
    assert "queued" not in text

    run("db", "restored", *on)
    database.shared.rows("UPDATE bartack.owner SET state = 'held', reason = 'three nodes died'")
    code, text, facts = repeated(run, on)
    assert (code, facts["state"], facts["reason"]) == (1, "held", "three nodes died")
    assert f"{run_id} is held: three nodes died" in text
    assert "BT377" in text

    assert run("cancel", run_id, *on).returncode == 0
    code, text, facts = repeated(run, on)
    assert (code, facts["state"], facts["status"]) == (0, "over", "cancelled")
    assert f"{run_id} is over: it is cancelled" in text
    assert database.shared.rows("SELECT state FROM bartack.owner") == [("over",)]


@pytest.mark.requirement("fleet-no-node")
def test_what_no_node_has_is_shown_with_a_remedy(run: Call, database: Database, on: tuple[str, str]) -> None:
    run_id = submit(run, on, "--need", "gpu")
    database.shared.rows("UPDATE bartack.owner SET queued = queued - interval '2 minutes'")
    database.shared.rows(
        "SELECT bartack.join_fleet('alpha', gen_random_uuid(), 'boot', '0', 4, 60, ARRAY['default'], ARRAY[]::text[], 1, 3)"
    )

    shown = run("status", run_id).stdout

    assert "no node of pool 'default' has the label 'gpu'" in shown
    assert "BT376" in shown


@pytest.mark.requirement("fleet-held")
def test_a_held_run_is_named_with_its_reason_where_a_command_meets_it(
    run: Call, database: Database, on: tuple[str, str]
) -> None:
    run_id = submit(run, on)
    assert "1 run is held" in run("db", "restored", *on).stderr

    watched = run("watch", run_id)

    assert watched.returncode == 9
    assert "BT377" in watched.stderr
    assert "the database was restored from a backup" in watched.stderr
    assert "bartack resume RUN --on DATABASE" in watched.stderr
    assert "held: the database was restored" in run("status", run_id).stdout
    resumed = run("resume", run_id, *on, "--detach")
    assert resumed.returncode == 0, resumed.stderr
    assert database.shared.rows("SELECT state FROM bartack.owner") == [("queued",)]


@pytest.mark.requirement("objects-are-checked")
def test_commands_keep_and_check_values_of_a_run_in_the_object_store(
    run: Call, on: tuple[str, str], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = place / "store"
    store.mkdir()
    monkeypatch.setenv("BARTACK_DEPOT_BLOBS", f"file://{store}")
    (place / "main.py").write_text(PROGRAM.replace('ctx.shell("echo", name)', "make(name)") + MAKE, "utf-8")
    done = run("run", *on, "--here", "main.py", "Ann")
    assert (done.returncode, len(done.stdout)) == (0, 2_000_001), done.stderr
    (path,) = store.iterdir()

    shown = run("db", "stats", *on).stdout
    assert f"file://{store}: it answers; 1 value, 2.0 MB; 0 objects that nothing names" in shown
    path.write_bytes(b"x")
    damaged = run("db", "check", *on)
    assert damaged.returncode == 10
    assert f"the object {path.name} of file://{store} does not match" in damaged.stderr


@pytest.mark.requirement("fleet-schedules")
def test_a_schedule_makes_a_run_of_the_program_that_was_there_when_it_was_added(
    run: Call, database: Database, on: tuple[str, str], place: Path
) -> None:
    words = ("--", "run", "--pool", "batch", "--priority", "3", "main.py", "Ann")
    added = run("schedules", "add", "nightly", *on, "--cron", "0 3 * * *", "--zone", "Europe/Berlin", *words)
    assert added.returncode == 0, added.stderr
    (place / "main.py").unlink()
    database.shared.rows("UPDATE bartack.schedule SET next = '2026-01-01T02:00Z'")
    team = Team(Elsewhere(on[1]))
    with team.database:
        started = Timetable(team).start_next(
            lambda one, after: next_time(one.name, one.cron, one.zone, after), first_entries
        )
        assert started is not None
        assert started.problem == ""
        found = team.fetch(started.run, place / "elsewhere")

    made = RunDir(found)
    state = read_state(made)
    assert state.run is not None
    assert (state.run.run, state.run.argv, state.run.workspace) == (started.run, ["Ann"], str(place))
    assert [path.read_text(encoding="utf-8") for path in made.program.rglob("main.py")] == [PROGRAM]
    (facts,) = json.loads(run("schedules", "list", *on, "--json").stdout)
    assert (facts["last_run"], facts["pool"], facts["priority"]) == (started.run, "batch", 3)
    listed = run("schedules", "list", *on).stdout
    assert "03:00" in listed
    assert run("schedules", "remove", "nightly", *on).returncode == 0
    assert "There are no schedules" in run("schedules", "list", *on).stdout
    assert "bartack schedules list --on DATABASE" in run("schedules", "remove", "nightly", *on).stderr


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("main.py", "Ann"), "write the command after --"),
        (("run", "--goal", "x"), "name a FILE"),
        (("run", "--here", "main.py", "Ann"), "--here is not for"),
        (("run", "--key", "k", "main.py", "Ann"), "--key is not for"),
        (("run", "missing.py"), "missing.py"),
        (("run", "main.py"), "name"),
    ],
)
def test_what_a_schedule_cannot_start_is_refused_when_it_is_added(
    run: Call, database: Database, on: tuple[str, str], words: tuple[str, ...], problem: str
) -> None:
    done = run("schedules", "add", "nightly", *on, "--cron", "0 3 * * *", "--", *words)

    assert done.returncode != 0
    assert problem in done.stderr
    assert database.shared.rows("SELECT count(*) FROM bartack.schedule") == [(0,)]


def test_a_migration_and_a_check_of_a_database_that_is_up_to_date(run: Call, on: tuple[str, str]) -> None:
    assert "is up to date" in run("db", "migrate", *on).stderr
    assert run("db", "check", *on).returncode == 0
    stats = json.loads(run("db", "stats", *on, "--json").stdout)
    assert {"queued", "queue_age_s", "beat_ms", "appends_per_statement"} <= set(stats)


def test_a_check_names_a_counter_that_is_wrong(run: Call, database: Database, on: tuple[str, str]) -> None:
    run("teams", "set", "slow", "--max-running", "2", *on)
    database.shared.rows("UPDATE bartack.team SET running = 1 WHERE name = 'slow'")

    done = run("db", "check", *on)

    assert done.returncode == 10
    assert "the team 'slow' counts 1 running runs, and has 0" in done.stderr


@pytest.mark.requirement("fleet-events")
def test_the_events_of_a_node_go_to_opentelemetry_if_the_user_says_so() -> None:
    with node_telemetry(wanted=True) as telemetry:
        assert telemetry.wanted(NodeJoined)
    with node_telemetry(wanted=False) as telemetry:
        assert not telemetry.wanted(NodeJoined)


@pytest.mark.requirement("fleet-retention")
def test_ended_runs_of_a_database_are_deleted_by_age(
    run: Call, database: Database, on: tuple[str, str]
) -> None:
    runs = [submit(run, on) for _ in range(3)]
    summaries = [
        ("completed", "2020-01-01T00:00:00Z"),
        ("completed", "2999-01-01T00:00:00Z"),
        ("failed", "2020-01-01T00:00:00Z"),
    ]
    for run_id, (status, updated_at) in zip(runs, summaries, strict=True):
        summary = json.dumps({"status": status, "updated_at": updated_at}).encode()
        database.shared.rows("UPDATE bartack.run SET summary = %s WHERE id = %s", summary, run_id)

    assert runs[0] in run("clean", *on, "--older-than", "4w", "--dry-run").stdout
    refused = run("clean", *on, runs[2], "--yes")
    assert "--unfinished includes it" in refused.stderr
    done = run("clean", *on, "--older-than", "4w", "--yes")

    assert done.returncode == 0, done.stderr
    assert {row[0] for row in database.shared.rows("SELECT id FROM bartack.run")} == set(runs[1:])
