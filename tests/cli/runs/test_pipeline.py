"""The pipeline through the real command line, with real processes and the scripted agent."""

from __future__ import annotations

import errno
import json
import os
import signal
from pathlib import Path

import jsonschema_rs
import pytest
from tests.cli.runs.stories import Call, Start

from bartack.cli.project._schema import find_schema
from bartack.core.watch import open_watch
from bartack.journal import open_reader
from bartack.pipeline.lock import hold_workspace
from bartack.supervision.process.tree import find_by_environment

BUILT = {"type": "builder.completed", "payload": {"tests": {"status": "pass"}}}
TEAM = '[agents.team]\nkind = "scripted"\nscript = "team.json"\nroles = ["builder", "reviewer", "orchestration"]\n'


def workspace(settings: str = "", **responses: object) -> Path:
    """A workspace in the current directory, outside of git, with an agent that does what it is told here."""
    told = {
        "implement": {"write": [{"path": "a.txt", "content": "1\n"}], "events": [BUILT]},
        "implement_changes": {"write": [{"path": "a.txt", "content": "2\n"}], "events": [BUILT]},
        "review": {"events": [{"type": "review.completed", "status": "approved"}]},
        **responses,
    }
    Path("team.json").write_text(json.dumps({"version": 1, "responses": told}))
    Path("bartack.toml").write_text(
        f'durability = "process"\n{settings}\n{TEAM}[snapshot]\nsource = "roots"\n'
    )
    return Path.cwd()


def only_run(place: Path) -> Path:
    [run] = (place / ".bartack/runs").iterdir()
    return run


def commands(run: Path) -> list[str]:
    """What agents were told, in the order of the journal."""
    with open_reader(run) as reader:
        entries = [entry.data for entry in reader.read() if entry.kind == "step.started"]
    return [str(data["about"]) for data in entries if data["step"] == "think"]


@pytest.mark.requirement("example-runs-at-once")
def test_the_example_runs_at_once_and_everything_it_writes_validates(bartack: Call, tmp_path: Path) -> None:
    assert bartack("init", "--example").returncode == 0
    assert bartack("check", "bartack.toml").stdout == "no errors in bartack.toml\n"

    done = bartack("run")

    assert (done.returncode, json.loads(done.stdout)["tasks"][0]["status"]) == (0, "done")
    assert "tests weeks fail, exit 1" in done.stderr
    assert Path("weeks.txt").read_text() == "52 or 53\n"
    status = json.loads(bartack("status", "latest", "--json").stdout)
    assert (status["pipeline"]["stage"], status["pipeline"]["tasks"][0]["status"]) == ("complete", "done")
    assert json.loads((only_run(tmp_path) / "run.json").read_text())["pipeline"] == status["pipeline"]
    assert "weeks  done" in bartack("status", "latest").stdout
    verified = bartack("show", "latest", "--verify").stdout
    assert "weeks 6  update_spec round 1: spec.updated" in verified
    assert "changed since  weeks.txt" in verified
    assert "same  weeks.txt" in verified
    _validate(bartack, only_run(tmp_path))


@pytest.mark.requirement("example-runs-at-once")
def test_the_example_runs_again_where_its_work_is_done(bartack: Call) -> None:
    assert bartack("init", "--example").returncode == 0
    assert bartack("run").returncode == 0

    again = bartack("run")

    assert (again.returncode, json.loads(again.stdout)["tasks"][0]["status"]) == (0, "done"), again.stderr
    assert "reported an update, but SPEC.md did not change" in again.stderr


@pytest.mark.requirement("repeated-tasks-are-named")
def test_a_second_run_points_out_the_tasks_that_it_repeats(bartack: Call) -> None:
    place = workspace('[[tasks]]\nid = "one"\ngoal = "one"\n[[tasks]]\nid = "two"\ngoal = "two"\n')
    first = bartack("run")
    done = only_run(place).name

    again = bartack("run")
    chosen = bartack("run", "--task", "two")

    assert first.returncode == 0, first.stderr
    assert "will be done again" not in first.stderr
    assert (
        f"one and two were done by {done} and will be done again; --task ID chooses tasks\n" in again.stderr
    )
    assert "will be done again" not in chosen.stderr


