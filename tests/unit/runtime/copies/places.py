"""A workspace, a run and their copies, on one host and on another."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

from bartack.runtime.copies.copies import Copies, open_copies
from bartack.runtime.copies.values import Sources

AUTHOR = ("-c", "user.name=Ann", "-c", "user.email=ann@example.com")


def git(place: Path, *words: str) -> str:
    """What git writes, as a person calls it."""
    done = subprocess.run(
        ["git", *AUTHOR, *words], cwd=place, check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout.strip()


def make_repository(place: Path) -> Path:
    """A repository with one commit."""
    place.mkdir(parents=True, exist_ok=True)
    git(place, "init", "--quiet", "--initial-branch=main", "--template=", ".")
    (place / "kept.txt").write_text("one\n")
    git(place, "add", "-A")
    git(place, "commit", "--quiet", "-m", "begin")
    return place


class Host:
    """One machine, with a workspace and the directory of a run."""

    def __init__(self, place: Path) -> None:
        self.workspace = place / "workspace"
        self.run = place / "run-1"
        for folder in (self.workspace, self.run / "work"):
            folder.mkdir(parents=True)
        self.sources = Sources(self.workspace, self.run)
        self.copies: Copies = open_copies(place / "copies.git")

    def send(self, other: Host, commit: str, have: str = "") -> None:
        """Restore a copy on another host."""
        other.copies.add_pack(self.copies.pack(commit, have))
        other.copies.restore(commit, other.sources)


Listed = dict[bytes, tuple[str, bytes]]


def listing(place: Path) -> Listed:
    """Everything in a directory but repositories: kind (with the executable bit of a file), and content or target."""
    found: Listed = {}
    for folder, folders, files in os.walk(os.fsencode(place)):
        folders[:] = [name for name in folders if name != b".git"]
        for name in [*folders, *files]:
            path = os.path.join(folder, name)
            if name != b".git":
                found[os.path.relpath(path, os.fsencode(place))] = _describe(path)
    return found


def _describe(path: bytes) -> tuple[str, bytes]:
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        return "link", os.readlink(path)
    if stat.S_ISDIR(mode):
        return "folder", b""
    with open(path, "rb") as file:
        return "program" if mode & stat.S_IXUSR else "file", file.read()
