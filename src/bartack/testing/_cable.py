"""The way between a client and a server, for tests of what happens when it fails.

It knows nothing of what is said. A request is what the client sends next, and its answer what the server sends after that: that is
right for protocols in which client and server take turns, as with databases.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from typing import Final, Literal, Self, TypeAlias

Address: TypeAlias = tuple[str, int] | str
"""A host and its port, or the path of a Unix socket."""

When: TypeAlias = Literal["before", "after"]

_CHUNK: Final = 1 << 16


class Cable:
    """Passes connections on to a server until a test damages them: late, cut before or after a request, or silent.

    A context manager. Clients connect to ``address``, in this process or in others.

    Attributes:
        address: Where clients connect: a free port of the loopback interface, or the path that was given.
        cuts: How many connections were cut in the middle of a request.

    Args:
        server: Where the server is.
        listen: The path of a Unix socket to listen on, instead of a port.
    """

    def __init__(self, server: Address, listen: str = "") -> None:
        self.cuts = 0
        self._server = server
        self._path = listen
        self._listener = _listen(listen)
        name: Address = self._listener.getsockname()
        self.address: Address = listen or name
        self._delay_s = 0.0
        self._armed: When | None = None
        self._is_silent = False
        self._is_plugged = True
        self._ends = False
        self._changed = threading.Condition()
        self._open: set[_Connection] = set()

    @property
    def port(self) -> int:
        """The port of its address."""
        assert not isinstance(self.address, str), "it listens on a Unix socket"
        return self.address[1]

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *exc: object) -> None:
        with self._changed:
            self._ends = True
            self._changed.notify_all()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # ends the wait for a connection
        self._listener.close()
        self.cut()
        if self._path:
            os.unlink(self._path)

    # What a test does to it.

    def delay(self, seconds: float) -> None:
        """Pass everything on that much later, in both directions."""
        self._delay_s = seconds

    def cut(self) -> int:
        """Cut all connections, now. New ones can be made. Returns how many there were."""
        with self._changed:
            found = [*self._open]
        for connection in found:
            connection.cut()
        return len(found)

    def cut_next(self, when: When) -> None:
        """Cut the connection of the next request.

        Args:
            when: ``before`` it reaches the server, or ``after`` the server has answered it: the answer is lost.
        """
        with self._changed:
            self._armed = when

    @property
    def is_armed(self) -> bool:
        """Whether the request has not come yet whose connection ``cut_next`` is to cut."""
        return self._armed is not None

    def go_silent(self) -> None:
        """Pass nothing on. Connections stay open and can be made, as to a server that hangs."""
        with self._changed:
            self._is_silent = True

    def strand(self) -> None:
        """Pass nothing on of the connections that are open now, ever. New ones work, as after a failover."""
        with self._changed:
            for connection in self._open:
                connection.is_stranded = True

    def unplug(self) -> None:
        """Cut all connections and refuse new ones, as if no server were there."""
        with self._changed:
            self._is_plugged = False
        self.cut()

    def come_back(self) -> None:
        """Pass everything on again, and what was sent meanwhile."""
        with self._changed:
            self._is_silent, self._is_plugged = False, True
            self._changed.notify_all()

    # Inside.

    def _start(self, work: object, *values: object) -> None:
        assert callable(work)
        thread = threading.Thread(  # bartack: allow[unsupervised_thread] the end of the block ends its sockets, and so all threads
            target=work, args=values, name="bartack-cable", daemon=True
        )
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = _connect(self._server) if self._is_plugged else None
            except OSError:
                server = None
            if server is None:
                client.close()
                continue
            connection = _Connection(client, server)
            with self._changed:
                self._open.add(connection)
            self._start(self._pass_requests, connection)
            self._start(self._pass_answers, connection)

    def _pass_requests(self, connection: _Connection) -> None:
        while chunk := connection.receive(connection.client):
            match self._next_request(connection):
                case "before":
                    self._cut_off(connection)
                case "after":
                    connection.answer_is_lost = True
                case None:
                    pass
            connection.send(connection.server, chunk)
        self._close(connection)

    def _pass_answers(self, connection: _Connection) -> None:
        while chunk := connection.receive(connection.server):
            self._wait(connection)
            if connection.answer_is_lost:
                self._cut_off(connection)
            connection.send(connection.client, chunk)
        self._close(connection)

    def _next_request(self, connection: _Connection) -> When | None:
        """What becomes of a request that has come."""
        self._wait(connection)
        with self._changed:
            armed, self._armed = self._armed, None
        return armed

    def _wait(self, connection: _Connection) -> None:
        """Return when something can be passed on."""
        with self._changed:
            if self._delay_s:
                self._changed.wait_for(lambda: self._ends, self._delay_s)
            self._changed.wait_for(lambda: self._ends or not (self._is_silent or connection.is_stranded))

    def _cut_off(self, connection: _Connection) -> None:
        with self._changed:
            self.cuts += 1
        connection.cut()

    def _close(self, connection: _Connection) -> None:
        """The second thread that ends closes the descriptors: the first would give them to others while that still reads."""
        connection.cut()
        with self._changed:
            if connection.has_one_end:
                self._open.discard(connection)
                connection.close()
            connection.has_one_end = True


class _Connection:
    """A connection of a client, with the one to the server that belongs to it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.answer_is_lost = False
        self.is_stranded = False
        self.has_one_end = False

    @staticmethod
    def receive(side: socket.socket) -> bytes:
        """What comes next; nothing at the end."""
        try:
            return side.recv(_CHUNK)
        except OSError:
            return b""

    @staticmethod
    def send(side: socket.socket, chunk: bytes) -> None:
        """Send it, unless the connection was cut."""
        with suppress(OSError):
            side.sendall(chunk)

    def cut(self) -> None:
        """End it in both directions."""
        for side in (self.client, self.server):
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the descriptors back."""
        self.client.close()
        self.server.close()


def _listen(path: str) -> socket.socket:
    if not path:
        return socket.create_server(("127.0.0.1", 0))
    made = socket.socket(socket.AF_UNIX)
    made.bind(path)
    made.listen()
    return made


def _connect(address: Address) -> socket.socket:
    made = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
    try:
        made.connect(address)
    except BaseException:
        made.close()
        raise
    return made
