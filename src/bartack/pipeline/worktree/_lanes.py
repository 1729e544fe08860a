"""The steps of tasks side by side. Each may be killed anywhere and executed again: see ``_worktrees.py`` for how."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from bartack.core import typed
from bartack.core.files import replace_file
from bartack.errors import WorktreeDirtyError
from bartack.pipeline.records.receipts import receipt_files, receipts_of
from bartack.pipeline.records.records import (
    Base,
    Committed,
    Delivered,
    Lane,
    Merged,
    Opened,
    Place,
    Settings,
    Spent,
    TaskRecord,
)
from bartack.pipeline.worktree._left_out import find_left
from bartack.pipeline.worktree._removal import list_trees, remove_tree
from bartack.pipeline.worktree._worktrees import RESULT, Trees, find_marks, tree_of
from bartack.runtime import step
from bartack.runtime.rundir.receipts import load_receipt

PATIENCE_S: Final = 30.0
"""How long agents that have nothing to do may take to leave a worktree that is to be removed."""


def place_of(run_dir: str, lane: Lane) -> Place:
    """Where the steps of a task work that has a worktree."""
    tree = tree_of(run_dir, lane.name)
    return Place(run_dir=run_dir, workspace=f"{tree}/{lane.prefix}" if lane.prefix else tree, lane=lane.name)


def check_place(place: Place) -> None:
    """Check that the worktree of a task is there.

    Raises:
        WorktreeError: It is gone.
    """
    if place.lane:
        _trees(place).inside(place.lane)


def result_lane(base: Base, commit: str) -> Lane:
    """The worktree of the result."""
    return Lane(name=RESULT, start=commit, prefix=base.prefix)


def _trees(place: Place) -> Trees:
    return Trees(place.root, place.run_dir)


@step(name="base")
def make_base(place: Place, settings: Settings) -> Base:
    """The commit that all tasks begin with."""
    return _trees(place).make_base(setup=bool(settings.parallel.setup))


@step(name="worktree")
def open_worktree(place: Place, lane: Lane, task_id: str) -> Opened:
    """Make the worktree of a task, unless it is there."""
    _trees(place).open(lane.name, lane.start)
    done = receipts_of(Path(place.run_dir), task_id)
    return Opened(ready=_prepared(place, lane.name).exists(), receipts=done)


@step(name="prepared")
def note_prepared(place: Place, lane: Lane) -> None:
    """Remember that a worktree was prepared: once is enough."""
    file = _prepared(place, lane.name)
    replace_file(file, b"", parents=True)


def _prepared(place: Place, name: str) -> Path:
    return Path(place.run_dir, "work", "worktrees", name)


@step(name="commit")
def commit_work(place: Place, lane: Lane, task: TaskRecord, what: str, key: str) -> Committed:
    """Commit what is in a worktree, if anything is.

    Args:
        place: The run.
        lane: The worktree.
        task: Whose.
        what: What was done.
        key: The key of the command that did it; empty if it was not a command.
    """
    trees = _trees(place)
    title = f": {task.title}" if task.title else ""
    trailers = [f"Bartack-Run: {trees.run}", f"Bartack-Task: {task.id}"] + (
        [f"Bartack-Key: {key}"] if key else []
    )
    message = f"{task.id}: {what}{title}\n\n" + "\n".join(trailers) + "\n"
    reported = _reported(place, task.id)
    commit = trees.commit(
        lane.name,
        message,
        amends=lane.start if lane.conflicts else "",
        reported={os.path.join(lane.prefix, path) for path in reported},
    )
    if key:
        return Committed(task_id=task.id, commit=commit)  # there is more to come
    folder = os.path.relpath(trees.path(lane.name), place.root)
    found = find_left(trees.inside(lane.name), lane.start, reported, lane.prefix)
    left = [f"{note}; it is kept in {folder}" for note in found]
    return Committed(task_id=task.id, commit=commit, left=left)


def _reported(place: Place, task_id: str) -> list[str]:
    """The files that agents have reported for a task."""
    receipts = map(load_receipt, receipt_files(Path(place.run_dir), task_id))
    return sorted({artifact.path for receipt in receipts for artifact in receipt.artifacts})


@step(name="merge")
def merge_task(place: Place, base: Base, lane: Lane, task_id: str) -> Merged:
    """Bring the work of a task into the result."""
    trees = _trees(place)
    message = f"Merge {task_id}\n\nBartack-Run: {trees.run}\nBartack-Task: {task_id}\n"
    merged = trees.merge(lane.name, base.commit, message)
    return msgspec.structs.replace(merged, task_id=task_id)


@step(name="mark_conflicts")
def mark_conflicts(place: Place, merged: Merged) -> str:
    """A commit in which the conflicts of a merge are marked."""
    trees = _trees(place)
    message = f"Merge the result into {merged.task_id}\n\nBartack-Run: {trees.run}\nBartack-Task: {merged.task_id}\n"
    return trees.mark(merged, message)


@step(name="marks")
def look_for_marks(place: Place, lane: Lane) -> list[str]:
    """The files in which conflicts are still marked."""
    return find_marks(_trees(place).path(lane.name), lane.conflicts)


@step(name="deliver")
def deliver(place: Place, settings: Settings, base: Base) -> Delivered:
    """Say where the result is, or move the user's branch to it. A workspace of the run's own gets it in any case."""
    if settings.carried:
        return _trees(place).bring(base)
    return _trees(place).deliver(base, move=settings.parallel.merge == "fast-forward")


@step(name="remove_worktrees")
def remove_worktrees(place: Place) -> list[str]:
    """Remove the worktrees of a run that hold nothing but what is on a branch; returns why others stay."""
    trees = _trees(place)
    stay: list[str] = []
    for name in list_trees(trees):
        try:
            remove_tree(trees, name, patience_s=PATIENCE_S)
        except WorktreeDirtyError as error:
            stay.append(str(error))
    return stay


@step(name="tally")
def tally(place: Place, worker: str, own: Spent) -> Spent:
    """What all tasks have used so far: each leaves its own count where the others find it."""
    folder = Path(place.run_dir, "work", "spent")
    replace_file(folder / f"{worker.replace(os.sep, '%')}.json", msgspec.json.encode(own), parents=True)
    total = Spent()
    for file in folder.glob("*.json"):
        total = total + typed.decode(file.read_bytes(), type=Spent)
    return total
