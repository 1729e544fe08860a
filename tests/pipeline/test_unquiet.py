"""Workspaces that are not still: logs, editors, caches and people change files while an agent reads them.

Only what an agent is known to have changed is held against it. Through the real command line, with real processes.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.pipeline.studio import REPORT, Studio
from tests.unit.pipeline.repository import git

MEDDLES = f"{REPORT}pathlib.Path('README.md').write_text('mine\\n')\nanswer['artifacts'] = [artifact('README.md')]\n"
LOGS = (
    "$B run --goal 'do it' > run.log 2>&1",
    "$B run --goal 'do it' 2>&1 | tee run.log > /dev/null",
)


@pytest.mark.parametrize("line", LOGS, ids=["redirected", "tee"])
def test_the_terminals_own_log_in_the_workspace_is_not_a_change_of_an_agent(
    tmp_path: Path, line: str
) -> None:
    studio = Studio(tmp_path, files={"run.log": "of yesterday\n", "SPEC.md": "# Spec\n"})

    done = studio.sh(line)

    log = (studio.place / "run.log").read_text()
    assert (done.returncode, " completed " in log) == (0, True), log
    assert studio.calls == ["implement", "review", "update_spec"]
    assert "run.log" not in studio.transcript
    receipts = [path.read_text() for path in studio.run_dir.glob("receipts/*/*.json")]
    assert len(receipts) == 3
    assert not any('"run.log"' in receipt for receipt in receipts)


@pytest.mark.requirement("unclear-changes-are-not-blamed")
def test_people_editors_and_caches_do_not_fail_a_review(tmp_path: Path) -> None:
    noise = [".notes.md.swp", "src/__pycache__/a.pyc", ".cache/x", "todo.local", "scratch/mine"]
    studio = Studio(tmp_path, files={"notes.md": "1\n"})
    studio.act("review", studio.wait_here())
    studio.config.write_text(f"[core]\n\texcludesFile = {tmp_path}/ignored\n")
    (tmp_path / "ignored").write_text("*.local\n")
    (studio.place / ".git/info").mkdir(exist_ok=True)
    (studio.place / ".git/info/exclude").write_text("scratch/\n")
    for name in noise:
        path = studio.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("before\n")

    run = studio.start("run", "--goal", "do it")
    with studio.meanwhile():
        for name in noise:
            (studio.place / name).write_text("during the review\n")
        (studio.place / ".README.md.swp").write_text("new\n")
        (studio.place / "README.md").write_text("a person was here\n")
    told = run.communicate(timeout=60)[1]

    assert run.returncode == 0, told
    assert [line for line in told.splitlines() if "during the review" in line or "reviewer" in line] == [
        "main/2.1:task: README.md changed during the review, and the agent did not report it; "
        "this counts as the change of a person or of another program (review.unclear)"
    ]


@pytest.mark.requirement("review-is-not-paid-twice")
def test_a_reviewer_that_reports_an_edit_is_refused_and_not_paid_again_for_the_same(tmp_path: Path) -> None:
    studio = Studio(tmp_path, review=MEDDLES)

    failed = studio.bartack("run", "--goal", "do it")
    (studio.place / "README.md").write_text("hello\n")
    resumed = studio.bartack("resume")

    assert failed.returncode == 1
    assert "the reviewer changed README.md" in failed.stderr
    assert resumed.returncode == 0, resumed.stderr
    assert studio.calls == ["implement", "review"]


@pytest.mark.requirement("isolated-reviewers-change-nothing")
def test_an_isolated_reviewer_changes_nothing_that_counts_and_what_it_writes_is_kept(tmp_path: Path) -> None:
    report = "import os\nos.makedirs('reviews', exist_ok=True)\npathlib.Path('reviews/one.md').write_text('fine\\n')\n"
    studio = Studio(tmp_path, "[review]\nisolated = true\n", review=f"{MEDDLES}{report}")
    studio.act("implement", "open('new.txt', 'w').write('work\\n')")
    seen = f"import shutil\nshutil.copy('new.txt', {str(tmp_path / 'seen')!r})\n"
    studio.act("review", f"{seen}{MEDDLES}{report}")

    done = studio.bartack("run", "--goal", "do it")

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "seen").read_text() == "work\n"
    assert (studio.place / "README.md").read_text() == "hello\n"
    assert (studio.place / "reviews/one.md").read_text() == "fine\n"
    [told] = [line for line in done.stderr.splitlines() if "README.md" in line]
    kept = studio.place / told.partition(" is kept in ")[2]
    assert (kept / "README.md").read_text() == "mine\n"


def test_isolation_needs_a_repository(tmp_path: Path) -> None:
    studio = Studio(tmp_path, "[review]\nisolated = true\n")
    (studio.place / ".git").rename(tmp_path / "elsewhere")

    refused = studio.bartack("run", "--goal", "do it")

    assert refused.returncode == 2
    assert "review.isolated" in refused.stderr


TWO_TASKS = '[parallel]\ntasks = 2\nmerge = "{merge}"\n[[tasks]]\nid = "one"\ngoal = "do"\n[[tasks]]\nid = "two"\ngoal = "do"\n'
WRITES = "import pathlib\npathlib.Path(command['task_id'] + '.txt').write_text('done\\n')\n"
LOGGED = (
    "$B run > par.log 2>&1",
    "$B run 2>&1 | tee logs/par.log > /dev/null",
    "exec 3>> README.md; echo more >&3; $B run",
)


@pytest.mark.requirement("terminal-output-is-not-in-the-base")
@pytest.mark.parametrize("line", LOGGED, ids=["redirected", "tee", "tracked"])
def test_the_terminals_own_log_is_not_part_of_what_tasks_side_by_side_begin_with(
    tmp_path: Path, line: str
) -> None:
    studio = Studio(
        tmp_path,
        TWO_TASKS.format(merge="fast-forward"),
        {"logs/.keep": "", "README.md": "hello\n"},
        implement=WRITES,
    )
    (studio.place / ".README.md.swp").write_text("an editor is open\n")

    done = studio.sh(line)

    log = "".join(path.read_text() for path in studio.place.rglob("par.log")) + done.stderr
    assert (done.returncode, "your branch is at the work of all tasks" in log) == (0, True), log
    assert git(studio.place, "log", "--format=%s", "main").splitlines()[-1] == "first"
    assert "What was not committed" not in git(studio.place, "log", "--format=%s", "--all")
    tracked = git(studio.place, "ls-files").splitlines()
    assert {"one.txt", "two.txt"} <= set(tracked)
    assert not {"par.log", "logs/par.log", ".README.md.swp"} & set(tracked)


def test_own_changes_are_still_part_of_what_tasks_side_by_side_begin_with(tmp_path: Path) -> None:
    studio = Studio(tmp_path, TWO_TASKS.format(merge="branch"), implement=WRITES)
    (studio.place / "mine.txt").write_text("mine\n")

    done = studio.sh("$B run > par.log 2>&1")

    assert done.returncode == 0, (studio.place / "par.log").read_text()
    result = f"bartack/{studio.run_dir.name}/result"
    names = git(studio.place, "ls-tree", "-r", "--name-only", result).splitlines()
    assert {"mine.txt", "one.txt", "two.txt"} <= set(names)
    assert "par.log" not in names


@pytest.mark.requirement("worktrees-have-one-writer")
def test_an_edit_of_a_reviewer_in_a_worktree_of_the_run_is_its_own_also_if_it_does_not_report_it(
    tmp_path: Path,
) -> None:
    meddles = "import pathlib\nif command['task_id'] == 'one':\n    pathlib.Path('README.md').write_text('mine\\n')\n"
    studio = Studio(tmp_path, TWO_TASKS.format(merge="branch"), implement=WRITES, review=meddles)

    failed = studio.bartack("run")
    tree = studio.place / ".bartack/worktrees" / studio.run_dir.name / "one"
    (tree / "README.md").write_text("hello\n")
    resumed = studio.bartack("resume")

    assert failed.returncode == 1
    assert "the reviewer changed README.md" in failed.stderr
    assert resumed.returncode == 0, resumed.stderr
    result = f"bartack/{studio.run_dir.name}/result"
    assert git(studio.place, "show", f"{result}:README.md") == "hello"
    assert studio.calls.count("review") == 2


def test_what_happens_to_an_unreported_edit_in_a_worktree_of_the_run_is_a_setting(tmp_path: Path) -> None:
    meddles = "import pathlib\npathlib.Path('README.md').write_text('mine\\n')\n"
    warned = TWO_TASKS.format(merge="branch") + '[review]\nunclear = "warn"\n'
    studio = Studio(tmp_path, warned, implement=WRITES, review=meddles)

    done = studio.bartack("run")

    assert done.returncode == 0, done.stderr
    assert "README.md changed during the review, and the agent did not report it" in done.stderr


@pytest.mark.requirement("spec-conflicts-are-announced")
@pytest.mark.parametrize("command", ["run", "check"])
def test_tasks_side_by_side_that_all_update_the_spec_are_warned_about_before_the_run(
    tmp_path: Path, command: str
) -> None:
    settings = TWO_TASKS.format(merge="branch")
    studio = Studio(tmp_path, settings, {"SPEC.md": "# Spec\n"}, implement=WRITES)

    done = studio.bartack(command)
    without = studio.bartack(
        command, *(["--set", "pipeline.spec=false"] if command == "run" else ["--strict"])
    )

    told = "each task updates SPEC.md, and updates of the same place conflict when they are merged"
    assert done.returncode == 0, done.stderr
    assert f"{told}; set pipeline.spec = false, or parallel.tasks = 1" in done.stderr
    assert without.returncode == (0 if command == "run" else 1)
    assert (told in without.stderr) == (command == "check")


@pytest.mark.requirement("spec-conflicts-are-announced")
def test_the_warning_about_the_spec_is_part_of_the_json_of_check(tmp_path: Path) -> None:
    settings = TWO_TASKS.format(merge="branch") + "[pipeline]\nspec = true\n"
    studio = Studio(tmp_path, settings, {"SPEC.md": "# Spec\n"}, implement=WRITES)

    done = studio.bartack("check", "bartack.toml", "--json", "--strict")
    (found,) = [json.loads(line) for line in done.stdout.splitlines()]

    assert done.returncode == 1
    assert (found["severity"], found["code"], found["setting"]) == ("warning", "", "pipeline.spec")
    written = (studio.place / "bartack.toml").read_text().splitlines()
    assert found["line"] == written.index("spec = true") + 1
    assert found["problem"].startswith("each task updates SPEC.md")


def test_one_task_that_updates_the_spec_is_not_warned_about(tmp_path: Path) -> None:
    settings = TWO_TASKS.format(merge="branch").replace('id = "two"', 'id = "two"\ndepends_on = ["one"]')
    studio = Studio(tmp_path, settings, {"SPEC.md": "# Spec\n"})

    assert "each task updates" not in studio.bartack("check").stderr
