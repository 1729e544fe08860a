"""Parent programs, a stand-in for their hub, and processes that are hard to end: what the tests of process trees share."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Protocol

from tests.crash.warden import under_warden

from bartack.supervision.parent.client import KEEPER, ParentClient
from bartack.supervision.parent.wire import Gone, ParentEvent, Started
from bartack.supervision.process.system import read_facts
from bartack.supervision.process.tree import find_by_environment, kill_tree

HERE = Path(__file__).parent
BOUND_S = 60.0
"""How long anything may take on a busy machine before a test gives up."""


class Hire(Protocol):
    """Starts a parent program; the module ``shapes`` is the zygote."""

    def __call__(self, module: str) -> Crew: ...


class Perform(Protocol):
    """Starts a stand-in for a hub with shapes below it: in the control group ``base``, or with a warden above it."""

    def __call__(
        self,
        reports: Reports,
        shape: str,
        count: int,
        base: str = "",
        *,
        watched: bool = False,
        forks: int = 1,
    ) -> StandIn: ...


class Reports:
    """The stream that all processes of a shape write their numbers to."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        self._text = b""

    def close_writer(self) -> None:
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def close(self) -> None:
        self.close_writer()
        os.close(self.reader)

    def read_pids(self, count: int) -> list[int]:
        """Wait until ``count`` processes have reported."""
        until = time.monotonic() + BOUND_S
        while self._text.count(b"\n") < count:
            assert self._read(until), f"only {self._text!r} reported"
        return [int(line) for line in self._text.split()]

    def wait_end(self) -> list[int]:
        """Wait until nobody is left who could report; return all who did."""
        self.close_writer()
        until = time.monotonic() + BOUND_S
        while self._read(until):
            pass
        return [int(line) for line in self._text.split()]

    def has_ended(self) -> bool:
        """Whether nobody is left, as it is now; what was said and not yet read is passed over."""
        while select.select([self.reader], [], [], 0)[0]:
            if not os.read(self.reader, 4096):
                return True
        return False

    def _read(self, until: float) -> bytes:
        ready, _, _ = select.select([self.reader], [], [], max(0, until - time.monotonic()))
        assert ready, f"somebody of {self._text.split()!r} is still there"
        text = os.read(self.reader, 4096)
        self._text += text
        return text


class Crew:
    """A parent program and what it said."""

    def __init__(self, client: ParentClient) -> None:
        self.client = client
        self.events: list[ParentEvent] = []
        self.pidfds: list[int] = []

    def wait(self, wanted: Callable[[ParentEvent], bool]) -> ParentEvent:
        """The first event that is ``wanted``, of those not waited for yet."""
        until = time.monotonic() + BOUND_S
        while True:
            for event in self.events:
                if wanted(event):
                    self.events.remove(event)
                    return event
            select.select([self.client], [], [], max(0, until - time.monotonic()))
            assert time.monotonic() < until, f"no such event, but {self.events}"
            found = self.client.read_events()
            self.events += found
            self.pidfds += [fd for event in found if isinstance(event, Started) for fd in event.pidfds]

    def wait_gone(self, token: int = 1) -> Gone:
        event = self.wait(lambda event: isinstance(event, Gone) and event.token == token)
        assert isinstance(event, Gone)
        return event

    def close(self) -> None:
        self.client.close()
        for fd in self.pidfds:
            os.close(fd)


def command(shape: str) -> list[str]:
    return [sys.executable, "-I", "-S", str(HERE / "shapes.py"), shape]


def begin(crew: Crew, module: str, shape: str, reports: Reports, token: int = 1) -> None:
    if module == KEEPER:
        crew.client.exec(token, [command(shape)], "/", {"BARTACK_STEP": f"ik:{token}"}, stdout=reports.writer)
    else:
        crew.client.fork(token, shape.encode(), [reports.writer], {"BARTACK_WORKER": f"main#{token}"})


def is_alive(pid: int) -> bool:
    facts = read_facts(pid)
    return facts is not None and not facts.dead


ALL = ("hub", "guardian of zygote", "zygote", "guardian of keeper", "keeper")


class StandIn:
    """A process that plays the hub, with one shape below each of its parent programs."""

    def __init__(
        self,
        directory: Path,
        reports: Reports,
        shape: str,
        count: int,
        base: str,
        *,
        watched: bool,
        forks: int,
    ) -> None:
        words = [str(HERE / "stand_in.py"), str(directory), str(reports.writer), shape, str(forks)]
        script = [sys.executable, *(under_warden(directory, *words) if watched else words)]
        if base:
            script = ["sh", "-c", 'echo 0 >"$0/cgroup.procs" && exec "$@"', base, *script]
        self.directory = str(directory)
        self.process = subprocess.Popen(script, pass_fds=[reports.writer], stdout=subprocess.PIPE)
        reports.close_writer()
        numbers = map(int, self.read_line().split())
        self.zygote_guardian, self.zygote, self.keeper_guardian, self.keeper = numbers
        self.pids = reports.read_pids(count)

    def read_line(self) -> bytes:
        stdout: IO[bytes] | None = self.process.stdout
        assert stdout is not None
        ready, _, _ = select.select([stdout], [], [], BOUND_S)
        assert ready, "the stand-in says nothing"
        return stdout.readline()

    def kill_together(self, *names: str) -> list[int]:
        """Kill processes so that none of them sees the others die; returns them.

        They are stopped first. The hub is killed last: the system continues stopped processes when it dies.
        """
        pids = {
            "zygote": self.zygote,
            "keeper": self.keeper,
            "guardian of zygote": self.zygote_guardian,
            "guardian of keeper": self.keeper_guardian,
            "hub": self.process.pid,
        }
        killed = [pid for name, pid in pids.items() if name in names]
        assert len(killed) == len(names)
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in killed:
                os.kill(pid, number)
        wait_deaths(killed)
        return killed

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        kill_tree(*(facts.id for facts in find_by_environment("BARTACK_RUN_DIR", self.directory)))


def wait_deaths(pids: list[int]) -> None:
    """Wait until every process is dead; a reused number would fail the test, and is not to be expected."""
    until = time.monotonic() + BOUND_S
    for pid in pids:
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ready, _, _ = select.select([pidfd], [], [], max(0, until - time.monotonic()))
        os.close(pidfd)
        assert ready, f"process {pid} is still there"
