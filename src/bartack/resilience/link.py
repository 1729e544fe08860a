"""The way to the daemon: where it listens, whether it is there, and how to notify it.

Nothing here starts a process. A notification only saves time: the daemon finds what is durable sooner or later anyway.
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Final

from bartack.core.sockets import is_own_socket
from bartack.core.user_home import user_home
from bartack.resilience._store import StateStore
from bartack.resilience.mirror import parse_object
from bartack.resilience.spool import Header

PING: Final = "ping"
WAKE: Final = "wake"
FRAME_MOST: Final = 16 * 1024 * 1024


def register_outbox(directory: str | os.PathLike[str], home: str | os.PathLike[str] | None = None) -> None:
    """Remember a state home for the daemon, so that it drains it also if it was not running when something was kept there.

    Raises:
        StoreUnavailableError: The user's state home cannot be written.
    """
    path = os.path.realpath(directory)
    with StateStore(home if home is not None else user_home()) as store:
        wall = store.wall()
        store.write(
            lambda connection: connection.execute("INSERT OR REPLACE INTO outboxes VALUES(?,?)", (path, wall))
        )


class DaemonLink:
    """The daemon of one user, as others see it."""

    def __init__(self, home: str | os.PathLike[str] | None = None) -> None:
        self.home = Path(home) if home is not None else user_home()

    @property
    def socket_path(self) -> Path:
        """Where the socket is, or a symbolic link to it."""
        return self.home / "daemon.sock"

    def send(
        self, header: Header, body: bytes = b"", *, connect_s: float = 0.05, answer_s: float = 0.1
    ) -> str:
        """Send one frame and return the answer line.

        Raises:
            OSError: No daemon of this user listens, or none answers in time.
        """
        place = os.path.realpath(self.socket_path)
        if not is_own_socket(place):
            raise ConnectionRefusedError(f"{place} is not a socket of this user alone")
        frame = header.encode() + b"\n" + body
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(connect_s)
            client.connect(place)
            client.settimeout(answer_s)
            client.sendall(len(frame).to_bytes(4, "big") + frame)
            answer = b""
            while not answer.endswith(b"\n"):
                more = client.recv(4096)
                if not more:
                    raise ConnectionResetError("the daemon closed the connection without an answer")
                answer += more
        return answer.decode("ascii", "replace").strip()

    def ask(self, event: str, directory: str | os.PathLike[str] = "/", *, answer_s: float = 1.0) -> str:
        """Send a frame without a body; the answer line, empty if there is none."""
        try:
            return self.send(Header(event, time.time_ns(), os.fspath(directory)), answer_s=answer_s)
        except OSError:
            return ""

    def is_running(self) -> bool:
        """Whether the daemon answers."""
        return self.ask(PING) == "ok pong"

    def notify(self, directory: str | os.PathLike[str]) -> bool:
        """Notify the daemon that something waits in this state home; whether it answered."""
        return self.ask(WAKE, directory, answer_s=0.1).startswith("ok")

    def facts(self) -> dict[str, object]:
        """What the daemon wrote about itself when it started; empty if it never did."""
        try:
            return parse_object((self.home / "daemon.json").read_bytes()) or {}
        except OSError:
            return {}
