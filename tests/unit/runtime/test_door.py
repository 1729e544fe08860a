"""Who comes in from outside."""

from __future__ import annotations

import errno
import selectors
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from bartack.runtime._door import HELLO_S, Door, silent
from bartack.runtime._wire import Connection


class FullHouse(socket.socket):
    """A listener of a process that has no descriptor left."""

    full = True

    def accept(self) -> tuple[socket.socket, object]:
        if self.full:
            raise OSError(errno.EMFILE, "too many open files")
        return socket.socket(socket.AF_UNIX), ""


@pytest.fixture
def selector() -> Iterator[selectors.BaseSelector]:
    with selectors.DefaultSelector() as made:
        yield made


def test_a_door_that_nobody_can_be_let_in_by_is_shut_for_a_while(selector: selectors.BaseSelector) -> None:
    admitted: list[socket.socket] = []
    listener = FullHouse(socket.AF_UNIX)
    door = Door(listener, selector, admitted.append)

    door.ready(selectors.EVENT_READ)
    assert not selector.get_map()
    door.look(100.0)
    door.look(100.5)
    assert not selector.get_map()
    door.look(101.0)
    assert list(selector.get_map()) == [listener.fileno()]

    listener.full = False
    door.ready(selectors.EVENT_READ)
    assert len(admitted) == 1
    admitted[0].close()
    door.close()


def test_a_shut_door_can_be_closed(selector: selectors.BaseSelector) -> None:
    listener = FullHouse(socket.AF_UNIX)
    door = Door(listener, selector, lambda sock: None)
    door.ready(selectors.EVENT_READ)

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