def _validate(bartack: Call, run: Path) -> None:
    """Whatever was written has the form that our own closed schemas say."""
    files = {"receipt": "receipts/*/*.json", "snapshot-manifest": "snapshots/*.json", "run": "run.json"}
    for name, pattern in files.items():
        found = list(run.glob(pattern))
        assert found, name
        check = jsonschema_rs.validator_for(find_schema(name, closed=True))
        for path in found:
            check.validate(json.loads(path.read_text()))
    exported = bartack("journal", "export", "--ledger", str(run)).stdout
    check = jsonschema_rs.validator_for(find_schema("ledger-line", closed=True))
    for line in exported.splitlines():
        check.validate(json.loads(line))
    Path("ledger.ndjson").write_text(exported)
    assert bartack("journal", "export", "--check", "ledger.ndjson").returncode == 0
    assert exported == bartack("journal", "export", "--ledger", "latest").stdout


def test_init_overwrites_nothing(bartack: Call) -> None:
    Path("bartack.toml").write_text("# mine\n")
    Path(".gitignore").write_text("*.pyc\n")

    done = bartack("init")

    assert "exists and was not changed" in done.stdout
    assert Path("bartack.toml").read_text() == "# mine\n"
    assert Path(".gitignore").read_text() == "*.pyc\n.bartack/\n"
    assert bartack("init").returncode == 0
    assert Path(".gitignore").read_text() == "*.pyc\n.bartack/\n"


@pytest.mark.requirement("newcomers-know-what-is-next")
def test_init_says_what_to_do_next(bartack: Call) -> None:
    example = bartack("init", "--example", "-C", "new").stdout
    assert "Try it: cd " in example
    assert example.count("bartack web") == 1
    assert Path("new/bartack.toml").is_file()
    Path("bartack.toml").write_text("# mine\n")

    done = bartack("init", "--example")

    assert "The example is not in your bartack.toml" in done.stdout
    assert "bartack run --goal" in bartack("init").stdout
    assert bartack("init", "-C", "bartack.toml").returncode == 2


@pytest.mark.requirement("newcomers-know-what-is-next")
def test_init_does_not_ask_for_an_agent_where_the_settings_name_one(bartack: Call) -> None:
    Path("bartack.toml").write_text('[agents.ann]\nkind = "scripted"\n\n[agents.bob.env]\nA = "b"\n')

    done = bartack("init")

    assert "bartack agents doctor checks that ann and bob are usable" in done.stdout
    assert "name an agent" not in done.stdout


def test_a_run_names_everything_that_stands_in_its_way(bartack: Call) -> None:
    Path("bartack.toml").write_text('[spec]\nfile = "/x"\n[tests]\ncommand = ["no-such-program"]\n')

    done = bartack("run", "--goal", "do it")

    assert done.returncode == 2
    assert [line.partition(": ")[0].strip() for line in done.stderr.splitlines()[:3]] == [
        "error[BT101]",
        "bartack.toml:4:1",
        "bartack.toml:2:1",
    ]
    assert (
        "agents: there is none; add [agents.claude], [agents.codex], or [agents.NAME] with command = [...]"
        in done.stderr
    )
    assert not Path(".bartack/runs").exists()


def test_init_finds_the_test_command(bartack: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bartack.cli.project._init.AGENTS", ())
    Path("Makefile").write_text("all:\n\ntest:\n\ttrue\n")

    bartack("init")

    assert 'command = ["make", "test"]' in Path("bartack.toml").read_text()
    assert bartack("check").returncode == 0


def test_check_finds_everything_at_once(bartack: Call) -> None:
    Path("bartack.toml").write_text("[pipeline]\nreviw = true\n[test]\n")

    done = bartack("check")
    as_json = [json.loads(line) for line in bartack("check", "bartack.toml", "--json").stdout.splitlines()]

    assert done.returncode == 1
    assert "bartack.toml:2:1: pipeline.reviw: there is no such key; did you mean 'review'?" in done.stdout
    assert [found["code"] for found in as_json] == ["BT101", "BT101"]


@pytest.mark.requirement("agents-are-checked-first")
def test_a_missing_reviewer_stops_a_run_before_the_builder_starts(bartack: Call, tmp_path: Path) -> None:
    workspace()
    Path("bartack.toml").write_text('[agents.team]\nscript = "team.json"\nroles = ["builder"]\n')

    done = bartack("run", "--goal", "do it")

    assert done.returncode == 2
    assert "pipeline.roles.reviewer" in done.stderr
    assert not (tmp_path / ".bartack").exists()
    assert bartack("check").returncode == 1


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        ((), 2, "there are no tasks"),
        (("--task", "T-9"), 7, "there is no task 'T-9'"),
        (("--goal", " "), 2, "is blank"),
        (("--goal", "@nowhere.txt"), 2, f"--goal @nowhere.txt: {os.strerror(errno.ENOENT)}"),
        (("--goal", "x", "--instruction", "y"), 2, "exclude each other"),
        (("program.py", "--goal", "x"), 2, "for runs without FILE"),
        (("--goal", "x", "--set", "pipeline.nothing=1"), 2, "pipeline.nothing"),
    ],
)
def test_what_cannot_be_run_is_refused(
    bartack: Call, tmp_path: Path, args: tuple[str, ...], code: int, told: str
) -> None:
    workspace()

    done = bartack("run", *args)

    assert (done.returncode, told in done.stderr) == (code, True)
    assert not (tmp_path / ".bartack/runs").exists()


