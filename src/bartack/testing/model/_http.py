"""The connections of a model server: HTTP/1.1 on the loopback interface, one thread for each connection.

It reads a request, asks the director for the answer and performs it. Decisions are in ``_director.py``.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, cast

import msgspec

from bartack.core import typed
from bartack.testing.model._chat import ChatApi
from bartack.testing.model._conversation import Api, Conversation, Event, JsonObject
from bartack.testing.model._director import Answer, Director, newest_results
from bartack.testing.model._hold import Holds
from bartack.testing.model._messages import MessagesApi
from bartack.testing.model._record import ModelRequest, Outcome, RequestLog
from bartack.testing.model._responses import ResponsesApi
from bartack.testing.model._script import TokenUsage

APIS: Final[Mapping[str, Api]] = {
    "/v1/messages": MessagesApi(),
    "/v1/responses": ResponsesApi(),
    "/v1/chat/completions": ChatApi(),
}
LARGEST_BODY: Final = 64 * 1024 * 1024
CLOSE_S: Final = 5.0
_JSON: Final = "application/json"


class Shared:
    """What the connections of a server have in common."""

    def __init__(self, director: Director, log: RequestLog, *, keep_bodies: bool) -> None:
        self.director = director
        self.log = log
        self.keep_bodies = keep_bodies
        self.holds = Holds()
        self.stopping = threading.Event()
        self._deciding = threading.Lock()

    def decide(self, conversation: Conversation) -> Answer:
        """The answer to a request; one request at a time."""
        with self._deciding:
            return self.director.decide(conversation)

    def note(self, path: str, conversation: Conversation, answer: Answer, body: JsonObject) -> ModelRequest:
        """Put a request into the log."""
        texts = [turn.text for turn in conversation.turns if turn.role == "user" and turn.text]
        request = ModelRequest(
            number=0,
            path=path,
            script=answer.place.script if answer.place else "",
            step=answer.place.step if answer.place else -1,
            prompt=texts[-1] if texts else "",
            tools=tuple(conversation.tools),
            tool_results=tuple(newest_results(conversation.turns)),
            model=conversation.model,
            stream=conversation.stream,
            started_at=time.time(),
            body=body if self.keep_bodies else None,
        )
        return self.log.add(lambda number: msgspec.structs.replace(request, number=number), answer.problem)


class HttpServer(ThreadingHTTPServer):
    """Listens, and knows its connections so that closing ends them."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, shared: Shared, listener: socket.socket | None = None) -> None:
        self.shared = shared
        self._connections: set[socket.socket] = set()
        self._changed = threading.Condition()
        super().__init__(("127.0.0.1", port), ModelHandler, bind_and_activate=listener is None)
        if listener is not None:
            self.socket.close()
            self.socket = listener

    def opened(self, connection: socket.socket) -> None:
        """Remember a connection."""
        with self._changed:
            self._connections.add(connection)

    def ended(self, connection: socket.socket) -> None:
        """Forget a connection."""
        with self._changed:
            self._connections.discard(connection)
            self._changed.notify_all()

    def close(self) -> None:
        """Stop listening, drop all connections and wait until their threads have finished."""
        self.shared.stopping.set()
        self.shared.holds.release_all()
        self.shutdown()
        self.server_close()
        with self._changed:
            for connection in self._connections:
                _drop(connection)
            self._changed.wait_for(lambda: not self._connections, CLOSE_S)

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that leave are a part of many tests; anything else is shown by the base class."""
        import sys  # noqa: PLC0415 - needed for errors only

        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(cast("socket.socket", request), client_address)


class ModelHandler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def _http(self) -> HttpServer:
        return cast("HttpServer", self.server)

    def setup(self) -> None:
        """Register the connection."""
        super().setup()
        self._http.opened(self.connection)

    def finish(self) -> None:
        """Forget the connection."""
        try:
            super().finish()
        finally:
            self._http.ended(self.connection)

    def do_GET(self) -> None:
        """Answer every question of the kind 'what is there' with an empty list."""
        self._send(200, {"data": [], "has_more": False})

    def do_HEAD(self) -> None:
        """The same, without the list."""
        self.do_GET()

    def do_POST(self) -> None:
        """Answer a request for a reply; any other gets an empty object."""
        raw = self._read_body()
        path = self.path.partition("?")[0].rstrip("/")
        if path == "/v1/messages/count_tokens":
            self._send(200, {"input_tokens": len(raw) // 4})
        elif path not in APIS:
            self._send(200, {})
        else:
            self._answer(path, raw)

    def _answer(self, path: str, raw: bytes) -> None:
        try:
            body = typed.decode(raw, type=dict[str, object])
        except msgspec.DecodeError as error:
            message = f"the body is not a JSON object: {error}"
            self._send(400, {"type": "error", "error": {"type": "invalid_request_error", "message": message}})
            return
        api, shared = APIS[path], self._http.shared
        conversation = api.read(body, len(raw))
        answer = shared.decide(conversation)
        request = shared.note(path, conversation, answer, body)
        Exchange(self, shared, api, answer, is_stream=conversation.stream).perform(request)

    def _read_body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return b"".join(self._chunks())
        length = int(self.headers.get("Content-Length") or 0)
        if length > LARGEST_BODY:
            raise ConnectionAbortedError("the body is too large")
        return self.rfile.read(length)

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().partition(b";")[0] or b"0", 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def start(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the status and the headers."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _send(self, status: int, document: JsonObject) -> None:
        self.send_document(status, document, {})

    def send_document(self, status: int, document: JsonObject, headers: Mapping[str, str]) -> None:
        """Send one JSON object."""
        data = msgspec.json.encode(document)
        self.start(status, {"content-type": _JSON, "content-length": str(len(data)), **headers})
        if self.command != "HEAD":
            self.wfile.write(data)

    def drop(self) -> None:
        """End the connection without another byte."""
        self.close_connection = True
        _drop(self.connection)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the parameter is given
        """Say nothing: the log of requests has it all."""


class Exchange:
    """Performs the answer to one request, and keeps count of what was sent."""

    def __init__(
        self, handler: ModelHandler, shared: Shared, api: Api, answer: Answer, *, is_stream: bool
    ) -> None:
        self._handler = handler
        self._shared = shared
        self._api = api
        self._answer = answer
        self._is_stream = is_stream
        self._status = 0
        self._events = 0
        self._usage = TokenUsage()

    def perform(self, request: ModelRequest) -> None:
        """Answer, and note in the log how it ended, also if the client has gone."""
        outcome: Outcome = "gone"
        try:
            outcome = self._perform()
        except OSError:
            self._handler.close_connection = True
        finally:
            self._shared.log.end(request, outcome, self._status, self._events, self._usage)

    def _perform(self) -> Outcome:
        step, failure = self._answer.step, self._answer.failure
        self._shared.holds.pass_by(self._answer.place, 0)
        if step.hang_s:
            self._wait(step.hang_s)
            self._handler.drop()
            return "hung"
        self._wait(step.delay_s)
        if failure is not None and failure.status != 200:
            self._status = failure.status
            self._handler.send_document(failure.status, failure.error(), self._headers(failure.headers))
            return "failed"
        self._status = 200
        if failure is not None:
            return self._stream(self._api.stream_failure(failure), "failed")
        if self._is_stream:
            return self._stream(self._api.stream(self._answer.reply), "sent")
        self._usage = self._answer.reply.usage
        self._handler.send_document(200, self._api.document(self._answer.reply), self._headers(step.headers))
        return "sent"

    def _stream(self, events: Iterator[Event], end: Outcome) -> Outcome:
        step = self._answer.step
        given = {"content-type": "text/event-stream", "cache-control": "no-cache", "connection": "close"}
        self._handler.start(200, {**given, **self._headers(step.headers)})
        for event in events:
            if self._answer.is_cut and self._events == step.cut_after:
                self._handler.drop()
                return "cut"
            if self._events:
                self._shared.holds.pass_by(self._answer.place, self._events)
                self._wait(step.chunk_s)
            self._handler.wfile.write(self._api.encode(event))
            self._events += 1
            self._usage = event.charged or self._usage
        self._handler.close_connection = True
        return end

    def _headers(self, given: Mapping[str, str]) -> dict[str, str]:
        failure = self._answer.failure
        headers = {"request-id": f"req_{self._answer.reply.id}", **given}
        if failure is not None and failure.retry_after is not None:
            headers["retry-after"] = f"{failure.retry_after:g}"
        return headers

    def _wait(self, seconds: float) -> None:
        """Wait, but not beyond the end of the server."""
        if seconds and self._shared.stopping.wait(seconds):
            raise ConnectionAbortedError("the server stops")


def _drop(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:  # it has gone already
        return


def serve(server: HttpServer) -> Callable[[], None]:
    """Serve in a thread; the result stops it."""
    thread = threading.Thread(  # bartack: allow[unsupervised_thread] the returned function ends it
        target=server.serve_forever, args=(0.02,), name="model server", daemon=True
    )
    thread.start()

    def stop() -> None:
        server.close()
        thread.join(CLOSE_S)

    return stop
