"""The work of all contestants: record that one step of a worker has finished, with a small outcome.

And the floor under it: what any program has to pay for the same promise.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Generator
from contextlib import contextmanager
from time import perf_counter
from typing import Final

from bench._disk import sync

KIND: Final = "step.finished"
APPENDERS: Final = 64
"""How many work at once in the concurrent race."""

_KEY: Final = "ik:" + "0123456789abcdef" * 4


def outcome(number: int) -> dict[str, object]:
    """What a step gave."""
    return {"exit": 0, "stdout": f"built target {number:08d} of the project in 0.25 s", "warnings": []}


def entry_data(number: int) -> dict[str, object]:
    """What is kept of a step: whose it is, which one, its key and its outcome."""
    return {"worker": "main", "step": number, "key": _KEY, "outcome": outcome(number)}


def write_and_sync(directory: str, data: bytes, count: int) -> float:
    """Writes per second to the end of a file, each synced before the next."""
    with appending(directory) as fd:
        began = perf_counter()
        for _ in range(count):
            os.write(fd, data)
            sync(fd)
        return count / (perf_counter() - began)


@contextmanager
def appending(directory: str) -> Generator[int]:
    """A file of the floor, open to be written at its end."""
    fd = os.open(os.path.join(directory, "floor"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


def write_for_others(directory: str, data: bytes, processes: int, count: int) -> float:
    """Writes per second that one process does for others, each of which waits until what it said is synced.

    What any program has to pay that keeps its history in one process and its work in others.
    """
    clients = dict(_start_client(data, count) for _ in range(processes))
    poll = select.epoll()
    for connection, _ in clients.values():
        poll.register(connection, select.EPOLLIN)
    try:
        with appending(directory) as fd:
            began = perf_counter()
            for connection, _ in clients.values():
                connection.send(b"go")
            _serve(poll, {number: connection for number, (connection, _) in clients.items()}, fd, len(data))
            return processes * count / (perf_counter() - began)
    finally:
        poll.close()
        for connection, pid in clients.values():
            connection.close()
            os.waitpid(pid, 0)


def _serve(poll: select.epoll, connections: dict[int, socket.socket], fd: int, size: int) -> None:
    """Read the lines of all processes that are ready, write and sync them once, and answer, until all have ended."""
    left = len(connections)
    while left:
        said: list[int] = []
        pieces: list[bytes] = []
        for number, _ in poll.poll():
            piece = connections[number].recv(size)
            if piece:
                said.append(number)
                pieces.append(piece)
            else:
                poll.unregister(number)
                left -= 1
        if pieces:
            os.write(fd, b"".join(pieces))
            sync(fd)
        for number in said:
            connections[number].send(b"ok")


def _start_client(data: bytes, count: int) -> tuple[int, tuple[socket.socket, int]]:
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid:
        theirs.close()
        return ours.fileno(), (ours, pid)
    try:
        ours.close()
        theirs.recv(2)
        for _ in range(count):
            theirs.send(data)
            theirs.recv(2)
    finally:
        os._exit(0)
