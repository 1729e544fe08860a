"""What is copied, how much of it, and what comes out: the values that callers of ``copies.py`` hand in and get back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

Carry = Literal["auto", "full", "none"]
"""How much of the history of a workspace its first copy has.

``full``: all commits. ``auto``: all of them in a repository of up to 64 MiB, else only the one that is checked out. ``none``: the
workspace begins empty.
"""

RUN_FOLDERS: Final = ("work", "agents", "receipts", "snapshots")
"""What is copied of the directory of a run."""


@dataclass(frozen=True)
class Sources:
    """What is copied, and where it is restored to.

    Attributes:
        workspace: The workspace: a directory, or the top of a git repository (``find_top`` finds it).
        run: The directory of the run; of it, only ``RUN_FOLDERS`` are copied.
        lanes: The worktrees of tasks side by side, by name. A name is one component of a path.
    """

    workspace: Path
    run: Path
    lanes: Mapping[str, Path] = field(default_factory=dict[str, Path])


@dataclass(frozen=True)
class Limits:
    """How large a file, and all files of one tree together, may be to be copied."""

    file_bytes: int = 64 << 20
    workspace_bytes: int = 2 << 30


@dataclass(frozen=True)
class Copy:
    """One copy.

    Attributes:
        commit: The commit, whose name depends on what it contains and on nothing else.
        parent: The copy before it, as it was given; empty for the first one.
        head: The commit that is checked out in the workspace; empty if there is none.
        refs: The references of the repository in the workspace, if they differ from those of the parent; else empty.
        left_out: What the copy does not have, one sentence each.
        is_same: Whether it equals its parent; then ``commit`` is the parent.
    """

    commit: str
    parent: str
    head: str
    refs: Mapping[str, str]
    left_out: tuple[str, ...] = ()
    is_same: bool = False


@dataclass(frozen=True)
class Delivered:
    """What a delivery has made in a repository.

    Attributes:
        refs: The references that keep what came from the run, with their commits.
        branches: The branches, with their commits; the first one has the files of the workspace.
        command: The one command that merges them.
    """

    refs: Mapping[str, str]
    branches: Mapping[str, str]
    command: str
