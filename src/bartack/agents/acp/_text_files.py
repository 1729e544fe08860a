"""Text files that an agent reads and writes through its client. Whether it may is decided before, in ``_requests.py``."""

from __future__ import annotations

import os
import stat
from itertools import islice
from typing import Final

from bartack.core.files import write_file

MOST_BYTES: Final = 8 * 1024 * 1024
"""Bytes of the longest text that is read or written."""


def resolve(path: str) -> str:
    """A path with all links resolved."""
    return os.path.realpath(path)


def read_text(path: str, line: int = 0, limit: int | None = None) -> str:
    """Some lines of a text file: ``limit`` of them from number ``line`` on, which counts from 1.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not a regular file of text, or too long.
    """
    # A pipe or a device would make the reader wait.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is not a regular file")
        if line <= 1 and limit is None:
            data = file.read(MOST_BYTES + 1)
        else:
            first = max(line, 1) - 1
            data = _some(islice(file, first, None if limit is None else first + limit))
    if len(data) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError("it is not text in UTF-8") from None


def write_text(path: str, text: str) -> None:
    """Replace a text file atomically; it keeps its permissions. Missing directories are made.

    Raises:
        OSError: It cannot be written.
        ValueError: It is not a regular file, or the text is too long.
    """
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > MOST_BYTES:
        raise ValueError(f"the text has more than {MOST_BYTES} bytes")
    if os.path.lexists(path) and not os.path.isfile(path):
        raise ValueError("it is not a regular file")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_file(path, data, mode=0o666 & ~_umask(), synced=False)


def _some(lines: islice[bytes]) -> bytes:
    data = bytearray()
    for line in lines:
        data += line
        if len(data) > MOST_BYTES:
            break
    return bytes(data)


def _umask() -> int:
    """The mask of new files. It can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
