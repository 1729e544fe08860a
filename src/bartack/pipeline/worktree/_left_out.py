"""What git leaves out of a branch: ignored artifacts, and repositories inside of a work tree, of which it only keeps a name.

None of it is an error. It is named, and it stays where it is: a worktree that holds it is not removed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from bartack.pipeline.worktree._git import Git


def find_unborn(git: Git, state_dir: str = "") -> list[str]:
    """The repositories without a commit in a work tree, seen from its top: git refuses to add one, and everything with it.

    Args:
        git: Git in the work tree.
        state_dir: Where runs are kept, which may be such a repository, and is left out.
    """
    top = git("rev-parse", "--show-toplevel")
    listed = Git(top).done("ls-files", "-z", "--others", "--exclude-standard").out.split(b"\0")
    nested = [os.fsdecode(path[:-1]) for path in listed if path.endswith(b"/")]
    own = {".bartack", os.path.basename(os.path.realpath(state_dir)) if state_dir else ""}
    return [
        path
        for path in nested
        if os.path.basename(path) not in own and not _has_commit(os.path.join(top, path))
    ]


def _has_commit(place: str) -> bool:
    found = Git(place).done("rev-parse", "--verify", "--quiet", "HEAD^{commit}", fine=range(256))
    return found.status == 0


def leaving_out(paths: Sequence[str]) -> list[str]:
    """Words for git that leave out these paths, seen from the top of the work tree."""
    return [f":(top,exclude,literal){path}" for path in paths]


def find_ignored(git: Git, paths: Sequence[str]) -> list[str]:
    """Which of these paths, seen from where git works, it does not track and ignores."""
    if not paths:
        return []
    given = b"".join(os.fsencode(path) + b"\0" for path in paths)
    listed = git.done("check-ignore", "-z", "--stdin", given=given, fine=(0, 1)).out.split(b"\0")
    return [os.fsdecode(path) for path in listed if path]


def find_left(git: Git, start: str, artifacts: Sequence[str], prefix: str = "") -> list[str]:
    """Everything in the worktree of a task that its branch does not have, one sentence each.

    Args:
        git: Git at the top of the worktree, in which everything was committed that can be.
        start: The commit that its branch began at.
        artifacts: The files that agents have reported, seen from the workspace.
        prefix: Where the workspace is in the worktree.
    """
    below = [f"{prefix}/{path}" if prefix else path for path in artifacts]
    there = [path for path in below if os.path.lexists(os.path.join(git.place, path))]
    left = dict.fromkeys(find_ignored(git, there), "is ignored by git and is not on the branch")
    left |= dict.fromkeys(find_unborn(git), "is a repository without a commit and is not on the branch")
    raw = git.done("diff-tree", "-r", "-z", "--raw", "--no-renames", start, "HEAD").out.split(b"\0")
    for facts, path in zip(raw[::2], raw[1::2], strict=False):
        if facts.split(b" ")[1] == b"160000":
            left[os.fsdecode(path)] = (
                "is a repository of its own: the branch has the name of its commit, not its files"
            )
    status = git.done("status", "--porcelain=v2", "-z", "--ignore-submodules=none").out
    for item in status.split(b"\0"):
        words = item.split(b" ", 8)
        if len(words) == 9 and words[2].startswith(b"S") and words[2][2:] != b"..":
            left.setdefault(
                os.fsdecode(words[8]), "has changes that are not committed there and are not on the branch"
            )
    return [f"{path} {problem}" for path, problem in sorted(left.items())]
