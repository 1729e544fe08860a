"""Bridges: the real program, a real socket, and the part of the hub that lets it in."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bartack.runtime.hub.admission import Gatekeeper
from bartack.runtime.hub.agents.bridges import Bridges, HubBridge
from bartack.runtime.hub.connections import Connections
from bartack.runtime.hub.listener import Listener
from bartack.runtime.hub.parents import Parents
from bartack.runtime.hub.poller import open_poller
from bartack.runtime.kernel.core import Core
from bartack.runtime.protocol import frames as f
from bartack.runtime.state.run_state import State

PATIENCE_S = 30.0


class FakeCore:
    """Counts what reaches it: from a bridge, nothing may."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def connect(self, number: int, frame: f.Hello, peer: object) -> object:
        self.seen.append(frame)
        return peer

    def frame(self, number: int, frame: object) -> None:
        self.seen.append(frame)

    def lost(self, number: int) -> None:
        """A connection is gone."""


class Door:
    """The socket of a hub, and its loop."""

    def __init__(self, folder: Path) -> None:
        self.core = FakeCore()
        self.poller = open_poller()
        self.path = folder / "hub.sock"
        self.bridges = Bridges(self.poller, str(self.path))
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.bind(str(self.path))
        sock.listen(8)
        sock.setblocking(False)
        gate = Gatekeeper(lambda token: None, State())
        self.connections = Connections(
            cast("Core", self.core),
            self.poller,
            gate,
            cast("Parents", None),
            lambda _: iter(()),
            self.bridges,
        )
        self.listener = Listener(sock, self.poller, self.connections.add)
        self.received = bytearray()
        self.lost = 0

    def open(self) -> HubBridge:
        return self.bridges.open(self.received.extend, self._count)

    def _count(self) -> None:
        self.lost += 1

    def until(self, done: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < end, "it takes too long"
            for call, events in self.poller.wait(0.05):
                call(events)

    def close(self) -> None:
        self.bridges.close()
        self.connections.close()
        self.listener.close()
        self.poller.close()


@pytest.fixture
def door(tmp_path: Path) -> Generator[Door]:
    with closing(Door(tmp_path)) as made:
        yield made


@contextmanager
def started(bridge: HubBridge, **env: str) -> Generator[subprocess.Popen[bytes]]:
    """The bridge as an agent starts it: with its own variables and nothing else."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        bridge.argv, env={**bridge.env, **env}, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def ended(door: Door, process: subprocess.Popen[bytes]) -> int:
    door.until(lambda: process.poll() is not None)
    return cast("int", process.returncode)


def read(process: subprocess.Popen[bytes], size: int) -> bytes:
    data = b""
    stream: Any = process.stdout
    while len(data) < size and (more := stream.read(size - len(data))):
        data += more
    return data


@pytest.mark.requirement("bridge-carries-one-steps-tools")
def test_bytes_go_both_ways_unchanged(door: Door) -> None:
    bridge = door.open()
    with started(bridge) as process:
        stdin: Any = process.stdin
        stdin.write(b'{"jsonrpc":"2.0"}\n')
        door.until(lambda: door.received)
        bridge.send(b"answer\n")

        assert bytes(door.received) == b'{"jsonrpc":"2.0"}\n'
        assert read(process, 7) == b"answer\n"
    assert door.core.seen == []


def test_megabytes_go_both_ways_at_once(door: Door) -> None:
    bridge = door.open()
    data = bytes(range(256)) * 32_768
    got: list[bytes] = []
    with started(bridge) as process:
        stdin: Any = process.stdin

        def write_all() -> None:
            rest = memoryview(data)
            while rest:
                rest = rest[stdin.write(rest) :]

        threads = [
            threading.Thread(target=write_all),
            threading.Thread(target=lambda: got.append(read(process, len(data)))),
        ]
        for thread in threads:
            thread.start()
        door.until(lambda: door.received)
        bridge.send(data)
        door.until(lambda: len(door.received) >= len(data) and got)
        for thread in threads:
            thread.join(PATIENCE_S)

    assert bytes(door.received) == data
    assert got == [data]


def test_the_end_of_the_agents_input_ends_it_and_is_reported_once(door: Door) -> None:
    bridge = door.open()
    with started(bridge) as process:
        stdin: Any = process.stdin
        stdin.write(b"last")
        stdin.close()

        assert ended(door, process) == 0
        door.until(lambda: door.lost)
    assert bytes(door.received) == b"last"
    bridge.send(b"dropped")
    bridge.close()
    assert door.lost == 1


def test_closing_ends_it_after_what_was_sent_and_is_not_reported(door: Door) -> None:
    bridge = door.open()
    with started(bridge) as process:
        stdin: Any = process.stdin
        stdin.write(b"x")
        door.until(lambda: door.received)
        bridge.send(b"bye")
        bridge.close()

        assert read(process, 100) == b"bye"
        assert ended(door, process) == 0
    assert door.lost == 0


def refused(door: Door, process: subprocess.Popen[bytes]) -> bytes:
    assert ended(door, process) == 1
    stderr: Any = process.stderr
    return cast("bytes", stderr.read())


@pytest.mark.requirement("bridge-carries-one-steps-tools")
@pytest.mark.parametrize("token", ["0" * 64, "1", "a" * 1000])
def test_a_wrong_token_is_refused(door: Door, token: str) -> None:
    with started(door.open(), BARTACK_STEP_TOKEN=token) as process:
        assert refused(door, process) == b"bartack bridge: this step has ended\n"
    assert (bytes(door.received), door.lost, door.core.seen) == (b"", 0, [])


@pytest.mark.parametrize("token", ["", '","role":"worker'])
def test_a_token_that_is_none_is_not_even_sent(door: Door, token: str) -> None:
    with started(door.open(), BARTACK_STEP_TOKEN=token) as process:
        assert b"started by an agent" in refused(door, process)


@pytest.mark.requirement("bridge-carries-one-steps-tools")
def test_a_second_connection_for_one_token_is_refused_and_the_first_stays(door: Door) -> None:
    bridge = door.open()
    with started(bridge) as first:
        stdin: Any = first.stdin
        stdin.write(b"1")
        door.until(lambda: door.received)
        with started(bridge) as second:
            assert refused(door, second)
        stdin.write(b"2")
        door.until(lambda: bytes(door.received) == b"12")


@pytest.mark.requirement("bridge-carries-one-steps-tools")
def test_an_ended_step_has_no_bridge(door: Door) -> None:
    bridge = door.open()
    bridge.close()
    with started(bridge) as process:
        assert refused(door, process)


def test_a_run_that_is_gone_has_no_bridge(door: Door, tmp_path: Path) -> None:
    bridge = door.open()
    (tmp_path / "hub.sock").unlink()
    with started(bridge) as process:
        assert refused(door, process)


def connect(door: Door, *frames: f.Frame) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(str(door.path))
    sock.sendall(b"".join(map(f.encode, frames)))
    sock.setblocking(False)
    return sock


def is_closed(sock: socket.socket) -> bool:
    with suppress(BlockingIOError):
        try:
            return sock.recv(100) == b""
        except ConnectionError:
            return True
    return False


@pytest.mark.requirement("bridge-carries-one-steps-tools")
def test_requests_over_a_bridge_are_bytes_for_its_owner(door: Door) -> None:
    bridge = door.open()
    token = bridge.env["BARTACK_STEP_TOKEN"]
    with connect(door, f.Hello(role=f.BRIDGE, token=token)) as sock:
        sock.setblocking(True)
        door.until(lambda: bridge._used)
        assert f.decode_to_peer(sock.recv(1000)[4:]) == f.Answer(i=0)
        ask = f.encode(f.Ask(i=1, do="cancel"))
        sock.sendall(ask)
        door.until(lambda: door.received)

    assert bytes(door.received) == ask
    assert door.core.seen == []


def admit_all(*_: object) -> object:
    return object()


def test_a_process_that_greeted_as_another_cannot_become_a_bridge(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = door.open().env["BARTACK_STEP_TOKEN"]
    monkeypatch.setattr(Gatekeeper, "admit", admit_all)
    monkeypatch.setattr(door.connections, "_parents", SimpleNamespace(pids=set[int]()))
    with connect(door, f.Hello(role="foreign"), f.Hello(role=f.BRIDGE, token=token)) as sock:
        door.until(lambda: is_closed(sock))


def test_tokens_are_long_random_and_not_in_the_command_line(door: Door) -> None:
    bridges = [door.open() for _ in range(20)]
    tokens = {bridge.env["BARTACK_STEP_TOKEN"] for bridge in bridges}

    assert len(tokens) == 20
    assert all(len(bytes.fromhex(token)) == 32 for token in tokens)
    assert not any(token in word for bridge in bridges for token in tokens for word in bridge.argv)
