"""Single ownership of a directory, by the lock of a file in it.

The lock goes with the owner's descriptor: a killed owner leaves it free at once. The file says who holds it, for people; it is
never removed, so that a lock and a name cannot come apart.
"""

from __future__ import annotations

import os
from typing import Final

from bartack.core import Disk, write_all
from bartack.errors import JournalLockedError

NAME: Final = "lock"


class FileLock:
    """A held lock; closing it lets go.

    Attributes:
        fd: The open file.
    """

    def __init__(self, disk: Disk, fd: int) -> None:
        self.fd = fd
        self._disk = disk

    @property
    def is_named(self) -> bool:
        """Whether the file still has its name: once it is removed, somebody else can lock another one."""
        return self._disk.all_named(self.fd)

    def close(self) -> None:
        """Let go of the lock."""
        if self.fd >= 0:
            self._disk.close(self.fd)
            self.fd = -1


def take_lock(disk: Disk, directory: str) -> FileLock:
    """Take the lock of ``directory``, or say who has it.

    Raises:
        JournalLockedError: Another process has it.
    """
    path = os.path.join(directory, NAME)
    while True:
        fd = disk.open(path, write=True, create=True)
        try:
            _lock(disk, fd, directory)
            if _names(disk, path, fd):
                _write_pid(disk, fd)
                return FileLock(disk, fd)
        except BaseException:
            disk.close(fd)
            raise
        # The file was removed or replaced between open and lock: what was locked is not what others will lock.
        disk.close(fd)


def _lock(disk: Disk, fd: int, directory: str) -> None:
    if not disk.lock(fd):
        raise JournalLockedError(directory, _read_pid(disk, fd))


def _names(disk: Disk, path: str, fd: int) -> bool:
    try:
        other = disk.open(path)
    except FileNotFoundError:
        return False
    try:
        return disk.facts(other).inode == disk.facts(fd).inode
    finally:
        disk.close(other)


def _write_pid(disk: Disk, fd: int) -> None:
    text = b"%d\n" % os.getpid()
    try:
        disk.truncate(fd, 0)
        write_all(disk, fd, text, 0)
    except OSError:
        # A full disk must not keep an owner out: the name is for people only.
        return


def _read_pid(disk: Disk, fd: int) -> int | None:
    text = disk.read(fd, 32, 0).strip()
    return int(text) if text.isdigit() else None
