"""Ctrl-Z and ``fg`` of ``bartack run`` in a terminal: nothing is lost, and no deadline passes meanwhile."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bartack import Run
from bartack.supervision.process.tree import descendants

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the state of a process is read from /proc"),
    pytest.mark.requirement("suspended-run-continues"),
]

BOUND_S = 60.0
STOPPED_S = 3.0
"""Longer than any deadline of the program."""

PROGRAM = """
from bartack import worker

@worker
async def waiting(ctx):
    return await ctx.mailbox.go.receive(2.5)

@worker
async def commanding(ctx):
    return (await ctx.shell("sh", "-c", "echo begun >> effects; sleep 1; echo done", timeout_s=2.5)).stdout

@worker
async def sleeping(ctx):
    await ctx.sleep(2.0)
    return "awake"

@worker
async def main(ctx):
    return await ctx.delegate([waiting(), commanding(), sleeping()])
"""


class Terminal:
    """``bartack run`` in the foreground of a terminal of its own."""

    def __init__(self, folder: Path) -> None:
        self.ours, theirs = pty.openpty()
        self._text = b""
        reading, self._continue = os.pipe()
        shell = str(Path(__file__).with_name("terminal_shell.py"))
        words = [sys.executable, "-P", "-s", "-m", "bartack", "run", "program.py:main"]
        script = 'exec 3<&"$0"; exec "$@"'
        self.shell = subprocess.Popen(
            ["bash", "-c", script, str(reading), sys.executable, shell, *words],
            cwd=folder,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            pass_fds=[reading],
        )
        os.close(reading)
        os.close(theirs)

    def read_until(self, wanted: bytes) -> bytes:
        """What was written so far, once that contains ``wanted``."""
        until = time.monotonic() + BOUND_S
        while wanted not in self._text:
            ready, _, _ = select.select([self.ours], [], [], max(0.0, until - time.monotonic()))
            assert ready, self._text.decode(errors="replace")
            try:
                self._text += os.read(self.ours, 4096)
            except OSError:
                raise AssertionError(self._text.decode(errors="replace")) from None
        return self._text

    def suspend(self) -> None:
        os.write(self.ours, b"\x1a")
        self.read_until(b"stopped")

    def foreground(self) -> None:
        os.write(self._continue, b"\n")

    def close(self) -> None:
        for facts in descendants(self.shell.pid):
            os.kill(facts.pid, signal.SIGKILL)
        self.shell.kill()
        self.shell.wait()
        os.close(self.ours)
        os.close(self._continue)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    (tmp_path / "program.py").write_text(PROGRAM)
    made = Terminal(tmp_path)
    yield made
    made.close()


def wait_for(seconds: float) -> None:
    """Let time pass: what is tested is that it does not count."""
    select.select([], [], [], seconds)


def test_a_run_that_is_suspended_for_longer_than_its_deadlines_continues(
    terminal: Terminal, tmp_path: Path
) -> None:
    terminal.read_until(b"started")
    run = Run.open("latest", tmp_path)
    until = time.monotonic() + BOUND_S
    while len([step for step in run.steps() if step.status == "open"]) < 4:
        assert time.monotonic() < until, list(run.steps())
        wait_for(0.01)

    terminal.suspend()
    wait_for(STOPPED_S)
    terminal.foreground()

    run.send("go", "message")
    terminal.read_until(b"completed")
    assert terminal.shell.wait(BOUND_S) == 0
    assert run.result() == ["message", "done\n", "awake"]
