"""``statx`` of Linux, which Python does not have. Imported only when it is used; ``_facts.py`` says what for."""

from __future__ import annotations

import ctypes
from stat import S_ISREG
from typing import Final

from bartack.core._facts import FileFacts, ask_with_times

_AT_EMPTY_PATH: Final = 0x1000
_WANTED: Final = 0x1 | 0x4 | 0x100 | 0x200
"""Type, number of links, inode and size; no times."""


class _Statx(ctypes.Structure):
    """``struct statx``: its layout is the same on every architecture."""

    mask: int
    links: int
    mode: int
    inode: int
    size: int
    _fields_ = (
        ("mask", ctypes.c_uint32),
        ("block_size", ctypes.c_uint32),
        ("attributes", ctypes.c_uint64),
        ("links", ctypes.c_uint32),
        ("uid", ctypes.c_uint32),
        ("gid", ctypes.c_uint32),
        ("mode", ctypes.c_uint16),
        ("spare", ctypes.c_uint16),
        ("inode", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("rest", ctypes.c_byte * 208),
    )


# Through PyDLL the interpreter's lock is kept: letting go of it and taking it again costs more than the call.
_statx = ctypes.PyDLL(None).statx
_statx.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.POINTER(_Statx)]
_statx.restype = ctypes.c_int


def ask_without_times(fd: int) -> FileFacts:
    """The facts of an open file, asked without its times where the kernel and the file system can do that."""
    found = _Statx()
    if _statx(fd, b"", _AT_EMPTY_PATH, _WANTED, found) != 0 or found.mask & _WANTED != _WANTED:
        return ask_with_times(fd)
    return FileFacts(found.size, found.links, found.inode, S_ISREG(found.mode))
