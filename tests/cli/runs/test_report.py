"""``bartack report`` and ``bartack diff`` on recorded runs: scripted agents, real git, and reports that are kept word for word."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from tests.cli.runs.stories import Call, Start, Story
from tests.unit.pipeline.repository import git, make, put, user_state

from bartack.core.watch import open_watch
from bartack.pipeline.report.report import RunReport

KEPT = Path(__file__).parent / "reports"
TESTS = "test -f a.txt"
SETTINGS = """\
durability = "process"
[pipeline]
spec = false
on_limit = "fail"
{pipeline}
[tests]
command = "{tests}"
{more}
[agents.ann]
kind = "scripted"
script = "team.json"
roles = ["builder"]
[agents.bob]
kind = "scripted"
script = "team.json"
roles = ["reviewer"]
"""
DONE = "test -f names.txt -o -f colours.txt -o -f greet.txt"
"""Fails where the work of no task is."""
PARALLEL = "[parallel]\ntasks = 3\n"
USAGE = {"input_tokens": 1000, "output_tokens": 234, "turns": 2, "cost_usd": 0.05}
APPROVED = {"events": [{"type": "review.completed", "status": "approved", "usage": {"cost_usd": 0.01}}]}


def task(id_: str, goal: str) -> str:
    return f'[[tasks]]\nid = "{id_}"\ngoal = "{goal}"\ntitle = "The work of {id_}"\n'


def builds(path: str, content: str, for_task: str = "", **more: object) -> dict[str, object]:
    """A builder that writes a file."""
    event = {"type": "builder.completed", "payload": {"tests": {"status": "pass"}}, "usage": USAGE}
    when = {"when": {"task": for_task}} if for_task else {}
    return {
        **when,
        "times": 0,
        "write": [{"path": path, "content": content}],
        "events": [{**event, "artifacts": [{"path": path}]}],
        **more,
    }


def wants(*findings: dict[str, object]) -> dict[str, object]:
    """A reviewer that wants changes."""
    event = {
        "type": "review.completed",
        "status": "changes_requested",
        "payload": {"findings": list(findings)},
    }
    return {"events": [{**event, "usage": {"cost_usd": 0.01}}]}


def project(tasks: str, pipeline: str = "", tests: str = TESTS, more: str = "", **responses: object) -> Path:
    """A repository in the current directory, and agents that do what they are asked here."""
    content = {
        "team.json": json.dumps({"version": 1, "responses": {"review": APPROVED, **responses}}),
        "bartack.toml": SETTINGS.format(pipeline=pipeline, tests=tests, more=more) + tasks,
        ".gitignore": ".bartack/\n",
        "a.txt": "first\nsecond\nthird\n",
    }
    return make(Path.cwd(), content)


def three(**contents: str) -> Path:
    """A project with three tasks side by side, each of which writes a file."""
    ids = ("names", "colours", "greet")
    goals = "".join(task(id_, f"Write {id_}.txt.") for id_ in ids)
    replies = [builds(f"{id_}.txt", contents.get(id_, f"{id_}\n"), id_) for id_ in ids]
    return project(goals, tests=DONE, more=PARALLEL, implement=replies)


_MOVING = (
    (re.compile(r"run-\d{8}-\d{6}-[0-9a-f]{8}"), "RUN"),
    (re.compile(r"\b(?:\d+\.\d m?s|\d+ min \d\d s)\b"), "TIME"),
)


def steady(text: str) -> str:
    """A report without what differs each time."""
    for pattern, word in _MOVING:
        text = pattern.sub(word, text)
    return text


def check(name: str, text: str) -> None:
    """Compare a report with the one that is kept, word for word."""
    assert steady(text) == (KEPT / name).read_text(encoding="utf-8"), f"tests/cli/runs/reports/{name}"


def facts(bartack: Call, *words: str) -> RunReport:
    """The report as a program reads it."""
    return msgspec.json.decode(bartack("report", *words, "--json").stdout, type=RunReport, strict=True)


# Runs in the workspace.


@pytest.mark.requirement("report-has-the-work-of-each-task")
def test_one_task_with_a_failed_test_and_two_reviews(bartack: Call) -> None:
    finding: dict[str, object] = {"path": "b.txt", "line": 1, "message": "say please", "severity": "major"}
    place = project(
        task("please", "Write a polite b.txt."),
        tests="grep -q hello b.txt",
        implement=builds("b.txt", "hallo\n"),
        implement_changes=[builds("b.txt", "hello\n", times=1), builds("b.txt", "hello please\n")],
        review=[wants(finding), APPROVED],
    )
    put(place, {"a.txt": "a person works here, too\n"})

    done = bartack("run")

    assert done.returncode == 0, done.stderr
    check("one-task.txt", bartack("report").stdout)
    check("one-task.md", bartack("report", "--markdown").stdout)
    found = facts(bartack)
    assert (found.total.calls, round(found.total.usd, 2), found.total.tokens) == (5, 0.17, 3702)
    assert [(use.agent, use.calls) for use in found.agents] == [("ann", 3), ("bob", 2)]
    assert found.takeover is not None
    assert found.takeover.command == "git add -- b.txt && git commit"

    subprocess.run(["sh", "-c", f"{found.takeover.command} --quiet -m done"], check=True, env=author())
    assert git(place, "status", "--porcelain") == "M a.txt", "the change of a person is not taken"
    after = facts(bartack).takeover
    assert (after and after.state, after and after.command) == ("done", "")


def author() -> dict[str, str]:
    """Variables with which git makes commits."""
    name, mail = "Ada", "ada@example.com"
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "GIT_AUTHOR_NAME": name,
        "GIT_AUTHOR_EMAIL": mail,
        "GIT_COMMITTER_NAME": name,
        "GIT_COMMITTER_EMAIL": mail,
    }


@pytest.mark.requirement("diff-shows-the-work")
def test_a_diff_of_work_in_the_workspace_is_a_patch_of_it(bartack: Call, tmp_path: Path) -> None:
    edited = builds("a.txt", "first\n2nd\nthird\n")
    added = builds("deep/new.txt", "new\n")
    place = project(
        task("one", "Edit a.txt.") + task("two", "Add."),
        implement=[{**edited, "when": {"task": "one"}}, {**added, "when": {"task": "two"}}],
    )
    put(place, {"mine.txt": "not of the run\n"})
    assert bartack("run").returncode == 0

    patch = bartack("diff").stdout

    copy = tmp_path / "copy"
    git(place, "clone", "--quiet", ".", str(copy))
    subprocess.run(["git", "apply", "-"], cwd=copy, input=patch, text=True, check=True)
    assert (copy / "a.txt").read_text() == "first\n2nd\nthird\n"
    assert (copy / "deep/new.txt").read_text() == "new\n"
    assert bartack("diff", "latest", "one", "--name-only").stdout == "a.txt\n"
    assert (
        "1 file changed, 1 insertion(+), 1 deletion(-)" in bartack("diff", "latest", "one", "--stat").stdout
    )
    assert json.loads(bartack("diff", "latest", "two", "--json").stdout) == [
        {"path": "deep/new.txt", "change": "added", "added": 1, "removed": 0}
    ]

    git(place, "add", "mine.txt")
    assert "the commit would also have what you have staged: mine.txt" in bartack("report").stdout
    put(place, {"a.txt": "edited since\n"})
    gone = bartack("diff")
    assert "a.txt modified: its content before or after the run is not kept" in gone.stderr
    assert "deep/new.txt" in gone.stdout
    [one, _] = facts(bartack).tasks
    assert (one.uncounted, one.files[0].added) == (1, None)
    assert "changed since the run: a.txt" in bartack("report").stdout


@pytest.mark.requirement("report-names-open-points")
def test_a_failed_gate_is_reported_with_what_the_run_waits_for(bartack: Call) -> None:
    project(
        task("never", "Write c.txt."),
        pipeline="max_fix_rounds = 1",
        tests="echo no luck; exit 3",
        implement=builds("c.txt", "c\n"),
        implement_changes=builds("c.txt", "cc\n"),
    )

    done = bartack("run")

    assert done.returncode == 1
    *_, report, remedy = done.stderr.splitlines()
    assert report.startswith("  1 open point; report: bartack report run-")
    assert remedy.startswith("  fix the cause, then: bartack resume run-")
    check("failed-gate.txt", bartack("report").stdout)
    check("failed-gate.md", bartack("report", "--markdown").stdout)
    [never] = facts(bartack).tasks
    assert never.tests is not None
    assert (never.tests.verdict, never.tests.exit_code, never.tests.runs, never.tests.failed) == (
        "fail",
        3,
        2,
        2,
    )


@pytest.mark.requirement("report-names-open-points")
def test_findings_that_were_not_addressed_and_an_unclear_change_are_open_points(bartack: Call) -> None:
    findings: tuple[dict[str, object], ...] = (
        {"path": "d.txt", "line": 2, "message": "one\nmore <b>thing</b>"},
        {"message": "and @ann, fixes #1"},
    )
    review = {**wants(*findings), "write": [{"path": "a.txt", "content": "changed in secret\n"}]}
    project(
        task("open", "Write d.txt."),
        pipeline="max_review_rounds = 1",
        implement=builds("d.txt", "d\n"),
        review=review,
    )

    assert bartack("run").returncode == 1

    check("unclear-review.txt", bartack("report").stdout)
    check("unclear-review.md", bartack("report", "--markdown").stdout)
    [task_] = facts(bartack).tasks
    assert [point.kind for point in task_.open] == ["finding", "finding", "unclear"]


@pytest.mark.requirement("report-names-open-points")
def test_a_task_that_no_verdict_explains_has_its_error_and_others_continue(bartack: Call) -> None:
    event = {"type": "error", "payload": {"code": "auth_failed", "message": "no key", "retryable": False}}
    fails = {"when": {"task": "one"}, "times": 0, "events": [event]}
    goals = task("one", "Fail.") + task("two", "Write f.txt.")
    implement = [fails, builds("f.txt", "f\n", "two")]

    codes: list[int] = []
    points: list[tuple[str, str, str]] = []
    project(goals, implement=implement)
    for rule in ("continue", "stop"):
        codes.append(bartack("run", "--set", f"pipeline.on_task_failure={rule}").returncode)
        one, two = facts(bartack).tasks
        points += [(two.status, point.kind, point.text) for point in one.open]

    error = "AgentAuthError: agent 'ann': no key [auth_failed]; attempts: 1 auth_failed"
    assert codes == [1, 1]
    assert points == [("done", "failed", error), ("waiting", "failed", error)]


@pytest.mark.requirement("report-counts-what-was-not-paid-again")
def test_an_interrupted_run_is_reported_so_far_and_a_resumed_one_with_what_was_not_paid_again(
    bartack: Call, start: Start
) -> None:
    hanging = {**APPROVED, "inject": [{"do": "hang", "heartbeats": True}]}
    marking = {"write": [{"path": "reviews/begun.txt", "content": "reading\n"}]}
    place = project(
        task("slow", "Write e.txt."), implement=builds("e.txt", "e\n"), review={**hanging, **marking}
    )
    process = start("run")
    with open_watch(str(place)) as watch:
        while not (place / "reviews/begun.txt").exists():
            assert process.poll() is None
            watch.wait(0.2)

    active = facts(bartack)
    process.send_signal(signal.SIGKILL)
    process.wait()

    assert active.status == "running"
    assert [wait.text for wait in active.waits_for] == ["slow: think review slow"]
    check("interrupted.txt", bartack("report").stdout)
    put(place, {"team.json": json.dumps({"version": 1, "responses": {"review": APPROVED}})})
    assert bartack("resume").returncode == 0
    check("resumed.txt", bartack("report").stdout)
    found = facts(bartack)
    assert (found.resumed.times, found.resumed.answers, found.resumed.usd) == (1, 1, 0.05)
    assert [(use.agent, use.calls, use.usd) for use in found.agents] == [("ann", 1, 0.05), ("bob", 1, 0.01)]


# Runs in worktrees.


@pytest.mark.requirement("takeover-is-checked")
def test_three_tasks_side_by_side_are_taken_over_by_the_line_that_the_report_names(
    bartack: Call, tmp_path: Path
) -> None:
    place = three()
    assert bartack("run").returncode == 0
    put(place, {"mine.txt": "meanwhile\n"})
    git(place, "add", "mine.txt")
    git(place, "commit", "--quiet", "--message=meanwhile")
    before, objects = user_state(place), git(place, "count-objects")

    check("three-tasks.txt", bartack("report").stdout)
    check("three-tasks.md", bartack("report", "--markdown").stdout)
    takeover = facts(bartack).takeover

    assert (user_state(place), git(place, "count-objects")) == (before, objects), "the check changes nothing"
    assert takeover is not None
    assert (takeover.state, takeover.command) == ("applies", f"git merge {takeover.branch}")
    assert bartack("diff", "latest", "greet", "--name-only").stdout == "greet.txt\n"
    assert bartack("diff", "--name-only").stdout == "colours.txt\ngreet.txt\nnames.txt\n"
    scratch = tmp_path / "scratch"
    git(place, "clone", "--quiet", "--no-local", ".", str(scratch))
    git(scratch, "fetch", "--quiet", "origin", f"{takeover.branch}:{takeover.branch}")
    before_merge = subprocess.run(["sh", "-c", DONE], cwd=scratch, check=False)
    subprocess.run(takeover.command.split(), cwd=scratch, check=True, capture_output=True, env=author())
    after_merge = subprocess.run(["sh", "-c", DONE], cwd=scratch, check=False)
    assert (before_merge.returncode, after_merge.returncode) == (1, 0)
    assert sorted(path.name for path in scratch.glob("*.txt")) == [
        "a.txt",
        "colours.txt",
        "greet.txt",
        "mine.txt",
        "names.txt",
    ]
    subprocess.run(takeover.command.split(), cwd=place, check=True, capture_output=True, env=author())
    after = facts(bartack).takeover
    assert (after and after.state, after and after.command) == ("done", "")


@pytest.mark.requirement("takeover-is-checked")
def test_a_conflict_with_the_users_branch_is_named_and_so_is_what_is_in_the_way(bartack: Call) -> None:
    place = three()
    assert bartack("run").returncode == 0

    put(place, {"names.txt": "mine\n"})
    blocked = facts(bartack).takeover
    git(place, "add", "names.txt")
    git(place, "commit", "--quiet", "--message=mine")
    conflicting = facts(bartack).takeover
    git(place, "switch", "--quiet", "--create", "elsewhere")

    assert blocked is not None
    assert (blocked.state, blocked.files) == ("blocked", ["names.txt"])
    assert conflicting is not None
    assert (conflicting.state, conflicting.files) == ("conflicts", ["names.txt"])
    check("conflict.txt", bartack("report").stdout[-700:].partition("Take")[2])
    tried = subprocess.run(
        conflicting.command.split(), cwd=place, check=False, capture_output=True, env=author()
    )
    assert tried.returncode == 1, "git finds the same"
    assert git(place, "diff", "--name-only", "--diff-filter=U") == "names.txt"
    unfinished = facts(bartack).takeover
    assert unfinished is not None
    assert (unfinished.state, unfinished.advice.startswith("A merge is not finished")) == ("blocked", True)


@pytest.mark.requirement("takeover-is-checked")
def test_a_run_whose_tasks_are_in_conflict_is_reported_while_it_waits(bartack: Call) -> None:
    goals = task("one", "Write same.txt.") + task("two", "Write same.txt.")
    replies = [builds("same.txt", "one\n", "one"), builds("same.txt", "two\n", "two")]
    project(goals, more=PARALLEL, implement=replies)

    assert bartack("run").returncode == 3

    check("conflict-of-tasks.txt", bartack("report").stdout)
    found = facts(bartack)
    assert [task_.status for task_ in found.tasks] == ["done", "conflict"]
    assert [point.kind for point in found.open] == ["question"]
    assert bartack("diff", "latest", "two").stdout.count("\n+two") == 1


# Other runs, and errors.


@pytest.mark.requirement("report-of-a-program")
def test_a_run_of_a_plain_program_has_a_short_report(bartack: Call, completed: Story, failed: Story) -> None:
    check("program.txt", bartack("report", completed.run.id).stdout)
    check("failed-program.txt", bartack("report", failed.run.id).stdout)
    check("failed-program.md", bartack("report", failed.run.id, "--markdown").stdout)
    found = facts(bartack, completed.run.id)
    assert (found.kind, found.tasks, found.takeover) == ("program", [], None)

    refused = bartack("diff", completed.run.id)
    assert refused.returncode == 2
    assert "error[BT923]" in refused.stderr
    assert "is a run of a program: only runs of the pipeline record changes of files" in refused.stderr


@pytest.mark.requirement("report-of-a-program")
def test_a_question_of_a_program_is_what_it_waits_for(bartack: Call, asking: Story) -> None:
    found = facts(bartack)

    assert found.status == "waiting"
    assert [wait.command for wait in found.waits_for] == [
        f"bartack answer {asking.run.id} q1 VALUE",
        f"bartack resume {asking.run.id}",
    ]


def test_an_unknown_run_or_task_is_a_clear_error(bartack: Call) -> None:
    assert bartack("report").returncode == 7
    three()
    assert bartack("run").returncode == 0

    unknown = bartack("report", "run-x")
    task_ = bartack("diff", "latest", "name")
    both = bartack("report", "--markdown", "--json")
    options = bartack("diff", "--stat", "--name-only")

    assert (unknown.returncode, "error[BT301]: no run 'run-x'" in unknown.stderr) == (7, True)
    assert "error[BT905]" in task_.stderr
    assert "has no task 'name'; did you mean names?" in task_.stderr
    assert (both.returncode, options.returncode) == (2, 2)


@pytest.mark.requirement("report-json-is-stable")
def test_the_json_of_a_report_keeps_to_its_schema_and_to_its_page(bartack: Call, completed: Story) -> None:
    page = (Path(__file__).parents[3] / "docs/how-to/morning-after.md").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(bartack("schema", "report", "--closed").stdout)

    shown = json.loads(bartack("report", completed.run.id, "--json").stdout)

    jsonschema_rs.validate(schema, shown)
    assert list(shown) == list(RunReport.__struct_fields__)
    documented = set(re.findall(r"`([a-z_]+)`", page.split("## For programs")[1]))
    parts: list[dict[str, Any]] = list(schema["$defs"].values())
    assert {name for part in parts for name in part.get("properties", {})} - documented == set()


# Hostile repositories.


@pytest.fixture
def trap(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], bool]:
    """Returns whether something was executed that a repository names; ``trap.sh`` is what it names."""
    folder = tmp_path_factory.mktemp("trap")
    script = folder / "trap.sh"
    script.write_text(f"#!/bin/sh\ntouch {folder}/sprung\ncat\n")
    script.chmod(0o700)
    shutil.copy(script, Path.cwd() / ".trap")
    return (folder / "sprung").exists


@pytest.mark.requirement("report-executes-nothing")
def test_neither_command_executes_what_a_repository_names(bartack: Call, trap: Callable[[], bool]) -> None:
    place = three()
    assert bartack("run").returncode == 0
    put(place, {"names.txt": "mine\n"})
    git(place, "add", "names.txt")
    git(place, "commit", "--quiet", "--message=mine")
    branch = git(place, "branch", "--list", "bartack/*/result", "--format=%(refname:short)")
    put(
        place,
        {".gitattributes": "* filter=t diff=t merge=t\n", "a.txt": "edited\n", "names.txt": "mine, too\n"},
    )
    (place / ".git/info").mkdir(exist_ok=True)
    shutil.copy(place / ".gitattributes", place / ".git/info/attributes")
    for name in (
        "filter.t.clean",
        "filter.t.smudge",
        "filter.t.process",
        "diff.t.textconv",
        "diff.t.command",
    ):
        git(place, "config", name, str(place / ".trap"))
    git(place, "config", "filter.t.required", "true")
    git(place, "config", "merge.t.driver", f"{place}/.trap %A")
    git(place, "config", "diff.external", str(place / ".trap"))

    report, diff = bartack("report"), bartack("diff")

    assert (report.returncode, diff.returncode) == (0, 0)
    assert "names.txt" in report.stdout.partition("Take the work over")[2]
    assert not trap()
    subprocess.run(
        ["git", "merge-tree", "--write-tree", "HEAD", branch], cwd=place, check=False, capture_output=True
    )
    assert trap(), "git itself executes the merge driver"
