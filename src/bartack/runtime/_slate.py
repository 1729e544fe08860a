"""What a worker's process is busy with, on a page of memory it shares with the hub.

A short body is not worth a frame of its own before it begins: the hub would wake up for it, and write it down. The worker
writes the frame on its slate instead, at the speed of memory, and wipes it when the body is over. The hub reads it when it looks
around, once a second, and when the process is gone: memory outlives whoever wrote it, so a crash is still charged to the body it
happened in.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import Final

SIZE: Final = 4096
_HEAD: Final = struct.Struct("<II")
"""How often it was written, odd while somebody writes; how many bytes are on it."""


class Slate:
    """A page shared by two processes; one writes, the other reads."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._page = mmap.mmap(fd, SIZE)
        self._turn = 0

    @classmethod
    def create(cls) -> Slate:
        """A slate with nothing on it."""
        fd = _anonymous_file()
        os.ftruncate(fd, SIZE)
        return cls(fd)

    def fileno(self) -> int:
        """The descriptor to hand to the other process."""
        return self._fd

    def write(self, data: bytes) -> bool:
        """Put something on it, instead of what was there; ``False`` if it does not fit."""
        size = len(data)
        if size > SIZE - _HEAD.size:
            return False
        page, turn = self._page, self._turn + 2
        self._turn = turn
        _HEAD.pack_into(page, 0, turn - 1, 0)
        page[8 : 8 + size] = data
        _HEAD.pack_into(page, 0, turn, size)
        return True

    def wipe(self) -> None:
        """Take away what is on it."""
        self._turn += 2
        _HEAD.pack_into(self._page, 0, self._turn, 0)

    def read(self) -> bytes:
        """What is on it; nothing if it is being written just now."""
        before, size = _HEAD.unpack_from(self._page)
        data = self._page[8 : 8 + min(size, SIZE - _HEAD.size)]
        after, _ = _HEAD.unpack_from(self._page)
        return data if before == after and not before % 2 else b""

    def close(self) -> None:
        """Let go of it."""
        self._page.close()
        os.close(self._fd)


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("bartack-slate")
    import tempfile  # noqa: PLC0415 - only systems without memory files need it

    fd, name = tempfile.mkstemp()
    os.unlink(name)
    return fd
