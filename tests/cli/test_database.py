"""Commands for runs in a database, with bad input and with a database that is away."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.pipeline.studio import Studio
from tests.postgres import cluster, new_database

from bartack import Run
from bartack.depot import team
from bartack.testing import Cable

Call = Callable[..., subprocess.CompletedProcess[str]]
PROGRAM = """\
from bartack import Context, worker

@worker
async def main(ctx: Context) -> str:
    return str(await ctx.shell("echo", "done"))
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "main.py").write_text(PROGRAM, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cable() -> Iterator[Cable]:
    with Cable(str(cluster().place / ".s.PGSQL.5432")) as made:
        yield made


def through(cable: Cable) -> str:
    name = new_database().partition("@/")[2].partition("?")[0]
    return f"postgresql://bartack@127.0.0.1:{cable.port}/{name}"


def test_a_database_that_is_away_concerns_its_own_runs_only(run: Call, place: Path, cable: Cable) -> None:
    on = through(cable)
    for _ in range(2):
        assert run("run", "main.py").returncode == 0
    ids = sorted(path.name for path in (place / ".bartack/runs").iterdir())
    moved = run("move", ids[0], "--on", on)
    assert moved.returncode == 0, moved.stderr
    again = run("move", ids[0], "--on", on)
    assert again.returncode == 2
    assert on not in again.stderr

    assert run("show", ids[0]).returncode == 0
    cable.unplug()
    listed = run("status")
    assert listed.returncode == 0, listed.stderr
    assert ids[1] in listed.stdout
    assert "completed" in listed.stdout
    away = run("show", ids[0])
    assert "BT215" in away.stderr
    assert "Traceback" not in away.stderr
    for words in (("status", "--on", on), ("log", "latest", "--on", on), ("db", "stats", "--on", on)):
        done = run(*words)
        assert done.returncode != 0
        assert "BT215" in done.stderr, words

    cable.come_back()
    assert run("show", ids[0]).returncode == 0
    pulled = run("pull", ids[0], "--whole", "--on", on)
    assert pulled.returncode == 0, pulled.stderr
    cable.unplug()
    assert run("show", ids[0]).returncode == 0, "it is at home"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("run", "--on", "nonsense", "--here", "main.py"), "BT1002"),
        (("run", "--on", "DATABASE", "--here", "--pool", "gpu", "main.py"), "BT1002"),
        (("run", "--on", "DATABASE", "--after", "latest", "main.py"), "BT1002"),
        (("run", "--on", "DATABASE", "--run-as", "nobody", "main.py"), "BT341"),
        (("run", "--here", "main.py"), "BT1002"),
        (("run", "--on", "MISSING", "--here", "main.py"), "BT215"),
        (("run", "--on", "postgresql://db.example/x", "--here", "main.py"), "BT218"),
        (("run", "--on", "postgresql://u:pa55word@localhost/x", "--here", "main.py"), "BT1002"),
        (("resume", "run-20990101", "--on", "DATABASE", "--here"), "BT301"),
        (("pull", "latest", "--whole", "--on", "DATABASE"), "BT301"),
        (("show", "latest", "--on", "DATABASE"), "BT301"),
        (("move", "latest", "--on", "DATABASE"), "BT301"),
        (("db", "check", "run-1", "--on", "DATABASE"), "BT301"),
    ],
    ids=range(13),
)
def test_bad_input_is_an_error_with_a_code_and_makes_no_run(
    call: Call, place: Path, words: tuple[str, ...], code: str
) -> None:
    names = {"DATABASE": new_database(), "MISSING": cluster().url("not_there")}
    done = call(*(names.get(word, word) for word in words))

    assert done.returncode != 0
    assert f"[{code}]" in done.stderr, done.stderr
    assert "pa55word" not in done.stdout + done.stderr
    runs = place / ".bartack/runs"
    assert not runs.exists() or [*runs.iterdir()] == []


@pytest.mark.requirement("database-durability")
@pytest.mark.parametrize("how", ["--here", "--detach"])
def test_a_submission_says_that_the_durability_of_a_run_is_that_of_the_database(
    run: Call, place: Path, how: str
) -> None:
    on = ("--on", new_database(), how)
    (place / "bartack.toml").write_text('durability = "process"\n', encoding="utf-8")

    noted = [line for line in run("run", *on, "main.py").stderr.splitlines() if "synchronous_commit" in line]

    assert len(noted) == 1
    assert "synchronous_commit" not in run("run", "main.py").stderr
    (place / "bartack.toml").unlink()
    assert "synchronous_commit" not in run("run", *on, "main.py").stderr


ASKS = """\
from bartack import Context, worker

@worker
async def main(ctx: Context) -> str:
    await ctx.shell("echo", "begins")
    return f"it {await ctx.ask('Continue?', type=bool)}"
"""


