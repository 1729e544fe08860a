"""The door of the hub: who comes in from outside, and what is done when there is no room or somebody does not say who he is."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import Final

from bartack.runtime.hub.connection import Connection
from bartack.runtime.hub.machine import check_room
from bartack.runtime.hub.poller import READ, Poller
from bartack.supervision import files_limit

PAUSE_S: Final = 1.0
"""How long the door stays shut when nobody can be let in: the listener would be ready all the time."""
HELLO_S: Final = 10.0
"""How long a stranger may take to say hello."""


class Door:
    """A listening socket in the loop of the hub.

    Args:
        listener: The socket.
        poller: The loop.
        admit: Gets each connection.
    """

    def __init__(
        self,
        listener: socket.socket,
        poller: Poller,
        admit: Callable[[socket.socket], object],
    ) -> None:
        self._listener = listener
        self._poller = poller
        self._admit = admit
        self._shut = False
        self._open_at = 0.0
        poller.register(listener, READ, self.ready)

    def ready(self, events: int) -> None:
        """Somebody is at the door."""
        try:
            sock, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return  # he has left again
        except OSError:
            self._poller.unregister(self._listener)
            self._shut = True
            self._open_at = 0.0
            return
        try:
            check_room(sock.fileno(), files_limit())
        except OSError:
            sock.close()  # the hub needs what is left for its own files
            return
        self._admit(sock)

    def look(self, now: float) -> None:
        """Time has passed: open the door again, if it was shut for long enough."""
        if not self._shut:
            return
        self._open_at = self._open_at or now + PAUSE_S
        if now >= self._open_at:
            self._shut = False
            self._poller.register(self._listener, READ, self.ready)

    def close(self) -> None:
        """Let nobody in any more."""
        if not self._shut:
            self._poller.unregister(self._listener)
        self._listener.close()


def silent(connections: Iterable[Connection], now: float) -> list[Connection]:
    """The connections of strangers that had their time to say hello."""
    return [
        connection
        for connection in connections
        if connection.worker is None and not connection.greeted and now - connection.opened_at >= HELLO_S
    ]
