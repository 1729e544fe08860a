"""What is known of one process, whatever the operating system.

A number alone does not name a process: it is reused after a death. ``ProcessId`` adds the start time, and both are compared
before a signal is sent.
"""

from __future__ import annotations

from typing import NamedTuple


class ProcessId(NamedTuple):
    """One process and no other: its number, and when it started in the system's own ticks."""

    pid: int
    started: int


class ProcessFacts(NamedTuple):
    """A process as it was at one moment."""

    pid: int
    ppid: int
    group: int
    session: int
    state: str
    """One letter; ``Z`` and ``X`` are dead, whatever ``kill(pid, 0)`` says."""
    threads: int
    started: int
    name: str

    @property
    def id(self) -> ProcessId:
        """What names it for good."""
        return ProcessId(self.pid, self.started)

    @property
    def dead(self) -> bool:
        """Whether nothing of it runs. A first thread may end before the others; that is not a death."""
        return self.state in "ZX" and self.threads <= 1
