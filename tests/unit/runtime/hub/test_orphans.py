from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bartack.core.redact import Redactor
from bartack.runtime.hub.orphans import SHOWN, kill_orphans
from bartack.runtime.rundir.layout import RunDir


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path)
    run.tree_lock.touch()
    return run


def orphan(run: RunDir, *words: str) -> subprocess.Popen[bytes]:
    """A process that carries the mark of the run."""
    argv = [sys.executable, "-c", "import signal; print(flush=True); signal.pause()", *words]
    env = {**os.environ, "BARTACK_RUN_DIR": str(run.path)}
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, env=env)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    return process


def redactor() -> Redactor:
    return Redactor({"MY_TOKEN": "abcdefgh"})


@pytest.mark.requirement("orphans-are-recorded")
def test_orphans_are_killed_and_reported_without_secrets(run: RunDir) -> None:
    left = orphan(run, "--token=abcdefgh", "OTHER_KEY=ijklmnop", "x" * 1000)

    (line,) = kill_orphans(run, 1.0, redactor, first=False)

    assert left.wait(5) == -9
    assert line.startswith(f"{sys.executable} -c ")
    assert "--token=$env:MY_TOKEN OTHER_KEY=*** xxx" in line
    assert len(line) == SHOWN + 1


def test_a_run_without_orphans_reports_none(run: RunDir) -> None:
    assert kill_orphans(run, 1.0, redactor, first=False) == []


def test_a_first_hub_looks_for_none(run: RunDir) -> None:
    other = orphan(run)

    assert kill_orphans(run, 1.0, redactor, first=True) == []
    assert other.poll() is None
    other.kill()
    other.wait(5)
