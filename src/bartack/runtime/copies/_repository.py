"""The repository in a workspace: what is checked out, its references and its index, and how its objects get into a copy.

Nothing in it is changed or locked. Git runs on it with the settings of ``_git.py``; objects are read through ``alternates``, so
that not even its own settings are read for that.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from bartack.errors import WorkspaceCarryError, WorkspaceKeepError
from bartack.runtime.copies._git import PlainGit, alternates, spool
from bartack.runtime.copies._meta import Checkout, shown_path
from bartack.runtime.copies.values import Carry

AUTO_BYTES: Final = 64 << 20
"""How large a repository can be whose whole history is carried without being asked for."""
_GITLINK: Final = b"160000 "
_MERGED: Final = ("for-each-ref", "--format=%(refname)")
_FORMAT: Final = "%(refname)%00%(objectname)%00%(symref)"
_STASH: Final = "refs/stash"
HALF_DONE: Final = (
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "rebase-merge",
    "rebase-apply",
    "BISECT_LOG",
)


class RepositoryPaths(NamedTuple):
    """Where the parts of a repository are.

    Attributes:
        own: The directory of this work tree: HEAD and index.
        shared: The directory of all of its work trees: references, objects.
        objects: Its objects.
    """

    own: Path
    shared: Path
    objects: Path


class Worktree(NamedTuple):
    """What a work tree has beside its files.

    Attributes:
        checkout: What is checked out.
        forced: Files that its index has although they are ignored.
        links: Its submodules.
        left_out: What of it cannot be copied.
    """

    checkout: Checkout
    forced: tuple[bytes, ...] = ()
    links: dict[bytes, str] = {}  # noqa: RUF012 - never changed
    left_out: tuple[str, ...] = ()


class References(NamedTuple):
    """The references of a repository, the commits whose parents it does not have, and what of it cannot be copied."""

    refs: dict[str, str]
    shallow: tuple[str, ...]
    left_out: tuple[str, ...] = ()


class SourceRepository:
    """The repository that one work tree belongs to. What has not changed since the last call is not asked for again.

    Args:
        copies: The repository that gets the objects.
        place: The top of the work tree.
        found: Where its parts are.
        folder: A directory for temporary files, of this work tree alone.
    """

    def __init__(self, copies: PlainGit, place: Path, found: RepositoryPaths, folder: Path) -> None:
        self.found = found
        self._copies = copies
        self._folder = folder
        self._git = PlainGit(found.own, {"GIT_WORK_TREE": str(place)}, place)
        self._entrance = place / ".git"
        self._was = _identity(self._entrance)
        self._worktree: tuple[object, Worktree] | None = None
        self._references: tuple[object, References] | None = None

    def is_there(self) -> bool:
        """Whether the work tree still belongs to it."""
        return self._was == _identity(self._entrance) and (self.found.own / "HEAD").exists()

    @property
    def excludes(self) -> str:
        """The file with the patterns of files that only this repository ignores; empty if there is none."""
        file = self.found.shared / "info/exclude"
        return str(file) if file.is_file() else ""

    def worktree(self) -> Worktree:
        """HEAD and the index.

        Raises:
            WorkspaceKeepError: They cannot be read.
        """
        facts = (self._facts_of_refs(), _facts(self.found.own / "index"), _half_done(self.found.own))
        if self._worktree is None or self._worktree[0] != facts:
            self._worktree = (facts, self._read_worktree())
        return self._worktree[1]

    def references(self, folders: Iterable[str]) -> References:
        """The references below these names.

        Raises:
            WorkspaceKeepError: They cannot be read.
        """
        facts = self._facts_of_refs()
        if self._references is None or self._references[0] != facts:
            self._references = (facts, self._read_references(folders))
        return self._references[1]

    def references_beside(self, base: str, left_out: list[str]) -> References:
        """All branches, and the other references as far as they are in the history of a commit.

        Raises:
            WorkspaceKeepError: They cannot be read.
        """
        folders = ("refs/tags", "refs/remotes")
        merged = {
            os.fsdecode(name) for name in self._git(*_MERGED, f"--merged={base}", *folders).splitlines()
        }
        found = self._read_references(("refs/heads", *folders))
        kept = {
            name: own for name, own in found.refs.items() if name.startswith("refs/heads/") or name in merged
        }
        if len(kept) < len(found.refs):
            count = len(found.refs) - len(kept)
            left_out.append(
                f"{count} tags and branches of remotes are not copied: the base of the copy does not have them"
            )
        return References(kept, found.shallow)

    def check_carry(self, carry: Carry) -> bool:
        """Whether the whole history is carried.

        Raises:
            WorkspaceCarryError: The work tree does not have all files of its commits.
            WorkspaceKeepError: The repository cannot be read.
        """
        # The last value is the one of Bartack's own command line; an earlier one is that of the repository.
        sparse = self._git.run(("config", "--type=bool", "--get-all", "core.sparseCheckout"), fine=(0, 1))
        if "true" in sparse.line.split("\n"):
            problem = (
                "only a part of its files is checked out ('git sparse-checkout disable' brings the others)"
            )
            raise WorkspaceCarryError(str(self.found.own), (), problem)
        return carry == "full" or not is_large(self._git)

    def fetch(self, commits: Iterable[str], index: str) -> None:
        """Bring objects with everything that they need into the copies.

        Args:
            commits: Commits and tags.
            index: The tree of the index. ``write-tree`` has made it there, so that it is there says nothing about its files.

        Raises:
            WorkspaceKeepError: The repository does not have them all.
        """
        names = sorted({*commits})
        missing = {*list_missing(self._copies, names), index} - {""}
        if not missing:
            return
        lines = [*sorted(missing), *(f"^{name}" for name in names if name not in missing)]
        source = self._copies.using(GIT_ALTERNATE_OBJECT_DIRECTORIES=alternates(self.found.objects))
        words = ("pack-objects", "--revs", "--stdout", "--delta-base-offset", "-q")
        with spool(source, words, "".join(f"{line}\n" for line in lines).encode()) as pack:
            self._copies.run(("index-pack", "--stdin"), given=pack)

    # What has changed.

    def _facts_of_refs(self) -> object:
        """The facts of all files of references: they are replaced, never changed in place."""
        shared = self.found.shared
        names = [
            self.found.own / "HEAD",
            shared / "packed-refs",
            shared / "shallow",
            shared / "reftable/tables.list",
        ]
        below = [Path(folder, file) for folder, _, files in os.walk(shared / "refs") for file in files]
        return tuple((str(path), _facts(path)) for path in [*names, *sorted(below)])

    def _read_references(self, folders: Iterable[str]) -> References:
        out = self._git("for-each-ref", f"--format={_FORMAT}", *folders, _STASH)
        lines = [line.split(b"\0") for line in out.splitlines()]
        refs: dict[str, str] = {}
        left_out: list[str] = []
        for name, target, symbolic in lines:
            if name == _STASH.encode():
                left_out.append(f"{_STASH}: changes that were put aside by 'git stash' are not copied")
            elif not _is_text(name):
                left_out.append(f"{shown_path(name)}: a reference whose name is not text is not copied")
            elif not symbolic:
                refs[name.decode()] = target.decode()
        shallow: tuple[str, ...] = ()
        with suppress(FileNotFoundError):
            shallow = tuple(sorted((self.found.shared / "shallow").read_text().split()))
        return References(refs, shallow, tuple(left_out))

    def _read_worktree(self) -> Worktree:
        head = os.fsencode(self._git.run(("symbolic-ref", "-q", "HEAD"), fine=(0, 1)).line)
        commit = self._git.run(("rev-parse", "--verify", "--quiet", "HEAD^{commit}"), fine=(0, 1, 128)).line
        left_out = [
            f"{name}: an operation that is half done is not copied" for name in _half_done(self.found.own)
        ]
        if head and not (head.startswith(b"refs/heads/") and _is_text(head)):
            left_out.append(f"HEAD: {shown_path(head)} is not copied, only its commit")
            head = b""
        staged = self._git("ls-files", "-z", "--stage").split(b"\0")
        links = {
            item.partition(b"\t")[2]: item.split(b" ")[1].decode()
            for item in staged
            if item.startswith(_GITLINK)
        }
        forced = self._git("ls-files", "-z", "--cached", "--ignored", "--exclude-standard").split(b"\0")
        index = self._index()
        if index is None:
            left_out.append("the index is not copied: it has conflicts, or cannot be read")
        checkout = Checkout(head.decode(), commit, index or "")
        return Worktree(checkout, tuple(path for path in forced if path), links, tuple(left_out))

    def _index(self) -> str | None:
        """The tree of the index; nothing if it has none."""
        index = self.found.own / "index"
        if not index.exists():
            return ""
        copied = self._folder / "theirs"
        shutil.copyfile(index, copied)
        git = self._copies.using(
            GIT_INDEX_FILE=str(copied), GIT_ALTERNATE_OBJECT_DIRECTORIES=alternates(self.found.objects)
        )
        written = git.run(("write-tree",), fine=range(256))
        return None if written.status else written.line


def is_large(git: PlainGit) -> bool:
    """Whether the whole history of a repository is carried only if that is asked for.

    Raises:
        WorkspaceKeepError: It cannot be read.
    """
    lines = git.line("count-objects", "-v").splitlines()
    counted = {name: value for name, _, value in (line.partition(": ") for line in lines)}
    return (int(counted["size"]) + int(counted["size-pack"])) << 10 > AUTO_BYTES


def find_repository(place: Path) -> RepositoryPaths | None:
    """The repository whose work tree has its top here.

    Raises:
        WorkspaceKeepError: There is one, and git cannot use it.
    """
    if not os.path.lexists(place / ".git"):
        return None
    git = PlainGit(place / ".git", {"GIT_WORK_TREE": str(place)}, place)
    words = ("--absolute-git-dir", "--git-common-dir", "--git-path", "objects", "--show-object-format")
    found = git.line("rev-parse", *words).split("\n")
    if len(found) != len(words) - 1:  # one of them is an option with a value
        raise WorkspaceKeepError(str(place), "the path of its repository has a line break")
    own, shared, objects, hashed = found
    if hashed != "sha1":
        raise WorkspaceKeepError(str(place), f"its repository has names of {hashed}; only sha1 is supported")
    return RepositoryPaths(Path(own), _below(place, shared), _below(place, objects))


def _below(place: Path, path: str) -> Path:
    return Path(os.path.normpath(place / path))


def list_missing(git: PlainGit, names: Iterable[str]) -> list[str]:
    """Which of these objects a repository does not have.

    Raises:
        WorkspaceKeepError: Git failed.
    """
    given = "".join(f"{name}\n" for name in names).encode()
    lines = git("cat-file", "--batch-check=%(objectname)", given=given).decode().splitlines() if given else []
    return [line.split(" ")[0] for line in lines if line.endswith(" missing")]


def _is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def _half_done(own: Path) -> tuple[str, ...]:
    return tuple(name for name in HALF_DONE if (own / name).exists())


def _identity(path: Path) -> object:
    """What changes if another directory or file takes the place of this one."""
    try:
        facts = os.lstat(path)
    except OSError:
        return None
    return facts.st_ino, facts.st_mode, 0 if stat.S_ISDIR(facts.st_mode) else facts.st_mtime_ns


def _facts(path: Path) -> tuple[int, int, int] | None:
    try:
        facts = os.lstat(path)
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_ino, facts.st_size
