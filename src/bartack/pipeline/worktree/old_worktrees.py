"""The worktrees that runs have left: where they are when a run is resumed, and how they are removed.

How one worktree is removed is in ``_removal.py``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from bartack.config.load import Config
from bartack.errors import GitError, WorktreeDirtyError
from bartack.pipeline.records.facts import read_facts
from bartack.pipeline.records.records import Base, Lane, Place, Settings, TaskRecord
from bartack.pipeline.worktree._git import Git
from bartack.pipeline.worktree._lanes import place_of
from bartack.pipeline.worktree._left_out import find_ignored
from bartack.pipeline.worktree._removal import LEFT, REVIEW, drop_branches, list_trees, remove_tree
from bartack.pipeline.worktree._worktrees import (
    Trees,
    check_names,
    check_nested,
    lane_name,
    look_at,
    trees_of,
)


class Cleared(msgspec.Struct):
    """What became of the worktrees of a run.

    Attributes:
        removed: Those that are gone.
        archives: Where the ignored files of those are.
        kept: Those that stay, each with the reason.
        branches: Branches that stay, because their work is on no other one.
        left: What killed commands have left, unread.
    """

    removed: list[str] = []
    archives: list[str] = []
    kept: dict[str, str] = {}
    branches: list[str] = []
    left: list[str] = []


def resumed_places(run_dir: Path, workspace: Path, settings: Settings) -> list[Place]:
    """Where the agents of a resumed run work: in the workspace, or in the worktrees that are there.

    A worktree that was moved, with everything around it, is made known to git at its new place.
    """
    prefix = _prefix(run_dir)
    trees = Trees(str(workspace), str(run_dir))
    places: list[Place] = []
    if settings.parallel.tasks < 2:
        places.append(Place(run_dir=str(run_dir), workspace=str(workspace), root=str(workspace)))
    for name in list_trees(trees):
        with suppress(GitError):  # the task whose worktree it is reports what is wrong with it
            trees.repair(name)
            if REVIEW in name:
                continue
            lane = Lane(name=name, start="", prefix=prefix)
            places.append(msgspec.structs.replace(place_of(str(run_dir), lane), root=str(workspace)))
    return places


def _prefix(run_dir: Path) -> str:
    """Where the workspace of a run is in its repository, as far as that matters to it."""
    found = (fact.value for fact in read_facts(run_dir) if isinstance(fact.value, Base))
    base = next(found, None)
    return "" if base is None else base.prefix


def workspace_of(run_dir: Path, workspace: str, task_id: str) -> str:
    """Where the files of a task are: in its last worktree, or in the workspace if it has none."""
    if not has_trees(run_dir):
        return workspace
    name = lane_name(task_id)
    own = [found for found in list_trees(Trees(workspace, str(run_dir))) if found.partition("@")[0] == name]
    if not own:
        return workspace
    last = max(own, key=lambda found: int(found.partition("@")[2] or 1))
    return os.path.abspath(os.path.join(trees_of(str(run_dir)), last, _prefix(run_dir)))


def has_trees(run_dir: Path) -> bool:
    """Whether a run has, or had, worktrees."""
    return os.path.isdir(trees_of(str(run_dir)))


def check_repository(workspace: Path, needed_by: str = "parallel.tasks", state_dir: str = "") -> None:
    """Raise unless agents can work in worktrees of this workspace.

    Args:
        workspace: The workspace.
        needed_by: The setting that wants it.
        state_dir: Where runs are kept.

    Raises:
        GitError: They cannot.
    """
    git = Git(str(workspace))
    look_at(git, needed_by)
    check_names(git)
    if needed_by == "parallel.tasks":
        check_nested(git, state_dir)


def ignored_files(workspace: Path, config: Config, tasks: Sequence[TaskRecord]) -> list[tuple[str, str]]:
    """Files that are there, that tasks side by side need, and that no worktree has: who needs each, and its path."""
    if config.parallel.tasks < 2:
        return []
    needed = [(f"task {task.id}", path) for task in tasks for path in task.task_files]
    if config.pipeline.spec:
        needed.append(("spec.file", config.spec.file))
    there = [(name, path) for name, path in needed if os.path.lexists(workspace / path)]
    try:
        ignored = find_ignored(Git(str(workspace)), [path for _, path in there])
    except GitError:
        return []  # a path that leads elsewhere: the step that needs it reports that
    return [(name, path) for name, path in there if path in ignored]


def count_trees(run_dir: Path) -> int:
    """How many worktrees a run has now."""
    return len(list_trees(Trees("", str(run_dir))))


def clear_trees(run_dir: Path, workspace: Path) -> Cleared:
    """Remove the worktrees of a run, and the branches whose work others have, too. What could be lost stays."""
    trees = Trees(str(workspace), str(run_dir))
    cleared = Cleared()
    for name in list_trees(trees):
        path = trees.path(name)
        try:
            archive = remove_tree(trees, name)
        except WorktreeDirtyError as error:
            cleared.kept[path] = error.problem
            continue
        except GitError as error:
            cleared.kept[path] = str(error)
            continue
        cleared.removed.append(path)
        cleared.archives += [archive] if archive else []
    if not cleared.kept:
        try:
            cleared.branches = drop_branches(trees)
        except GitError as error:
            cleared.branches = [str(error)]
    folder = Path(os.path.abspath(trees_of(str(run_dir))))
    cleared.left = sorted(str(path) for path in folder.glob(f"*{LEFT}*"))
    with suppress(OSError):  # what is still in it is reported above
        folder.rmdir()
        folder.parent.rmdir()
    return cleared
