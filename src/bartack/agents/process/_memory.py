"""Whether a killed agent may have been killed for lack of memory: the kernel counts such kills, for the whole machine."""

from __future__ import annotations

from typing import Final

PROC: Final = "/proc"
KILLED: Final = frozenset({-9, 137})
"""How a process has ended that was killed; the second is what a shell reports."""


class MemoryWatch:
    """Compares the count when a process is started with that when it has ended. Without ``/proc`` nothing is known.

    Args:
        proc: Where the kernel has its counts.
    """

    def __init__(self, proc: str = PROC) -> None:
        self._file = f"{proc}/vmstat"
        self._before = self._count()

    def explain(self, status: int | None) -> str:
        """What the kernel says about a process that ended with a status; empty if nothing."""
        if status not in KILLED or self._count() <= self._before:
            return ""
        return "; meanwhile the kernel has killed processes for lack of memory"

    def _count(self) -> int:
        try:
            with open(self._file, encoding="ascii") as file:
                found = [line.split()[1] for line in file if line.startswith("oom_kill ")]
        except OSError:
            return 0
        return int(found[0]) if found else 0