def test_a_second_run_in_a_workspace_is_refused(bartack: Call, tmp_path: Path) -> None:
    workspace()
    with hold_workspace(tmp_path, tmp_path / ".bartack") as lock:
        lock.sign("run-other")

        done = bartack("run", "--goal", "do it")

    assert done.returncode == 5
    assert "run-other" in done.stderr
    assert not (tmp_path / ".bartack/runs").exists()


def test_a_goal_may_come_from_stdin_and_the_environment_reaches_the_tests(
    bartack: Call, tmp_path: Path
) -> None:
    workspace('[tests]\ncommand = "test $WEEKS = 53"\nenv = {WEEKS = "53"}')

    done = bartack("run", "--goal", "-", "--set", "pipeline.review=false", stdin="do it\nwell\n")

    assert done.returncode == 0
    [receipt] = sorted(only_run(tmp_path).glob("receipts/goal/*.json"))
    assert json.loads(receipt.read_text())["task_title"] == "do it"
    assert commands(only_run(tmp_path)) == ["implement goal"]


@pytest.mark.requirement("resume-takes-settings")
def test_tests_that_hang_are_ended_with_all_they_started_and_resume_may_change_settings(
    bartack: Call, tmp_path: Path
) -> None:
    workspace('[tests]\ncommand = "sleep 1000 & grep -q 2 a.txt || sleep 1000"\ntimeout_s = 0.4')

    failed = bartack("run", "--goal", "do it", "--set", "pipeline.max_fix_rounds=0")

    assert failed.returncode == 1
    assert "BT907" in failed.stderr
    assert find_by_environment("BARTACK_RUN_DIR", str(only_run(tmp_path))) == []
    assert "failed" in bartack("status", "latest").stdout

    done = bartack("resume", "--set", "pipeline.max_fix_rounds=1", "--set", "tests.timeout_s=5")

    assert done.returncode == 0, done.stderr
    assert commands(only_run(tmp_path)) == ["implement goal", "implement_changes goal", "review goal"]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("kill -9 $$", "by signal 9"),
        ("yes | head -c 40000000; exit 3", "ended with 3"),
        ("exec ./nowhere", "the tests cannot be run"),
    ],
)
def test_a_test_command_may_end_in_any_way(bartack: Call, tmp_path: Path, command: str, told: str) -> None:
    workspace(f'[tests]\ncommand = "{command}"\n[pipeline]\nmax_fix_rounds = 0')

    failed = bartack("run", "--goal", "do it")

    assert failed.returncode == 1
    assert "TestsGateError" in failed.stderr
    assert told in failed.stderr
    assert commands(only_run(tmp_path)) == ["implement goal"]


def test_a_question_stops_a_run_that_nobody_watches_and_an_answer_lets_it_go_on(
    bartack: Call, tmp_path: Path
) -> None:
    asks = {"events": [{"type": "orchestration.needs_clarification", "payload": {"questions": ["When?"]}}]}
    tasks = [{"id": "one", "title": "the one"}]
    payload = {"plan_candidates": [{"path": "plan.md"}], "derived_tasks": tasks}
    proposes = {"events": [{"type": "orchestration.proposed_tasks", "payload": payload}]}
    workspace(intake=[asks, proposes])
    Path("plan.md").write_text("# Plan\n")

    waiting = bartack("run", "--instruction", "ship it", "--yes")

    assert waiting.returncode == 3
    assert "bartack answer" in waiting.stderr
    assert json.loads(bartack("status", "latest", "--json").stdout)["pipeline"]["stage"] == "intake"
    assert bartack("answer", "latest", "q1", "soon").returncode == 0

    done = bartack("resume")

    assert (done.returncode, json.loads(done.stdout)["tasks"][0]["id"]) == (0, "one")


