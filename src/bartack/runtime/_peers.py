"""Who a foreign process is: outside the run, a command of it, or something else inside it.

Told by the kernel (the peer's credentials) and by ancestry, before hello is answered. This keeps an agent from answering its own
questions by accident or on purpose; it is no boundary between processes of one user.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from typing import Final

from bartack.runtime._foreign import NO_RIGHTS, STEP_RIGHTS
from bartack.runtime._frames import PROTOCOL, Hello
from bartack.runtime._ledger import FOREIGN, Peer
from bartack.runtime._wire import Connection
from bartack.supervision import read_facts

_CREDENTIALS: Final = struct.Struct("3i")


class Gatekeeper:
    """Decides what a process that says hello may ask for."""

    def __init__(self, step_of: Callable[[str], str | None]) -> None:
        self._step_of = step_of

    def admit(self, connection: Connection, hello: Hello, parents: set[int]) -> Peer | None:
        """The peer, with its rights; ``None`` if it is another user's, or speaks another protocol."""
        pid, uid = _credentials(connection.sock)
        if uid != os.getuid() or hello.proto != PROTOCOL:
            return None
        facts = read_facts(pid) if pid else None
        started = f"@{facts.started}" if facts is not None else ""
        peer = Peer(connection.number, name=f"{FOREIGN}{pid}{started}")
        if _is_below(pid, parents):
            peer.rights = STEP_RIGHTS if hello.token and self._step_of(hello.token) else NO_RIGHTS
        return peer


def _credentials(sock: socket.socket) -> tuple[int, int]:
    option: int | None = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        # The socket's directory and mode let in this user only; this system does not tell the process.
        return 0, os.getuid()
    pid, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    return pid, uid


def _is_below(pid: int, parents: set[int]) -> bool:
    seen: set[int] = set()
    while pid > 1 and pid not in seen:
        if pid in parents:
            return True
        seen.add(pid)
        facts = read_facts(pid)
        if facts is None:
            # It is gone, or hides: nothing is granted to what cannot be placed.
            return True
        pid = facts.ppid
    return False
