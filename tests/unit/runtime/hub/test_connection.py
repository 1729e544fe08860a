"""Frames and connections: what arrives may be anything, and whoever listens may be gone."""

from __future__ import annotations

import signal
import socket

import pytest
from msgspec import Raw

from bartack.errors import FrameError
from bartack.runtime.hub.connection import HIGH_WATER, Connection
from bartack.runtime.hub.worker_processes import reason_of
from bartack.runtime.protocol.frames import Answer, FrameReader, Leave, decode_to_hub, encode

ASK = b'{"k":"ask","i":1,"do":%b,"v":%b}'


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b'{"k":"nothing"}',
        ASK % (b'"\xff"', b"1"),
        ASK % (b'"send"', b'"\xff\xfe"'),
        ASK % (b'"send"', b"[" * 100_000 + b"]" * 100_000),
        b'{"k":"ask","i":%b,"do":"send"}' % (b"9" * 5000),
    ],
)
def test_a_frame_that_cannot_be_read_or_kept_is_refused(body: bytes) -> None:
    with pytest.raises(FrameError):
        decode_to_hub(body)


def test_a_connection_whose_other_side_went_away_is_read_from_again_so_that_its_end_is_found() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = Connection(1, ours)
        while connection.waiting_bytes < HIGH_WATER:
            connection.send(b"x" * 64 * 1024)
        full = connection.wants_read

        theirs.close()
        connection.send(b"more")

        assert (full, connection.wants_read) == (False, True)
        assert connection.receive() is None


@pytest.mark.parametrize(
    ("status", "reason"), [(0, "exit:0"), (-signal.SIGKILL, "signal:SIGKILL"), (-40, "signal:40")]
)
def test_every_end_of_a_process_has_a_reason(status: int, reason: str) -> None:
    assert reason_of(status) == reason


def test_what_is_urgent_overtakes_what_waits_for_a_peer_that_does_not_read() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = Connection(1, ours)
        lazy, urgent = encode(Answer(i=1, v=Raw(b'"%b"' % (b"x" * 64 * 1024)))), encode(Leave())
        while connection.waiting_bytes < HIGH_WATER:
            connection.send(lazy)

        connection.send(urgent, urgent=True)
        reader = FrameReader()
        bodies: list[bytes] = []
        while connection.wants_write or len(bodies) < 3:
            bodies += reader.feed(theirs.recv(1 << 20))
            connection.flush()

    places = [place for place, body in enumerate(bodies) if b"leave" in body]
    assert len(places) == 1
    assert places[0] < len(bodies) // 2


def test_how_long_a_peer_is_silent_or_does_not_read_goes_by_the_clock_of_the_hub() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = Connection(1, ours, now=iter([5.0, 8.0]).__next__)
        while connection.waiting_bytes < HIGH_WATER:
            connection.send(b"x" * 64 * 1024)

    assert (connection.opened_at, connection.stuck_since) == (5.0, 8.0)