@pytest.mark.requirement("pipeline-survives-kill")
def test_a_run_whose_process_is_killed_while_an_agent_works_goes_on_and_pays_once(
    bartack: Call, start: Start, tmp_path: Path
) -> None:
    events = [{"type": "review.completed", "status": "approved"}]
    begun = [{"path": "begun.txt", "content": "reading\n"}]
    workspace(review={"write": begun, "inject": [{"do": "hang", "heartbeats": True}], "events": events})
    process = start("run", "--goal", "do it")
    with open_watch(str(tmp_path)) as watch:
        while not Path("begun.txt").exists():
            assert process.poll() is None
            watch.wait(60.0)

    process.send_signal(signal.SIGKILL)
    process.wait()
    Path("a.txt").write_text("a person was here\n")
    done = bartack("resume")

    assert done.returncode == 0, done.stderr
    run = only_run(tmp_path)
    assert commands(run) == ["implement goal", "review goal", "review goal"]
    receipts = [json.loads(path.read_text()) for path in sorted(run.glob("receipts/goal/*.json"))]
    assert [(receipt["step"], receipt["action"]) for receipt in receipts] == [(1, "implement"), (2, "review")]
    assert [attempt["cause"] for attempt in receipts[1]["attempts"]] == ["first", "resend"]
    assert Path("a.txt").read_text() == "a person was here\n", "which is no doing of the reviewer"


def test_a_missing_receipt_is_written_again_with_the_same_bytes(bartack: Call, tmp_path: Path) -> None:
    workspace(review={"error": "invalid_inputs"})
    assert bartack("run", "--goal", "do it").returncode == 1
    receipt = only_run(tmp_path) / "receipts/goal/step-1.json"
    content = receipt.read_bytes()
    receipt.unlink()

    again = bartack("resume")

    assert "step-1.json was missing" in again.stderr
    assert receipt.read_bytes() == content


# Snapshots.


def test_a_snapshot_is_taken_compared_and_verified(bartack: Call, tmp_path: Path) -> None:
    workspace('[tests]\ncommand = "true"')
    assert bartack("run", "--goal", "do it").returncode == 0
    [before, after] = sorted(
        only_run(tmp_path).glob("snapshots/*.json"), key=lambda path: len(path.read_bytes())
    )

    now = json.loads(bartack("snapshot", "--json").stdout)
    compared = bartack("snapshot", "diff", before.name.partition(".")[0], ".")

    assert now["snapshot_id"] == after.name.partition(".")[0]
    assert now["count"] == 3
    assert compared.stdout == "added         a.txt\n"
    assert bartack("snapshot", "diff", str(after), str(before)).stdout == "removed       a.txt\n"
    assert bartack("snapshot", "verify", str(after)).stdout.strip() == now["snapshot_id"]
    after.write_text(after.read_text().replace("a.txt", "b.txt"))
    assert bartack("snapshot", "verify", str(after)).returncode == 1
    assert bartack("snapshot", "diff", "nothing", ".").returncode == 2
    assert bartack("snapshot", "diff", "snap-000000000000", ".").returncode == 7


