"""Connects to the hub of a run, and finds out whether its process is stopped (Ctrl-Z, SIGSTOP, a debugger).

A stopped hub accepts connections, because the kernel does that, and answers nothing. So a client checks the hub's process before
its first request, and again whenever an answer does not come within the setting ``hub_join``.
"""

from __future__ import annotations

import select
import socket
import struct
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import msgspec

from bartack.config.timeouts import default_limit
from bartack.core import typed
from bartack.depot import KeptRun
from bartack.errors import (
    DeadlineExceededError,
    HubStoppedError,
    JournalLockedError,
    RunNotActiveError,
)
from bartack.runtime.rundir.layout import RunDir
from bartack.supervision.process.system import read_facts

LOOK_S: Final = 0.05
"""How often to look whether a stopped hub continues; the system does not report it."""

_STOPPED: Final = frozenset("Tt")
_OVER: Final = frozenset({"completed", "cancelled", "aborted"})
_CREDENTIALS: Final = struct.Struct("3i")
_MAC_LEVEL: Final = 0
_MAC_PEER_PID: Final = 2


def join_limit_s() -> float:
    """How long a hub may take to answer before its process is checked."""
    return default_limit("hub_join")


def is_stopped(pid: int) -> bool:
    """Whether a process exists and is stopped."""
    facts = read_facts(pid) if pid else None
    return facts is not None and facts.state in _STOPPED


def peer_pid(sock: socket.socket) -> int:
    """The process at the other end of a connection; 0 if the system does not report it."""
    try:
        if sys.platform == "darwin":
            return sock.getsockopt(_MAC_LEVEL, _MAC_PEER_PID)
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except (OSError, AttributeError):
        return 0
    return int(_CREDENTIALS.unpack(raw)[0])


def open_connection(run: RunDir) -> socket.socket:
    """Connect to the hub of a run that runs, or continues within ``hub_join``.

    Raises:
        RunNotActiveError: No process runs it.
        HubStoppedError: Its process is stopped; nothing was asked of it.
        DeadlineExceededError: Its process does not accept connections.
    """
    limit_s = join_limit_s()
    until = time.monotonic() + limit_s
    while (sock := _connect(run, limit_s)) is None:
        if time.monotonic() >= until:
            check_continues(run, run.owner_pid(), 0.0)
            raise DeadlineExceededError("hub_join", limit_s, "the setting hub_join")
        select.select([], [], [], LOOK_S)
    try:
        check_continues(run, peer_pid(sock), until - time.monotonic())
    except BaseException:
        sock.close()
        raise
    return sock


def _connect(run: RunDir, limit_s: float) -> socket.socket | None:
    """A connection; ``None`` if the hub listens, and more connections wait than the kernel keeps."""
    try:
        return run.socket.connect(limit_s)
    except (BlockingIOError, TimeoutError):
        return None
    except OSError:
        raise RunNotActiveError(run.id, _ended_as(run) or "no process runs it") from None


def _ended_as(run: KeptRun) -> str:
    """How a run has ended for good, by its summary; empty if it has not."""
    try:
        status = typed.decode(run.summary() or b"", type=_Status).status
    except msgspec.DecodeError:
        return ""
    return status if status in _OVER else ""


class _Status(msgspec.Struct):
    status: str = ""


def check_continues(run: KeptRun, pid: int, wait_s: float, asked: str = "") -> None:
    """Return when a process runs; raise if it is still stopped after ``wait_s`` seconds.

    Args:
        run: The run.
        pid: The process that runs it.
        wait_s: How long to wait.
        asked: What the process was asked before it was stopped.

    Raises:
        HubStoppedError: It is.
    """
    until = time.monotonic() + wait_s
    while is_stopped(pid):
        if time.monotonic() >= until:
            raise HubStoppedError(run.id, pid, asked)
        select.select([], [], [], LOOK_S)


@contextmanager
def naming_stopped_owner(run: KeptRun) -> Generator[None]:
    """Report that the process that owns a journal is stopped, where that is why it cannot be owned.

    Raises:
        HubStoppedError: It is.
    """
    try:
        yield
    except JournalLockedError as error:
        if error.pid and is_stopped(error.pid):
            raise HubStoppedError(run.id, error.pid) from error
        raise
