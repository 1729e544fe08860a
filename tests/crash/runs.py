"""Runs with real processes: start their hubs, kill what is asked for, and wait by events until something holds."""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

import msgspec

from bartack.config.load import load_config
from bartack.core.watch import open_watch
from bartack.journal import Entry, open_reader
from bartack.runtime.client.run import Run
from bartack.runtime.hub.create import RunRequest, create_run
from bartack.runtime.protocol.steps import CallArgs
from bartack.runtime.rundir.layout import RunDir
from bartack.supervision.process.facts import ProcessFacts, ProcessId
from bartack.supervision.process.tree import descendants, find_by_environment, kill_tree

PATIENCE_S = 60.0
"""How long anything may take on a busy machine before a test gives up; nothing is ever waited for without need."""

DOOMED_HUB = Path(__file__).with_name("doomed_hub.py")
PROGRAMS = Path(__file__).with_name("programs")


class RealRun:
    """One run. Whatever of it is left when the block ends is ended with it."""

    def __init__(self, run: RunDir, workspace: Path) -> None:
        self.run = run
        self.workspace = workspace
        self.hub: subprocess.Popen[bytes] | None = None
        self._hubs: list[subprocess.Popen[bytes]] = []

    @classmethod
    def create(cls, workspace: Path, program: str, worker: str = "main", args: Sequence[object] = ()) -> Self:
        """Make a run of one of the programs beside this file; nothing runs yet."""
        shutil.copy(PROGRAMS / program, workspace / program)
        return cls.create_from(workspace, program, worker, args)

    @classmethod
    def create_from(cls, workspace: Path, program: str, worker: str, args: Sequence[object] = ()) -> Self:
        """Make a run of a program of the workspace; nothing runs yet."""
        call = CallArgs([msgspec.Raw(msgspec.json.encode(value)) for value in args], {})
        request = RunRequest(program=program, worker=worker, call=call)
        return cls(create_run(request, workspace, load_config(workspace)), workspace)

    @property
    def api(self) -> Run:
        return Run(self.run)

    # Processes.

    def start(
        self,
        *decision: str,
        env: dict[str, str] | None = None,
        module: Sequence[str] = ("-P", "-s", "-m", "bartack.runtime.hub.serve"),
        log: Path | None = None,
        pass_fds: Sequence[int] = (),
    ) -> subprocess.Popen[bytes]:
        """Start a hub; does not wait for anything."""
        with (log or self.run.log).open("ab") as output:
            hub = subprocess.Popen(
                [sys.executable, *module, str(self.run.path), str(self.workspace), *decision],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd=self.workspace,
                env={**os.environ, **(env or {})},
                pass_fds=pass_fds,
            )
        self.hub = hub
        self._hubs.append(hub)
        return hub

    def start_doomed(self, point: str, times: int = 1) -> subprocess.Popen[bytes]:
        """Start a hub that kills itself at a named point."""
        return self.start(module=[str(DOOMED_HUB), point, str(times)])

    def wait_hub(self) -> int:
        """The exit code of the hub, when it has ended."""
        assert self.hub is not None
        return self.hub.wait(PATIENCE_S)

    def finish(self) -> int:
        """Run it to its end in a hub of its own."""
        self.start()
        return self.wait_hub()

    def kill_hub(self) -> None:
        assert self.hub is not None
        self.hub.kill()
        self.hub.wait(PATIENCE_S)

    def parts(self) -> Parts:
        """The processes of the run as they are now."""
        assert self.hub is not None
        return Parts(self.hub.pid)

    def wait_parts(self, wanted: Callable[[Parts], bool]) -> Parts:
        """The processes of the run, once they are as wanted. Processes come and go without an event: we look."""
        until = time.monotonic() + PATIENCE_S
        while not wanted(parts := self.parts()):
            assert time.monotonic() < until, f"never so: {parts}"
            assert self.hub is not None
            assert self.hub.poll() is None, "the hub has ended"
            with open_watch(str(self.run.path)) as watch:
                watch.wait(0.005)
        return parts

    def left(self) -> list[ProcessFacts]:
        """Whatever of the run lives, hubs included."""
        return find_by_environment("BARTACK_RUN_DIR", str(self.run.path))

    def wait_nothing_left(self) -> None:
        """No process of the run lives: now, if its hub has come to an end by itself, and soon, if it was killed.

        How soon that is, ``test_gone.py`` finds out.
        """
        assert self.hub is not None
        until = time.monotonic() + PATIENCE_S
        while left := self.left():
            assert self.hub.wait(PATIENCE_S) < 0, f"left by a hub that was not killed: {left}"
            assert time.monotonic() < until, f"still there: {left}"
            wait_deaths((facts.id for facts in left), until)

    def lock_is_free(self) -> bool:
        """Whether nobody owns the run."""
        with (self.run.path / "lock").open("rb+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    # What it did.

    def effects(self) -> list[str]:
        """The lines that the steps of a program have written."""
        file = self.workspace / "effects.txt"
        return file.read_text().splitlines() if file.exists() else []

    def wait_effects(self, count: int) -> list[str]:
        """The lines, as soon as there are so many."""
        until = time.monotonic() + PATIENCE_S
        with open_watch(str(self.workspace)) as watch:
            while len(lines := self.effects()) < count:
                assert time.monotonic() < until, f"{lines}\n{self.story()}"
                watch.wait(until - time.monotonic())
        return lines

    # The journal.

    def entries(self) -> list[Entry]:
        with open_reader(self.run.path) as reader:
            return list(reader.read())

    def last_seq(self) -> int:
        return self.entries()[-1].seq

    def wait_open(self, step: str, count: int = 1) -> None:
        """Wait until so many steps of a kind have been begun."""
        seen = 0

        def enough(entry: Entry) -> bool:
            nonlocal seen
            seen += entry.kind == "step.started" and entry.data["step"] == step
            return seen >= count

        self.wait_entry(enough)

    def count(self, kind: str) -> int:
        """How many entries of a kind there are."""
        return sum(entry.kind == kind for entry in self.entries())

    def wait_entry(self, wanted: Callable[[Entry], bool], from_seq: int = 1) -> Entry:
        """The first entry that is wanted, as soon as it is written."""
        until = time.monotonic() + PATIENCE_S
        with open_reader(self.run.path) as reader:
            for entry in reader.follow(from_seq, timeout_s=PATIENCE_S):
                if wanted(entry):
                    return entry
                assert time.monotonic() < until, self.story()
        raise AssertionError(f"no such entry came\n{self.story()}")

    def story(self) -> str:
        """What there is to know when a test fails."""
        if not (self.run.path / "journal.ndjson").exists():
            return "the run is gone"
        lines = [f"{entry.seq} {entry.kind} {entry.data}" for entry in self.entries()]
        return "\n".join([*lines[-60:], "hub.log:", self.run.log.read_text()])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hub in self._hubs:
            if hub.poll() is None:
                hub.kill()
            hub.wait()
        kill_tree(*(facts.id for facts in self.left()))


class Begin(Protocol):
    """Makes a run of one of the cases; nothing runs yet."""

    def __call__(self, worker: str, *args: object) -> RealRun: ...


ZYGOTE: Final = "bartack.runtime.worker_process.zygote"
KEEPER: Final = "bartack.supervision.forms._keeper"


class Parts:
    """The processes of a run: its hub, the two parents with the guardian above each, the workers, the commands."""

    def __init__(self, hub: int) -> None:
        self.hub = hub
        self.all = [facts for facts in descendants(hub) if not facts.dead]
        self.zygote_guardian = self._running(ZYGOTE, self.hub)
        self.keeper_guardian = self._running(KEEPER, self.hub)
        self.zygote = self._running(ZYGOTE, self.zygote_guardian)
        self.keeper = self._running(KEEPER, self.keeper_guardian)
        self.workers = self._below(self.zygote)
        self.commands = self._below(self.keeper)

    def _running(self, module: str, parent: int) -> int:
        """The child that runs a module. A guardian also has what its dead parent program has left: commands, workers."""
        below = [facts.pid for facts in self.all if parent and facts.ppid == parent]
        return next((pid for pid in below if module in command_of(pid) and not worker_of(pid)), 0)

    def _below(self, parent: int) -> dict[str, int]:
        """Children of a parent program by the worker they belong to."""
        children = [facts.pid for facts in self.all if parent and facts.ppid == parent]
        return {worker_of(pid): pid for pid in children}

    def __repr__(self) -> str:
        return (
            f"hub {self.hub}, zygote {self.zygote}, keeper {self.keeper}, {self.workers=}, {self.commands=}"
        )


def command_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def worker_of(pid: int) -> str:
    """The worker that a process belongs to, without the number of its process."""
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return ""
    for item in text.split(b"\0"):
        name, _, value = item.strip().partition(b"=")
        if name == b"BARTACK_WORKER":
            return value.decode().partition("#")[0]
    return ""


def kill(*pids: int) -> None:
    """kill -9, all in a row; then wait until all of them are dead."""
    found: list[ProcessId] = []
    for pid in pids:
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.close(pidfd)
        found.append(ProcessId(pid, 0))
    wait_deaths(found, time.monotonic() + PATIENCE_S)


def kill_together(*pids: int) -> None:
    """Kill processes so that none of them sees the others die. The hub comes last: its death continues stopped ones."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    kill(*pids)


def wait_deaths(processes: Iterable[ProcessId], until: float) -> None:
    """Wait until all of them are dead, or it is too late."""
    for process in processes:
        try:
            pidfd = os.pidfd_open(process.pid)
        except ProcessLookupError:
            continue
        try:
            select.select([pidfd], [], [], max(until - time.monotonic(), 0))
        finally:
            os.close(pidfd)


def wait_until(wanted: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """For what tells nobody when it becomes true: look, again and again."""
    until = time.monotonic() + patience_s
    while not wanted():
        assert time.monotonic() < until, "never so"
        select.select([], [], [], 0.002)


def spin(microseconds: float) -> None:
    """Let an exact, short time pass without giving up the processor."""
    end = time.perf_counter() + microseconds / 1e6
    while time.perf_counter() < end:
        pass
