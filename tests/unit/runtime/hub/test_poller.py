"""Whoever is ready is called, by whichever means the system waits."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from bartack.runtime.hub.poller import READ, WRITE, Poller, _AnyPoller, open_poller


@pytest.fixture(params=[open_poller, _AnyPoller], ids=["the fastest", "the one of every system"])
def poller(request: pytest.FixtureRequest) -> Iterator[Poller]:
    made: Poller = request.param()
    yield made
    made.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        yield ours, theirs


Pair = tuple[socket.socket, socket.socket]


class Ear:
    """Keeps what it is called with."""

    def __init__(self) -> None:
        self.heard: list[int] = []

    def __call__(self, events: int) -> None:
        self.heard.append(events)


def hear(poller: Poller) -> None:
    for call, events in poller.wait(0.0):
        call(events)


def fill(sock: socket.socket) -> None:
    with suppress(BlockingIOError):
        while True:
            sock.send(bytes(65536))


def test_who_can_be_read_is_called(poller: Poller, pair: Pair) -> None:
    ours, theirs = pair
    ear = Ear()
    poller.register(ours, READ, ear)

    hear(poller)
    assert ear.heard == []
    theirs.send(b"x")
    hear(poller)
    assert ear.heard == [READ]


def test_a_descriptor_is_as_good_as_what_has_one(poller: Poller, pair: Pair) -> None:
    ours, theirs = pair
    ear = Ear()
    poller.register(ours.fileno(), READ, ear)
    theirs.send(b"x")
    hear(poller)
    poller.unregister(ours)
    hear(poller)

    assert ear.heard == [READ]


def test_only_what_was_asked_for_is_told(poller: Poller, pair: Pair) -> None:
    ours, theirs = pair
    ear = Ear()
    poller.register(ours, READ | WRITE, ear)
    hear(poller)
    theirs.send(b"x")
    hear(poller)
    poller.modify(ours, READ)
    hear(poller)
    poller.modify(ours, WRITE)
    hear(poller)

    assert ear.heard == [WRITE, READ | WRITE, READ, WRITE]


@pytest.mark.parametrize("asked", [READ, WRITE, READ | WRITE])
def test_who_is_gone_is_told_by_everything_that_was_asked_for(poller: Poller, pair: Pair, asked: int) -> None:
    ours, theirs = pair
    ear = Ear()
    fill(ours)
    poller.register(ours, asked, ear)
    theirs.close()
    hear(poller)

    assert ear.heard == [asked]


def test_who_is_not_waited_for_cannot_be_forgotten(poller: Poller, pair: Pair) -> None:
    with pytest.raises(KeyError):
        poller.unregister(pair[0])


def test_who_was_closed_has_no_descriptor_to_forget(poller: Poller) -> None:
    ours, theirs = socket.socketpair()
    ours.close()
    theirs.close()

    with pytest.raises(ValueError, match="descriptor"):
        poller.unregister(ours)


def test_a_descriptor_that_was_closed_first_can_be_forgotten(poller: Poller) -> None:
    reader, writer = os.pipe()
    poller.register(reader, READ, Ear())
    os.close(reader)
    os.close(writer)

    poller.unregister(reader)
    assert poller.wait(0.0) == []
