"""The index of one tree that is copied again and again, and what is known of it: no command of the user reads or locks it.

Git notices a change by the facts of a file. A file that changes in the same second in which its facts were recorded might keep
them, so git reads every file again whose time is not before that of the index. After a look at the tree that found no change, the
index gets an earlier moment as its time (``settle``), and such files are not read by the next one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from bartack.core import typed
from bartack.core.files import replace_file
from bartack.runtime.copies._git import PlainGit
from bartack.runtime.copies._meta import quote_path, unquote_path

_MANY: Final = 100
_GITLINK: Final = b"160000 "
_NOTHING: Final = b"0" * 40
_EARLIER_S: Final = 1.0
"""Times of files come from a clock that is a little slow; a whole second is more than enough."""


class _Memory(msgspec.Struct):
    """What is known of the index, in a file beside it.

    Attributes:
        place: The directory that it describes, quoted.
        tree: Its tree; empty while it is being changed.
        size: At least as many bytes as its files have together.
        links: Repositories of their own in it, quoted.
    """

    place: str = ""
    tree: str = ""
    size: int = 0
    links: list[str] = []


class PrivateIndex:
    """The index of one tree.

    Args:
        git: The repository that gets its files.
        place: Where the tree is.
        folder: Where the index is kept; of this tree alone.
    """

    def __init__(self, git: PlainGit, place: Path, folder: Path) -> None:
        self._place = place
        self._folder = folder
        self._file = folder / "index"
        self._memory = _Memory()
        self.git = git.using(
            place, GIT_WORK_TREE=str(place), GIT_INDEX_FILE=str(self._file), GIT_LITERAL_PATHSPECS="1"
        )

    def open(self) -> None:
        """Read what is known; of another directory nothing is."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.unlock()
        try:
            self._memory = typed.decode((self._folder / "memory.json").read_bytes(), type=_Memory)
        except (OSError, msgspec.MsgspecError):
            self._memory = _Memory()
        place = quote_path(os.fsencode(self._place))
        if self._memory.place != place:
            self._file.unlink(missing_ok=True)
            self._memory = _Memory(place)

    def unlock(self) -> None:
        """Remove the lock of a git that was killed: one process at a time copies (``copies.py`` holds a lock)."""
        Path(f"{self._file}.lock").unlink(missing_ok=True)

    # What is known.

    @property
    def tree(self) -> str:
        """Its tree; empty if it was changed since the last ``write_tree``."""
        return self._memory.tree

    @property
    def size(self) -> int:
        """At least as many bytes as its files have together."""
        return self._memory.size

    @property
    def links(self) -> set[bytes]:
        """Repositories of their own in it."""
        return {unquote_path(link) for link in self._memory.links}

    def note_size(self, size: int) -> None:
        """Correct the size; it is remembered with the next tree."""
        self._memory.size = size

    def dirty(self, paths: list[bytes]) -> list[bytes]:
        """Which of these files are not as it has them, by their facts."""
        few = ("--", *map(os.fsdecode, paths)) if len(paths) <= _MANY else ()
        found = {*names_in(self.git("diff-files", "-z", "--name-only", "--ignore-submodules=dirty", *few))}
        return [path for path in paths if path in found]

    def paths(self) -> set[bytes]:
        """All of its files."""
        return {*names_in(self.git("ls-files", "-z"))}

    def exact_size(self, without: set[bytes]) -> int:
        """How many bytes its files have, without some of them."""
        tree = self.tree or self.git.line("write-tree")
        listed = names_in(self.git("ls-tree", "-r", "-z", "--format=%(objectsize)%x09%(path)", tree))
        sizes = [size for size, _, path in (item.partition(b"\t") for item in listed) if path not in without]
        return sum(int(size) for size in sizes if size.isdigit())

    # Changes.

    def remove(self, paths: list[bytes]) -> None:
        """Remove files from it."""
        if paths:
            self._forget()
            self.git("update-index", "-z", "--force-remove", "--stdin", given=_lines(paths))
            self._keep_links(self.links - {*paths})

    def add(self, paths: list[bytes]) -> None:
        """Read files; one that is gone is removed, and of a repository of its own the name of its commit is taken."""
        if paths:
            self._forget()
            # Thousands of new files become one pack, which takes a tenth of the time that files of their own take.
            packed = ("-c", "core.bigFileThreshold=1") if len(paths) > _MANY else ()
            words = ("update-index", "-z", "--add", "--remove", "--replace", "--stdin")
            self.git(*packed, *words, given=_lines(paths))
            self._keep_links(self.links | {path for path in paths if self._is_folder(path)})

    def set_links(self, links: Mapping[bytes, str], lost: Iterable[bytes]) -> None:
        """Take the names of commits for repositories that are not there, and remove others."""
        self._forget()
        lines = [b"0 " + _NOTHING + b"\t" + link for link in lost]
        lines += [_GITLINK + links[link].encode() + b" 0\t" + link for link in links]
        self.git("update-index", "-z", "--add", "--replace", "--index-info", given=_lines(lines))
        self._keep_links((self.links - {*lost}) | {*links})

    def write_tree(self) -> str:
        """Write its tree."""
        return self.git.line("write-tree")

    def remember(self, tree: str, grown: int) -> None:
        """Keep what is known from now on.

        Args:
            tree: What ``write_tree`` has written.
            grown: How many bytes were added at most.
        """
        self._memory.tree = tree
        self._memory.size += grown
        self._save()

    def adopt(self, tree: str, size: int) -> list[bytes]:
        """Take a tree as the known one, and return the files that are not as it has them."""
        self._forget()
        self.git("read-tree", "--reset", tree)  # what is known of files that are the same stays known
        self.git.run(("update-index", "-q", "--refresh"), fine=(0, 1))
        staged = names_in(self.git("ls-files", "-z", "--stage"))
        self._keep_links({item.partition(b"\t")[2] for item in staged if item.startswith(_GITLINK)})
        self._memory.size = size
        self.remember(tree, 0)
        return names_in(self.git("diff-files", "-z", "--name-only", "--ignore-submodules=all"))

    def settle(self, began: float) -> None:
        """Note that at this moment all files were as it has them."""
        with suppress(OSError):
            if self._file.stat().st_mtime < (moment := int(began - _EARLIER_S)):
                os.utime(self._file, (moment, moment))

    def _is_folder(self, path: bytes) -> bool:
        at = os.path.join(os.fsencode(self._place), path)
        return os.path.isdir(at) and not os.path.islink(at)

    def _keep_links(self, links: set[bytes]) -> None:
        quoted = sorted(map(quote_path, links))
        if quoted != self._memory.links:
            self._memory.links = quoted
            self._save()

    def _forget(self) -> None:
        if self._memory.tree:
            self._memory.tree = ""
            self._save()

    def _save(self) -> None:
        replace_file(self._folder / "memory.json", msgspec.json.encode(self._memory), synced=False)


def names_in(out: bytes) -> list[bytes]:
    """The names in what git writes with ``-z``."""
    return [name for name in out.split(b"\0") if name]


def _lines(paths: Iterable[bytes]) -> bytes:
    return b"".join(path + b"\0" for path in paths)
