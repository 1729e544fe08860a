"""Files that are read for a page: below a directory, never through a link, and only regular ones."""

from __future__ import annotations

import os
import stat

from bartack.core.paths import open_below
from bartack.errors import UnsafePathError


def open_regular(root: str, relative: str) -> int | None:
    """A descriptor of a file below a directory; ``None`` if it is not there, is not safe, or is not a regular file."""
    try:
        # Without this flag a pipe that nothing writes to would hold up the server.
        descriptor = open_below(root, relative, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, UnsafePathError, ValueError):
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def read_regular(root: str, relative: str, most: int) -> tuple[bytes, int] | None:
    """The first bytes of a file, at most this many, and its size; ``None``: see ``open_regular``."""
    descriptor = open_regular(root, relative)
    if descriptor is None:
        return None
    try:
        with open(descriptor, "rb") as file:
            return file.read(most), os.fstat(descriptor).st_size
    except OSError:
        return None
