"""Runs to look at, made by hand, and command lines to look at them with."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import warm
from tests.cli.runs.stories import Begin, Call, Result, Start, Story, an_error, finished, started

from bartack.cli import main
from bartack.runtime.protocol.frames import Site
from bartack.runtime.state import entries as e


@pytest.fixture(autouse=True)
def ordinary_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As a user has it, whatever this machine is set to, in a workspace of its own."""
    for name in ("CI", "COLUMNS", "NO_COLOR", "PYTHONUNBUFFERED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOGNAME", "maria")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs a command line in this process, through the real entry point."""

    def call_main(*args: str) -> Result:
        capsys.readouterr()
        code = main(args)
        shown = capsys.readouterr()
        return subprocess.CompletedProcess(args, code, shown.out, shown.err)

    return call_main


@pytest.fixture
def bartack(call: Call) -> Call:
    """Runs a command line: in a process of its own if it becomes a hub or reads stdin, else in this one."""

    def run_module(*args: str, stdin: str | None = None) -> Result:
        if args[0] not in {"run", "resume"} and stdin is None:
            return call(*args)
        command = [sys.executable, "-m", "bartack", *args]
        return warm.run(command, input=stdin or "", capture_output=True, text=True, timeout=120, check=False)

    return run_module


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a command line in a process of its own, with pipes; it ends with the test at the latest."""
    started: list[subprocess.Popen[str]] = []

    def start_module(*args: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "bartack", *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start_module
    for process in started:
        process.kill()
        with process:
            pass


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Begin]:
    """Begins a run by hand: its id ends with the given hex digits."""
    told: list[Story] = []

    def begin_story(hexes: str = "00000000") -> Story:
        made = Story(tmp_path / ".bartack" / "runs" / f"run-20260101-000000-{hexes}")
        told.append(made)
        return made.begin()

    yield begin_story
    for made in told:
        made.journal.close()


@pytest.fixture
def completed(story: Begin) -> Story:
    """A run that came to its end: a command, a message sent and received, something printed."""
    told = story("aaaa0001")
    told.tell(started(1)).tell(finished(1), b'{"status":0}', after_s=0.25)
    told.tell(e.MessageSent(mailbox="tasks", id="m-7", size=3, sender="main", p="main", n=2, fp="f"), b"[1]")
    told.tell(e.MessageTaken(mailbox="tasks", id="m-7", p="main", n=3, fp="f"), b"[1]")
    told.tell(e.OutputWritten(p="main", n=4, channel="print"), b'"hello"')
    told.tell(e.WorkerEnded(path="main"), b'{"done":true}', after_s=1.0)
    told.tell(e.RunEnded(status="completed"), b'{"done":true}')
    return told.end()


@pytest.fixture
def failed(story: Begin) -> Story:
    """A run whose second step failed."""
    told = story("bbbb0002")
    error = an_error(cause=an_error("the disk said no"), file=str(told.run.program / "team.py"))
    told.tell(started(1)).tell(finished(1), b"1", after_s=0.5)
    told.tell(started(2, about="make")).tell(
        e.StepFailed(p="main", n=2, step="shell", fp="fp2", error=error), after_s=2.0
    )
    told.tell(e.WorkerEnded(path="main", error=error, origin=("main", 2)))
    told.tell(e.FailureRecorded(worker="main", error=error, p="main", n=2))
    told.tell(e.RunEnded(status="failed"))
    return told.end()


@pytest.fixture
def asking(story: Begin) -> Story:
    """A run that nobody runs and that waits for an answer; one message is queued."""
    told = story("cccc0003")
    told.tell(
        e.MessageSent(mailbox="tasks", id="m-5", size=8, sender="main", p="main", n=1, fp="f"), b'{"a":"b"}'
    )
    told.tell(
        e.StepStarted(p="main", n=2, step="ask", fp="q", about="Publish?", question="q1"),
        b'{"question":"Publish?","type":"bool"}',
    )
    told.tell(e.HubStopped(reason="waiting"))
    return told.end()


@pytest.fixture
def delegated(story: Begin) -> Story:
    """A run that failed in one of two workers that its first worker had delegated to."""
    told = story("eeee0005")
    (told.run.program / "team.py").write_text("# the team\n\nawait ctx.delegate([bad(), slow()])\n")
    site = Site("team.py", 3)
    told.tell(e.StepStarted(p="main", n=1, step="delegate", fp="fp1", about="bad, slow", site=site))
    for place, name in ((1, "bad"), (2, "slow")):
        path = f"main/1.{place}:{name}"
        told.tell(e.WorkerSpawned(path=path, worker=f"team:{name}", p="main", n=1), b'{"args":[]}')
    told.tell(e.StepStarted(p="main/1.2:slow", n=1, step="sleep", fp="fp2", about="30 s"))
    error = an_error(file=str(told.run.program / "team.py"))
    told.tell(e.WorkerEnded(path="main/1.1:bad", error=error))
    told.tell(e.FailureRecorded(worker="main/1.1:bad", error=error))
    told.tell(e.RunEnded(status="failed"))
    return told.end()
