"""The line of parents of a process, from itself up to the first process, read so that no death on the way breaks it.

A parent that dies while the line is read is followed by the process that takes over its children. Below a subreaper that is the
subreaper, so a process that forks twice and forgets its session does not leave the line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bartack.supervision.process.facts import ProcessFacts
from bartack.supervision.process.system import system

_LOOKS: Final = 1000
"""More looks than any line takes, however many parents die meanwhile."""


def read_line(
    pid: int, read: Callable[[int], ProcessFacts | None] = system.read_facts
) -> list[ProcessFacts] | None:
    """The process and all its ancestors; ``None`` if it ended meanwhile and nothing is known.

    The line ends below the first process, or below a process of another user where the system hides those.
    """
    line: list[ProcessFacts] = []
    for _ in range(_LOOKS):
        if pid <= 1:
            return line or None
        facts = read(pid)
        if facts is None or _is_younger(facts, line):
            child = read(line[-1].pid) if line else None
            if child is None or child.id != line[-1].id:
                return None
            if child.ppid != pid:
                line[-1], pid = child, child.ppid
                continue
            if facts is None:
                return line  # it is there and hidden; processes of this user never are
        line.append(facts)
        pid = facts.ppid
    return None


def _is_younger(facts: ProcessFacts, line: list[ProcessFacts]) -> bool:
    """A parent is older than its child; a younger process has got the number of a parent that died."""
    return bool(line) and facts.started > line[-1].started
