"""The lease page: until when the owner of process trees has the right to let them run.

One process, the writer, renews the right for a short time, again and again. Everything below it that starts processes reads the
page and holds still when the time is over, also if the writer is stopped or dead: no message has to reach them for that. The page
is a few words of shared memory. Reading it takes no system call, so it can be looked at in every turn of a loop.

Times are of a clock that never stands still and is the same for all processes of a machine: it counts the time in which the
machine sleeps. Each word is written and read as a whole, and none of them depends on another, so no lock is needed. Only the writer
has the memory for writing: the descriptor that is handed on can only be read from.

What holding still means is in ``_hold.py``; parent programs do it by themselves (``parent/parent.py``).
"""

from __future__ import annotations

import fcntl
import mmap
import os
import time
from typing import Final

_MAGIC: Final = 0x6261_7274_6C65_6173
"""The first word of a page."""

_HEAD, _UNTIL, _OVER, _OFFSET = range(4)
"""The places of the words."""

_WORDS: Final = 4
_SIZE: Final = 8 * _WORDS
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""On macOS the latter counts the time in which the machine sleeps."""

_SEALS: Final = 0x0002 | 0x0004 | 0x0010
"""It can neither shrink nor grow, and can only be written to through the memory that is mapped already."""


class LeasePage:
    """A lease page, as its writer (``create``) or as a reader (``open``) has it."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._words = memoryview(memory).cast("q")

    @classmethod
    def create(cls, until_ns: int = 0) -> tuple[LeasePage, int]:
        """Make a page whose right lasts until a moment; also returns the descriptor for readers, which is the caller's."""
        fd = _anonymous_file()
        os.ftruncate(fd, _SIZE)
        page = cls(mmap.mmap(fd, _SIZE))
        page._words[_HEAD] = _MAGIC
        page.renew(until_ns)
        _seal(fd)
        return page, fd

    @classmethod
    def open(cls, fd: int) -> LeasePage:
        """Read a page; the descriptor can be closed after that.

        Raises:
            ValueError: It is not a lease page.
        """
        page = cls(mmap.mmap(fd, _SIZE, access=mmap.ACCESS_READ))
        if page._words[_HEAD] != _MAGIC:
            page.close()
            raise ValueError("not a lease page")
        return page

    @staticmethod
    def now_ns() -> int:
        """The clock of all lease pages of this machine."""
        return time.clock_gettime_ns(_CLOCK)

    # Reading.

    @property
    def until_ns(self) -> int:
        """Until when the right lasts."""
        return self._words[_UNTIL]

    @property
    def is_over(self) -> bool:
        """Whether the right is gone for good: nothing continues, and everything is to be ended."""
        return bool(self._words[_OVER])

    @property
    def offset_us(self) -> int:
        """How far the clock that the owner goes by is ahead of the clock of the pages; 0 until the two were compared."""
        return self._words[_OFFSET]

    def owner_ns(self, now_ns: int) -> int | None:
        """What the clock that the owner goes by shows, in nanoseconds since 1970, when the clock of the pages shows ``now_ns``.

        ``None`` until the two were compared.
        """
        offset_us = self._words[_OFFSET]
        return now_ns + offset_us * 1000 if offset_us else None

    def left_s(self) -> float:
        """Seconds until everything has to stand still; less than nothing if it has to by now."""
        return 0.0 if self.is_over else (self.until_ns - self.now_ns()) / 1e9

    # Writing.

    def renew(self, until_ns: int) -> None:
        """The right lasts until this moment."""
        self._words[_UNTIL] = until_ns

    def end(self) -> None:
        """The right is gone for good."""
        self._words[_OVER] = 1

    def set_offset(self, offset_us: int) -> None:
        """The clock that the owner goes by was compared with the clock of the pages: it is ahead by this."""
        self._words[_OFFSET] = offset_us

    def close(self) -> None:
        """Release the memory; the page lasts as long as another process has it."""
        self._words.release()
        self._memory.close()


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("bartack-lease", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    import tempfile  # noqa: PLC0415 - only systems without memory files need it

    fd, name = tempfile.mkstemp()
    os.unlink(name)
    return fd


def _seal(fd: int) -> None:
    """Keep others from writing; a system without seals does without."""
    if hasattr(fcntl, "F_ADD_SEALS"):
        try:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        except OSError:
            return  # the kernel is older than these seals
