"""The worktree of a reviewer that must not change anything that counts (``review.isolated``).

It begins with everything that git tracks or would track in the workspace. When the reviewer has answered, the files that it may
write are copied to the workspace; everything else that it changed stays in its worktree, and a note names it. A worktree in
which nothing is left is removed.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from bartack.agents.artifacts import open_artifact
from bartack.core.files import replace_file
from bartack.core.paths import safe_join
from bartack.errors import GitError, UnsafePathError
from bartack.pipeline.records.records import Lane, Place, ReviewTree, Settings
from bartack.pipeline.snapshot._paths import first_paths, path_text
from bartack.pipeline.snapshot._patterns import Patterns
from bartack.pipeline.worktree._git import Git
from bartack.pipeline.worktree._removal import REVIEW, drop_review, remove_tree
from bartack.pipeline.worktree._whose import NOISE
from bartack.pipeline.worktree._worktrees import Trees, lane_name
from bartack.runtime import step


def review_name(place: Place, task_id: str, number: int) -> str:
    """What the worktree of a review is called."""
    return f"{place.lane or lane_name(task_id)}{REVIEW}{number}"


@step(name="review_tree")
def begin_review(place: Place, name: str) -> ReviewTree:
    """Keep the workspace as it is as a commit, for a reviewer to begin with."""
    trees = Trees(place.root, place.run_dir)
    git = trees.inside(place.lane) if place.lane else trees.git
    kept = trees.kept(name)
    tree, links = trees.write_tree(git, name)
    start = trees.git.find("rev-parse", "--verify", "--quiet", f"{kept}^{{commit}}")
    if not start:
        message = f"What {name} of {trees.run} reviews\n"
        head = git("rev-parse", "HEAD")
        start = trees.git.done("commit-tree", tree, "-p", head, given=message.encode(), author=True).line
        trees.git("update-ref", kept, start, "")
    prefix = trees.git("rev-parse", "--show-prefix").rstrip("/")
    return ReviewTree(
        lane=Lane(name=name, start=start, prefix=prefix), empty=[os.fsdecode(link) for link in links]
    )


def end_review(place: Place, lane: Lane, settings: Settings) -> list[str]:
    """Bring what a reviewer may write into the workspace; returns notes about everything else that it changed.

    It may be killed anywhere and called again.

    Raises:
        WorktreeError: The worktree is gone, or not on its branch.
    """
    trees = Trees(place.root, place.run_dir)
    commit = trees.commit(lane.name, f"What {lane.name} of {trees.run} left\n")
    writable = Patterns(settings.review.writable)
    notes: list[str] = []
    left: list[str] = []
    for path in _changed(trees.git, lane, commit):
        if NOISE.match(path):
            continue
        text = path_text(path)
        if not writable.match(path) or not _bring(trees, place, lane, text):
            left.append(text)
    if not left:
        with suppress(GitError):  # a process still works there: it stays for bartack clean
            remove_tree(trees, lane.name)
            drop_review(trees, lane.name)
        return notes
    folder = f"{settings.state_dir}/worktrees/{trees.run}/{lane.name}"
    notes.append(f"what the reviewer changed does not count; {first_paths(left)} is kept in {folder}")
    return notes


def _changed(git: Git, lane: Lane, commit: str) -> list[bytes]:
    """The paths that differ from what the reviewer began with, seen from the workspace."""
    listed = git.done("diff-tree", "-r", "-z", "--name-only", "--no-renames", lane.start, commit).out
    prefix = os.fsencode(f"{lane.prefix}/") if lane.prefix else b""
    return [path.removeprefix(prefix) for path in listed.split(b"\0") if path and path.startswith(prefix)]


def _bring(trees: Trees, place: Place, lane: Lane, path: str) -> bool:
    """Copy a file of the reviewer to the workspace, unless it was changed there meanwhile, or is none; whether it is there."""
    below = os.path.join(trees.path(lane.name), lane.prefix)
    try:
        with open(open_artifact(below, path), "rb") as file:
            content = file.read()
        target = safe_join(place.workspace, path)
        now = target.read_bytes() if os.path.lexists(target) else None
        if now == content:
            return True
        inside = f"{lane.prefix}/{path}" if lane.prefix else path
        before = trees.git.done("cat-file", "blob", f"{lane.start}:{inside}", fine=(0, 128))
        if now is not None and (before.status or before.out != now):
            return False
        replace_file(Path(target), content, parents=True)
    except (OSError, UnsafePathError):
        return False
    return True
