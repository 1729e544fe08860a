"""Kills the orphans of an earlier hub of a run, before a new hub executes anything.

When a hub dies, its parent programs kill their descendants and hold the lock of the tree until none is left. Only if all of them
were killed at once, processes can be left while the lock is free: those are found by their environment.
"""

from __future__ import annotations

import os

from bartack.errors import TreeLockedError
from bartack.runtime.rundir.layout import RunDir
from bartack.supervision import ProcessFacts, find_by_environment, kill_tree, read_facts, take_tree_lock


def kill_orphans(run: RunDir, wait_s: float, *, first: bool) -> None:
    """Wait until no process of an earlier hub of the run is left, and kill those that do not end.

    Args:
        run: The run.
        wait_s: How long the parent programs of an earlier hub may take to kill their trees.
        first: The run has had no hub yet; only the lock is checked.

    Raises:
        TreeLockedError: A process cannot be killed.
    """
    lock = str(run.tree_lock)
    try:
        os.close(take_tree_lock(lock, wait_s))
    except TreeLockedError:
        _sweep(run)
        os.close(take_tree_lock(lock, 1.0))
    if not first:
        _sweep(run)


def _sweep(run: RunDir) -> None:
    """Kill every process that was started for the run, except those that started this one."""
    above = _ancestors()
    found = [
        facts for facts in find_by_environment("BARTACK_RUN_DIR", str(run.path)) if facts.pid not in above
    ]
    survivors: list[ProcessFacts] = kill_tree(*(facts.id for facts in found)) if found else []
    if survivors:
        raise TreeLockedError(str(run.tree_lock))


def _ancestors() -> set[int]:
    """The processes above this one. A run can be resumed from a terminal that it once opened, which must survive."""
    found: set[int] = set()
    pid = os.getppid()
    while pid > 1 and pid not in found:
        found.add(pid)
        facts = read_facts(pid)
        pid = facts.ppid if facts is not None else 0
    return found
