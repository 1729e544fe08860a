"""What a worker's process is busy with, in memory that it shares with the hub.

A short body is not worth a frame of its own before it begins: the hub would wake up for it, and write it down. The worker
sets the frame on a line of its scoreboard instead, at the speed of memory, and clears it when the body is over. The hub reads the
scoreboard once a second, when the worker is interrupted, and when the process is gone: the memory outlives its writer, so a crash
is still charged to the bodies it happened in.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import Final

LINES: Final = 64
WIDTH: Final = 1024
_HEAD: Final = struct.Struct("<II")
"""The number of the change, odd while the line is being written; how many bytes are on the line."""
_HEAD_SIZE: Final = _HEAD.size
_write_head: Final = _HEAD.pack_into
_read_head: Final = _HEAD.unpack_from
ROOM: Final = WIDTH - _HEAD_SIZE
"""The longest text that fits on a line."""


class Scoreboard:
    """A few lines shared by two processes; one writes, the other reads."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._memory = mmap.mmap(fd, LINES * WIDTH)
        self._turn = 0
        self._free = list(range(LINES - 1, -1, -1))
        """Lines with nothing on them; the last one is taken first, so those in use are the first of the scoreboard."""

    @classmethod
    def create(cls) -> Scoreboard:
        """A scoreboard with nothing on it."""
        fd = _anonymous_file()
        os.ftruncate(fd, LINES * WIDTH)
        return cls(fd)

    def fileno(self) -> int:
        """The descriptor to hand to the other process."""
        return self._fd

    def set(self, data: bytes) -> int:
        """Put something on a free line and return the line; -1 if it does not fit, or none is free."""
        size = len(data)
        if size > ROOM or not self._free:
            return -1
        line = self._free.pop()
        memory, at = self._memory, line * WIDTH
        turn = self._turn = self._turn + 2
        _write_head(memory, at, turn - 1, 0)
        start = at + _HEAD_SIZE
        memory[start : start + size] = data
        _write_head(memory, at, turn, size)
        return line

    def clear(self, line: int) -> None:
        """Clear a line."""
        turn = self._turn = self._turn + 2
        _write_head(self._memory, line * WIDTH, turn, 0)
        self._free.append(line)

    def read(self) -> list[bytes]:
        """The contents of its lines, except for those that are being written just now."""
        found: list[bytes] = []
        for at in range(0, LINES * WIDTH, WIDTH):
            turn, size = _read_head(self._memory, at)
            if not turn:
                break  # never written, nor were those after it
            start = at + _HEAD_SIZE
            data = self._memory[start : start + min(size, ROOM)]
            again, _ = _read_head(self._memory, at)
            if data and turn == again and not turn % 2:
                found.append(data)
        return found

    def close(self) -> None:
        """Release the memory."""
        self._memory.close()
        os.close(self._fd)


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("bartack-scoreboard")
    import tempfile  # noqa: PLC0415 - only systems without memory files need it

    fd, name = tempfile.mkstemp()
    os.unlink(name)
    return fd
