"""A service for pattern events that does what a test demands: accept, refuse, hang, be down.

It speaks HTTP on a free port of the loopback interface, from threads of its own, so that other processes can be tested against it.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Self, cast

from bartack.core.user_home import user_home
from bartack.resilience.proof import NONCE_HEADER, PROOF_PATH, ProofSessions, tcp_ends
from bartack.resilience.tokens import load_token

LONGEST_HOLD_S: Final = 60.0
"""A request is held back for so long at most."""
_BASE: Final = "/api/pattern-traceability"


class CountingService:
    """Counts the events it is given, by their ids. A context manager; away until it is entered.

    It proves itself with the token of the user, as the lineage service does.

    Attributes:
        received: How often each event id was taken.
        requests: How many requests came for each path.
        status: What to answer to events; 200 takes them.
        headers: Sent with every answer to events.
        health: Status and body of the answer to health checks.
    """

    def __init__(self) -> None:
        self.received: Counter[str] = Counter()
        self.bodies: dict[str, dict[str, object]] = {}
        self.requests: Counter[str] = Counter()
        self.status = 200
        self.headers: Mapping[str, str] = {}
        self.health: tuple[int, dict[str, object]] = (200, {"status": "healthy"})
        self._resumed = threading.Event()
        self._resumed.set()
        self._changed = threading.Condition()
        self._server: ThreadingHTTPServer | None = None
        self._sessions: ProofSessions | None = None
        self.port, self._place = hold_port()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.come_back()
        return self

    def __exit__(self, *exc: object) -> None:
        self.answer_again()
        self.go_away()
        self._place.close()

    def come_back(self) -> None:
        """Listen."""
        if self._server is None:
            self._server = _Server(("127.0.0.1", self.port), _handler(self))
            threading.Thread(  # bartack: allow[unsupervised_thread] go_away ends it
                target=self._server.serve_forever, args=(0.01,), daemon=True
            ).start()

    def go_away(self) -> None:
        """Refuse connections, as a service that does not run."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def hang(self) -> None:
        """Take connections and say nothing."""
        self._resumed.clear()

    def answer_again(self) -> None:
        """Answer those that hang, and all others."""
        self._resumed.set()

    def wait_for(self, count: int, timeout_s: float = 60.0) -> bool:
        """Wait until this number of different events was received; whether it was."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.received) >= count, timeout_s)

    def wait_for_requests(self, path: str, count: int, timeout_s: float = 60.0) -> bool:
        """Wait until this number of requests came for a path; whether it did."""
        with self._changed:
            return self._changed.wait_for(lambda: self.requests[path] >= count, timeout_s)

    def prove(self, nonce: str, ends: str) -> dict[str, str] | None:
        """What the challenge of a client gets."""
        with self._changed:
            if self._sessions is None:
                self._sessions = ProofSessions(load_token(user_home() / "token"))
            return self._sessions.challenge(nonce, ends)

    def admits(self, authorization: str, ends: str, method: str, path: str) -> bool:
        """Whether a request that claims to be proved is; others are taken as they are."""
        with self._changed:
            claims = authorization.startswith("Bartack ")
            return not claims or (
                self._sessions is not None and self._sessions.admits(authorization, ends, method, path)
            )

    def answer(self, method: str, path: str, body: object) -> tuple[int, Mapping[str, str], object]:
        """What one request gets."""
        path = path.removeprefix(_BASE)
        with self._changed:
            self.requests[path] += 1
            self._changed.notify_all()
        self._resumed.wait(LONGEST_HOLD_S)
        if method == "GET":
            return self.health[0], {}, self.health[1]
        if self.status != 200:
            return (
                self.status,
                self.headers,
                {"success": False, "error": {"code": "as_demanded", "message": ""}},
            )
        if path == "/lineage/track/batch":
            events = cast("list[dict[str, object]]", cast("dict[str, object]", body)["events"])
            results = [{"success": True, "data": self._take(event)} for event in events]
            return 200, self.headers, {"success": True, "data": {"results": results}}
        return 200, self.headers, {"success": True, "data": self._take(cast("dict[str, object]", body))}

    def _take(self, event: dict[str, object]) -> dict[str, object]:
        event_id = str(event.get("event_id"))
        with self._changed:
            self.received[event_id] += 1
            self.bodies[event_id] = event
            self._changed.notify_all()
        return {"event_id": event_id, "duplicate": self.received[event_id] > 1}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256


def _handler(service: CountingService) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Headers and body leave in two writes; the second must not wait for an acknowledgement of the first.
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            if self.path == PROOF_PATH:
                proof = service.prove(self.headers.get(NONCE_HEADER, ""), self._ends())
                self._send(200 if proof else 400, proof or {}, b"")
            else:
                self._reply(None)

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            self._reply(json.loads(self.rfile.read(length) or b"null"))

        def _ends(self) -> str:
            return tcp_ends(self.client_address, self.connection.getsockname())

        def _reply(self, body: object) -> None:
            said = self.headers.get("Authorization", "")
            if not service.admits(said, self._ends(), self.command, self.path):
                self._send(401, {}, b"{}")
                return
            status, headers, answer = service.answer(self.command, self.path, body)
            self._send(status, headers, json.dumps(answer).encode())

        def _send(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
            try:
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(data))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)
            except OSError:  # the client has gone
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the parameter is given
            return

    return Handler


def hold_port() -> tuple[int, socket.socket]:
    """A free port of the loopback interface, and a socket that has it and never listens.

    On Linux the port is not given to another process by chance while the socket is open, not even as the near end of a connection;
    a process that asks for this very port gets it. Elsewhere it would not, and so the socket is closed already.
    """
    place = socket.socket()
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    place.bind(("127.0.0.1", 0))
    port: int = place.getsockname()[1]
    if sys.platform != "linux":
        place.close()
    return port, place
