"""Commands of one machine that meet runs of the nodes of a database: they show what those wait for, and leave them to the nodes."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.postgres import new_database

from bartack import Run
from bartack.depot import user_depot
from bartack.depot.postgres._database import Database
from bartack.errors import DeadlineExceededError, ResumeRefusedError

Call = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., "subprocess.Popen[str]"]
OF_DATABASES = (
    "psycopg",
    "obstore",
    "cronsim",
    "bartack.depot.postgres",
    "bartack.depot.team",
    "bartack.node.fleet",
)
MODULES = """\
import json
import sys

from bartack import Context, worker

@worker
async def main(ctx: Context) -> str:
    return json.dumps(sorted(sys.modules))
"""
PROGRAM = """\
from bartack import Context, worker

@worker
async def main(ctx: Context, fails: bool = False) -> str:
    if fails:
        raise ValueError("no luck")
    return str(await ctx.shell("echo", "done"))
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


@pytest.fixture
def queued(run: Call, on: tuple[str, str]) -> str:
    """A run that waits for a node, which there is not."""
    return submit(run, on)


def submit(run: Call, on: tuple[str, str], *words: str) -> str:
    done = run("run", *on, "--detach", "--view", "json", *words, "main.py")
    assert done.returncode == 0, done.stderr
    made: str = json.loads(done.stdout.splitlines()[-1])["run"]
    return made


def state_of(database: Database, run_id: str) -> str:
    ((state,),) = database.shared.rows(
        "SELECT o.state FROM bartack.owner o JOIN bartack.run r ON r.no = o.run WHERE r.id = %s", run_id
    )
    return str(state)


def join(database: Database) -> int:
    ((made,),) = database.shared.rows(
        "SELECT bartack.join_fleet('alpha', gen_random_uuid(), 'boot', '0', 4, 60, ARRAY['default'], ARRAY[]::text[], 1, 3)"
    )
    return int(made)


@pytest.mark.requirement("fleet-lists")
def test_each_list_of_runs_has_the_queue_of_nodes_and_why_a_run_is_in_it(
    call: Call, run: Call, database: Database, on: tuple[str, str]
) -> None:
    held = submit(run, on)
    assert "1 run is held" in call("db", "restored", *on).stderr
    queued = submit(run, on, "--need", "gpu")
    node = join(database)

    for words in (("status",), ("status", *on), ("status", "--all")):
        lines = {
            line.split()[0]: line for line in call(*words).stdout.splitlines() if line.startswith("run-")
        }
        assert " queued " in lines[queued], words
        assert "no node of pool 'default' has the label 'gpu'" in lines[queued]
        assert " held " in lines[held]
        assert "the database was restored from a backup" in lines[held]
    facts = {one["run"]: one for one in json.loads(call("status", "--json").stdout)}
    assert [facts[one]["queue_state"] for one in (queued, held)] == ["queued", "held"]
    everything = {one["run"]: one for one in json.loads(call("status", "--all", "--json").stdout)}
    assert [everything[one]["queue"]["state"] for one in (queued, held)] == ["queued", "held"]
    shown = call("status", queued).stdout
    assert "bartack resume" not in shown, "a node begins it by itself"

    database.shared.rows("UPDATE bartack.owner SET needs = '{}'")
    assert database.shared.rows("SELECT count(*) FROM bartack.claim(%s, 1)", node) == [(1,)]
    assert "node 'alpha' begins or continues it" in call("status", queued).stdout
    database.shared.rows("UPDATE bartack.node SET until = clock_timestamp() - interval '1 s'")
    assert "node 'alpha' does not answer" in call("status", queued).stdout


