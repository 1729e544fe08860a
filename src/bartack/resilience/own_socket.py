"""The socket on which a service of this user is reached without a port that another user could have taken.

It is in the user's state home, which is closed to others. One process at a time has it, by a lock that ends with the process; so
a socket that a killed service has left is replaced and one that is in use is not.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import socket
from collections.abc import Generator
from pathlib import Path
from typing import Final, Self

from bartack.core.disk import FILE_MODE
from bartack.core.sockets import clear_sockets, make_own_folder, socket_place
from bartack.core.trust import make_private
from bartack.errors import PeerRefusedError, UnsafeSocketError

_log = logging.getLogger("bartack.resilience")
_BACKLOG: Final = 1024


class OwnSocket:
    """The socket of a service; a context manager. Where it cannot be had, ``listeners`` is empty.

    Args:
        path: Where it is, or a link to it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.listeners: tuple[socket.socket, ...] = ()
        self._lock: int | None = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def open(self) -> tuple[socket.socket, ...]:
        """Listen, if that is possible; the sockets to accept connections from."""
        try:
            self._open()
        except (OSError, PeerRefusedError, UnsafeSocketError) as error:
            _log.warning("no socket at %s: %s", self.path, error)
            self.close()
        return self.listeners

    def close(self) -> None:
        """Take the socket away and give the lock back."""
        if self._lock is None:
            return
        for listener in self.listeners:
            listener.close()
        self.listeners = ()
        with contextlib.suppress(OSError):
            self.path.unlink()
        os.close(self._lock)
        self._lock = None

    def _open(self) -> None:
        make_private(self.path.parent)
        make_own_folder(str(self.path.parent))
        self._lock = take_service_lock(self.path.with_suffix(".lock"))
        if self._lock is None:
            _log.info("%s is in use by another process", self.path)
            return
        place = socket_place(str(self.path))
        self.listeners = (_listen(place),)
        if place != str(self.path):
            point_to(self.path, place)
            clear_sockets(place)


def take_service_lock(path: Path) -> int | None:
    """A lock as an open descriptor; ``None`` if another process holds it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def point_to(link: Path, target: str) -> None:
    """Make a link, in place of what has its name."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(link)
    os.symlink(target, link)


def _listen(place: str) -> socket.socket:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(place)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with private_mask():
            listener.bind(place)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


@contextlib.contextmanager
def private_mask() -> Generator[None]:
    """Files that are made meanwhile are for their owner only."""
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)
