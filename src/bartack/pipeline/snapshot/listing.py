"""Which files belong to a snapshot: what git tracks or would track, or everything below some roots."""

from __future__ import annotations

import os
import subprocess
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from bartack.core.git import find_git, git_command, git_environment
from bartack.errors import SnapshotReadError
from bartack.pipeline.snapshot._paths import path_text
from bartack.pipeline.snapshot._patterns import Patterns

Source = Literal["git", "roots"]

GITLINK: Final = b"160000"
UNTRACKED: Final = b"? "
"""How git marks what it does not track."""
NEVER: Final = frozenset({b".git", b".bartack"})
"""Left out at any depth."""
ROOTS_EXCLUDE: Final = (
    "node_modules/",
    ".venv/",
    "venv/",
    "__pycache__/",
    ".mypy_cache/",
    ".pytest_cache/",
    ".ruff_cache/",
    ".tox/",
    ".cache/",
    "dist/",
    "build/",
    "target/",
    "*.pyc",
    ".DS_Store",
)
_GIT_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, kw_only=True)
class SnapshotOptions:
    """What a snapshot holds.

    Attributes:
        source: ``git``, ``roots``, or ``auto``: git inside a work tree, else roots.
        roots: Where to look, if not in git.
        exclude: Patterns of files to leave out.
        include: Patterns of ignored files that belong to it all the same.
        ignore: ``tree``: only ignore files inside the tree count, so that the same tree is the same snapshot for
            every user; ``git``: the user's own as well.
        threads: How many threads read files; 0: as many as are useful.
    """

    source: Literal["auto", "git", "roots"] = "auto"
    roots: tuple[str, ...] = (".",)
    exclude: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    ignore: Literal["tree", "git"] = "tree"
    threads: int = 0


@dataclass
class Listing:
    """The paths of a snapshot, relative and in no order, as bytes."""

    source: Source
    paths: list[bytes]
    links: dict[bytes, str] = field(default_factory=dict[bytes, str])
    """Submodules and nested repositories: the commit that is checked out."""
    notes: list[str] = field(default_factory=list[str])