@pytest.mark.requirement("fleet-runs-stay-with-nodes")
def test_commands_for_the_node_of_this_machine_leave_runs_of_other_nodes_alone(
    call: Call, database: Database, queued: str
) -> None:
    added = call("queue", "add", queued)
    everything = call("resume", "--all", "--failed", "--yes")
    detached = call("detach", queued)
    resumed = call("resume", queued, "--detach")

    assert "[BT363]" in added.stderr
    assert "it is for the nodes of a database" in everything.stdout
    assert [done.returncode for done in (detached, resumed)] == [0, 0], detached.stderr + resumed.stderr
    assert user_depot().standings() == []
    assert state_of(database, queued) == "queued"

    node = join(database)
    assert database.shared.rows("SELECT count(*) FROM bartack.claim(%s, 1)", node) == [(1,)]
    assert "runs on node alpha already" in call("detach", queued).stderr


@pytest.mark.requirement("fleet-runs-stay-with-nodes")
def test_a_run_of_nodes_is_given_back_to_them_without_naming_the_database(
    call: Call, run: Call, database: Database, queued: str, on: tuple[str, str]
) -> None:
    assert "1 run is held" in call("db", "restored", *on).stderr

    assert call("resume", queued, "--detach", "--pool", "fast").returncode == 0
    assert state_of(database, queued) == "queued"
    assert database.shared.rows("SELECT pool FROM bartack.owner") == [("fast",)]

    here = run("resume", queued, "--here")
    assert here.stdout == "done\n", here.stderr
    assert "completed" in call("status", queued, *on).stdout


def test_a_run_that_was_cancelled_is_not_given_to_the_nodes(
    call: Call, database: Database, queued: str, on: tuple[str, str]
) -> None:
    assert call("cancel", queued).returncode == 0

    assert "[BT331]" in call("resume", queued, *on, "--detach").stderr
    assert state_of(database, queued) == "over"


def test_a_follower_of_a_failed_run_that_was_given_back_waits_for_its_next_end(
    call: Call, run: Call, start: Start, database: Database, on: tuple[str, str]
) -> None:
    assert run("run", *on, "--here", "main.py", "--", "--fails").returncode == 1
    ((failed,),) = database.shared.rows("SELECT id FROM bartack.run")
    assert call("resume", failed, *on, "--detach").returncode == 0

    with start("attach", failed) as follower:
        assert follower.stderr is not None
        assert "attached" in follower.stderr.readline()
        assert call("cancel", failed, *on).returncode == 0
        left = follower.stderr.read()

    assert "was cancelled" in left
    assert "no luck" not in left


def test_what_to_type_next_names_the_database(call: Call, queued: str, on: tuple[str, str]) -> None:
    assert call("fail", queued, "no need", *on).returncode == 0

    named = f"--on '{on[1]}'"
    for words in (("status", queued), ("report", queued), ("attach", queued)):
        done = call(*words, *on)
        assert f"bartack resume {queued} {named}" in done.stdout + done.stderr, words
    missing = call("show", "run-20990101", *on)
    assert "'bartack status --on DATABASE' lists the runs" in missing.stderr


@pytest.mark.requirement("fleet-begins-at")
def test_no_node_takes_a_run_before_its_time(
    call: Call, run: Call, database: Database, on: tuple[str, str]
) -> None:
    node = join(database)
    run_id = submit(run, on, "--at", "2999-01-31T22:00+01:00")

    assert database.shared.rows("SELECT count(*) FROM bartack.claim(%s, 1)", node) == [(0,)]
    assert "queued: it begins at 2999-01-31 21:00:00 UTC" in call("status", run_id).stdout
    assert json.loads(call("db", "stats", *on, "--json").stdout)["queue_age_s"] == 0
    database.shared.rows("UPDATE bartack.owner SET due = clock_timestamp()")
    assert database.shared.rows("SELECT count(*) FROM bartack.claim(%s, 1)", node) == [(1,)]


@pytest.mark.parametrize("at", ["soon", "2020-01-01T00:00", "25:00", "2999-13-01"])
def test_a_time_that_is_none_or_has_passed_makes_no_run(
    call: Call, database: Database, on: tuple[str, str], at: str
) -> None:
    assert "[BT1002]" in call("run", *on, "--at", at, "main.py").stderr
    assert database.shared.rows("SELECT count(*) FROM bartack.run") == [(0,)]


