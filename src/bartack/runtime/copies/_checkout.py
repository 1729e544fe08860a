"""A tree of a copy as files: compared with what is there, and only what differs is written and removed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Final, NamedTuple

from bartack.errors import UnsafePathError, WorkspaceKeepError
from bartack.runtime.copies._git import PlainGit, spool
from bartack.runtime.copies._meta import TreeMeta, unquote_path
from bartack.runtime.copies._objects import EMPTY_TREE
from bartack.runtime.copies._watched import Scanned, WatchedTree
from bartack.runtime.copies._writer import MODULE, TreeWriter, check_path
from bartack.runtime.copies.values import RUN_FOLDERS

ROUNDS: Final = 5
"""How often a directory is compared with a tree: a ``.gitignore`` that was replaced, or a directory that could not be read,
may have hidden files from the time before."""


class _Listed(NamedTuple):
    """One file of a tree."""

    path: bytes
    mode: bytes
    id: str


class _Difference(NamedTuple):
    """What has to be done: files to remove, files to write."""

    removed: list[_Listed]
    written: list[_Listed]

    @property
    def changes_what_is_ignored(self) -> bool:
        """Whether files may show that were ignored before."""
        return any(os.path.basename(file.path) == b".gitignore" for file in (*self.removed, *self.written))


def check_tree(git: PlainGit, tree: str, *, is_run: bool = False) -> None:
    """Refuse a tree with a name that a copy never has. To be called for all trees before anything is written.

    Raises:
        UnsafePathError: It has one.
        WorkspaceKeepError: It cannot be read.
    """
    for item in git("ls-tree", "-r", "-t", "-z", "--full-tree", tree).split(b"\0"):
        if item:
            facts, _, path = item.partition(b"\t")
            mode = facts.split(b" ")[0]
            check_path(path, mode if mode != b"040000" else b"100644")
            if is_run and os.fsdecode(path.split(b"/")[0]) not in RUN_FOLDERS:
                raise UnsafePathError(os.fsdecode(path), f"of a run only {', '.join(RUN_FOLDERS)} are copied")


def check_folders(meta: TreeMeta) -> list[bytes]:
    """The directories without files of a tree, as paths.

    Raises:
        UnsafePathError: One leads elsewhere.
    """
    folders = [unquote_path(folder) for folder in meta.empty]
    for folder in folders:
        check_path(folder)
    return folders


def restore_tree(
    git: PlainGit, place: Path, meta: TreeMeta, watched: WatchedTree, *, is_private: bool
) -> None:
    """Make a directory what a tree was. Files that are ignored, and those that copies leave out, stay.

    Raises:
        WorkspaceKeepError: Afterwards it is something else.
    """
    folders = check_folders(meta)
    wrong: list[bytes] = []
    for _ in range(ROUNDS):
        with TreeWriter(place, is_private=is_private) as writer:
            found = watched.scan()
            difference = _compare(git, found.tree, meta.tree)
            _apply(git, writer, difference, found, folders)
            closed = watched.closed
            writer.open_folders(closed)
        wrong = watched.adopt(meta.tree)
        if not closed and not difference.changes_what_is_ignored:
            break
    if wrong:
        names = ", ".join(os.fsdecode(path) for path in wrong[:10])
        raise WorkspaceKeepError(str(place), f"these files are not what the copy has: {names}")


def write_tree(git: PlainGit, place: Path, meta: TreeMeta) -> None:
    """Write all files of a tree into a directory; others that are there stay.

    Raises:
        WorkspaceKeepError: The tree cannot be read.
    """
    with TreeWriter(place) as writer:
        _write(git, writer, _compare(git, EMPTY_TREE, meta.tree).written)
        for folder in check_folders(meta):
            writer.make_folder(folder)


def _apply(
    git: PlainGit, writer: TreeWriter, difference: _Difference, found: Scanned, folders: list[bytes]
) -> None:
    for file in difference.removed:
        if file.mode != MODULE:
            writer.remove(file.path)
    writer.remove_folders({*found.empty} - {*folders})
    _write(git, writer, difference.written)
    for folder in folders:
        writer.make_folder(folder)


def _write(git: PlainGit, writer: TreeWriter, files: list[_Listed]) -> None:
    for file, data in _read(git, [file for file in files if file.mode != MODULE]):
        writer.write(file.path, file.mode, data)
    for file in files:
        if file.mode == MODULE:
            writer.make_folder(file.path)


def _compare(git: PlainGit, before: str, after: str) -> _Difference:
    out = git("diff-tree", "-r", "-z", "--raw", "--no-renames", "--full-index", before, after)
    items = out.split(b"\0")
    removed: list[_Listed] = []
    written: list[_Listed] = []
    for facts, path in zip(items[::2], items[1::2], strict=False):
        old, new, _, made, status = facts.lstrip(b":").split(b" ")
        if status.startswith(b"D"):
            removed.append(_Listed(path, old, ""))
        else:
            written.append(_Listed(path, new, made.decode()))
    return _Difference(removed, written)


def _read(git: PlainGit, files: list[_Listed]) -> Iterator[tuple[_Listed, bytes]]:
    """Files with their content, which git writes to a temporary file first: they may be larger than the memory."""
    if files:
        with spool(git, ("cat-file", "--batch"), _given(file.id for file in files)) as out:
            for file in files:
                yield file, _next(out)


def _given(names: Iterable[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()


def _next(out: IO[bytes]) -> bytes:
    facts = out.readline().split()
    if len(facts) != 3 or facts[1] != b"blob":
        raise WorkspaceKeepError("", f"git cat-file: {b' '.join(facts).decode()}")
    data = out.read(int(facts[2]))
    out.read(1)
    return data
