"""Single ownership of a directory, by the lock of a file in it.

The lock goes with the owner's descriptor: a killed owner leaves it free at once. The file is never removed, so that a lock and a
name cannot come apart. Its first line is the owner's process id, for people; the two lines after it are how far the journal had
got (``_high_water.py``), which outlives the owner.
"""

from __future__ import annotations

import os
from typing import Final

from bartack.core.disk import Disk, write_all
from bartack.errors import JournalLockedError
from bartack.journal._high_water import SLOT_SIZE, HighWater, decode_slots, encode_slot

LOCK_FILE: Final = "lock"
_SLOTS: Final = 2


class FileLock:
    """A held lock; closing releases it.

    Attributes:
        fd: The open file.
        mark: How far the journal had got when the lock was taken; ``None`` if that is not known.
    """

    def __init__(self, disk: Disk, fd: int, mark: HighWater | None) -> None:
        self.fd = fd
        self.mark = mark
        self._disk = disk
        self._slot = 1

    @property
    def is_named(self) -> bool:
        """Whether the file still has its name: once it is removed, another process can lock a new one."""
        return self._disk.all_named(self.fd)

    def note(self, seq: int, crc: int) -> None:
        """Keep how far the journal has got. Best effort: a mark that cannot be written stays at an earlier place."""
        slot = self._slot = 3 - self._slot
        try:
            self._disk.write(self.fd, encode_slot(seq, crc), slot * SLOT_SIZE)
        except OSError:
            return

    def forget_mark(self) -> None:
        """Nothing is known any more of how far the journal had got."""
        write_all(self._disk, self.fd, _blank(_SLOTS), SLOT_SIZE)
        self._disk.sync(self.fd)

    def close(self) -> None:
        """Release the lock."""
        if self.fd >= 0:
            self._disk.close(self.fd)
            self.fd = -1


def take_lock(disk: Disk, directory: str) -> FileLock:
    """Take the lock of ``directory``, or say who has it.

    Raises:
        JournalLockedError: Another process has it.
    """
    path = os.path.join(directory, LOCK_FILE)
    while True:
        fd = disk.open(path, write=True, create=True)
        try:
            _lock(disk, fd, directory)
            if _names(disk, path, fd):
                mark = _read_mark(disk, fd)
                _write_pid(disk, fd, mark)
                return FileLock(disk, fd, mark)
        except BaseException:
            disk.close(fd)
            raise
        # The file was removed or replaced between open and lock: what was locked is not what others will lock.
        disk.close(fd)


def read_mark(disk: Disk, directory: str) -> HighWater | None:
    """How far the journal in ``directory`` is known to have got; ``None`` if that is not known. Takes no lock."""
    try:
        fd = disk.open(os.path.join(directory, LOCK_FILE))
    except OSError:
        return None
    try:
        return _read_mark(disk, fd)
    finally:
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


def _read_mark(disk: Disk, fd: int) -> HighWater | None:
    return decode_slots(disk.read(fd, _SLOTS * SLOT_SIZE, SLOT_SIZE))


def _write_pid(disk: Disk, fd: int, mark: HighWater | None) -> None:
    line = (b"%d" % os.getpid()).ljust(SLOT_SIZE - 1) + b"\n"
    # The first owner also makes room for the mark, so that writing one later needs no more space.
    text = line if mark is not None else line + _blank(_SLOTS)
    try:
        write_all(disk, fd, text, 0)
    except OSError:
        # A full disk must not keep an owner out: the name is for people only.
        return


def _blank(slots: int) -> bytes:
    return (b" " * (SLOT_SIZE - 1) + b"\n") * slots


def _read_pid(disk: Disk, fd: int) -> int | None:
    text = disk.read(fd, SLOT_SIZE, 0).strip()
    return int(text) if text.isdigit() else None
