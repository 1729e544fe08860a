"""A receiver of webhooks that behaves as a test says, one request after the other."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from itertools import cycle


class Receiver:
    """Answers each connection with the next of ``answers``, the last one again and again.

    An answer is the bytes to send before the connection is closed; ``None``: nothing is sent until the receiver is closed. With
    ``drip_s`` each answer comes byte by byte, with a pause of this length before each, and is followed by more of the same.
    """

    def __init__(self, *answers: bytes | None, drip_s: float = 0.0) -> None:
        self._drip_s = drip_s
        self._answers = list(answers)
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self._closing = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/hook"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)

    def _serve(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        head, _, body = self._receive(connection)
        lines = head.decode().split("\r\n")[1:]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self.requests.append((headers, body))
        answer = self._answers[0] if len(self._answers) == 1 else self._answers.pop(0)
        if answer is None:
            self._closing.wait(30)
        elif self._drip_s:
            self._drip(connection, answer)
        else:
            connection.sendall(answer)

    def _drip(self, connection: socket.socket, answer: bytes) -> None:
        with suppress(OSError):  # the client has closed the connection
            for byte in cycle(answer):
                if self._closing.wait(self._drip_s):
                    return
                connection.sendall(bytes([byte]))

    def _receive(self, connection: socket.socket) -> tuple[bytes, bytes, bytes]:
        data = b""
        while True:
            head, end, body = data.partition(b"\r\n\r\n")
            length = next(
                (
                    int(line.split(b":")[1])
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length")
                ),
                0,
            )
            if end and len(body) >= length:
                return head, end, body
            more = connection.recv(65_536)
            if not more:
                return head, end, body
            data += more


@contextmanager
def open_receiver(*answers: bytes | None, drip_s: float = 0.0) -> Generator[Receiver]:
    receiver = Receiver(*answers, drip_s=drip_s)
    try:
        yield receiver
    finally:
        receiver.close()


def answer(status: int, *headers: str) -> bytes:
    head = "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {status} X", "Content-Length: 0", *headers))
    return f"{head}\r\n".encode()
