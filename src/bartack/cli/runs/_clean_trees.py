"""Worktrees in ``bartack clean``. ``bartack.pipeline`` is imported only for runs that have worktrees: most have none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from bartack.cli.app._terminal import Screen, printable
from bartack.errors import BartackError
from bartack.runtime.rundir.find import read_state
from bartack.runtime.rundir.layout import RunDir

if TYPE_CHECKING:
    from bartack.pipeline.worktree.old_worktrees import Cleared


def _has_trees(run: RunDir) -> bool:
    return (run.path.parent.parent / "worktrees" / run.id).is_dir()


def count_trees(run: RunDir) -> int:
    """Return how many worktrees a run has."""
    if not _has_trees(run):
        return 0
    from bartack.pipeline.worktree.old_worktrees import count_trees  # noqa: PLC0415 - see the module

    return count_trees(run.path)


def clear_trees(run: RunDir) -> Cleared | None:
    """Remove the worktrees of a run whose content is saved elsewhere; ``None`` if the run never had any."""
    if not _has_trees(run):
        return None
    from bartack.pipeline.worktree import old_worktrees  # noqa: PLC0415 - see the module

    try:
        workspace = run.workspace(read_state(run))
    except BartackError as error:
        return old_worktrees.Cleared(kept={str(run.path): str(error)})
    return old_worktrees.clear_trees(run.path, Path(workspace))


def write_cleared(screen: Screen, cleared: dict[str, Cleared]) -> None:
    """Write which worktrees and branches are kept, and where removed files are archived."""
    for found in cleared.values():
        for path in found.archives:
            screen.line(f"ignored files are in {_short(path)}")
        for branch in found.branches:
            screen.line(f"kept {printable(branch)}: no other branch has its work")
        for path, why in found.kept.items():
            screen.line(f"kept {_short(path)}: {printable(why)}")
        for path in found.left:
            screen.line(f"kept {_short(path)}: left over from a killed command")


def _short(path: str) -> str:
    return printable(os.path.relpath(path))
