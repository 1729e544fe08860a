"""The end of a worktree: everything in it is committed, ignored files are put into an archive, and then git removes it.

Whenever something could be lost it stays, and the error names it. Caches are deleted, because tools write them again. Branches go
only where another one has all of their work.
"""

from __future__ import annotations

import os
import select
import tarfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from bartack.errors import GitError, WorktreeDirtyError, WorktreeError
from bartack.pipeline.worktree._git import Git
from bartack.pipeline.worktree._whose import find_caches
from bartack.pipeline.worktree._worktrees import MARKED, RESULT, Trees

MOST_IGNORED: Final = 64 * 1024 * 1024
ARCHIVE: Final = ".ignored.tar"
LEFT: Final = ".left-"
REVIEW: Final = "+review-"
"""Part of the names of worktrees that reviewers have; no task can be called so."""


def list_trees(trees: Trees) -> list[str]:
    """The names of the worktrees that a run has, the result last."""
    folder = Path(trees.path(RESULT)).parent
    names = (
        [path.name for path in folder.iterdir() if os.path.isfile(path / ".git")] if folder.is_dir() else []
    )
    return sorted((name for name in names if LEFT not in name), key=lambda name: (name == RESULT, name))


def remove_tree(trees: Trees, name: str, *, patience_s: float = 0.0) -> str:
    """Remove a worktree; returns the archive of its ignored files, empty if it had none.

    Args:
        trees: Those of its run.
        name: Which.
        patience_s: How long to wait for processes that still work there.

    Raises:
        WorktreeDirtyError: It may hold something that is nowhere else; nothing was removed.
    """
    path = trees.path(name)
    try:
        git = trees.inside(name)
        trees.commit(name, f"What was left in the worktree {name} of {trees.run}\n")
    except WorktreeError as error:
        raise WorktreeDirtyError(path, error.problem) from None
    _check_saved(git, path)
    _check_deserted(path, patience_s)
    archive = _save_ignored(git, path)
    for cache in find_caches(git):
        os.unlink(os.path.join(path, cache))
    try:
        trees.git("worktree", "remove", path)
    except GitError as error:
        raise WorktreeDirtyError(path, error.problem) from None
    _forget(trees, name)
    return archive


def _forget(trees: Trees, name: str) -> None:
    """What is remembered of the files of a worktree is of no use without it."""
    with suppress(OSError):
        os.unlink(os.path.join(trees.run_dir, "..", "..", "cache", f"stat-1-{trees.run}-{name}"))


def _check_saved(git: Git, path: str) -> None:
    status = git.done("status", "--porcelain", "-z", "--untracked-files=all", "--ignore-submodules=none").out
    caches = {f"?? {cache}" for cache in find_caches(git)}
    left = [item[3:] for item in map(os.fsdecode, status.split(b"\0")) if item and item not in caches]
    if left:
        raise WorktreeDirtyError(path, f"{left[0]!r} cannot be committed" + _more(left))
    if not git("for-each-ref", "--count=1", "--contains", "HEAD"):
        raise WorktreeDirtyError(path, "no branch has its last commit")


def _check_deserted(path: str, patience_s: float) -> None:
    until = time.monotonic() + patience_s
    while there := who_is_inside(path):
        if time.monotonic() >= until:
            raise WorktreeDirtyError(path, f"a process works there: {there[0]}" + _more(there))
        select.select([], [], [], 0.1)


def who_is_inside(path: str) -> list[int]:
    """The processes that have their working directory in a worktree, as far as this system reports them."""
    inside: list[int] = []
    place = os.path.realpath(path)
    for entry in Path("/proc").glob("[0-9]*/cwd"):
        try:
            cwd = os.readlink(entry)
        except OSError:
            continue
        if cwd == place or cwd.startswith(place + os.sep):
            inside.append(int(entry.parent.name))
    return sorted(inside)


def _save_ignored(git: Git, path: str) -> str:
    """Git would remove ignored files without a word: they are kept in an archive beside the worktree."""
    listed = git.done("ls-files", "-z", "--others", "--ignored", "--exclude-standard").out
    names = [os.fsdecode(name) for name in listed.split(b"\0") if name]
    if not names:
        return ""
    size = sum(os.lstat(os.path.join(path, name)).st_size for name in names)
    if size > MOST_IGNORED:
        raise WorktreeDirtyError(path, f"its ignored files have {size} bytes, which is too much to keep")
    own = next((name for name in names if name.endswith("/")), "")
    if own:
        raise WorktreeDirtyError(path, f"{own!r} is a repository of its own")
    archive = path + ARCHIVE
    with tarfile.open(f"{archive}.tmp", "w") as tar:
        for name in names:
            tar.add(os.path.join(path, name), arcname=name, recursive=False)
    os.replace(f"{archive}.tmp", archive)
    return archive


def drop_review(trees: Trees, name: str) -> None:
    """Delete the branch of a reviewer that has left nothing on it, and the reference to what it began with."""
    ref, kept = f"refs/heads/{trees.branch(name)}", trees.kept(name)
    tip, start = (trees.git.find("rev-parse", "--verify", "--quiet", found) for found in (ref, kept))
    if start and tip in {"", start}:
        if tip:
            trees.git("update-ref", "-d", ref, tip)
        trees.git("update-ref", "-d", kept, start)


def drop_branches(trees: Trees) -> list[str]:
    """Delete the branches of a run whose work is on other branches as well; returns those that stay."""
    own = (f"refs/heads/bartack/{trees.run}/", f"refs/bartack/{trees.run}/")
    begun = trees.git("for-each-ref", "--format=%(refname)", own[1]).splitlines()
    for name in (ref.removeprefix(own[1]) for ref in begun if REVIEW in ref):
        drop_review(trees, name)
    for name in (ref.removeprefix(own[1]) for ref in begun if MARKED in ref):
        trees.git("update-ref", "-d", trees.kept(name))  # branches have what was merged there
    listed = trees.git("for-each-ref", "--format=%(objectname) %(refname)", *own).splitlines()
    # The result goes last: as long as it stays, it has the work of the others.
    ordered = sorted(line.split(" ", 1) for line in listed)
    ordered.sort(key=lambda found: found[1].endswith(f"/{RESULT}"))
    kept: list[str] = []
    for commit, ref in ordered:
        others = trees.git("for-each-ref", "--format=%(refname)", "--contains", commit).splitlines()
        if _is_elsewhere(ref, others, own):
            trees.git("update-ref", "-d", ref, commit)
        else:
            kept.append(ref.removeprefix("refs/heads/"))
    return kept


def _is_elsewhere(ref: str, others: list[str], own: tuple[str, ...]) -> bool:
    result = f"{own[0]}{RESULT}"
    return any(not other.startswith(own) or (other == result and ref != result) for other in others)


def _more(found: list[str] | list[int]) -> str:
    return f" and {len(found) - 1} more" if len(found) > 1 else ""