class Lister:
    """Lists the files of a workspace. Git is at work from the moment this is made, until ``raw`` or ``close``."""

    def __init__(self, root: str, options: SnapshotOptions) -> None:
        self._root = root
        self._options = options
        self._ignore = (
            "--exclude-standard" if options.ignore == "git" else "--exclude-per-directory=.gitignore"
        )
        self._process: subprocess.Popen[bytes] | None = None
        if options.source != "roots":
            self._start()

    def _start(self) -> None:
        try:
            # One process for both: to start a second one takes longer than what it could do meanwhile.
            words = ("ls-files", "-z", "-t", "--stage", "--others", self._ignore)
            self._process = _start_git(self._root, *words)
        except SnapshotReadError:
            if self._options.source == "git":
                raise

    def raw(self) -> bytes | None:
        """The output of git about the files; nothing if the workspace is not in git.

        Raises:
            SnapshotReadError: Git failed.
        """
        process, self._process = self._process, None
        if process is None:
            return None
        out, problem = _await(self._root, process)
        if not problem:
            return out
        if self._options.source == "auto" and "not a git repository" in problem:
            return None
        raise SnapshotReadError(self._root, f"git: {problem}")

    def parse(self, raw: bytes | None) -> Listing:
        """The files, from the output of git or, without it, by reading directories.

        Raises:
            SnapshotReadError: A directory cannot be read, or git failed.
        """
        listing = _list_roots(self._root, self._options) if raw is None else self._from_git(raw)
        exclude = Patterns(self._options.exclude)
        if exclude:
            listing.paths = [path for path in listing.paths if not exclude.match(path)]
            listing.links = {path: at for path, at in listing.links.items() if not exclude.match(path)}
        return listing

    def close(self) -> None:
        """End what is still at work."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate(timeout=_GIT_TIMEOUT_S)

    def _from_git(self, raw: bytes) -> Listing:
        listing = Listing("git", [])
        seen: set[bytes] = set()
        found: list[bytes] = []
        for item in raw.split(b"\0"):
            if item.startswith(UNTRACKED):
                found.append(item[len(UNTRACKED) :])
                continue
            facts, _, path = item.partition(b"\t")
            if not path or path in seen or _is_private(path):
                continue
            seen.add(path)
            if facts[2:8] == GITLINK:  # tag, mode, commit, stage
                listing.links[path] = facts.split(b" ")[2].decode()
            else:
                listing.paths.append(path)
        found = [path for path in found if not _is_private(path)]
        if self._options.include:
            found += _brought_back(self._root, self._options, self._ignore)
        _add_untracked(self._root, listing, found, seen)
        for path in listing.links:
            listing.links[path] = _commit_of(self._root, path) or listing.links[path]
        return listing


# Git.


def _brought_back(root: str, options: SnapshotOptions, ignore: str) -> list[bytes]:
    """Ignored files that belong to the snapshot all the same."""
    wanted = Patterns(options.include)
    ignored = _git(root, "ls-files", "-z", "--others", "--ignored", ignore).split(b"\0")
    return [path for path in ignored if path and wanted.match(path) and not _is_private(path)]


def _add_untracked(root: str, listing: Listing, found: list[bytes], seen: set[bytes]) -> None:
    for path in found:
        name = path.rstrip(b"/")
        if name in seen:
            continue
        seen.add(name)
        if not path.endswith(b"/"):
            listing.paths.append(path)
            continue
        commit = _commit_of(root, name)
        if commit:
            listing.links[name] = commit
        else:
            listing.notes.append(f"{path_text(name)}: a repository without a commit was left out")


def _commit_of(root: str, path: bytes) -> str:
    """The commit that a repository below has checked out; empty if there is none."""
    place = os.path.join(os.fsencode(root), path)
    if not os.path.lexists(os.path.join(place, b".git")):
        return ""
    try:
        return _git(os.fsdecode(place), "rev-parse", "--verify", "-q", "HEAD").decode().strip()
    except SnapshotReadError:
        return ""


def _start_git(root: str, *words: str) -> subprocess.Popen[bytes]:
    git = find_git()
    if git is None:
        raise SnapshotReadError(root, "git cannot be run (it is not installed)")
    try:
        return subprocess.Popen(  # noqa: S603 - fixed words  # bartack: allow[unsupervised_process] awaited with a limit
            git_command(git, words),
            cwd=root,
            env=git_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        raise SnapshotReadError(root, f"git cannot be run ({error.strerror})") from None


def _git(root: str, *words: str) -> bytes:
    out, problem = _await(root, _start_git(root, *words))
    if problem:
        raise SnapshotReadError(root, f"git: {problem}")
    return out


def _await(root: str, process: subprocess.Popen[bytes]) -> tuple[bytes, str]:
    """The output of git, and its problem if it failed."""
    try:
        out, problem = process.communicate(timeout=_GIT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate(timeout=_GIT_TIMEOUT_S)
        raise SnapshotReadError(root, "git did not answer in time") from None
    if process.returncode == 0:
        return out, ""
    lines = problem.decode("utf-8", "replace").strip().splitlines()
    return out, lines[0] if lines else f"it ended with {process.returncode}"


# Roots.


def _list_roots(root: str, options: SnapshotOptions) -> Listing:
    listing = Listing("roots", [])
    exclude, include = Patterns(ROOTS_EXCLUDE), Patterns(options.include)
    seen: set[bytes] = set()
    for given in options.roots:
        start = os.path.normpath(os.fsencode(given))
        if os.path.isabs(start) or start == b".." or start.startswith(b"../"):
            raise SnapshotReadError(given, "a root has to be inside the workspace")
        first = b"" if start == b"." else start + b"/"
        for path in _walk(os.fsencode(root), first, listing, (exclude, include)):
            if path not in seen:
                seen.add(path)
                listing.paths.append(path)
    return listing


def _walk(root: bytes, below: bytes, listing: Listing, rules: tuple[Patterns, Patterns]) -> Iterator[bytes]:
    exclude, include = rules
    pending = [below]
    while pending:
        folder = pending.pop()
        try:
            entries = list(os.scandir(os.path.join(root, folder) if folder else root))
        except OSError as error:
            raise SnapshotReadError(path_text(folder) or ".", error.strerror or str(error)) from None
        for entry in entries:
            path = folder + entry.name
            if entry.name in NEVER:
                continue
            if not entry.is_dir(follow_symlinks=False):
                if not exclude.match(path) or include.match(path):
                    yield path
            elif _nested(root, path, listing):
                continue
            elif include or not exclude.match_directory(path):
                pending.append(path + b"/")


def _nested(root: bytes, path: bytes, listing: Listing) -> bool:
    """Whether a directory is a repository of its own."""
    if not os.path.lexists(os.path.join(root, path, b".git")):
        return False
    commit = _commit_of(os.fsdecode(root), path)
    if commit:
        listing.links[path] = commit
    else:
        listing.notes.append(f"{path_text(path)}: a repository without a commit was left out")
    return True


# Names.


def _is_private(path: bytes) -> bool:
    return (b".git" in path or b".bartack" in path) and not NEVER.isdisjoint(path.split(b"/"))


def to_portable(path: bytes) -> bytes:
    """A name as it is hashed, on a system that takes names apart: composed, as everywhere else."""
    try:
        return unicodedata.normalize("NFC", path.decode()).encode()
    except UnicodeDecodeError:
        return path
