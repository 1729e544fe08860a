"""What the operating system knows of an open file, asked without making the file's next sync slower.

A plain ``fstat`` asks for the file's times as well. Linux kernels since 6.13 keep a time that somebody has asked for exact:
the next write then has a new one to record, and the sync behind it to write. For a file that is written in place and asked
about in every commit that is all the difference between a sync with and without metadata. ``statx`` (``_statx.py``) leaves
the times out.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from stat import S_ISREG
from typing import Final, NamedTuple


class FileFacts(NamedTuple):
    """What the disk knows of an open file."""

    size: int
    links: int
    inode: int
    regular: bool = True
    """Whether it is a file, not a device, a pipe or a directory."""


def ask_with_times(fd: int) -> FileFacts:
    """The facts of an open file, by the call that every system has."""
    found = os.fstat(fd)
    return FileFacts(found.st_size, found.st_nlink, found.st_ino, S_ISREG(found.st_mode))


def all_named_with_times(fds: tuple[int, ...]) -> bool:
    """Whether each of these open files still has a name, by the call that every system has."""
    return all(os.fstat(fd).st_nlink for fd in fds)


def birth_of(path: str | os.PathLike[str]) -> int | None:
    """When a file or directory was made, in microseconds since 1970; ``None`` where that is not known.

    Unlike all its other times, nobody can set it.
    """
    try:
        from bartack.core._statx import ask_birth  # noqa: PLC0415 - ctypes is slow to import
    except (ImportError, AttributeError):
        # Not Linux, or an old C library. macOS tells it with every stat.
        born = getattr(os.lstat(path), "st_birthtime", None)
        return None if born is None else int(born * 1_000_000)
    return ask_birth(os.fsencode(path))


class Asking(NamedTuple):
    """A way to ask the operating system about open files."""

    facts: Callable[[int], FileFacts]
    all_named: Callable[[tuple[int, ...]], bool]


WITH_TIMES: Final = Asking(ask_with_times, all_named_with_times)
