"""The bridges of agents to the tools of their steps: tokens, and one byte stream for each.

A bridge (``agents/mcp/_bridge.py``) connects to the socket of the hub like any other process and presents its token. From
then on its connection is not one of ``hub/connections.py``: it carries no frames, so it can ask for nothing, and every byte goes to
the owner of the token.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bartack.core.sockets import socket_place
from bartack.runtime.hub.poller import READ, WRITE, Poller
from bartack.runtime.protocol import frames as f

READ_SIZE: Final = 64 * 1024
HIGH_WATER: Final = 4 * 1024 * 1024
"""While more than this waits to be sent, nothing is read from the bridge."""


class Bridges:
    """The bridges that are expected or connected.

    Args:
        poller: The loop of the hub.
        place: The path of the hub's socket, however long.
    """

    def __init__(self, poller: Poller, place: str) -> None:
        self._poller = poller
        self._place = place
        self._bridges: dict[str, HubBridge] = {}

    def open(self, on_bytes: Callable[[bytes], None], on_closed: Callable[[], None]) -> HubBridge:
        """Expect one connection; see ``bartack.agents.bridge.BridgeHost.open_bridge``."""
        token = secrets.token_hex(32)
        bridge = HubBridge(self._poller, socket_place(self._place), token, on_bytes, on_closed, self._forget)
        self._bridges[token] = bridge
        return bridge

    def accept(self, token: str, sock: socket.socket) -> bool:
        """Hand a connection to the owner of its token; ``False`` if it has none, or one that is used or over."""
        # All are compared, so that the time that it takes shows nothing.
        found = [bridge for known, bridge in self._bridges.items() if hmac.compare_digest(known, token)]
        return bool(found) and found[0].connect(sock)

    def close(self) -> None:
        """The run is over."""
        for bridge in list(self._bridges.values()):
            bridge.close()

    def _forget(self, token: str) -> None:
        self._bridges.pop(token, None)


class HubBridge:
    """One token, and the byte stream of its only connection; see ``bartack.agents.bridge.Bridge``."""

    def __init__(
        self,
        poller: Poller,
        place: str,
        token: str,
        on_bytes: Callable[[bytes], None],
        on_closed: Callable[[], None],
        forget: Callable[[str], None],
    ) -> None:
        self._poller = poller
        self._place, self._token = place, token
        self._on_bytes, self._on_closed = on_bytes, on_closed
        self._forget = forget
        self._sock: socket.socket | None = None
        self._used = False
        self._events = READ
        self._waiting: deque[memoryview] = deque()
        self._waiting_bytes = 0

    @property
    def argv(self) -> Sequence[str]:
        """See ``Bridge.argv``."""
        from bartack.agents.bridge import bridge_argv  # noqa: PLC0415 - a hub starts faster without it

        return bridge_argv(self._place)

    @property
    def env(self) -> Mapping[str, str]:
        """See ``Bridge.env``."""
        from bartack.agents.bridge import TOKEN_VARIABLE  # noqa: PLC0415 - likewise

        return {TOKEN_VARIABLE: self._token}

    def connect(self, sock: socket.socket) -> bool:
        """Take the connection over; ``False`` if there was one before."""
        if self._used:
            return False
        self._used = True
        self._sock = sock
        self._poller.register(sock, READ, self._ready)
        self.send(f.encode(f.Answer(i=0)))
        return True

    def send(self, data: bytes) -> None:
        """See ``Bridge.send``."""
        if self._sock is not None and data:
            self._waiting.append(memoryview(data))
            self._waiting_bytes += len(data)
            self._write()
            self._watch()

    def close(self) -> None:
        """See ``Bridge.close``; what the socket takes at once is sent before."""
        self._used = True
        self._forget(self._token)
        self._hang_up()

    # Inside.

    def _ready(self, events: int) -> None:
        if events & WRITE:
            self._write()
        if events & READ:
            self._read()
        self._watch()

    def _read(self) -> None:
        if self._sock is None:
            return
        try:
            data = self._sock.recv(READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if data:
            self._on_bytes(data)
        else:
            self._lose()

    def _write(self) -> None:
        while self._sock is not None and self._waiting:
            head = self._waiting[0]
            try:
                sent = self._sock.send(head)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self._waiting.clear()  # reading reports the loss
                self._waiting_bytes = 0
                return
            self._waiting_bytes -= sent
            if sent < len(head):
                self._waiting[0] = head[sent:]
            else:
                self._waiting.popleft()

    def _watch(self) -> None:
        if self._sock is None:
            return
        events = READ if self._waiting_bytes < HIGH_WATER else 0
        events |= WRITE if self._waiting else 0
        if events != self._events:
            self._events = events
            self._poller.modify(self._sock, events)

    def _lose(self) -> None:
        self._hang_up()
        self._on_closed()

    def _hang_up(self) -> None:
        sock, self._sock = self._sock, None
        self._waiting.clear()
        self._waiting_bytes = 0
        if sock is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._poller.unregister(sock)
            sock.close()
