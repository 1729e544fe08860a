from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

import msgspec
import pytest

from bartack.supervision.parent.wire import (
    COMMANDS,
    EVENTS,
    Channel,
    Command,
    Exec,
    Fork,
    Gone,
    Kill,
    ParentEvent,
    Signal,
    Started,
)

Pair = tuple[Channel[Command], Channel[ParentEvent]]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """The parent program's side and the hub's side."""
    one, other = socket.socketpair()
    parent, hub = Channel(one, COMMANDS), Channel(other, EVENTS)
    yield parent, hub
    parent.close()
    hub.close()


def open_pipe() -> tuple[int, int]:
    """A pipe whose reading end fails instead of waiting."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    return reader, writer


def raw() -> tuple[socket.socket, Channel[Command]]:
    one, other = socket.socketpair()
    return one, Channel(other, COMMANDS)


def frame(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


def test_messages_arrive_in_order(pair: Pair) -> None:
    parent, hub = pair
    hub.send(Kill(1))
    hub.send(Signal(2, 15))
    parent.send(Gone(3, ["sh"], []))

    assert [message for message, _ in parent.receive()] == [Kill(1), Signal(2, 15)]
    assert [message for message, _ in hub.receive()] == [Gone(3, ["sh"], [])]
    assert parent.receive() == []
    assert parent.alive


def test_bytes_that_are_not_text_survive(pair: Pair) -> None:
    parent, hub = pair
    command = Exec(1, [[b"\xff\x00", b""]], b"/\xfe", [(b"A", b"\xfd")], (-1, 0, 1))

    hub.send(command)

    assert parent.receive()[0].message == command


def test_descriptors_arrive_with_their_frame(pair: Pair) -> None:
    parent, hub = pair
    pipes = [open_pipe() for _ in range(3)]
    hub.send(Fork(1, b"", []), [pipes[0][1], pipes[1][1]])
    hub.send(Kill(2))
    hub.send(Fork(3, b"", []), [pipes[2][1]])
    for _, writer in pipes:
        os.close(writer)

    received = parent.receive()

    assert [len(fds) for _, fds in received] == [2, 0, 1]
    for number, fd in enumerate(fd for _, fds in received for fd in fds):
        assert not os.get_inheritable(fd)
        os.write(fd, str(number).encode())
        os.close(fd)
    assert [os.read(reader, 9) for reader, _ in pipes] == [b"0", b"1", b"2"]
    for reader, _ in pipes:
        os.close(reader)


def test_both_sides_may_say_more_than_the_socket_holds_before_they_read(pair: Pair) -> None:
    parent, hub = pair
    reader, writer = open_pipe()
    text = b"x" * 300_000
    for number in range(5):
        hub.send(Fork(number, text, []), [writer])
        parent.send(Gone(number, ["y" * 300_000], []))
    os.close(writer)
    assert (hub.wants_write, parent.wants_write) == (True, True)

    commands: list[Command] = []
    events: list[ParentEvent] = []
    for _ in range(100):
        for command, fds in parent.receive():
            commands.append(command)
            os.write(fds[0], b".")
            os.close(fds[0])
        events += [event for event, _ in hub.receive()]
        hub.flush()
        parent.flush()

    assert [
        command for command in commands if isinstance(command, Fork) and command.payload == text
    ] == commands
    assert [event.token for event in events if isinstance(event, Gone)] == [0, 1, 2, 3, 4]
    assert not hub.wants_write
    assert os.read(reader, 9) == b"....."
    assert os.read(reader, 9) == b""
    os.close(reader)


def test_a_frame_may_come_byte_by_byte() -> None:
    sock, channel = raw()
    received: list[Command] = []
    for byte in frame(msgspec.json.encode((0, Kill(5)))):
        sock.send(bytes([byte]))
        received += [message for message, _ in channel.receive()]

    assert received == [Kill(5)]
    sock.close()
    channel.close()


@pytest.mark.parametrize(
    "text",
    [
        frame(b"no json"),
        frame(b'[0, {"type": "unheard-of"}]'),
        frame(b'[0, {"type": "kill", "token": "one"}]'),
        frame(b'[1, {"type": "kill", "token": 1}]'),
        frame(b""),
        struct.pack(">I", 2**31),
    ],
    ids=["garbage", "unknown", "wrong-type", "missing-descriptor", "empty", "too-long"],
)
def test_a_side_that_speaks_nonsense_is_taken_for_dead(text: bytes) -> None:
    sock, channel = raw()
    sock.send(frame(msgspec.json.encode((0, Kill(1)))) + text)

    assert [message for message, _ in channel.receive()] == [Kill(1)]
    assert not channel.alive
    sock.close()
    channel.close()


def test_what_was_sent_before_death_is_received() -> None:
    sock, channel = raw()
    sock.send(frame(msgspec.json.encode((0, Kill(1)))) + b"\0\0")
    sock.close()

    assert [message for message, _ in channel.receive()] == [Kill(1)]
    assert not channel.alive
    channel.close()


def test_a_side_that_died_with_unread_data_is_dead() -> None:
    sock, channel = raw()
    channel.send(Gone(1, [], []))
    sock.close()

    assert channel.receive() == []
    assert not channel.alive
    channel.send(Gone(2, [], []))
    assert not channel.wants_write
    channel.close()


def test_what_waits_for_a_dead_side_is_dropped_with_its_descriptors(pair: Pair) -> None:
    parent, hub = pair
    reader, writer = open_pipe()
    for number in range(5):
        hub.send(Fork(number, b"x" * 200_000, []), [writer])
    os.close(writer)
    parent.close()

    hub.flush()

    assert not hub.wants_write
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_descriptors_of_frames_that_never_came_whole_are_closed() -> None:
    sock, channel = raw()
    reader, writer = open_pipe()
    socket.send_fds(sock, [b"\0\0\0\x09half"], [writer])
    os.close(writer)

    channel.receive()
    channel.close()

    assert os.read(reader, 1) == b""
    os.close(reader)
    sock.close()


def test_a_frame_with_too_many_descriptors_is_refused(pair: Pair) -> None:
    _, hub = pair

    with pytest.raises(ValueError, match="251 descriptors"):
        hub.send(Kill(1), [0] * 251)
    assert not hub.wants_write


def test_descriptors_of_an_event_are_not_part_of_its_text() -> None:
    assert msgspec.json.encode(Started(1, [2])) == b'{"type":"started","token":1,"pids":[2]}'
