"""Starts a hub and finds out what is left when it is dead, and for how long.

Called with a file for its findings and the command that starts the hub. Told to by SIGTERM, it kills the hub; else it waits until
that has ended. Whoever loses his parent becomes our child then, however well he hides: nothing is left when we have no child.

A busy machine lets processes wait that could go on. That is nobody's fault, and the system counts it for each of them: what our
children had to wait since the kill is told beside the time that all of it took.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

import msgspec

from bartack.supervision.process.system import set_subreaper
from bartack.supervision.process.tree import descendants


class Findings(msgspec.Struct):
    """What a warden has found."""

    code: int
    left: list[str]
    """Who lived when the hub's end was seen; of one that was killed, that may be anybody."""
    took_s: float
    """From the hub's end, or the blow, until nothing was left."""
    stalled_s: float
    """How long those who had to do it were kept from it."""


class Warden:
    """The parent of a hub, and of whoever it leaves."""

    def __init__(self, argv: list[str]) -> None:
        self._began = 0.0
        self._waited: dict[int, float] = {}
        set_subreaper()
        signal.signal(signal.SIGTERM, self._strike)
        self._hub = subprocess.Popen(argv, close_fds=False)

    def watch(self) -> Findings:
        os.waitid(os.P_PID, self._hub.pid, os.WEXITED | os.WNOWAIT)
        began = self._began or time.monotonic()
        left = [facts.name for facts in descendants(os.getpid()) if not facts.dead]
        code = self._hub.wait()
        stalled_s = self._bury()
        took_s = time.monotonic() - began
        stalled_s += waited(os.getpid()) - self._waited.get(os.getpid(), 0)
        return Findings(code, left, took_s, stalled_s)

    def _strike(self, number: int, frame: FrameType | None) -> None:
        self._waited = {pid: waited(pid) for pid in (os.getpid(), *(f.pid for f in descendants(os.getpid())))}
        self._began = time.monotonic()
        self._hub.kill()

    def _bury(self) -> float:
        """Wait until nobody is left; how long the dead were kept waiting."""
        stalled_s = 0.0
        while True:
            try:
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            except ChildProcessError:
                return stalled_s
            assert dead is not None
            stalled_s += waited(dead.si_pid) - self._waited.get(dead.si_pid, 0)
            os.waitid(os.P_PID, dead.si_pid, os.WEXITED)


def waited(pid: int) -> float:
    """For how many seconds a process could have gone on, and no processor was free, in all of its threads."""
    stalled_ns = 0
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            stalled_ns += int((thread / "schedstat").read_text().split()[1])
    return stalled_ns / 1e9


# For those who have one started.

LIMIT_S = 0.1
MANY_LIMIT_S = 1.0
"""For hundreds of processes: each of them has to be killed and reaped."""
ATTEMPTS = 5
_FINDINGS = "findings.json"


def under_warden(folder: Path, *words: str) -> list[str]:
    """What Python is called with to start a hub with a warden above it, which is called with these words."""
    return [__file__, str(folder / _FINDINGS), sys.executable, *words]


def read_findings(folder: Path) -> Findings:
    """What the warden has found; it has to have ended."""
    return msgspec.json.decode((folder / _FINDINGS).read_bytes(), type=Findings)


def check_soon(attempt: Callable[[], Findings], limit_s: float = LIMIT_S) -> int:
    """Nothing is left within 100 ms, or another limit; how many milliseconds it took.

    The time counts in which somebody could have done it and did not. Whoever takes longer for a reason does so in each attempt;
    a machine that stands still for another reason than being busy does not.
    """
    took_s: list[float] = []
    while not took_s or took_s[-1] > limit_s:
        assert len(took_s) < ATTEMPTS, f"each time something was left for so many seconds: {took_s}"
        findings = attempt()
        assert findings.code == -signal.SIGKILL
        took_s.append(max(0.0, findings.took_s - findings.stalled_s))
    return round(took_s[-1] * 1000)


def main(file: str, *argv: str) -> None:
    findings = Warden(list(argv)).watch()
    Path(file).write_bytes(msgspec.json.encode(findings))


if __name__ == "__main__":
    main(*sys.argv[1:])
