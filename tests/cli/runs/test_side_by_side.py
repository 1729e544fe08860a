"""Tasks side by side through the real command line: real agents' processes, real git, and kills that nobody announces."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from tests.cli.runs.stories import Call, Start
from tests.unit.pipeline.repository import git, make, put

from bartack.cli.project.doctor._project import check_worktrees
from bartack.config.load import Config, load_config
from bartack.core.watch import open_watch
from bartack.errors import WorkspaceBusyError
from bartack.pipeline.lock import hold_workspace

BUILT = {"type": "builder.completed", "payload": {"tests": {"status": "pass"}}}
APPROVED = {"events": [{"type": "review.completed", "status": "approved"}]}
SETTINGS = """\
durability = "process"
[parallel]
tasks = 2
{parallel}
[pipeline]
spec = false
[tests]
command = ["test", "-f", "a.txt"]
[agents.team]
kind = "scripted"
script = "team.json"
roles = ["builder", "reviewer"]
[[tasks]]
id = "one"
goal = "do one"
[[tasks]]
id = "two"
goal = "do two"
"""


def builds(task: str, path: str, **more: object) -> dict[str, object]:
    event = {**BUILT, "artifacts": [{"path": path}]}
    write = [{"path": path, "content": f"{task}\n"}]
    return {"when": {"task": task}, "times": 0, "write": write, "events": [event], **more}


def project(*replies: dict[str, object], parallel: str = "", **responses: object) -> Path:
    """A repository in the current directory, with two tasks and an agent that does what it is told here."""
    told = {"implement": list(replies), "review": APPROVED, **responses}
    content = {
        "team.json": json.dumps({"version": 1, "responses": told}),
        "bartack.toml": SETTINGS.format(parallel=parallel),
        ".gitignore": ".bartack/\n*.o\n",
        "a.txt": "a\n",
    }
    return make(Path.cwd(), content)


def result_of(place: Path, run: str) -> dict[str, str]:
    ref = f"bartack/{run}/result"
    names = git(place, "ls-tree", "-r", "--name-only", ref).split()
    return {name: git(place, "show", f"{ref}:{name}") for name in names if name.endswith(".txt")}


@pytest.mark.requirement("tasks-run-side-by-side")
def test_tasks_are_done_side_by_side_and_cleaned_away_when_their_work_is_merged(bartack: Call) -> None:
    place = project(builds("one", "1.txt"), builds("two", "2.txt"))
    put(place, {"mine.txt": "not committed\n"})

    done = bartack("run")

    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    run = shown["result"]["branch"].split("/")[1]
    assert [task["status"] for task in shown["tasks"]] == ["done", "done"]
    assert result_of(place, run) == {
        "1.txt": "one",
        "2.txt": "two",
        "a.txt": "a",
        "mine.txt": "not committed",
    }
    assert git(place, "status", "--porcelain") == "?? mine.txt"
    assert f"commit your own changes first, then type: git merge bartack/{run}/result" in done.stderr
    verified = bartack("show", "latest", "--verify").stdout
    assert "same  1.txt" in verified
    assert "missing" not in verified
    status = json.loads(bartack("status", "latest", "--json").stdout)["pipeline"]
    assert (status["stage"], [task["receipts"] for task in status["tasks"]]) == ("complete", [2, 2])
    [found] = check_worktrees(Config(), place)
    assert (found.level, found.sentence) == ("warn", f"runs that have ended still have worktrees: {run}")

    put(place / f".bartack/worktrees/{run}/one", {"late.txt": "late\n", "x.o": "object"})
    assert "3 worktrees" in bartack("clean", "--dry-run").stdout
    two = place / f".bartack/worktrees/{run}/two"
    git(two, "checkout", "--quiet", "--detach")
    kept = json.loads(bartack("clean", "--worktrees", "--yes", "--json").stdout)["worktrees"][run]["kept"]
    assert list(kept) == [str(two)]
    assert "it is on no branch" in bartack("clean", "--yes").stdout
    assert bartack("status", "latest").returncode == 0, "the run stays with its worktree"
    git(two, "switch", "--quiet", f"bartack/{run}/two")
    assert (place / f".bartack/worktrees/{run}/one.ignored.tar").exists()
    cleaned = bartack("clean", "--yes").stdout
    assert f"kept bartack/{run}/one: no other branch has its work" in cleaned
    assert f"kept bartack/{run}/result: no other branch has its work" in cleaned
    assert git(place, "show", f"bartack/{run}/one:late.txt") == "late"
    assert git(place, "worktree", "list").count("\n") == 0
    assert bartack("status", "latest").returncode == 7


@pytest.mark.requirement("worktrees-survive-kill")
def test_killed_while_both_tasks_are_under_way_and_moved_it_goes_on_and_pays_once(
    bartack: Call, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "before").mkdir()
    monkeypatch.chdir(tmp_path / "before")
    hanging = {**APPROVED, "inject": [{"do": "hang", "heartbeats": True}]}
    marking = {"write": [{"path": "reviews/begun.txt", "content": "reading\n"}]}
    place = project(builds("one", "1.txt"), builds("two", "2.txt"), review={**hanging, **marking})
    process = start("run")
    with open_watch(str(place)) as watch:
        while len(list(place.glob(".bartack/worktrees/*/*/reviews/begun.txt"))) < 2:
            assert process.poll() is None
            watch.wait(0.2)

    process.send_signal(signal.SIGKILL)
    process.wait()
    place = place.rename(tmp_path / "after")
    monkeypatch.chdir(place)
    [one] = place.glob(".bartack/worktrees/*/one")
    put(one, {"a.txt": "a person was here\n"})
    done = bartack("resume")

    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)["result"]["branch"].split("/")[1]
    assert result_of(place, run) == {
        "1.txt": "one",
        "2.txt": "two",
        "a.txt": "a person was here",
        "reviews/begun.txt": "reading",
    }
    subjects = git(place, "log", "--format=%s", f"bartack/{run}/result").splitlines()
    assert subjects.count("one: implement round 1") == subjects.count("two: implement round 1") == 1
    causes = [
        attempt["cause"]
        for path in sorted(place.glob(f".bartack/runs/{run}/receipts/*/step-2.json"))
        for attempt in json.loads(path.read_text())["attempts"]
    ]
    assert causes == ["first", "resend", "first", "resend"]
    assert str(tmp_path / "before") not in git(place, "worktree", "list")


@pytest.mark.requirement("worktrees-conflicts-are-asked")
def test_a_conflict_waits_for_an_answer_and_a_cancelled_run_keeps_its_work(bartack: Call) -> None:
    place = project(builds("one", "a.txt"), builds("two", "a.txt"), implement_changes=builds("two", "a.txt"))

    waiting = bartack("run")

    assert waiting.returncode == 3, waiting.stderr
    assert "task two has changed what other tasks have changed, too: a.txt" in waiting.stderr
    status = json.loads(bartack("status", "latest", "--json").stdout)["pipeline"]
    assert (status["stage"], [task["status"] for task in status["tasks"]]) == ("merge", ["done", "conflict"])
    assert bartack("cancel", "latest").returncode == 0
    cleaned = bartack("clean", "--yes").stdout
    assert "two: no other branch has its work" in cleaned
    run = waiting.stderr.partition(" ")[0]
    assert git(place, "show", f"bartack/{run}/two:a.txt") == "two"


def test_what_tasks_side_by_side_need_is_looked_at_first(bartack: Call, tmp_path: Path) -> None:
    place = project(builds("one", "1.txt"))
    config = load_config(place)
    assert [found.sentence for found in check_worktrees(config, place)] == ["2 tasks can run at a time"]
    (place / ".git").rename(place / "was git")

    refused = bartack("run")

    assert (refused.returncode, "BT921" in refused.stderr) == (2, True)
    assert "not a git repository" in refused.stderr
    assert not (tmp_path / ".bartack/runs").exists()
    assert [found.level for found in check_worktrees(config, place)] == ["fail"]


def test_runs_with_worktrees_share_the_workspace_with_each_other_and_with_nobody_else(tmp_path: Path) -> None:
    state = tmp_path / ".bartack"
    with hold_workspace(tmp_path, state, shared=True), hold_workspace(tmp_path, state, shared=True) as lock:
        lock.sign("run-1")
        with pytest.raises(WorkspaceBusyError, match="run-1"), hold_workspace(tmp_path, state):
            pass
    with hold_workspace(tmp_path, state), pytest.raises(WorkspaceBusyError):
        hold_workspace(tmp_path, state, shared=True).__enter__()


@pytest.mark.requirement("morning-view")
def test_the_result_of_tasks_side_by_side_and_its_merge_are_named_afterwards(bartack: Call) -> None:
    project(builds("one", "one.txt"), builds("two", "two.txt"))

    done = bartack("run")

    status = bartack("status", "latest").stdout
    result = json.loads(done.stdout)["result"]
    assert f"merge it: git merge {result['branch']}" in status
    lines = done.stderr.splitlines()
    [at] = [place for place, line in enumerate(lines) if "merge it: " in line]
    assert lines[at].endswith(f"merge it: git merge {result['branch']}")
    assert lines[-2:] == [
        "  checked: this works now",
        f"  report: bartack report {result['branch'].split('/')[1]}",
    ]
    assert "2 tasks done, 2 files changed" in done.stderr
