"""The repository of a copy made again in a workspace: objects, references, HEAD and index, and the worktrees that belong to it.

It may be there already, from an earlier attempt or from agents that worked in it. One in which a link could lead elsewhere is
replaced by a new one. Every step can be repeated. Locks that a killed git has left are removed: the workspace belongs to one run,
which has no processes while it is restored.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from bartack.core.files import replace_file
from bartack.errors import UnsafePathError, WorkspaceKeepError
from bartack.runtime.copies._git import PlainGit
from bartack.runtime.copies._home import discard
from bartack.runtime.copies._meta import Checkout, Meta
from bartack.runtime.copies._packs import move_objects
from bartack.runtime.copies._repository import list_missing

FOLDERS: Final = ("refs/heads/", "refs/tags/", "refs/remotes/", "refs/bartack/")
_MAKING: Final = ".bartack-making"
_ID: Final = re.compile(r"[0-9a-f]{40}")
_LEADING_AWAY: Final = ("commondir", "gitdir", "objects/info/alternates", "objects/info/http-alternates")


def check_names(meta: Meta) -> None:
    """Refuse names of references, branches and objects that git would not have given.

    Raises:
        UnsafePathError: There is one.
    """
    for name in [*meta.refs, *(tree.checkout.head for tree in meta.trees.values() if tree.checkout)]:
        if name and (not name.startswith(FOLDERS) or {"", ".", ".."} & {*name.split("/")} or "\n" in name):
            raise UnsafePathError(name, "it is not the name of a reference that is copied")
    for name in [*meta.named(), *meta.shallow, *(tree.tree for tree in meta.trees.values())]:
        if _ID.fullmatch(name) is None:
            raise UnsafePathError(name, "it is not the name of an object")


def rebuild_repository(copies: PlainGit, place: Path, meta: Meta, checkout: Checkout) -> None:
    """Make the repository in a workspace what a copy says.

    Raises:
        WorkspaceKeepError: Git failed.
    """
    directory = place / ".git"
    if _is_harmless(directory, meta):
        # One that agents have damaged is made anew: what a copy promises is in the copy.
        with suppress(WorkspaceKeepError, OSError):
            _rebuild(copies, place, meta, checkout)
            return
    discard(directory)
    _rebuild(copies, place, meta, checkout)


def _rebuild(copies: PlainGit, place: Path, meta: Meta, checkout: Checkout) -> None:
    directory = place / ".git"
    _prepare(directory)
    git = PlainGit(directory, {"GIT_WORK_TREE": str(place)}, place)
    if meta.shallow:
        replace_file(directory / "shallow", _lines(meta.shallow), mode=0o644, synced=False)
    add_objects(copies, git, meta.named())
    _set_references(git, meta.refs)
    _set_head(git, checkout)
    _set_index(git, directory / "index", checkout)


def forget_worktrees(workspace: Path, keep: Iterable[Path]) -> None:
    """Remove what a repository has noted of worktrees, but for those at these places: a branch of one that is gone seems in use."""
    kept = {os.fsencode(place / ".git") for place in keep}
    for own in (workspace / ".git/worktrees").glob("*"):
        try:
            is_kept = (own / "gitdir").read_bytes().rstrip(b"\n") in kept and not (own / "locked").exists()
        except OSError:
            is_kept = False
        if not is_kept:
            discard(own)


def rebuild_worktree(workspace: Path, name: str, place: Path, checkout: Checkout) -> None:
    """Make a directory a worktree of the repository in the workspace.

    Raises:
        WorkspaceKeepError: Git failed.
    """
    shared = workspace / ".git"
    own = _known_worktree(shared, place) or shared / "worktrees" / quote(name, safe="")
    own.mkdir(parents=True, exist_ok=True)
    replace_file(own / "commondir", b"../..\n", mode=0o644, synced=False)
    replace_file(own / "gitdir", os.fsencode(place / ".git") + b"\n", mode=0o644, synced=False)
    head = f"ref: {checkout.head}" if checkout.head else checkout.commit
    replace_file(own / "HEAD", os.fsencode(head) + b"\n", mode=0o644, synced=False)
    if (place / ".git").is_dir() and not (place / ".git").is_symlink():
        shutil.rmtree(place / ".git")
    replace_file(place / ".git", b"gitdir: " + os.fsencode(own) + b"\n", mode=0o644, synced=False)
    _set_index(PlainGit(own, {"GIT_WORK_TREE": str(place)}, place), own / "index", checkout)


def add_objects(source: PlainGit, target: PlainGit, names: Iterable[str], also: Iterable[str] = ()) -> None:
    """Copy what one repository lacks of these commits and trees.

    Args:
        source: Where they are.
        target: Where they are needed.
        names: Commits, tags and trees.
        also: Commits that both may have, so that what they have need not be copied.

    Raises:
        WorkspaceKeepError: The source does not have them all.
    """
    wanted = {*names}
    missing = {*list_missing(target, sorted(wanted))}
    if not missing:
        return
    candidates = sorted((wanted | {*also}) - missing)
    there = {*candidates} - {*list_missing(target, candidates)} - {*list_missing(source, candidates)}
    lines = [*sorted(missing), *(f"^{name}" for name in sorted(there))]
    move_objects(source, target, "".join(f"{line}\n" for line in lines).encode())


def _prepare(directory: Path) -> None:
    """Have a repository there, without locks."""
    making = directory.parent / _MAKING
    discard(making)
    if not directory.exists():
        directory.parent.mkdir(parents=True, exist_ok=True)
        git = PlainGit(making, place=directory.parent)
        git("init", "--quiet", "--template=", "--initial-branch=main")
        git("config", "core.bare", "false")
        making.rename(directory)
    for path in _files(directory):
        if path.endswith(".lock"):
            os.unlink(path)


def _is_harmless(directory: Path, meta: Meta) -> bool:
    """Whether it is a whole repository of its own in which nothing leads elsewhere, with as much history as the copy."""
    if directory.is_symlink() or not (directory / "HEAD").is_file():
        return False
    if any(os.path.lexists(directory / name) for name in _LEADING_AWAY):
        return False
    if (_lines(meta.shallow) if meta.shallow else b"") != _read(directory / "shallow"):
        return False
    return not any(os.path.islink(path) for path in _files(directory))


def _files(directory: Path) -> list[str]:
    """Everything in a repository, except for the objects of their two-letter directories."""
    found: list[str] = []
    for folder, folders, files in os.walk(directory):
        if folder == str(directory / "objects"):
            found += [os.path.join(folder, name) for name in folders]
            folders[:] = [name for name in folders if name in {"info", "pack"}]
        found += [os.path.join(folder, name) for name in (*folders, *files)]
    return found


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes() if file.is_file() else b""
    except OSError:
        return b""


def _set_references(git: PlainGit, refs: Mapping[str, str]) -> None:
    out = git("for-each-ref", "--format=%(refname)", *(folder.rstrip("/") for folder in FOLDERS))
    lost = [name for name in map(os.fsdecode, out.splitlines()) if name not in refs]
    # First what goes: a branch may have the name of a folder of branches that there are no more.
    git("update-ref", "-z", "--no-deref", "--stdin", given=b"".join(_deletion(name) for name in lost))
    updates = [b"update %b\0%b\0\0" % (os.fsencode(name), refs[name].encode()) for name in sorted(refs)]
    git("update-ref", "-z", "--no-deref", "--stdin", given=b"".join(updates))


def _deletion(name: str) -> bytes:
    return b"delete %b\0\0" % os.fsencode(name)


def _set_head(git: PlainGit, checkout: Checkout) -> None:
    if checkout.head:
        git("symbolic-ref", "HEAD", checkout.head)
    elif checkout.commit:
        git("update-ref", "--no-deref", "HEAD", checkout.commit)


def _set_index(git: PlainGit, file: Path, checkout: Checkout) -> None:
    Path(f"{file}.lock").unlink(missing_ok=True)
    tree = checkout.index or checkout.commit
    with suppress(FileNotFoundError):
        file.unlink()
    if tree:
        git("read-tree", tree)


def _known_worktree(shared: Path, place: Path) -> Path | None:
    """The directory of a worktree in its repository, if it is one of that repository."""
    with suppress(OSError):
        if not (place / ".git").is_symlink():
            words = (place / ".git").read_bytes().removeprefix(b"gitdir: ").rstrip(b"\n")
            own = Path(os.path.realpath(os.fsdecode(words)))
            if own.parent == Path(os.path.realpath(shared / "worktrees")) and own.is_dir():
                return own
    return None


def _lines(names: Iterable[str]) -> bytes:
    return "".join(f"{name}\n" for name in sorted(names)).encode()