@pytest.mark.requirement("database-commands")
def test_commands_reach_runs_of_a_database_that_no_process_runs(
    run: Call, call: Call, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = ("--on", new_database())
    (place / "asks.py").write_text(ASKS, encoding="utf-8")
    assert run("run", *on, "--here", "asks.py").returncode == 3
    home = str(place / "elsewhere")
    with monkeypatch.context() as other:
        other.setenv("XDG_STATE_HOME", home)
        listed = call("answer", *on)
        assert "Continue?" in listed.stdout
        assert f"--on '{on[1]}'" in listed.stdout, "what to type is complete"
        assert "[BT1002]" in call("answer", "latest", "q1", "perhaps", *on).stderr
        answered = call("answer", "latest", "q1", "yes", *on)
        assert answered.returncode == 0, answered.stderr
        assert "stored for run-" in answered.stderr

    resumed = run("resume")
    assert resumed.stdout == "it True\n", resumed.stderr

    monkeypatch.setenv("XDG_STATE_HOME", home)
    assert "[BT304]" in call("cancel", "latest", *on).stderr
    forked = call("fork", "latest", "--at", "main:1", *on)
    assert forked.returncode == 0, forked.stderr
    assert call("fail", "latest", "no need", *on).stdout.endswith("is failed\n")
    assert call("cancel", "latest", *on).stdout.endswith("is cancelled\n")
    assert "intact" in call("journal", "verify", "latest", *on).stdout
    assert '"run.created"' in call("journal", "export", "latest", *on).stdout
    assert "cancelled" in call("ps", "latest", *on).stdout
    assert call("dlq", "list", "latest", *on).returncode == 0
    assert call("mailbox", "list", "latest", *on).returncode == 0
    bundled = call("bundle", "latest", "-o", "one.tar.gz", *on)
    assert bundled.returncode == 0, bundled.stderr
    assert call("clean", "--yes", *on).returncode == 0
    assert call("status", *on).returncode == 0
    assert [*Path(home).glob("bartack/databases/*/.bartack/runs/run-*")] == []


@pytest.mark.requirement("database-lists")
def test_lists_have_all_open_questions_and_say_when_they_show_a_part(
    run: Call, call: Call, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = ("--on", new_database())
    (place / "asks.py").write_text(ASKS, encoding="utf-8")
    assert run("run", *on, "--here", "main.py").returncode == 0
    assert run("run", *on, "--here", "asks.py").returncode == 3
    assert run("run", *on, "--here", "main.py").returncode == 0
    monkeypatch.setenv("XDG_STATE_HOME", str(place / "elsewhere"))
    monkeypatch.setattr(team, "MOST_LISTED", 1)

    asked = call("answer", *on)
    assert "Continue?" in asked.stdout, "it is older than the newest run"
    assert "of 3 runs" not in asked.stderr
    listed = call("status", *on, "--json")
    found = [one["run"] for one in json.loads(listed.stdout)]
    assert len(found) == 2
    assert found[1] in asked.stdout
    assert "the newest, and all with an open question: 2 of 3 runs" in listed.stderr
    assert [one.id for one in Run.list(on=on[1])] == found

    everything = call("status", *on, "--limit", "3")
    assert "3 runs" not in everything.stderr
    assert everything.stdout.count("main.py") >= 2
    assert "the newest 2 of 3 runs; list more with --limit N" in call("status", *on, "--limit", "2").stderr
    assert "the newest 1 of 3 runs" in call("status", "-C", str(place), "--limit", "1").stderr
    assert "[BT1002]" in call("status", "latest", "--limit", "1").stderr


@pytest.mark.requirement("fleet-pipeline-here")
def test_a_run_of_the_pipeline_is_kept_in_a_database_and_works_in_this_workspace(tmp_path: Path) -> None:
    studio = Studio(tmp_path, implement="open('made.txt', 'w').write('made')")
    on = ("--on", new_database())

    done = studio.bartack("run", "--goal", "make it", *on, "--here")

    assert done.returncode == 0, done.stderr
    assert (studio.place / "made.txt").read_text() == "made"
    assert studio.calls == ["implement", "review"]
    assert "goal" in studio.bartack("show", "latest", *on).stdout
    assert studio.bartack("resume", "latest", *on, "--here").returncode == 0


@pytest.mark.requirement("fleet-pipeline-carry")
@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (("--carry", "shared"), 'with "shared" there are none'),
        (("--carry", "none", "--set", "parallel.tasks=2"), "parallel.tasks needs its repository"),
        (("--carry", "none", "--set", "review.isolated=true"), "review.isolated needs its repository"),
    ],
)
def test_a_run_of_the_pipeline_whose_workspace_does_not_travel_as_it_needs_is_refused(
    tmp_path: Path, given: tuple[str, ...], problem: str
) -> None:
    studio = Studio(tmp_path)

    refused = studio.bartack("run", "--goal", "make it", "--on", new_database(), *given)

    assert refused.returncode == 2
    assert "workspace.carry" in refused.stderr
    assert problem in refused.stderr
    assert not (studio.place / ".bartack/runs").exists()
