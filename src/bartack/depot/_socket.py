"""The socket of a hub, beside the journal of its run. It shows other processes of this machine whether a hub is there."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from pathlib import Path
from typing import Final

from bartack.core.sockets import clear_sockets, socket_place
from bartack.errors import PeerRefusedError

SOCKET_FILE: Final = "hub.sock"


class HubSocket:
    """Where the hub of one run listens.

    Attributes:
        path: Its name in the run's directory; a link, if that is too long for a socket.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def listen(self, group: int | None = None) -> socket.socket:
        """Listen for processes that want to join: only this user's can, and those of a group."""
        self.remove()
        target = socket_place(str(self.path))
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        mask = os.umask(0o177)
        try:
            listener.bind(target)
        finally:
            os.umask(mask)
        if group is not None:
            os.chown(target, -1, group)
            os.chmod(target, 0o660)
        listener.listen(64)
        listener.setblocking(False)
        if target != str(self.path):
            os.symlink(target, self.path)
            clear_sockets(target)
        return listener

    def connect(self, timeout_s: float) -> socket.socket:
        """Connect to the hub.

        Raises:
            PeerRefusedError: The socket belongs to another user.
            OSError: No process listens.
        """
        target = self._listens_at()
        facts = os.lstat(target)
        # What root owns is the hub of a run whose processes have another user.
        if facts.st_uid not in {os.geteuid(), 0} or not stat.S_ISSOCK(facts.st_mode):
            raise PeerRefusedError("join", f"{target} is not a socket of this user")
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(timeout_s)
        try:
            sock.connect(target)
        except BaseException:
            sock.close()
            raise
        return sock

    def has_listener(self) -> bool:
        """Whether a process listens; a stopped one counts. Never waits."""
        try:
            sock = self.connect(0.0)
        except BlockingIOError:
            return True  # it listens, and more connections wait than the kernel keeps
        except (OSError, PeerRefusedError):
            return False
        sock.close()
        return True

    def remove(self) -> None:
        """Remove the socket: no process listens any more."""
        for path in {socket_place(str(self.path)), str(self.path)}:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def _listens_at(self) -> str:
        """Where the socket is: in the run's directory or, if its path is too long, in the one place that a link may lead to.

        Raises:
            ConnectionRefusedError: A link leads elsewhere, perhaps to the socket of another run or another service.
        """
        if not self.path.is_symlink():
            return str(self.path)
        place, found = socket_place(str(self.path)), os.readlink(self.path)
        if found != place:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "the hub does not listen there", found)
        return place
