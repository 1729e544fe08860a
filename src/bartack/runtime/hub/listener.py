"""The listening socket of the hub: accepts processes from outside, and pauses when the hub has no descriptors left.

What an accepted process may ask for is decided in ``admission.py``; its connection is one of ``connections.py``.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import Final

from bartack.runtime.hub.connection import Connection
from bartack.runtime.hub.machine import check_room
from bartack.runtime.hub.poller import READ, Poller
from bartack.supervision.process.limits import files_limit

PAUSE_S: Final = 1.0
"""How long no connection is accepted after one could not be: the socket would be ready all the time."""
HELLO_S: Final = 10.0
"""How long a process outside may take to send its hello."""


class Listener:
    """A listening socket in the loop of the hub.

    Args:
        sock: The socket.
        poller: The loop.
        admit: Called with each connection.
    """

    def __init__(
        self,
        sock: socket.socket,
        poller: Poller,
        admit: Callable[[socket.socket], object],
    ) -> None:
        self._sock = sock
        self._poller = poller
        self._admit = admit
        self._paused = False
        self._resume_at = 0.0
        poller.register(sock, READ, self.ready)

    def ready(self, events: int) -> None:
        """Accept a connection."""
        try:
            sock, _ = self._sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return  # the process has left again
        except OSError:
            self._poller.unregister(self._sock)
            self._paused = True
            self._resume_at = 0.0
            return
        try:
            check_room(sock.fileno(), files_limit())
        except OSError:
            sock.close()  # the hub needs what is left for its own files
            return
        self._admit(sock)

    def look(self, now: float) -> None:
        """Time has passed: accept again, after a pause."""
        if not self._paused:
            return
        self._resume_at = self._resume_at or now + PAUSE_S
        if now >= self._resume_at:
            self._paused = False
            self._poller.register(self._sock, READ, self.ready)

    def close(self) -> None:
        """Accept no more connections."""
        if not self._paused:
            self._poller.unregister(self._sock)
        self._sock.close()


def silent(connections: Iterable[Connection], now: float) -> list[Connection]:
    """The connections of processes outside that did not send a hello in time."""
    return [
        connection
        for connection in connections
        if connection.worker is None and not connection.greeted and now - connection.opened_at >= HELLO_S
    ]
