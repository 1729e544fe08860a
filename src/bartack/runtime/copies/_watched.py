"""One tree that is copied again and again: a private index remembers what was seen, so that unchanged files are not read.

A scan costs about one ``git status``: two commands at the same time, one that compares known files with the index, one that finds
unknown ones. Only what they name is read. The index is private, so the user's is neither read nor locked.

Git notices a change by the facts of a file. A file that changes in the same second in which its facts were recorded might keep
them, so git reads every file again whose time is not before that of the index. After a scan without changes, the index gets an
earlier moment of that scan as its time (``_settle``), and such files are not read by the next one.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bartack.core.files import replace_file
from bartack.errors import WorkspaceCarryError, WorkspaceKeepError
from bartack.runtime.copies._git import PlainGit
from bartack.runtime.copies.values import Limits

ATTEMPTS: Final = 5
MOST_NAMED: Final = 10
_MANY: Final = 100
NEVER: Final = frozenset({b".git", b".bartack"})
"""Names that are not copied at any depth."""
_GITLINK: Final = b"160000"
_EARLIER_S: Final = 1.0
"""Times of files come from a clock that is a little slow; a whole second is more than enough."""


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


class _Memory(msgspec.Struct):
    """What is known of the index, beside it.

    Attributes:
        place: The directory that it describes.
        tree: Its tree; empty while it is being changed.
        size: At least as many bytes as its files have together.
        links: Repositories of their own in it, quoted by ``surrogateescape``.
    """

    place: str = ""
    tree: str = ""
    size: int = 0
    links: list[str] = []


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
        self._folder = folder
        self._rules = rules
        self._index = folder / "index"
        self._git = git.using(
            place,
            GIT_WORK_TREE=str(place),
            GIT_INDEX_FILE=str(self._index),
            GIT_LITERAL_PATHSPECS="1",
        )
        self._memory = _Memory()
        self._is_lenient = False

    def scan(self) -> Scanned:
        """Read what has changed, and return the whole tree.

        Raises:
            WorkspaceCarryError: It exceeds the limits, and the rules refuse that.
            WorkspaceKeepError: Its files kept changing, or cannot be read.
        """
        self._prepare()
        problem: Exception | None = None
        for attempt in range(1, ATTEMPTS + 1):
            self._is_lenient = attempt == ATTEMPTS and not self._rules.strict
            try:
                return self._scan()
            except (_MovingFilesError, WorkspaceKeepError) as error:
                problem = error
                self._unlock()
        if isinstance(problem, WorkspaceKeepError):
            raise problem
        raise WorkspaceKeepError(str(self._place), f"files change while they are read: {problem}")

    def adopt(self, tree: str) -> list[bytes]:
        """Take a tree as the known one, after its files were written; return those that are not as the tree has them."""
        self._prepare()
        self._forget()
        self._git("read-tree", "--reset", tree)  # what is known of files that are the same stays known
        self._git.run(("update-index", "-q", "--refresh"), fine=(0, 1))
        wrong = _names(self._git("diff-files", "-z", "--name-only", "--ignore-submodules=all"))
        links = [item.partition(b"\t")[2] for item in self._staged() if item.startswith(_GITLINK)]
        # As large as can be: the next scan that has something to add counts.
        size = self._rules.limits.workspace_bytes
        self._remember(_Memory(str(self._place), tree, size, [os.fsdecode(link) for link in links]))
        return wrong

    # What is remembered.

    def _prepare(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._unlock()
        try:
            self._memory = msgspec.json.decode((self._folder / "memory.json").read_bytes(), type=_Memory)
        except (OSError, msgspec.MsgspecError):
            self._memory = _Memory()
        if self._memory.place != str(self._place):
            self._index.unlink(missing_ok=True)
            self._memory = _Memory(str(self._place))

    def _unlock(self) -> None:
        # One process at a time copies (``copies.py`` holds a lock), so a lock of the index is of one that was killed.
        Path(f"{self._index}.lock").unlink(missing_ok=True)

    def _forget(self) -> None:
        if self._memory.tree:
            self._memory.tree = ""
            self._remember(self._memory)

    def _remember(self, memory: _Memory) -> None:
        self._memory = memory
        replace_file(self._folder / "memory.json", msgspec.json.encode(memory), synced=False)

    def _settle(self, began: float) -> None:
        with suppress(OSError):
            if self._index.stat().st_mtime < (moment := int(began - _EARLIER_S)):
                os.utime(self._index, (moment, moment))

    # Scanning.

    def _scan(self) -> Scanned:
        began = time.time()
        self._place_links()
        seen = self._make_way(self._look())
        fresh, empty, nested = self._sort_out(seen.unknown)
        accepted, left_out = self._admit([*seen.changed, *fresh, *self._wanted()], seen.gone)
        gone = [*seen.gone, *(path for path in left_out if path in {*seen.changed})]
        if not gone and not accepted and self._memory.tree:
            self._settle(began)
        else:
            self._update(gone, accepted)
            if any(path.endswith(b"/") for path in seen.unknown):
                # What was inside of an unknown directory is known now, and what is empty in it is shown.
                _, empty, nested = self._sort_out(self._unknown())
        reasons = {**left_out, **self._explain_links(), **nested}
        sentences = tuple(f"{os.fsdecode(path)} {why}" for path, why in sorted(reasons.items()))
        return Scanned(self._memory.tree, tuple(sorted(empty)), sentences)

    def _look(self) -> _Look:
        with ThreadPoolExecutor(1) as other:
            unknown = other.submit(self._unknown)
            raw = self._git("diff-files", "-z", "--raw", "--ignore-submodules=dirty", *self._paths()).split(
                b"\0"
            )
            gone: list[bytes] = []
            changed: list[bytes] = []
            for facts, path in zip(raw[::2], raw[1::2], strict=False):
                (gone if facts.endswith(b"D") else changed).append(path)
            return _Look(gone, changed, unknown.result())

    def _make_way(self, seen: _Look) -> _Look:
        """Git does not look into a directory that has the name of a known file: forget the file first."""
        replaced = [
            path for path in seen.gone if os.path.isdir(at := self._at(path)) and not os.path.islink(at)
        ]
        if not replaced:
            return seen
        self._forget()
        self._git("update-index", "-z", "--force-remove", "--stdin", given=_given(replaced))
        gone = [path for path in seen.gone if path not in replaced]
        return _Look(gone, seen.changed, self._unknown())

    def _unknown(self) -> list[bytes]:
        found = self._others("--directory", *self._standard(), *self._paths())
        return [path for path in found if not self._is_outside(path)]

    def _others(self, *words: str) -> list[bytes]:
        excludes = self._rules.excludes
        git = self._git
        first = ("-c", f"core.excludesFile={excludes}") if excludes else ()
        return _names(git(*first, "ls-files", "-z", "--others", *words))

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
            elif self._is_repository(path):
                self._take_nested(path.rstrip(b"/"), files, nested)
            else:
                leaves = self._leaves(path)
                folders += [] if leaves is not None else [path]
                empty += leaves or []
        for path in self._expand(folders):
            if not path.endswith(b"/"):
                files.append(path)
            else:
                self._take_nested(path.rstrip(b"/"), files, nested)
        return files, empty, nested

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
            with os.scandir(self._at(path)) as entries:
                found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
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

    def _take_nested(self, path: bytes, files: list[bytes], nested: dict[bytes, str]) -> None:
        place = Path(os.fsdecode(self._at(path)))
        git = PlainGit(place / ".git", place=place)
        if git.run(("rev-parse", "--verify", "--quiet", "HEAD^{commit}"), fine=range(256)).status == 0:
            files.append(path)
        else:
            nested[path] = "is a repository without a commit and is not copied"

    def _place_links(self) -> None:
        """Bring the names of commits in the index in line with submodules that have no files here."""
        known = {os.fsencode(link) for link in self._memory.links}
        lost = [link for link in known - self._rules.links.keys() if self._has_plain_files(link)]
        new = [
            link
            for link in self._rules.links
            if link not in known and os.path.isdir(self._at(link)) and not self._is_repository(link)
        ]
        if not lost and not new:
            return
        self._forget()
        lines = [b"0 " + b"0" * 40 + b"\t" + link + b"\0" for link in lost]
        lines += [b"160000 " + self._rules.links[link].encode() + b" 0\t" + link + b"\0" for link in new]
        self._git("update-index", "-z", "--add", "--replace", "--index-info", given=b"".join(lines))
        self._memory.links = sorted(os.fsdecode(link) for link in (known - {*lost}) | {*new})

    def _has_plain_files(self, link: bytes) -> bool:
        """Whether it was a repository and is a directory like others; a restored one is empty."""
        try:
            return not self._is_repository(link) and bool(os.listdir(self._at(link)))
        except OSError:
            return False  # not a directory: git notices

    def _explain_links(self) -> dict[bytes, str]:
        why = "is a repository of its own: the copy has the name of its commit, not its files"
        return {os.fsencode(link): why for link in self._memory.links}

    # Limits.

    def _wanted(self) -> list[bytes]:
        """Ignored files that belong to the tree all the same."""
        found = [path for path in self._rules.forced if os.path.lexists(self._at(path))]
        if self._rules.include:
            words = [word for pattern in self._rules.include for word in _pathspecs(pattern)]
            git = self._git.using(GIT_LITERAL_PATHSPECS="0")
            found += _names(git("ls-files", "-z", "--others", "--", *words))
        known = {*_names(self._git("ls-files", "-z"))} if found else set[bytes]()
        return [
            path
            for path in found
            if path not in known and not path.endswith(b"/") and not self._is_outside(path)
        ]

    def _admit(self, paths: list[bytes], gone: list[bytes]) -> tuple[list[bytes], dict[bytes, str]]:
        """The paths that the limits allow, and why the others are left out."""
        sizes: dict[bytes, int] = {}
        left_out: dict[bytes, str] = {}
        for path in dict.fromkeys(paths):
            try:
                facts = os.lstat(self._at(path))
            except OSError:
                sizes[path] = 0  # it is gone: git notices
                continue
            if stat.S_ISREG(facts.st_mode) and facts.st_size > self._rules.limits.file_bytes:
                left_out[path] = f"is not copied: it has {facts.st_size} bytes"
            elif stat.S_ISREG(facts.st_mode) and not os.access(self._at(path), os.R_OK):
                left_out[path] = "is not copied: it cannot be read"
            else:
                sizes[path] = facts.st_size
        large = [path for path in left_out if "bytes" in left_out[path]]
        if large and self._rules.refusing:
            problem = f"files of more than {self._rules.limits.file_bytes} bytes are not carried"
            raise WorkspaceCarryError(str(self._place), _shown(large), problem)
        left_out |= self._fit(sizes, {*gone, *left_out})
        return [path for path in sizes if path not in left_out], left_out

    def _fit(self, sizes: dict[bytes, int], gone: set[bytes]) -> dict[bytes, str]:
        """Leave out the largest of these files until all of the tree is small enough."""
        most = self._rules.limits.workspace_bytes
        if sizes and self._memory.size + sum(sizes.values()) > most:
            self._memory.size = self._exact_size(gone | {*sizes})
        total = self._memory.size + sum(sizes.values())
        left_out: dict[bytes, str] = {}
        largest = sorted(sizes, key=lambda path: -sizes[path])
        if total > most and self._rules.refusing:
            problem = f"its files have {total} bytes, more than {most}; the largest are"
            raise WorkspaceCarryError(str(self._place), _shown(largest), problem)
        for path in largest:
            if total <= most or not sizes[path]:
                break
            left_out[path] = f"is not copied: with it, the copy would have more than {most} bytes"
            total -= sizes[path]
        return left_out

    def _exact_size(self, changing: set[bytes]) -> int:
        """How many bytes the files of the index have, without those that are about to be replaced."""
        tree = self._memory.tree or self._git.line("write-tree")
        listed = _names(self._git("ls-tree", "-r", "-z", "--format=%(objectsize)%x09%(path)", tree))
        sizes = [size for size, _, path in (item.partition(b"\t") for item in listed) if path not in changing]
        return sum(int(size) for size in sizes if size.isdigit())

    # The index.

    def _update(self, gone: list[bytes], accepted: list[bytes]) -> None:
        self._forget()
        grown = sum(_size(self._at(path)) for path in accepted)
        if gone:
            self._git("update-index", "-z", "--force-remove", "--stdin", given=_given(gone))
        if accepted:
            self._git(
                "update-index", "-z", "--add", "--remove", "--replace", "--stdin", given=_given(accepted)
            )
        tree = self._git.line("write-tree")
        self._refuse_moving(accepted)
        links = {*self._memory.links} - {os.fsdecode(path) for path in gone}
        links |= {
            os.fsdecode(path)
            for path in accepted
            if os.path.isdir(self._at(path)) and not os.path.islink(self._at(path))
        }
        self._remember(_Memory(str(self._place), tree, self._memory.size + grown, sorted(links)))

    def _refuse_moving(self, accepted: list[bytes]) -> None:
        if not accepted or self._is_lenient:
            return
        dirty = {*_names(self._git("diff-files", "-z", "--name-only", "--ignore-submodules=dirty"))}
        moving = [path for path in accepted if path in dirty]
        if moving:
            raise _MovingFilesError(", ".join(_shown(moving)))

    def _staged(self) -> list[bytes]:
        return _names(self._git("ls-files", "-z", "--stage"))


def _names(out: bytes) -> list[bytes]:
    return [name for name in out.split(b"\0") if name]


def _given(paths: Iterable[bytes]) -> bytes:
    return b"".join(path + b"\0" for path in paths)


def _size(path: bytes) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def _shown(paths: Sequence[bytes]) -> tuple[str, ...]:
    names = tuple(os.fsdecode(path) for path in paths[:MOST_NAMED])
    return (*names, f"{len(paths) - MOST_NAMED} more") if len(paths) > MOST_NAMED else names


def _pathspecs(pattern: str) -> tuple[str, str]:
    """A pattern and everything below what it names, as git writes it."""
    whole = pattern.strip("/")
    if "/" not in pattern.rstrip("/"):
        whole = f"**/{whole}"
    return f":(top,glob){whole}", f":(top,glob){whole}/**"
