"""Ending what an earlier hub of a run has left, before a new one executes anything.

Whoever is killed, his parent programs end what is below them; the lock of the tree says when they have. Only when all of them were
killed at once something may be left that the lock does not tell of: it is found by its environment.
"""

from __future__ import annotations

import os

from bartack.errors import TreeLockedError
from bartack.runtime.rundir.layout import RunDir
from bartack.supervision import ProcessFacts, find_by_environment, kill_tree, read_facts, take_tree_lock


def kill_orphans(run: RunDir, wait_s: float, *, first: bool) -> None:
    """Nothing that an earlier hub of the run has started is left when this returns.

    Args:
        run: The run.
        wait_s: How long the parents of an earlier hub may take to end their trees by themselves.
        first: There was no earlier hub; only the lock is looked at.

    Raises:
        TreeLockedError: Something of it cannot be ended.
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
    """End every process that was started for the run, but none that started this one."""
    above = _ancestors()
    found = [
        facts for facts in find_by_environment("BARTACK_RUN_DIR", str(run.path)) if facts.pid not in above
    ]
    survivors: list[ProcessFacts] = kill_tree(*(facts.id for facts in found)) if found else []
    if survivors:
        raise TreeLockedError(str(run.tree_lock))


def _ancestors() -> set[int]:
    """Whoever resumes a run from a terminal that the run itself once opened must not be ended by that."""
    found: set[int] = set()
    pid = os.getppid()
    while pid > 1 and pid not in found:
        found.add(pid)
        facts = read_facts(pid)
        pid = facts.ppid if facts is not None else 0
    return found
