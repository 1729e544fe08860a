"""One tree that is copied again and again: a private index remembers what was seen, so that unchanged files are not read.

A scan costs about one ``git status``: two commands at the same time, one that compares known files with the index, one that finds
unknown ones. Only what they name is read (``_private_index.py``), and what is too large is left out (``_admission.py``).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from bartack.errors import WorkspaceKeepError
from bartack.runtime.copies._admission import Admission, Admitted, shorten
from bartack.runtime.copies._git import TIMEOUT_S, PlainGit
from bartack.runtime.copies._meta import shown_path
from bartack.runtime.copies._private_index import PrivateIndex, names_in
from bartack.runtime.copies._writer import has_private_name
from bartack.runtime.copies.values import Limits

ATTEMPTS: Final = 5
NEVER: Final = frozenset({b".git", b".bartack"})
"""Names that are not copied at any depth."""
_CLOSED: Final = re.compile(rb"^warning: could not open directory '(.+?)(?:': .*)?$", re.MULTILINE)
"""How git reports a directory that it cannot read, and leaves out; it cuts what is too long."""
_PRIVATE: Final = "has a name that is never copied: on some systems, it is that of a repository"
_LINKED: Final = "is a repository of its own: the copy has the name of its commit, not its files"


class Rules(NamedTuple):
    """Which files belong to a tree.

    Attributes:
        below: Only these folders of it; all of it if there are none.
        ignoring: Whether ``.gitignore`` decides what is new.
        excludes: Another file with patterns of files to ignore; empty if there is none.
        include: Patterns of ignored files that belong to it all the same.
        forced: Ignored files that belong to it: the user's index has them.
        links: Submodules: the commit of each.
        outside: Folders inside of it that do not belong to it.
        limits: How large it can be.
        refusing: Whether what exceeds the limits is an error; else it is left out.
        strict: Whether a file that keeps changing is an error; else it is copied as it was read last.
    """

    below: tuple[str, ...] = ()
    ignoring: bool = True
    excludes: str = ""
    include: Sequence[str] = ()
    forced: Sequence[bytes] = ()
    links: dict[bytes, str] = {}  # noqa: RUF012 - never changed
    outside: tuple[bytes, ...] = ()
    limits: Limits = Limits()
    refusing: bool = False
    strict: bool = True


class Scanned(NamedTuple):
    """A tree as it was seen.

    Attributes:
        tree: Its files.
        empty: Its directories without files, sorted.
        left_out: What was left out, one sentence each.
    """

    tree: str
    empty: tuple[bytes, ...]
    left_out: tuple[str, ...]


class _Look(NamedTuple):
    """What differs from the index: gone, changed, unknown paths (directories end with a slash)."""

    gone: list[bytes]
    changed: list[bytes]
    unknown: list[bytes]


class _MovingFilesError(Exception):
    """Files changed while they were read."""


class WatchedTree:
    """A tree and its private index.

    Args:
        git: The repository that gets its files.
        place: Where the tree is.
        folder: Where the index is kept; of this tree alone.
        rules: Which files belong to it.
    """

    def __init__(self, git: PlainGit, place: Path, folder: Path, rules: Rules) -> None:
        self._place = place
        self._rules = rules
        self._index = PrivateIndex(git, place, folder)
        self._git = self._index.git
        self._closed: dict[bytes, str] = {}
        """Directories that could not be read, and what is said of them."""
        self._admission = Admission(place, self._index, rules.limits, refusing=rules.refusing)

    def scan(self) -> Scanned:
        """Read what has changed, and return the whole tree.

        Raises:
            WorkspaceCarryError: It exceeds the limits, and the rules refuse that.
            WorkspaceKeepError: Its files kept changing, or cannot be read.
        """
        self._index.open()
        problem: Exception | None = None
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._scan(strict=self._rules.strict or attempt < ATTEMPTS)
            except (_MovingFilesError, WorkspaceKeepError) as error:
                problem = error
                self._index.unlock()
        if isinstance(problem, WorkspaceKeepError):
            raise problem
        raise WorkspaceKeepError(str(self._place), f"files change while they are read: {problem}")

    @property
    def closed(self) -> set[bytes]:
        """The directories that the last scan could not read."""
        return {*self._closed}

    def adopt(self, tree: str) -> list[bytes]:
        """Take a tree as the known one, after its files were written; return those that are not as the tree has them."""
        self._index.open()
        # As large as can be: the next scan that has something to add counts.
        return self._index.adopt(tree, self._rules.limits.workspace_bytes)

    def _scan(self, *, strict: bool) -> Scanned:
        began = time.time()
        self._closed.clear()
        self._place_links()
        seen = self._make_way(self._look())
        fresh, empty, nested = self._sort_out(seen.unknown)
        admitted = self._admission.admit([*seen.changed, *fresh, *self._brought_back()], seen.gone)
        changed = {*seen.changed}
        gone = [*seen.gone, *(path for path in admitted.left_out if path in changed)]
        if not gone and not admitted.paths and self._index.tree:
            self._index.settle(began)
        else:
            self._update(gone, admitted, strict=strict)
            if any(path.endswith(b"/") for path in seen.unknown):
                # What was inside of an unknown directory is known now, and what is empty in it is shown.
                _, empty, nested = self._sort_out(self._unknown())
        reasons = {**admitted.left_out, **dict.fromkeys(self._index.links, _LINKED), **nested, **self._closed}
        sentences = tuple(f"{shown_path(path)} {why}" for path, why in sorted(reasons.items()))
        return Scanned(self._index.tree, tuple(sorted(empty)), sentences)

    def _update(self, gone: list[bytes], admitted: Admitted, *, strict: bool) -> None:
        self._index.remove(gone)
        self._index.add(admitted.paths)
        with ThreadPoolExecutor(1) as other:
            written = other.submit(self._index.write_tree)
            moving = self._index.dirty(admitted.paths) if strict and admitted.paths else []
            tree = written.result(2 * TIMEOUT_S)
        if moving:
            raise _MovingFilesError(", ".join(shorten(moving)))
        self._index.remember(tree, admitted.size)

    # Looking.

    def _look(self) -> _Look:
        words = ("diff-files", "-z", "--raw", "--ignore-submodules=dirty", *self._paths())
        with ThreadPoolExecutor(1) as other:
            unknown = other.submit(self._unknown)
            raw = self._git(*words).split(b"\0")
            gone: list[bytes] = []
            changed: list[bytes] = []
            for facts, path in zip(raw[::2], raw[1::2], strict=False):
                (gone if facts.endswith(b"D") else changed).append(path)
            return _Look(gone, changed, unknown.result(2 * TIMEOUT_S))

    def _make_way(self, seen: _Look) -> _Look:
        """Git does not look into a directory that has the name of a known file: forget the file first."""
        replaced = [
            path for path in seen.gone if os.path.isdir(at := self._at(path)) and not os.path.islink(at)
        ]
        if not replaced:
            return seen
        self._index.remove(replaced)
        gone = [path for path in seen.gone if path not in replaced]
        return _Look(gone, seen.changed, self._unknown())

    def _unknown(self) -> list[bytes]:
        found = self._others("--directory", *self._standard(), *self._paths())
        return [path for path in found if not self._is_outside(path)]

    def _others(self, *words: str) -> list[bytes]:
        excludes = self._rules.excludes
        git = self._git
        first = ("-c", f"core.excludesFile={excludes}") if excludes else ()
        ended = git.run((*first, "ls-files", "-z", "--others", *words))
        closed = (path.rstrip(b"/") for path in _CLOSED.findall(ended.err))
        self._closed |= {
            path: "is not copied: it cannot be read" for path in closed if not self._is_outside(path)
        }
        return names_in(ended.out)

    def _standard(self) -> tuple[str, ...]:
        return ("--exclude-standard",) if self._rules.ignoring else ()

    def _paths(self) -> tuple[str, ...]:
        return ("--", *self._rules.below) if self._rules.below else ()

    def _is_outside(self, path: bytes) -> bool:
        path = path.rstrip(b"/")
        if not NEVER.isdisjoint(path.split(b"/")):
            return True
        return any(path == outside or path.startswith(outside + b"/") for outside in self._rules.outside)

    def _sort_out(self, unknown: Iterable[bytes]) -> tuple[list[bytes], list[bytes], dict[bytes, str]]:
        """New files, directories without files, and repositories that cannot be named by a commit."""
        files: list[bytes] = []
        empty: list[bytes] = []
        nested: dict[bytes, str] = {}
        folders: list[bytes] = []
        for path in unknown:
            if not path.endswith(b"/"):
                files.append(path)
            elif self._take_nested(path, files, nested) is None:
                leaves = self._leaves(path)
                folders += [] if leaves is not None else [path]
                empty += leaves or []
        for path in self._expand(folders):
            if not path.endswith(b"/"):
                files.append(path)
            elif self._take_nested(path, files, nested) is None:
                nested[path.rstrip(b"/")] = "is a repository that cannot be read and is not copied"
        nested |= {path: _PRIVATE for path in (*files, *empty) if has_private_name(path)}
        return (
            [path for path in files if path not in nested],
            [path for path in empty if path not in nested],
            nested,
        )

    def _expand(self, folders: list[bytes]) -> list[bytes]:
        found: list[bytes] = []
        for start in range(0, len(folders), 1000):  # more would not fit into one command line
            some = [os.fsdecode(folder) for folder in folders[start : start + 1000]]
            found += self._others(*self._standard(), "--", *some)
        return [path for path in found if not self._is_outside(path)]

    def _leaves(self, folder: bytes) -> list[bytes] | None:
        """The innermost directories, if there is nothing but directories; else ``None``."""
        leaves: list[bytes] = []
        pending = [folder.rstrip(b"/")]
        while pending:
            path = pending.pop()
            try:
                with os.scandir(self._at(path)) as entries:
                    found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
            except OSError:
                return None  # git reports it
            if any(not is_folder or name in NEVER for name, is_folder in found):
                return None
            below = [path + b"/" + name for name, _ in found]
            pending += below
            leaves += [] if below else [path]
        return leaves

    # Repositories inside of the tree.

    def _at(self, path: bytes) -> bytes:
        return os.path.join(os.fsencode(self._place), path)

    def _is_repository(self, path: bytes) -> bool:
        return os.path.lexists(os.path.join(self._at(path), b".git"))

    def _take_nested(self, folder: bytes, files: list[bytes], nested: dict[bytes, str]) -> bool | None:
        """Take the name of the commit of a repository, if it has one (returned); ``None``: it is not a repository."""
        path = folder.rstrip(b"/")
        if not self._is_repository(path):
            return None
        place = Path(os.fsdecode(self._at(path)))
        git = PlainGit(place / ".git", place=place)
        hashed = git.run(("rev-parse", "--show-object-format"), fine=range(256))
        if hashed.status:
            return None
        named = git.run(("rev-parse", "--verify", "--quiet", "HEAD^{commit}"), fine=range(256))
        if named.status:
            nested[path] = "is a repository without a commit and is not copied"
        elif hashed.line != "sha1":
            nested[path] = f"is a repository with names of {hashed.line} and is not copied"
        else:
            files.append(path)
        return path not in nested

    def _place_links(self) -> None:
        """Bring the names of commits in the index in line with submodules that have no files here."""
        known = self._index.links
        lost = [link for link in known - self._rules.links.keys() if self._has_plain_files(link)]
        new = {
            link: commit
            for link, commit in self._rules.links.items()
            if link not in known and os.path.isdir(self._at(link)) and not self._is_repository(link)
        }
        if lost or new:
            self._index.set_links(new, lost)

    def _has_plain_files(self, link: bytes) -> bool:
        """Whether it was a repository and is a directory like others; a restored one is empty."""
        try:
            return not self._is_repository(link) and bool(os.listdir(self._at(link)))
        except OSError:
            return False  # not a directory: git notices

    def _brought_back(self) -> list[bytes]:
        """Ignored files that belong to the tree all the same, and are not in the index yet."""
        found = [path for path in self._rules.forced if os.path.lexists(self._at(path))]
        if self._rules.include:
            words = [word for pattern in self._rules.include for word in _pathspecs(pattern)]
            git = self._git.using(None, GIT_LITERAL_PATHSPECS="0")
            found += names_in(git("ls-files", "-z", "--others", "--", *words))
        known = self._index.paths() if found else set[bytes]()
        return [
            path
            for path in found
            if path not in known
            and not path.endswith(b"/")
            and not self._is_outside(path)
            and not has_private_name(path)
        ]


def _pathspecs(pattern: str) -> tuple[str, str]:
    """A pattern and everything below what it names, as git writes it."""
    whole = pattern.strip("/")
    if "/" not in pattern.rstrip("/"):
        whole = f"**/{whole}"
    return f":(top,glob){whole}", f":(top,glob){whole}/**"
