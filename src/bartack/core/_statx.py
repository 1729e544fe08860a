"""``statx`` of Linux, which Python does not have. Imported only when it is used; ``facts.py`` says what for."""

from __future__ import annotations

import ctypes
import struct
from stat import S_ISREG
from typing import Final

from bartack.core.facts import FileFacts, StatMethod, ask_with_times

_AT_EMPTY_PATH: Final = 0x1000
_LINKS: Final = 0x4
_WANTED: Final = 0x1 | _LINKS | 0x100 | 0x200
"""Type, number of links, inode and size; no times."""

_Buffer: Final = ctypes.c_char * 256
"""``struct statx``: its layout is the same on every architecture."""
_unpack: Final = struct.Struct("=I12xI8xH2xQQ").unpack_from
"""Of that: what was found, number of links, mode, inode, size. (Taking them one by one out of a structure takes longer.)"""

_BIRTH: Final = 0x800
_AT_FDCWD: Final = -100
_AT_SYMLINK_NOFOLLOW: Final = 0x100
_unpack_birth: Final = struct.Struct("=I76xqI").unpack_from
"""What was found, seconds and nanoseconds of the birth."""

_unpack_links: Final = struct.Struct("=I12xI").unpack_from
"""What was found, number of links."""

# Through PyDLL the interpreter's lock is kept: letting go of it and taking it again costs more than the call.
_statx = ctypes.PyDLL(None).statx
_statx.restype = ctypes.c_int


def ask_without_times(fd: int) -> FileFacts:
    """The facts of an open file, asked without its times where the kernel and the file system can do that."""
    found = _Buffer()
    if _statx(fd, b"", _AT_EMPTY_PATH, _WANTED, found) != 0:
        return ask_with_times(fd)
    mask, links, mode, inode, size = _unpack(found)
    if mask & _WANTED != _WANTED:
        return ask_with_times(fd)
    return FileFacts(size, links, inode, S_ISREG(mode))


def all_named_without_times(fds: tuple[int, ...]) -> bool:
    """Whether each of these open files still has a name. Every commit asks this, so it asks no more."""
    found = _Buffer()
    for fd in fds:
        answered = _statx(fd, b"", _AT_EMPTY_PATH, _LINKS, found) == 0
        mask, links = _unpack_links(found)
        if not (links if answered and mask & _LINKS else ask_with_times(fd).links):
            return False
    return True


def ask_birth(path: bytes) -> int | None:
    """When a file or directory was made, in microseconds since 1970; ``None`` where the file system does not know."""
    found = _Buffer()
    if _statx(_AT_FDCWD, path, _AT_SYMLINK_NOFOLLOW, _BIRTH, found) != 0:
        return None
    mask, seconds, nanoseconds = _unpack_birth(found)
    return seconds * 1_000_000 + nanoseconds // 1000 if mask & _BIRTH else None


WITHOUT_TIMES: Final = StatMethod(ask_without_times, all_named_without_times)
