"""The cable between a client and a server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from bartack.testing import Cable


class Echo:
    """A server that answers each request with the same bytes, and knows what it was asked."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                side, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(side,), daemon=True).start()

    def _answer(self, side: socket.socket) -> None:
        with side, suppress(OSError):
            while request := side.recv(100):
                self.asked.append(request)
                side.sendall(request)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


def connect(cable: Cable) -> socket.socket:
    made = socket.socket(socket.AF_UNIX if isinstance(cable.address, str) else socket.AF_INET)
    made.settimeout(30)
    made.connect(cable.address)
    return made


def ask(side: socket.socket, request: bytes) -> bytes:
    try:
        side.sendall(request)
        return side.recv(100)
    except (ConnectionResetError, BrokenPipeError):
        return b""


def test_an_intact_cable_passes_everything_on(echo: Echo, tmp_path: Path) -> None:
    for listen in ("", str(tmp_path / "socket")):
        with Cable(echo.address, listen) as cable, connect(cable) as side:
            assert ask(side, b"one") == b"one"
            assert ask(side, b"two") == b"two"
            assert cable.cuts == 0


def test_a_request_that_is_cut_off_does_not_reach_the_server(echo: Echo) -> None:
    with Cable(echo.address) as cable, connect(cable) as side, connect(cable) as other:
        assert ask(side, b"one") == b"one"
        cable.cut_next("before")

        assert ask(side, b"two") == b""
        assert ask(other, b"three") == b"three", "only one connection was cut"
        assert cable.cuts == 1
    assert echo.asked == [b"one", b"three"]


def test_a_lost_answer_was_given(echo: Echo) -> None:
    with Cable(echo.address) as cable, connect(cable) as side:
        cable.cut_next("after")

        assert ask(side, b"one") == b""
        assert cable.cuts == 1
    assert echo.asked == [b"one"]


def test_a_cable_is_armed_until_the_next_request_and_counts_what_it_cuts(echo: Echo) -> None:
    with Cable(echo.address) as cable, connect(cable) as side, connect(cable) as other:
        assert ask(side, b"one") == ask(other, b"one") == b"one"
        cable.cut_next("before")
        armed = cable.is_armed

        assert ask(side, b"two") == b""
        assert (armed, cable.is_armed) == (True, False)
        assert cable.cuts == 1
        assert cable.cut() >= 1, "the other one was open"
        assert ask(other, b"three") == b""


def test_a_silent_cable_passes_on_later_what_was_sent(echo: Echo) -> None:
    with Cable(echo.address) as cable, connect(cable) as side:
        assert ask(side, b"one") == b"one"
        cable.go_silent()
        side.sendall(b"two")
        with connect(cable) as late:
            late.sendall(b"three")
            side.settimeout(0.05)
            with pytest.raises(TimeoutError):
                side.recv(100)
            side.settimeout(30)
            assert echo.asked == [b"one"]
            cable.come_back()

            assert side.recv(100) == b"two"
            assert late.recv(100) == b"three"


def test_an_unplugged_cable_refuses_connections_until_it_is_back(echo: Echo) -> None:
    with Cable(echo.address) as cable, connect(cable) as side:
        assert ask(side, b"one") == b"one"
        cable.unplug()
        assert ask(side, b"two") == b""
        with connect(cable) as refused:
            assert ask(refused, b"three") == b""
        cable.come_back()

        with connect(cable) as again:
            assert ask(again, b"four") == b"four"


def test_a_stranded_connection_stays_silent_and_a_new_one_works(echo: Echo) -> None:
    with Cable(echo.address) as cable, connect(cable) as side:
        assert ask(side, b"one") == b"one"
        cable.strand()
        side.sendall(b"two")

        with connect(cable) as again:
            assert ask(again, b"three") == b"three"
        assert echo.asked == [b"one", b"three"]


def test_a_slow_cable_passes_everything_on(echo: Echo) -> None:
    with Cable(echo.address) as cable, connect(cable) as side:
        cable.delay(0.01)

        assert ask(side, b"one") == b"one"


def test_a_server_that_is_not_there_is_an_end_of_the_connection(tmp_path: Path) -> None:
    with Cable(str(tmp_path / "nowhere")) as cable, connect(cable) as side:
        assert ask(side, b"one") == b""
