"""Writes past the page cache, durable when they return: one question to the kernel instead of two, and less for it to do.

Only for bytes that the file has already: then nothing but data has to reach the disk, and a write that is torn by a power cut can
damage nothing but itself, for what stands before it in the same block is written again as it was.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from typing import Final, Protocol

BLOCK: Final = 4096
"""Where such a write begins and ends. Every disk in use takes multiples of this."""
ROOM: Final = 64 * 1024
"""More at a time is for the page cache to sort out."""

_KNOWN: Final = frozenset({"ext4", "xfs"})
"""Local file systems on which who reads through the page cache sees at once what was written past it."""
_UNABLE: Final = frozenset({errno.EINVAL, errno.EOPNOTSUPP})


class DirectWriter(Protocol):
    """A way to write over what a file has already, durable when it returns."""

    def write(self, data: bytes, offset: int) -> bool:
        """Write all of it; ``False`` if it has to be written in the ordinary way.

        Behind it, up to the next block, the file has nothing but line breaks.
        """
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class DirectFile:
    """A descriptor of its own for an open file, and a buffer that is laid out as its blocks are."""

    def __init__(self, file: int, direct: int) -> None:
        self._file = file
        self._direct = direct
        self._end = -1
        """Where the last write ended: the buffer begins with what its last block has in it."""
        self._buffer = mmap.mmap(-1, ROOM)
        self._view = memoryview(self._buffer)

    def write(self, data: bytes, offset: int) -> bool:
        """See ``DirectWriter.write``."""
        before = offset % BLOCK
        size = before + len(data)
        whole = -(-size // BLOCK) * BLOCK
        if whole > ROOM or self._direct < 0:
            return False
        view, start = self._view, offset - before
        if offset != self._end:
            view[:before] = _read(self._file, before, start)
        self._end = -1
        view[before:size] = data
        view[size:whole] = b"\n" * (whole - size)
        try:
            written = os.pwrite(self._direct, view[:whole], start)
        except OSError as error:
            if error.errno not in _UNABLE:
                raise
            self.close()  # it says so before it writes anything
            return False
        if written != whole:
            raise OSError(errno.EIO, "the disk took a part only")
        last = size - size % BLOCK
        if last:
            view[: size - last] = bytes(view[last:size])
        self._end = offset + len(data)
        return True

    def close(self) -> None:
        """See ``DirectWriter.close``."""
        if self._direct >= 0:
            os.close(self._direct)
            self._direct = -1


def open_direct(fd: int) -> DirectFile | None:
    """A way past the page cache for an open file, if this system is known to have a sound one."""
    try:
        device = os.fstat(fd).st_dev
        if f"{os.major(device)}:{os.minor(device)}" not in _known_devices():
            return None
        # By its descriptor: whatever its name means by now, this is the same file.
        return DirectFile(fd, os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_DIRECT | os.O_DSYNC))
    except (OSError, AttributeError):
        return None  # not Linux, no /proc, or a file system that does not know it


def _known_devices() -> Iterator[str]:
    with open("/proc/self/mountinfo", "rb") as mounts:
        for mount in mounts:
            before, _, after = mount.decode(errors="replace").partition(" - ")
            if after.split(" ", 1)[0] in _KNOWN:
                yield before.split(" ")[2]


def _read(fd: int, size: int, offset: int) -> bytes:
    data = os.pread(fd, size, offset)
    if len(data) != size:
        raise OSError(errno.EIO, "the file is shorter than it was")
    return data
