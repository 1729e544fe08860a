"""Whether the process tree of an agent is active according to the kernel: it computes, reads, writes or starts processes.

A silent agent may be at work. Without ``/proc`` no agent counts as active.
"""

from __future__ import annotations

import os
from typing import Final, Literal, NamedTuple

from bartack.supervision.process.tree import descendants

Activity = Literal["none", "some", "much"]
"""``some``: more than nothing. ``much``: more than a thread that only sends heartbeats needs."""

PROC: Final = "/proc"
MUCH_TICKS: Final = 10
"""Hundredths of a second of processor time."""
MUCH_BYTES: Final = 64 * 1024
_IO: Final = (b"rchar:", b"wchar:")
_CPU: Final = slice(11, 15)
"""Own time and that of ended children, in user mode and in the kernel, among the fields after the name."""


class Sample(NamedTuple):
    """What a tree has used so far, and which processes it has."""

    ticks: int
    size_bytes: int
    pids: frozenset[int]


class Vitals:
    """Looks at the tree of one process again and again.

    Args:
        proc: Where the kernel describes processes.
    """

    def __init__(self, proc: str = PROC) -> None:
        self._proc = proc
        self._pid = 0
        self._last: Sample | None = None

    def look(self, pid: int) -> Activity:
        """What the tree of a process has done since the last look; nothing, if that was another process."""
        if pid != self._pid:
            self._pid, self._last = pid, None
        now = self._sample(pid) if pid else None
        before, self._last = self._last, now
        if before is None or now is None:
            return "none"
        # A process that has ended takes what it used with it.
        ticks, size = now.ticks - before.ticks, now.size_bytes - before.size_bytes
        if ticks >= MUCH_TICKS or size >= MUCH_BYTES or now.pids != before.pids:
            return "much"
        return "some" if ticks > 0 or size > 0 else "none"

    def _sample(self, pid: int) -> Sample | None:
        if not os.path.isdir(f"{self._proc}/{pid}"):
            return None
        pids = {pid, *(facts.pid for facts in descendants(pid))}
        return Sample(sum(map(self._ticks, pids)), sum(map(self._bytes, pids)), frozenset(pids))

    def _ticks(self, pid: int) -> int:
        text = self._read(pid, "stat")
        return sum(map(int, text[text.rfind(b")") + 2 :].split()[_CPU])) if text else 0

    def _bytes(self, pid: int) -> int:
        lines = self._read(pid, "io").splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(_IO))

    def _read(self, pid: int, name: str) -> bytes:
        try:
            with open(f"{self._proc}/{pid}/{name}", "rb") as file:
                return file.read()
        except OSError:
            return b""  # it has ended, or belongs to another user
