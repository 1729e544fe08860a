"""Hubs that are forked from a process which has imported everything already: the client of ``_fork_server.py``.

A server that was killed, that has ended or that does not answer is replaced. Whatever is wrong with it, the hub is started as a new
interpreter instead, and so it is where the system lacks what the server needs.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final

from bartack.core.closing import Closing
from bartack.node._fork_wire import PID, encode_order
from bartack.runtime.client.start_hub import HubOrder, HubProcess, spawn_interpreter
from bartack.supervision.process.system import open_pidfd

MODULE: Final = "bartack.node._fork_server"
ROOM: Final = 4096
"""Bytes that a hub has for the words that other programs see as its command."""
ANSWER_S: Final = 15.0
"""How long the server may take to answer: it may have just been started, on a machine that is busy."""
END_S: Final = 2.0
AGAIN_S: Final = 60.0
"""How long to do without a server after one has failed."""
SHAPING: Final = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "LC_", "LANG")
"""What the names of variables begin with that an interpreter reads when it starts. A hub that has others needs one of its own."""


class WarmHubs(Closing):
    """Starts hubs: see ``Spawn``, and the module.

    Args:
        environ: The environment of the server.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)
        self._server: _Server | None = None
        self._not_before = 0.0

    def __call__(self, order: HubOrder, log: int, report: int) -> HubProcess:
        """Start a hub."""
        if self._is_fit(order):
            pid = self._fork(order, log, report)
            if pid:
                return _ForkedHub(pid)
        return spawn_interpreter(order, log, report)

    def close(self) -> None:
        """End the server. Its hubs continue."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _is_fit(self, order: HubOrder) -> bool:
        if not hasattr(os, "memfd_create") or not hasattr(os, "pidfd_open"):
            return False
        return _shape(order.environ) == _shape(self._environ)

    def _fork(self, order: HubOrder, log: int, report: int) -> int:
        """The process of a hub that was forked, and has begun; 0 if none was."""
        if self._server is not None and self._server.has_ended():
            self.close()
        if self._server is None:
            if time.monotonic() < self._not_before:
                return 0
            try:
                self._server = _Server(self._environ)
            except OSError:
                return 0
        try:
            return self._server.fork(order, log, report)
        except OSError:
            if not self._server.has_forked:
                self._not_before = time.monotonic() + AGAIN_S
            self.close()
            return 0


class _Server:
    """A server that runs.

    Attributes:
        has_forked: It has started a hub.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.has_forked = False
        self._socket, theirs = socket.socketpair()
        with ExitStack() as on_failure, theirs:
            on_failure.callback(self._socket.close)
            self._process = (
                subprocess.Popen(  # bartack: allow[unsupervised_process] it ends when its socket does  # noqa: S603 - our own interpreter and module
                    [sys.executable, "-P", "-s", "-m", MODULE, str(theirs.fileno()), " " * ROOM],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                    cwd="/",
                    env=environ,
                    pass_fds=(theirs.fileno(),),
                )
            )
            on_failure.pop_all()

    def has_ended(self) -> bool:
        """Whether its process has ended."""
        return self._process.poll() is not None

    def fork(self, order: HubOrder, log: int, report: int) -> int:
        """Let it fork a hub, and let the hub begin.

        Raises:
            OSError: It has not, and no hub is left.
        """
        go, start = os.pipe()
        try:
            with open(os.memfd_create("order"), "wb") as file:
                file.write(encode_order(order))
                file.flush()
                socket.send_fds(
                    self._socket, [order.module.encode("ascii")], [file.fileno(), log, report, go]
                )
            ready, _, _ = select.select([self._socket], [], [], ANSWER_S)
            answer = self._socket.recv(PID.size) if ready else b""
            if len(answer) != PID.size:
                raise TimeoutError
            os.write(start, b"g")
        finally:
            os.close(go)
            os.close(start)
        self.has_forked = True
        (pid,) = PID.unpack(answer)
        return int(pid)

    def close(self) -> None:
        """End it."""
        self._socket.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()  # bartack: allow[wait_without_deadline] it was killed


class _ForkedHub:
    """See ``HubProcess``; the server collects its end."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._fd = open_pidfd(pid)

    def is_gone(self) -> bool:
        """See ``HubProcess.is_gone``."""
        return self._fd is None or bool(select.select([self._fd], [], [], 0)[0])

    def wait_end(self, timeout_s: float) -> None:
        """See ``HubProcess.wait_end``."""
        if self._fd is not None:
            select.select([self._fd], [], [], timeout_s)
        self.release()

    def release(self) -> None:
        """See ``HubProcess.release``."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _shape(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name.startswith(SHAPING)}
