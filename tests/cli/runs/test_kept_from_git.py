"""Runs are kept from git as soon as the first one is made, by ``bartack run`` as by ``Run.start``, without ``bartack init``."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.cli.runs.stories import Call

from bartack import Run

PROGRAM = "from bartack import worker\n\n\n@worker\nasync def main(ctx):\n    return 'done'\n"


def git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout


@pytest.mark.requirement("runs-are-kept-from-git")
@pytest.mark.parametrize("how", ["run", "Run.start"])
def test_the_first_run_keeps_all_runs_from_git(bartack: Call, tmp_path: Path, how: str) -> None:
    git("init", "-q", ".")
    (tmp_path / "team.py").write_text(PROGRAM, "utf-8")
    git("add", "team.py")

    if how == "run":
        assert bartack("run", "team.py").returncode == 0
    else:
        assert Run.start("team.py").wait(60.0).status == "completed"

    shown = git("status", "--short", "--untracked-files=all").splitlines()
    assert [line for line in shown if "__pycache__" not in line] == ["A  team.py"]
    git("clean", "-q", "-fd")
    git("clean", "-q", "-fdx")
    assert [run.state().status for run in Run.list()] == ["completed"]
    assert (tmp_path / ".bartack").stat().st_mode & 0o777 == 0o700