def test_two_nodes_with_one_directory_are_told_apart_by_what_to_do(
    run: Call, on: tuple[str, str], place: Path
) -> None:
    seat = place / "seat"
    seat.mkdir(mode=0o700)
    with (seat / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused = run("node", "run", *on, "--state-dir", str(seat))

    assert refused.returncode == 5
    assert "[BT361]" in refused.stderr
    assert f"That node has {seat}" in refused.stderr


def test_a_run_of_this_machine_loads_nothing_that_runs_in_a_database_need(place: Path, run: Call) -> None:
    (place / "modules.py").write_text(MODULES, encoding="utf-8")
    probe = """import json, sys
from bartack.cli import main
code = main(sys.argv[1:])
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
sys.exit(code)
"""

    for words in (("--help",), ("run", "modules.py"), ("status",)):
        done = subprocess.run(
            [sys.executable, "-c", probe, *words], capture_output=True, text=True, timeout=60, check=True
        )
        loaded = [json.loads(done.stderr.splitlines()[-1])]
        if words[0] == "run":
            loaded.append(json.loads(done.stdout.splitlines()[-1]))
        for modules in loaded:
            assert [name for name in modules if name.startswith(OF_DATABASES)] == [], words


def test_a_time_needs_nodes(call: Call) -> None:
    assert "add --on DATABASE" in call("run", "--at", "22:00", "main.py").stderr


@pytest.mark.requirement("fleet-retention")
def test_a_run_that_no_hub_has_begun_is_deleted_by_name(
    call: Call, database: Database, queued: str, on: tuple[str, str]
) -> None:
    refused = call("clean", queued, "--yes", *on)
    assert "--unfinished includes it" in refused.stderr
    assert call("clean", "--yes", *on).returncode == 0
    assert state_of(database, queued) == "queued", "it has not ended"
    assert call("clean", queued, "--unfinished", "--older-than", "1h", "--yes", *on).returncode == 0
    assert state_of(database, queued) == "queued", "it is too young"

    done = call("clean", queued, "--unfinished", "--yes", *on)

    assert done.returncode == 0, done.stderr
    assert queued in done.stdout
    assert database.shared.rows("SELECT count(*) FROM bartack.run") == [(0,)]


@pytest.mark.requirement("fleet-wakes-for-mail")
def test_a_message_to_a_run_that_rests_says_that_a_node_continues_it(
    call: Call, database: Database, queued: str, on: tuple[str, str]
) -> None:
    database.shared.rows("UPDATE bartack.owner SET state = 'resting'")

    sent = call("mailbox", "send", queued, "box", "1", *on)

    assert sent.returncode == 0, sent.stderr
    assert "a node continues the run" in sent.stderr
    assert "bartack resume" not in sent.stderr
    assert state_of(database, queued) == "queued"
    assert json.loads(call("mailbox", "send", queued, "box", "2", "--json", *on).stdout)["queued"]
    database.shared.rows("UPDATE bartack.owner SET state = 'held'")
    assert f"'bartack resume {queued}" in call("mailbox", "send", queued, "box", "3", *on).stderr


def test_a_program_waits_for_the_next_end_of_a_run_that_it_has_given_back(
    run: Call, database: Database, on: tuple[str, str]
) -> None:
    assert run("run", *on, "--here", "main.py", "--", "--fails").returncode == 1
    ((failed,),) = database.shared.rows("SELECT id FROM bartack.run")

    again = Run.open(failed, on=on[1])
    again.resume()
    with pytest.raises(DeadlineExceededError):
        again.wait(timeout_s=0.2)
    again.cancel()

    assert again.wait().status == "cancelled"
    with pytest.raises(ResumeRefusedError):
        Run.open(failed).resume()
