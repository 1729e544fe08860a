"""Copies what a child writes to a pipe into a file, line by line, so that it is there whatever becomes of the hub.

Some programs cannot write to a file themselves. Only whole lines are copied: the hub appends lines of its own to the same file.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from typing import Final

MAX_LINE: Final = 16 * 1024 * 1024
"""A line that is longer is copied in pieces."""
_CHUNK: Final = 64 * 1024
_MOST_LEFT: Final = 64
"""How often a pipe is read at the end, which holds a megabyte at most: a stranger may have got the other end of it."""


class Relays:
    """The copies for all children of a parent program, by their tokens."""

    def __init__(self) -> None:
        self._open: dict[int, Relay] = {}

    def open(self, token: int, target: int) -> int:
        """Copy to a file that was opened for appending; returns the end that the child writes to. Both stay the caller's."""
        source, theirs = os.pipe()
        os.set_blocking(source, False)
        self._open[token] = Relay(source, os.dup(target))
        return theirs

    def descriptors(self) -> Iterator[int]:
        """What the loop has to wait for, to be readable."""
        return (relay.source for relay in self._open.values())

    def copy(self, ready: Container[int]) -> None:
        """Copy some of what can be read from these descriptors."""
        for token, relay in list(self._open.items()):
            if relay.source in ready:
                relay.copy()
            if not relay.is_open:
                del self._open[token]

    def finish(self, token: int) -> None:
        """Copy the rest of what a child wrote that is gone."""
        relay = self._open.pop(token, None)
        if relay is not None:
            relay.finish()

    def finish_all(self) -> None:
        """The same when all are gone."""
        for token in list(self._open):
            self.finish(token)


class Relay:
    """One copy; both descriptors are closed with it. The one that is read from does not block."""

    def __init__(self, source: int, target: int) -> None:
        self.source = source
        self._target = target
        self._waiting: list[bytes] = []
        self._size = 0
        self.is_open = True

    def copy(self) -> bool:
        """Copy some of what was written; returns whether there may be more now. At its end the copy is closed."""
        try:
            data = os.read(self.source, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._flush()
            self._close()
            return False
        whole, newline, rest = data.rpartition(b"\n")
        if newline:
            self._waiting.append(whole + newline)
            self._flush()
        self._waiting.append(rest)
        self._size += len(rest)
        if self._size > MAX_LINE:
            self._flush()
        return self.is_open

    def finish(self) -> None:
        """Copy what is left, and a last line without its end: no process of the child writes to the pipe any longer."""
        for _ in range(_MOST_LEFT):
            if not self.is_open or not self.copy():
                break
        if self.is_open:
            self._flush()
            self._close()

    def _flush(self) -> None:
        data, self._waiting, self._size = b"".join(self._waiting), [], 0
        try:
            while data:
                data = data[os.write(self._target, data) :]
        except OSError:
            self._close()  # the disk is full: a program whose output is not read ends, and the hub finds out why

    def _close(self) -> None:
        if self.is_open:
            self.is_open = False
            os.close(self.source)
            os.close(self._target)
