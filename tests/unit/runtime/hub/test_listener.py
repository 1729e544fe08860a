"""Who comes in from outside."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack

import pytest

from bartack.runtime.hub.connection import Connection
from bartack.runtime.hub.listener import HELLO_S, Door, silent
from bartack.runtime.hub.poller import READ, Call, HasFileno


class FullHouse(socket.socket):
    """A listener of a process that has no descriptor left."""

    full = True

    def accept(self) -> tuple[socket.socket, object]:
        if self.full:
            raise OSError(errno.EMFILE, "too many open files")
        return socket.socket(socket.AF_UNIX), ""


class Loop:
    """Keeps whom somebody waits for."""

    def __init__(self) -> None:
        self.waiting: list[int | HasFileno] = []

    def register(self, what: int | HasFileno, events: int, call: Call) -> None:
        self.waiting.append(what)

    def modify(self, what: int | HasFileno, events: int) -> None:
        raise AssertionError("a door has no use for that")

    def unregister(self, what: int | HasFileno) -> None:
        self.waiting.remove(what)

    def wait(self, timeout_s: float) -> list[tuple[Call, int]]:
        raise AssertionError("a door has no use for that")

    def close(self) -> None:
        raise AssertionError("a door has no use for that")


@pytest.fixture
def loop() -> Loop:
    return Loop()


def test_a_door_that_nobody_can_be_let_in_by_is_shut_for_a_while(loop: Loop) -> None:
    admitted: list[socket.socket] = []
    listener = FullHouse(socket.AF_UNIX)
    door = Door(listener, loop, admitted.append)

    door.ready(READ)
    assert not loop.waiting
    door.look(100.0)
    door.look(100.5)
    assert not loop.waiting
    door.look(101.0)
    assert loop.waiting == [listener]

    listener.full = False
    door.ready(READ)
    assert len(admitted) == 1
    admitted[0].close()
    door.close()


def test_a_shut_door_can_be_closed(loop: Loop) -> None:
    listener = FullHouse(socket.AF_UNIX)
    door = Door(listener, loop, lambda sock: None)
    door.ready(READ)

    door.close()

    assert listener.fileno() == -1


def test_a_stranger_who_says_nothing_has_had_his_time() -> None:
    with ExitStack() as stack:
        ends = [stack.enter_context(end) for _ in range(3) for end in socket.socketpair()]
        stranger, polite = Connection(1, ends[0]), Connection(2, ends[2])
        worker = Connection(3, ends[4], ("main", 1))
        polite.greeted = True
        now = max(connection.opened_at for connection in (stranger, polite, worker))

        assert silent([stranger, polite, worker], now + HELLO_S - 1) == []
        assert silent([stranger, polite, worker], now + HELLO_S) == [stranger]
