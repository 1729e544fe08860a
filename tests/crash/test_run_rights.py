"""What processes may do that a run has started itself, and what strangers can do to its socket."""

from __future__ import annotations

import os
import socket
import struct
import sys
from pathlib import Path

import msgspec
import pytest
from tests.crash.runs import PATIENCE_S, PROGRAMS, Begin, RealRun
from tests.crash.test_run_steps import error_of

from bartack.runtime.client.connection import HubClient
from bartack.runtime.protocol.frames import Ask, Hello, encode

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the bounds are those of Linux")

REFUSED = "PeerRefusedError"


@pytest.mark.requirement("commands-use-their-token")
def test_a_command_may_send_and_receive_with_its_token_and_nothing_else(begin: Begin) -> None:
    run = begin("inside", str(PROGRAMS / "inside.py"))

    code = run.finish()

    assert code == 0, run.story()
    told = run.api.result(dict[str, str])
    assert {name for name, answer in told.items() if answer == "done"} == {"token send", "token receive"}
    assert {answer for answer in told.values() if answer != "done"} == {REFUSED}
    assert run.count("session.failed") == 0


@pytest.mark.requirement("commands-use-their-token")
def test_a_command_may_fail_the_session_with_its_token(begin: Begin) -> None:
    run = begin("inside_failing")

    code = run.finish()

    assert code == 1, run.story()
    assert "from inside" in run.run.failed.read_text()
    run.wait_nothing_left()


def test_the_body_of_a_step_may_ask_the_hub_for_nothing(begin: Begin) -> None:
    run = begin("trying")

    code = run.finish()

    assert code == 0, run.story()
    told = run.api.result(list[str])
    assert told == [f"{do} {REFUSED}" for do in ("answer", "fail", "cancel", "send", "interrupt", "ps")]


def test_a_worker_that_pretends_to_come_from_outside_is_ended(begin: Begin) -> None:
    run = begin("stealing")

    code = run.finish()

    assert code == 1, run.story()
    assert error_of(run) == "StepCrashedError"
    assert run.effects() == ["stolen"] * 3


def connect(run: RealRun) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(PATIENCE_S)
    sock.connect(os.path.realpath(run.run.socket.path))
    return sock


HELLO = encode(Hello(role="foreign", pid=1))


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(b"\xff" * 100, id="no length that could be"),
        pytest.param(struct.pack(">I", 0), id="an empty frame"),
        pytest.param(struct.pack(">I", (1 << 20) + 1), id="a frame that is too long"),
        pytest.param(struct.pack(">I", 4) + b"oops", id="no JSON"),
        pytest.param(struct.pack(">I", 11) + b'{"k":"what"}'[:11], id="broken JSON"),
        pytest.param(struct.pack(">I", 14) + b'{"k":"nobody"}', id="an unknown kind"),
        pytest.param(encode(Hello(role="foreign", proto=99)), id="another protocol"),
        pytest.param(encode(Hello(path="waiting", incarnation=1)), id="somebody who says he is a worker"),
        pytest.param(
            HELLO + encode(Hello(path="waiting", incarnation=1)), id="somebody who becomes a worker"
        ),
        pytest.param(
            encode(Hello(path="waiting", incarnation=1)) + HELLO,
            id="somebody who was sent away and greets again",
        ),
        pytest.param(HELLO + b"\x00\x00", id="half a length"),
        pytest.param(HELLO + struct.pack(">I", 100) + b'{"k":', id="half a frame"),
    ],
)
def test_garbage_on_the_socket_hurts_nobody(waiting: RealRun, garbage: bytes) -> None:
    with connect(waiting) as sock:
        sock.sendall(garbage)
        sock.shutdown(socket.SHUT_WR)

        assert sock.recv(65536) == b""

    waiting.api.send("go", "on")
    assert waiting.wait_hub() == 0, waiting.story()
    assert waiting.api.result() == "on"


@pytest.fixture
def waiting(begin: Begin) -> RealRun:
    """A run that listens, and ends when it gets a message."""
    run = begin("waiting")
    run.start()
    run.wait_open("receive")
    return run


def test_a_stranger_who_asks_and_never_reads_keeps_nobody_waiting(waiting: RealRun) -> None:
    before = memory_kb(waiting)
    question = encode(Ask(i=1, do="peek"))
    with connect(waiting) as sock:
        sock.sendall(HELLO)
        sock.setblocking(False)
        sent = 0
        try:
            while sent < 200_000:
                sent += sock.send(question * 100)
        except BlockingIOError:
            pass
        with HubClient(waiting.run) as hub:
            hub.ask("state", timeout_s=PATIENCE_S)

        assert memory_kb(waiting) - before < 32 * 1024
        waiting.api.send("go", "on")
        assert waiting.wait_hub() == 0, waiting.story()


def test_a_stranger_who_does_not_read_for_long_is_sent_away(begin: Begin) -> None:
    run = begin("waiting")
    run.start_doomed("impatient:hub")
    run.wait_open("receive")
    with connect(run) as sock:
        sock.sendall(HELLO)

        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            ask_for_ever(sock)

    run.api.send("go", "on")
    assert run.wait_hub() == 0, run.story()


def ask_for_ever(sock: socket.socket) -> None:
    question = encode(Ask(i=1, do="peek", a=msgspec.Raw(b'{"mailbox":"box"}')))
    while True:
        sock.sendall(question * 1000)


def memory_kb(run: RealRun) -> int:
    assert run.hub is not None
    fields = Path(f"/proc/{run.hub.pid}/status").read_text().split()
    return int(fields[fields.index("VmRSS:") + 1]) if "VmRSS:" in fields else 0


def test_a_socket_that_nobody_listens_on_is_no_hub(begin: Begin) -> None:
    run = begin("waiting")
    run.start()
    run.wait_open("receive")
    run.kill_hub()

    assert run.api.state().status == "interrupted"
    run.api.send("go", "later")
    assert run.finish() == 0, run.story()
    assert run.api.result() == "later"
