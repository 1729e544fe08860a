"""The connections of a hub: workers and processes outside, from their first frame to their last.

Frames that arrive go to the core at once, in the order in which they were sent. Frames that leave are those of committed turns; a
connection that cannot take them is written to when the poller reports that it can.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from bartack.errors import FrameError
from bartack.runtime.hub.admission import Gatekeeper
from bartack.runtime.hub.agents.bridges import Bridges
from bartack.runtime.hub.connection import Connection
from bartack.runtime.hub.listener import silent
from bartack.runtime.hub.parents import Parents
from bartack.runtime.hub.poller import READ, WRITE, Poller
from bartack.runtime.kernel.actions import CloseConnection, SendFrames, SendHistory
from bartack.runtime.kernel.core import Core
from bartack.runtime.protocol import frames as f

STUCK_S: Final = 30.0
"""How long a process outside is waited for that sends requests and does not read the answers."""


class Connections:
    """All open connections, by their number.

    Args:
        core: Called with the frames that arrive.
        poller: Where connections are waited for.
        gate: Decides which processes outside may connect.
        parents: The programs that the run's own processes descend from.
        history_for: The frames of a welcome, made as they are sent.
        bridges: Takes over the connections of bridges.
        now: Seconds that count for a process that does not read, or sends no hello.
    """

    def __init__(
        self,
        core: Core,
        poller: Poller,
        gate: Gatekeeper,
        parents: Parents,
        history_for: Callable[[SendHistory], Iterator[bytes]],
        bridges: Bridges | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now = now
        self._core, self._poller = core, poller
        self._gate, self._parents = gate, parents
        self._history_for = history_for
        self._bridges = bridges
        self._open: dict[int, Connection] = {}
        self._numbers = 0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def has_visitors(self) -> bool:
        """Whether a process that is not a worker is connected."""
        return any(connection.worker is None for connection in self._open.values())

    def add(self, sock: socket.socket, worker: tuple[str, int] | None = None) -> Connection:
        """A process connected; ``worker``: the path and incarnation of the worker that was started with this socket."""
        self._numbers += 1
        connection = Connection(self._numbers, sock, worker, self._now)
        self._open[connection.number] = connection
        self._poller.register(sock, READ, partial(self._ready, connection))
        return connection

    def drop_stuck(self, now: float) -> None:
        """Drop processes outside that send no hello, or do not read their answers."""
        for connection in silent(self._open.values(), now):
            self._drop(connection)
        for connection in list(self._open.values()):
            since = connection.stuck_since
            if connection.worker is None and since is not None and now - since >= STUCK_S:
                self._drop(connection)

    def close(self) -> None:
        """Close all, after sending what their sockets take at once."""
        for connection in self._open.values():
            connection.flush()
            connection.close()

    # Actions.

    def send(self, action: SendFrames) -> None:
        """Perform ``SendFrames``."""
        connection = self._open.get(action.peer)
        if connection is not None and not connection.send(action.data, urgent=action.urgent):
            self._watch(connection)

    def send_history(self, action: SendHistory) -> None:
        """Perform ``SendHistory``."""
        connection = self._open.get(action.peer)
        if connection is not None:
            connection.stream(self._history_for(action))
            self._watch(connection)

    def close_one(self, action: CloseConnection) -> None:
        """Perform ``CloseConnection``."""
        connection = self._open.get(action.peer)
        if connection is not None:
            connection.closing = True
            self._watch(connection)

    # Inside.

    def _ready(self, connection: Connection, events: int) -> None:
        if events & WRITE and not connection.flush():
            self._drop(connection)
            return
        if events & READ:
            try:
                bodies = connection.receive()
                if bodies is None:
                    self._drop(connection)
                    return
                for body in bodies:
                    frame = f.decode_to_hub(body)
                    if type(frame) is f.Hello:
                        if frame.role == f.BRIDGE:
                            self._cross(connection, frame)
                            return
                        self._hello(connection, frame)
                    else:
                        self._core.frame(connection.number, frame)
            except FrameError:
                self._drop(connection)
        if not connection.at_rest:
            self._watch(connection)

    def _hello(self, connection: Connection, frame: f.Hello) -> None:
        if connection.number not in self._open:
            return  # dropped for an earlier frame of the same read
        claimed = (frame.path, frame.incarnation) if frame.role == "worker" else None
        if connection.greeted or claimed != connection.worker:
            # Only the process that was started for a worker is that worker, and a process sends one hello.
            self._drop(connection)
            return
        connection.greeted = True
        peer = self._gate.admit(connection, frame, self._parents.pids) if claimed is None else None
        if self._core.connect(connection.number, frame, peer) is None:
            self._drop(connection)

    def _cross(self, connection: Connection, frame: f.Hello) -> None:
        """A bridge shows its token: its owner gets the connection, which is none of ours from then on."""
        if connection.worker is not None or connection.greeted or self._bridges is None:
            self._drop(connection)
            return
        if not self._gate.is_ours(connection, frame):
            self._drop(connection)
            return
        del self._open[connection.number]
        self._poller.unregister(connection.sock)
        if not self._bridges.accept(frame.token, connection.sock):
            connection.close()

    def _drop(self, connection: Connection) -> None:
        if self._open.pop(connection.number, None) is None:
            return
        self._core.lost(connection.number)
        with contextlib.suppress(KeyError, ValueError):
            self._poller.unregister(connection.sock)
        connection.close()

    def _watch(self, connection: Connection) -> None:
        if connection.number not in self._open:
            return
        if connection.closing and not connection.wants_write:
            self._drop(connection)
            return
        events = READ if connection.wants_read else WRITE
        if connection.wants_write:
            events |= WRITE
        if connection.events != events:
            connection.events = events
            self._poller.modify(connection.sock, events)
