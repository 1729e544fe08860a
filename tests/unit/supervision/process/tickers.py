"""Processes that show whether they run: ``python tickers.py FILE SHAPE [SIZE]``.

Each process has a place in a shared file, where it counts hundreds of times a second, and writes its number to the standard output
once. The shape is how the processes are related.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import select
import signal
import sys
from typing import NoReturn

PLACES = 4096
_SUBREAPER = 36


class Board:
    """The file: the number of processes so far, then the count of each."""

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(self.fd, 8 * PLACES)
        self._words = memoryview(mmap.mmap(self.fd, 8 * PLACES)).cast("q")

    def counts(self) -> list[int]:
        """How far each process has counted."""
        return list(self._words)

    def tick(self) -> NoReturn:
        """Count, from now on."""
        place = os.getpid() % PLACES
        os.write(1, b"%d\n" % os.getpid())
        while True:
            self._words[place] += 1
            select.select([], [], [], 0.003)


def alone(board: Board, size: int) -> NoReturn:
    board.tick()


def family(board: Board, size: int) -> NoReturn:
    """Children and grandchildren, some in groups and sessions of their own."""
    for place in range(size):
        if not os.fork():
            if place % 2:
                os.setsid()
            if not os.fork():
                os.setpgid(0, 0)
            board.tick()
    board.tick()


def bomb(board: Board, size: int) -> NoReturn:
    """Every process forks others, as fast as it can, until there are so many."""
    left = size
    while left > 1:
        half = left // 2
        if os.fork():
            left -= half
        else:
            left = half
            if left % 3 == 0:
                os.setsid()
    board.tick()


def fugitive(board: Board, size: int) -> NoReturn:
    """Below a subreaper each process forks the next and ends, so many times."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    if os.fork():
        while True:
            signal.pause()
    for _ in range(size):
        if os.fork():
            os._exit(0)
        os.setsid()
    board.tick()


SHAPES = {shape.__name__: shape for shape in (alone, family, bomb, fugitive)}


if __name__ == "__main__":
    SHAPES[sys.argv[2]](Board(sys.argv[1]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
