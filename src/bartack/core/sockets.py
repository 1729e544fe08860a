"""Sockets of this machine: where they are if their own path is longer than the system takes, and who is at the other end."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from itertools import islice
from typing import TYPE_CHECKING, Final

from bartack.core.disk import DIR_MODE
from bartack.errors import PeerRefusedError, UnsafeSocketError

if TYPE_CHECKING:
    import socket

SOCKET_LIMIT: Final = 100
"""The longest path a socket is bound to as it is; a longer one goes through a link."""
STALE_S: Final = 3600.0
"""A socket without a listener is left alone for this time: its maker may be about to listen."""
_AT_ONCE: Final = 256
_SOL_LOCAL: Final = 0
_LOCAL_PEERPID: Final = 2


def socket_place(path: str) -> str:
    """Where the socket that is known by a path is made: there or, if that is too long, in a directory of this user's alone.

    Raises:
        PeerRefusedError: That directory belongs to another user, or others can enter it.
    """
    if len(os.fsencode(path)) <= SOCKET_LIMIT:
        return path
    return os.path.join(_short_folder(), hashlib.sha256(os.fsencode(path)).hexdigest()[:24])


def is_own_socket(path: str) -> bool:
    """Whether a socket is this user's and in a directory that only this user can enter: no other user can have put it there."""
    try:
        folder, own = os.stat(os.path.dirname(path)), os.lstat(path)
    except OSError:
        return False
    return stat.S_ISSOCK(own.st_mode) and own.st_uid == os.geteuid() and _is_private(folder)


def peer_of(sock: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end of a socket of this machine. A process in another namespace has the number 0."""
    import socket  # noqa: PLC0415 - only who listens needs it

    option: int | None = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        # The socket's directory and mode let in this user only; macOS has only the number of the process.
        return sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID), os.getuid()
    import struct  # noqa: PLC0415 - likewise

    pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i")))
    return pid, uid


def make_own_folder(path: str) -> None:
    """Close a directory to all other users.

    Raises:
        UnsafeSocketError: It belongs to another user, or stays open.
    """
    facts = os.stat(path)
    if facts.st_uid == os.geteuid() and not _is_private(facts):
        os.chmod(path, DIR_MODE)
        facts = os.stat(path)
    if not _is_private(facts):
        raise UnsafeSocketError(path)


def _is_private(facts: os.stat_result) -> bool:
    return facts.st_uid == os.geteuid() and not facts.st_mode & 0o077


def clear_sockets(place: str) -> None:
    """Remove sockets beside this one whose makers were killed and could not remove them."""
    folder = os.path.dirname(place)
    before = time.time() - STALE_S
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        for entry in islice(found, _AT_ONCE):
            facts = entry.stat(follow_symlinks=False)
            if stat.S_ISSOCK(facts.st_mode) and facts.st_mtime < before and _is_dead(entry.path):
                os.unlink(entry.path)


def _is_dead(path: str) -> bool:
    import socket  # noqa: PLC0415 - only who makes a socket needs it

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.setblocking(False)
        try:
            sock.connect(path)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def _short_folder() -> str:
    """A directory with a short path that only this user can enter."""
    import tempfile  # noqa: PLC0415 - slow to load, and most paths are short

    places = (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp")  # noqa: S108 - checked below
    short = (
        place
        for place in places
        if place and len(os.fsencode(place)) <= SOCKET_LIMIT // 2 and os.path.isdir(place)
    )
    folder = os.path.join(next(short, "/tmp"), f"bartack-{os.geteuid()}")  # noqa: S108 - checked below
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, DIR_MODE)
    facts = os.lstat(folder)
    if facts.st_uid != os.geteuid() or not stat.S_ISDIR(facts.st_mode) or facts.st_mode & 0o077:
        raise PeerRefusedError("join", f"{folder} does not belong to this user alone")
    return folder
