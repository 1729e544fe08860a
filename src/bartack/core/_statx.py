"""``statx`` of Linux, which Python does not have. Imported only when it is used; ``_facts.py`` says what for."""

from __future__ import annotations

import ctypes
import struct
from stat import S_ISREG
from typing import Final

from bartack.core._facts import FileFacts, ask_with_times

_AT_EMPTY_PATH: Final = 0x1000
_WANTED: Final = 0x1 | 0x4 | 0x100 | 0x200
"""Type, number of links, inode and size; no times."""

_Buffer: Final = ctypes.c_char * 256
"""``struct statx``: its layout is the same on every architecture."""
_unpack: Final = struct.Struct("=I12xI8xH2xQQ").unpack_from
"""Of that: what was found, number of links, mode, inode, size. (Taking them one by one out of a structure takes longer.)"""

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
