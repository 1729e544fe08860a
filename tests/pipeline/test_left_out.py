"""What git leaves out of the branches of tasks side by side is named, and kept where it is. Through the real command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.pipeline.studio import REPORT, Studio
from tests.unit.pipeline.repository import git

SIDE_BY_SIDE = """
[pipeline]
spec = false
[parallel]
tasks = 2
keep = false
[[tasks]]
id = "one"
goal = "do one"
files = ["drafts/plan.md"]
[[tasks]]
id = "two"
goal = "do two"
"""
BUILDS = f"""{REPORT}
import os, subprocess
def git(place, *words):
    subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@example.com", *words], cwd=place, check=True)
if command["task_id"] == "one":
    for place in ("dist", "unborn", "vendor"):
        os.makedirs(place)
        pathlib.Path(place, "made.txt").write_text("work")
    git("unborn", "init", "--quiet")
    git("vendor", "init", "--quiet")
    git("vendor", "add", "--all")
    git("vendor", "commit", "--quiet", "--message=made")
    answer["artifacts"] = [artifact("dist/made.txt")]
pathlib.Path(command["task_id"]).write_text("work")
"""


@pytest.mark.requirement("nothing-is-left-out-silently")
def test_ignored_artifacts_and_repositories_inside_are_named_in_the_result_and_kept(tmp_path: Path) -> None:
    ignores = {".gitignore": ".bartack/\ndist/\ndrafts/\n"}
    studio = Studio(tmp_path, SIDE_BY_SIDE, files=ignores, implement=BUILDS)
    (studio.place / "drafts").mkdir()
    (studio.place / "drafts/plan.md").write_text("a plan\n")

    done = studio.bartack("run")

    assert done.returncode == 0, done.stderr
    assert "task one: git ignores drafts/plan.md" in done.stderr
    one, two = json.loads(done.stdout)["tasks"]
    folder = f".bartack/worktrees/{studio.run_dir.name}/one"
    told = {note.partition(" ")[0]: note for note in one["left"]}
    assert list(told) == ["dist/made.txt", "unborn", "vendor"]
    assert all(f"it is kept in {folder}" in note for note in told.values())
    assert all(f"one: {note}" in done.stderr for note in told.values())
    assert two.get("left", []) == []
    for name in told:
        path = studio.place / folder / name
        assert (path if path.is_file() else path / "made.txt").read_text() == "work"
    assert not (studio.place / folder).with_name("two").exists()
    branch = f"bartack/{studio.run_dir.name}/result"
    assert {"one", "two"} <= set(git(studio.place, "ls-tree", "--name-only", branch).split())


@pytest.mark.requirement("nothing-is-left-out-silently")
def test_a_branch_in_the_way_and_a_repository_without_a_commit_are_found_before_the_run(
    tmp_path: Path,
) -> None:
    studio = Studio(tmp_path, SIDE_BY_SIDE)
    git(studio.place, "branch", "bartack")

    in_the_way = studio.bartack("run")
    git(studio.place, "branch", "--move", "bartack", "mine")
    (studio.place / "new").mkdir()
    git(studio.place / "new", "init", "--quiet")
    (studio.place / "new/file").write_text("work")
    unborn = studio.bartack("run")

    assert in_the_way.returncode == 2
    assert "git branch -m bartack" in in_the_way.stderr
    assert unborn.returncode == 2
    assert "'new'" in unborn.stderr
    assert not (studio.place / ".bartack/runs").exists()
