"""Which files of a tree are small enough to be copied; the others are refused at first and left out later."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bartack.errors import WorkspaceCarryError
from bartack.runtime.copies._meta import shown_path
from bartack.runtime.copies._private_index import PrivateIndex
from bartack.runtime.copies.values import Limits

MOST_NAMED: Final = 10


class Admitted(NamedTuple):
    """The paths that are copied, how many bytes they have, and why others are left out."""

    paths: list[bytes]
    size: int
    left_out: dict[bytes, str]


class Admission:
    """The limits of one tree.

    Args:
        place: Where the tree is.
        index: Its index.
        limits: How large a file and the tree can be.
        refusing: Whether what exceeds them is an error.
    """

    def __init__(self, place: Path, index: PrivateIndex, limits: Limits, *, refusing: bool) -> None:
        self._place = place
        self._index = index
        self._limits = limits
        self._refusing = refusing

    def admit(self, paths: Iterable[bytes], gone: Iterable[bytes]) -> Admitted:
        """Judge files that are new or have changed.

        Args:
            paths: These files.
            gone: Files that the index still has, and that are gone.

        Raises:
            WorkspaceCarryError: Some are too large, and that is refused.
        """
        sizes: dict[bytes, int] = {}
        large: dict[bytes, str] = {}
        others: dict[bytes, str] = {}
        for path in dict.fromkeys(paths):
            at = os.path.join(os.fsencode(self._place), path)
            size = _size(at)
            if size is None:
                others[path] = "is not copied: it is not a file, a link or a directory"
            elif size > self._limits.file_bytes:
                large[path] = f"is not copied: it has {size} bytes"
            elif size >= 0 and not os.access(at, os.R_OK):
                others[path] = "is not copied: it cannot be read"
            else:
                sizes[path] = max(size, 0)
        if large and self._refusing:
            problem = f"files of more than {self._limits.file_bytes} bytes are not carried"
            raise WorkspaceCarryError(str(self._place), shorten([*large]), problem)
        left_out = large | others
        left_out |= self._fit(sizes, {*gone, *left_out})
        accepted = [path for path in sizes if path not in left_out]
        return Admitted(accepted, sum(sizes[path] for path in accepted), left_out)

    def _fit(self, sizes: dict[bytes, int], gone: set[bytes]) -> dict[bytes, str]:
        """Leave out the largest of these files until all of the tree is small enough."""
        most = self._limits.workspace_bytes
        if sizes and self._index.size + sum(sizes.values()) > most:
            self._index.note_size(self._index.exact_size(gone | sizes.keys()))
        total = self._index.size + sum(sizes.values())
        largest = sorted(sizes, key=lambda path: -sizes[path])
        if total > most and self._refusing:
            problem = f"its files have {total} bytes, more than {most}; the largest are"
            raise WorkspaceCarryError(str(self._place), shorten(largest), problem)
        left_out: dict[bytes, str] = {}
        for path in largest:
            if total <= most or not sizes[path]:
                break
            left_out[path] = f"is not copied: with it, the copy would have more than {most} bytes"
            total -= sizes[path]
        return left_out


def _size(path: bytes) -> int | None:
    """How many bytes a regular file has; -1 for links, for repositories, and for what is gone: git decides about these.

    ``None`` for what is nothing of that, such as a pipe with a name: git cannot copy it.
    """
    try:
        facts = os.lstat(path)
    except OSError:
        return -1
    if stat.S_ISREG(facts.st_mode):
        return facts.st_size
    return -1 if stat.S_ISLNK(facts.st_mode) or stat.S_ISDIR(facts.st_mode) else None


def shorten(paths: Sequence[bytes]) -> tuple[str, ...]:
    """The first few of some paths, and how many more there are."""
    names = tuple(map(shown_path, paths[:MOST_NAMED]))
    return (*names, f"{len(paths) - MOST_NAMED} more") if len(paths) > MOST_NAMED else names
