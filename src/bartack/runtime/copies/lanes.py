"""The lanes of a run: worktrees of the repository in its workspace, in which tasks work side by side.

They are found where they are, because a copy is made while tasks begin and end. One that git is still making is not a lane yet: its
files are not all there, and in a copy they would look deleted.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Final

_MAKING: Final = "initializing"
"""Why git has locked a worktree that it is making."""


def find_lanes(folder: Path) -> dict[str, Path]:
    """The worktrees in a directory that are whole, by name. Those that git knows at another place are left out."""
    if not folder.is_dir():
        return {}
    return {place.name: place for place in sorted(folder.iterdir()) if _is_whole(place)}


def drop_lanes(folder: Path, keep: Collection[str]) -> None:
    """Remove the directories beside the lanes that are kept."""
    places = [*folder.iterdir()] if folder.is_dir() else []
    for place in [place for place in places if place.is_dir() and place.name not in keep]:
        if place.is_symlink():
            place.unlink()
        else:
            shutil.rmtree(place)


def _is_whole(place: Path) -> bool:
    try:
        link = (place / ".git").read_bytes()
        own = Path(os.fsdecode(link.removeprefix(b"gitdir: ").rstrip(b"\n")))
        noted = os.fsdecode((own / "gitdir").read_bytes().rstrip(b"\n"))
    except OSError:
        return False
    return os.path.realpath(noted) == os.path.realpath(place / ".git") and not _is_being_made(own)


def _is_being_made(own: Path) -> bool:
    try:
        return (own / "locked").read_text("utf-8", "replace").strip() == _MAKING
    except OSError:
        return False
