"""Detached runs with a real node, in a state home and a workspace of their own; nothing of them is left after a test."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from tests import warm
from tests.waiting import until

from bartack.core.files import replace_file
from bartack.depot import FileDepot, Standing
from bartack.runtime.rundir.layout import RunDir

PATIENCE_S: Final = 60.0
SHELL: Final = Path(__file__).with_name("terminal_shell.py")
COUNTING: Final = """
from bartack import Context, worker

@worker
async def main(ctx: Context, steps: int = 6) -> int:
    for number in range(steps):
        await ctx.shell("sh", "-c", f"echo {number} >> done.txt")
        await ctx.sleep(0.05)
    return steps
"""
GATED: Final = """
from bartack import Context, worker

@worker
async def main(ctx: Context) -> str:
    await ctx.shell("sh", "-c", "echo before >> done.txt")
    await ctx.shell("sh", "-c", "touch begun; until test -e go; do sleep 0.05; done; echo gate >> done.txt")
    await ctx.shell("sh", "-c", "echo after >> done.txt")
    return "through"
"""


class NodeStage:
    """A workspace with programs, and a user with a queue."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.workspace = root / "work"
        self.workspace.mkdir()
        (self.workspace / "counting.py").write_text(COUNTING, encoding="utf-8")
        (self.workspace / "gated.py").write_text(GATED, encoding="utf-8")
        self.environ: dict[str, str] = {**os.environ, "XDG_STATE_HOME": str(root / "state"), "CI": ""}
        self.depot = FileDepot(root / "state" / "bartack" / "depot")

    def call(self, *words: str, code: int | None = 0, **environ: str) -> subprocess.CompletedProcess[str]:
        """Call a command, and check its exit code."""
        done = warm.run(
            [sys.executable, "-m", "bartack", *words],
            cwd=self.workspace,
            env={**self.environ, **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert code is None or done.returncode == code, (
            done.returncode,
            done.stdout,
            done.stderr,
            self.log(),
        )
        return done

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command in a session of its own, as a terminal does."""
        return subprocess.Popen(
            [sys.executable, "-m", "bartack", *words],
            cwd=self.workspace,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @contextmanager
    def terminal(self, *words: str) -> Generator[PosixTerminal]:
        """Call a command on a terminal that is closed when the block ends, at the latest."""
        opened = PosixTerminal([sys.executable, "-m", "bartack", *words], self.workspace, self.environ)
        try:
            yield opened
        finally:
            opened.close()

    def detach(self, *words: str) -> RunDir:
        """Start a detached run."""
        done = self.call("run", "--detach", "--json", *words)
        return RunDir(msgspec.json.decode(done.stdout)["dir"])

    def done(self) -> list[str]:
        """What the steps have left, in order."""
        path = self.workspace / "done.txt"
        return path.read_text(encoding="utf-8").split() if path.exists() else []

    def open_gate(self) -> None:
        """Let the gated program go on."""
        (self.workspace / "go").touch()

    def until_gate(self) -> None:
        """Wait until the gated program is at its gate: all before it is recorded."""
        self.until((self.workspace / "begun").exists, self.workspace, "it is at the gate")

    def until_done(self, text: str) -> None:
        """Wait until a step has left its text."""
        self.until(lambda: text in self.done(), self.workspace, f"{text} is done")

    def until_state(self, run: RunDir, *states: str) -> Standing:
        """Wait until the queue has a run in one of these states."""
        self.until(
            lambda: self.standing(run).state in states, self.depot.directory / "changes", f"it is {states}"
        )
        return self.standing(run)

    def until_fence(self, run: RunDir, fence: int) -> None:
        """Wait until the owner of a run has changed so often."""
        self.until(
            lambda: self.standing(run).fence >= fence,
            self.depot.directory / "changes",
            f"its fence is {fence}",
        )

    def change(self, run: RunDir, **values: object) -> None:
        """Change what the queue knows of a run."""
        path = self.depot.directory / "runs" / f"{run.id}.json"
        kept = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        kept["value"] |= values
        replace_file(path, msgspec.json.encode(kept))
        self.depot.nudge()

    def standing(self, run: RunDir) -> Standing:
        """Where a run is."""
        found = self.depot.find(run.id)
        assert found is not None
        return found

    def until(self, condition: Callable[[], bool], place: Path | None, what: str) -> None:
        """Wait until a condition holds that changes with a directory, or that nothing reports. A failure shows the log."""
        try:
            until(condition, what, place)
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.depot.standings()}; {self.log()}") from None

    def node_pid(self) -> int:
        """The process of the node; 0 if there is none."""
        found = self.depot.seated()
        return 0 if found is None else found.pid

    def hub_pid(self, run: RunDir) -> int:
        """The process that runs a run; 0 if none does."""
        return run.owner_pid() if run.is_active() else 0

    def kill(self, *pids: int) -> None:
        """Kill processes, and wait until they are gone."""
        for pid in filter(None, pids):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.until(lambda: not any(map(_is_there, filter(None, pids))), None, "they are gone")

    def log(self) -> str:
        """What the node has written."""
        path = self.depot.directory / "node.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def close(self) -> None:
        """End everything."""
        self.open_gate()
        self.kill(self.node_pid())
        self.kill(*(self.hub_pid(RunDir(one.job.path)) for one in self.depot.standings()))


class PosixTerminal:
    """A command in the foreground of a terminal that controls it: its end is a SIGHUP for everything in it."""

    def __init__(self, command: Sequence[str], cwd: Path, environ: Mapping[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        self.shell = subprocess.Popen(
            [sys.executable, str(SHELL), *command],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            cwd=cwd,
            env={**environ, "TERM": "xterm"},
        )
        os.close(theirs)
        self.written = b""

    def wait_for(self, text: str) -> None:
        """Read until a text was written."""
        limit = time.monotonic() + PATIENCE_S
        while text.encode() not in self.written:
            left = limit - time.monotonic()
            assert select.select([self._ours], [], [], max(0.0, left))[0], self.written
            self.written += os.read(self._ours, 65_536)

    def close(self) -> None:
        """Close it, and wait until the shell has ended."""
        if self._ours >= 0:
            os.close(self._ours)
            self._ours = -1
            self.shell.wait(PATIENCE_S)


@contextmanager
def small_disk(place: Path) -> Generator[None]:
    """Have a disk of a few megabytes at a directory; only root may mount one."""
    place.mkdir(mode=0o700)
    command = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "tmpfs", str(place)]
    if sys.platform != "linux" or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("NO FULL DISK WAS TRIED: no file system can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(path: Path) -> None:
    """Write to a file until its disk is full."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def _is_there(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"
