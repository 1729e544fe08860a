"""Accepting connections from outside."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack

import pytest

from bartack.runtime.hub.connection import Connection
from bartack.runtime.hub.listener import HELLO_S, Listener, silent
from bartack.runtime.hub.poller import READ, Call, HasFileno


class FullHouse(socket.socket):
    """A socket of a process that has no descriptor left."""

    full = True

    def accept(self) -> tuple[socket.socket, object]:
        if self.full:
            raise OSError(errno.EMFILE, "too many open files")
        return socket.socket(socket.AF_UNIX), ""


class Loop:
    """Keeps what is waited for."""

    def __init__(self) -> None:
        self.waiting: list[int | HasFileno] = []

    def register(self, what: int | HasFileno, events: int, call: Call) -> None:
        self.waiting.append(what)

    def modify(self, what: int | HasFileno, events: int) -> None:
        raise AssertionError("a listener has no use for that")

    def unregister(self, what: int | HasFileno) -> None:
        self.waiting.remove(what)

    def wait(self, timeout_s: float) -> list[tuple[Call, int]]:
        raise AssertionError("a listener has no use for that")

    def close(self) -> None:
        raise AssertionError("a listener has no use for that")


@pytest.fixture
def loop() -> Loop:
    return Loop()


def test_a_listener_that_can_accept_no_connection_pauses(loop: Loop) -> None:
    admitted: list[socket.socket] = []
    sock = FullHouse(socket.AF_UNIX)
    listener = Listener(sock, loop, admitted.append)

    listener.ready(READ)
    assert not loop.waiting
    listener.look(100.0)
    listener.look(100.5)
    assert not loop.waiting
    listener.look(101.0)
    assert loop.waiting == [sock]

    sock.full = False
    listener.ready(READ)
    assert len(admitted) == 1
    admitted[0].close()
    listener.close()


def test_a_listener_that_pauses_can_be_closed(loop: Loop) -> None:
    sock = FullHouse(socket.AF_UNIX)
    listener = Listener(sock, loop, lambda found: None)
    listener.ready(READ)

    listener.close()

    assert sock.fileno() == -1


def test_a_process_that_sends_no_hello_is_found_after_its_time() -> None:
    with ExitStack() as stack:
        ends = [stack.enter_context(end) for _ in range(3) for end in socket.socketpair()]
        stranger, polite = Connection(1, ends[0]), Connection(2, ends[2])
        worker = Connection(3, ends[4], ("main", 1))
        polite.greeted = True
        now = max(connection.opened_at for connection in (stranger, polite, worker))

        assert silent([stranger, polite, worker], now + HELLO_S - 1) == []
        assert silent([stranger, polite, worker], now + HELLO_S) == [stranger]
