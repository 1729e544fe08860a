from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests import warm

from bartack.cli import main
from bartack.journal import Draft, open_journal
from bartack.testing import VirtualClock

Result = subprocess.CompletedProcess[str]
BIG = b'"' + b"x" * 70_000 + b'"'


@pytest.fixture(autouse=True)
def ordinary_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a user has it, whatever this machine is set to."""
    for name in ("BARTACK_TRACEBACK", "COLUMNS", "NO_COLOR", "PYTHONUNBUFFERED"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Runs a command line in this process, through the real entry point."""

    def call_main(*args: str) -> Result:
        capsys.readouterr()
        code = main(args)
        shown = capsys.readouterr()
        return subprocess.CompletedProcess(args, code, shown.out, shown.err)

    return call_main


@pytest.fixture
def run() -> Callable[..., Result]:
    """Runs a command line in a process of its own."""

    def run_module(*args: str, **env: str) -> Result:
        command = [sys.executable, "-m", "bartack", *args]
        return warm.run(
            command, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **env}
        )

    return run_module


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a command line in a process of its own, with pipes for its output; it ends with the test at the latest.

    A process that is waited for in vain is killed, so that the wait ends.
    """
    started: list[subprocess.Popen[str]] = []
    watchdogs: list[threading.Timer] = []

    def start_module(*args: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "bartack", *args]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        watchdogs.append(threading.Timer(120, started[-1].kill))
        watchdogs[-1].start()
        return started[-1]

    yield start_module
    for watchdog in watchdogs:
        watchdog.cancel()
    for process in started:
        process.kill()
        with process:
            pass


@pytest.fixture
def journal_dir(tmp_path: Path) -> Path:
    """A journal with five entries: its owner's, one, a group of two, and one with a large value."""
    directory = tmp_path / "run"
    with open_journal(directory, clock=VirtualClock()) as journal:
        journal.append("run.started", {"name": "first"})
        journal.stage(Draft("step.started", {"n": 1}), Draft("step.finished", {"n": 1}, b"[1,2]"))
        journal.commit()
        journal.append("step.finished", {"n": 2}, BIG)
    return directory
