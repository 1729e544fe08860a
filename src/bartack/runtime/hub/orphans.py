"""Kills the orphans of an earlier hub of a run, before a new hub executes anything.

When a hub dies, its parent programs kill their descendants and hold the lock of the tree until none is left. Only if all of them
were killed at once, processes can be left while the lock is free: those are found by their environment.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from bartack.core.redact import Redactor
from bartack.errors import TreeLockedError
from bartack.runtime.rundir.layout import RunDir
from bartack.supervision.process.lock import take_tree_lock
from bartack.supervision.process.system import read_command, read_facts
from bartack.supervision.process.tree import find_by_environment, kill_tree

SHOWN: Final = 200
"""How many characters of a command line are kept."""


def kill_orphans(run: RunDir, wait_s: float, redactor: Callable[[], Redactor], *, first: bool) -> list[str]:
    """Wait until no process of an earlier hub of the run is left, and kill those that do not end.

    Returns the command lines of those that were killed, for people.

    Args:
        run: The run.
        wait_s: How long the parent programs of an earlier hub may take to kill their trees.
        redactor: Makes what takes secrets out of the command lines.
        first: The run has had no hub yet; only the lock is checked.

    Raises:
        TreeLockedError: A process cannot be killed.
    """
    lock = str(run.tree_lock)
    killed: list[str] = []

    def note(pid: int) -> None:
        facts = read_facts(pid)
        killed.append(" ".join(read_command(pid)) or (facts.name if facts is not None else f"process {pid}"))

    try:
        os.close(take_tree_lock(lock, wait_s, note))
    except TreeLockedError:
        _sweep(run, note)
        os.close(take_tree_lock(lock, 1.0, note))
    if not first:
        _sweep(run, note)
    return _shown(killed, redactor()) if killed else []


def _sweep(run: RunDir, note: Callable[[int], None]) -> None:
    """Kill every process that was started for the run, except those that started this one; ``note`` is called before."""
    above = _ancestors()
    found = [
        facts for facts in find_by_environment("BARTACK_RUN_DIR", str(run.path)) if facts.pid not in above
    ]
    for facts in found:
        note(facts.pid)
    if found and kill_tree(*(facts.id for facts in found)):
        raise TreeLockedError(str(run.tree_lock))


def _shown(commands: list[str], redactor: Redactor) -> list[str]:
    hidden = (redactor.hide_lines(os.fsencode(line)).decode("utf-8", "replace") for line in commands)
    return [line if len(line) <= SHOWN else f"{line[:SHOWN]}…" for line in hidden]


def _ancestors() -> set[int]:
    """The processes above this one. A run can be resumed from a terminal that it once opened, which must survive."""
    found: set[int] = set()
    pid = os.getppid()
    while pid > 1 and pid not in found:
        found.add(pid)
        facts = read_facts(pid)
        pid = facts.ppid if facts is not None else 0
    return found