def test_the_workspace_is_found_from_below(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bartack.toml").write_text("")
    (tmp_path / "a").mkdir()
    here = call("snapshot", "--json").stdout
    monkeypatch.chdir(tmp_path / "a")

    assert call("snapshot", "--json").stdout == here


PAID = {**BUILT, "usage": {"cost_usd": 0.25, "turns": 1}}
BUILDS = {"write": [{"path": "a.txt", "content": "1\n"}], "events": [PAID]}


@pytest.mark.requirement("morning-view")
def test_the_list_of_runs_says_what_each_was_for_and_what_it_cost(bartack: Call) -> None:
    workspace("[pipeline]\nspec = false\n", implement=BUILDS)
    for goal in ("Count the weeks of a year", "Name the days, and " + "many more of them " * 9):
        assert bartack("run", "--goal", goal).returncode == 0

    head, second, first = bartack("status").stdout.partition("\n\n")[0].splitlines()

    assert head.split() == ["run", "status", "program", "what", "usd", "changed"]
    assert ("Count the weeks of a year" in first, "0.25" in first.split()) == (True, True)
    assert ("Name the days, and" in second, "…" in second, len(second) < 140) == (True, True, True)
    newest = json.loads(bartack("status", "--json").stdout)[0]
    assert (newest["spent_usd"], newest["goal"].startswith("Name the days")) == (0.25, True)


@pytest.mark.requirement("morning-view")
def test_a_completed_run_ends_with_what_it_did(bartack: Call) -> None:
    wants = [{"path": "a.txt", "line": 1, "message": "count\nfrom zero"}]
    asked = {"type": "review.completed", "status": "changes_requested", "payload": {"findings": wants}}
    approved = {"type": "review.completed", "status": "approved"}
    reviews = [{"events": [asked]}, {"events": [approved]}]
    workspace("[pipeline]\nspec = false\n", implement=BUILDS, review=reviews)

    done = bartack("run", "--goal", "count")

    lines = done.stderr.splitlines()
    [at] = [place for place, line in enumerate(lines) if line.startswith("  1 task done, ")]
    assert lines[at].startswith("  1 task done, 1 file changed; details: bartack show run-")
    assert ", 0.25 USD" in lines[at - 1]
    assert lines[at + 1].startswith("  goal  done  1 file, +1 -0 lines, tests ")
    assert lines[-1].startswith("  1 open point; report: bartack report run-")
    assert "review.completed goal, changes_requested: a.txt:1: count from zero" in bartack("log").stdout
    assert "goal  done  4 receipts" in bartack("status", "latest").stdout
    shown = bartack("show").stdout
    story, _, folded = shown.partition("\n\n")[2].partition("\n\n")
    told = [line.split() for line in story.splitlines()[1:]]
    assert [row[1:4] for row in told] == [
        ["round", "1", "implement"],
        ["round", "1", "tests"],
        ["round", "1", "review"],
        ["round", "1", "implement_changes"],
        ["round", "2", "tests"],
        ["round", "2", "review"],
    ], story
    assert "changes_requested  a.txt:1: count from zero\n" in story
    assert (" log " in shown, " snapshot\n" in shown) == (False, False)
    assert folded.partition(" ")[2].startswith("other steps of the pipeline itself: bartack show run-")
    steps = bartack("show", "--steps").stdout
    assert (" log " in steps, " snapshot\n" in steps) == (True, True)
    assert [task["id"] for task in json.loads(bartack("show", "--json").stdout)["tasks"]] == ["goal"]


@pytest.mark.requirement("morning-view")
def test_an_aborted_run_is_listed_with_the_reason_and_no_stray_words(bartack: Call) -> None:
    proposal = {"plan_candidates": [{"path": "PLAN.md"}], "derived_tasks": [{"id": "t", "title": "T"}]}
    workspace(
        intake={"events": [{"type": "orchestration.proposed_tasks", "payload": proposal}]},
    )
    Path("PLAN.md").write_text("# Plan\n")
    stopped = bartack("run", "--instruction", "do it")

    assert "(1 | more | none)" in stopped.stderr
    waiting = bartack("status", "latest").stdout.splitlines()[-1]
    assert waiting.startswith("bartack answer run-")
    assert "q1 VALUE  # then: bartack resume run-" in waiting
    assert bartack("answer", "latest", "q1", "none").returncode == 0
    bartack("resume")
    line = bartack("status").stdout.splitlines()[1]
    assert line.endswith("  denied: no plan was approved")
    assert (
        json.loads(bartack("status", "--json").stdout)[0]["error"]
        == "cancelled: denied: no plan was approved"
    )


def test_init_says_that_it_found_no_test_command_and_which_command_describes_agents(
    bartack: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bartack.cli.project._init.AGENTS", ())
    done = bartack("init")

    assert "found no test command: set tests.command in bartack.toml" in done.stdout
    settings = Path("bartack.toml").read_text()
    assert "'bartack schema command'" in settings
    assert "docs/" not in settings, "an installed package has no pages"
    Path("new").mkdir()
    Path("new/Cargo.toml").touch()
    assert "found no test command" not in bartack("init", "-C", "new").stdout


def test_an_agent_that_is_named_by_its_path_is_not_looked_for_in_the_path(bartack: Call) -> None:
    Path("bartack.toml").write_text('[agents.mine]\ncommand = ["./agents/none"]\nroles = ["builder"]\n')

    told = bartack("agents", "doctor").stdout

    assert "'./agents/none' does not exist" in told
    assert "not found in" not in told
