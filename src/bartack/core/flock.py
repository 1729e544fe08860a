"""Locks of whole files between processes. They end with the descriptor, so with the process, too."""

from __future__ import annotations

import fcntl
import os
import select
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bartack.core.files import open_private

LOOK_S: Final = 0.002
"""How often to try again: the kernel has no lock with a time limit."""


@contextmanager
def hold_lock(path: str | Path) -> Generator[None]:
    """Hold the lock of a file, which is made if it is missing. Wait for other processes, however long they hold it."""
    fd = open_private(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def lock_within(fd: int, wait_s: float) -> bool:
    """Lock an open file; ``False`` if another process has held the lock for all of this time."""
    until = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            select.select([], [], [], LOOK_S)
        else:
            return True
