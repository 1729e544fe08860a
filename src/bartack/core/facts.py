"""What the operating system knows of an open file, asked without making the file's next sync slower.

A plain ``fstat`` asks for the file's times as well. Linux kernels since 6.13 keep a time that was asked for exact:
the next write then has a new one to record, and the sync after it to write. For a file that is written in place and asked
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


class StatMethod(NamedTuple):
    """A way to ask the operating system about open files."""

    facts: Callable[[int], FileFacts]
    all_named: Callable[[tuple[int, ...]], bool]


WITH_TIMES: Final = StatMethod(ask_with_times, all_named_with_times)
