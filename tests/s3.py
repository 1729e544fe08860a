"""A server that speaks as much of the protocol of S3 as an object store of runs needs: PUT, GET and DELETE of whole objects."""

from __future__ import annotations

import re
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

import pytest

ACCESS = "access-of-the-store"
SECRET = "secret-of-the-store"  # noqa: S105 - it is not one


class S3:
    """The server; one thread for each request.

    Attributes:
        objects: What it keeps, by bucket and name.
        requests: The methods and paths that it was asked, in order.
        refusal: The status with which it answers everything; 0: none.
        keeps_all: It refuses to delete objects.
        answers: It answers a PUT, after it has kept the object, only while this is set.
        has_kept: Set when it has kept an object.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.refusal = 0
        self.keeps_all = False
        self.answers = threading.Event()
        self.answers.set()
        self.has_kept = threading.Event()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def environ(self) -> dict[str, str]:
        """The variables by which a process reaches it."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._server.server_address[1]}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": ACCESS,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "NO_PROXY": "127.0.0.1",
        }

    def set_environ(self, patch: pytest.MonkeyPatch) -> None:
        for name, value in self.environ.items():
            patch.setenv(name, value)

    def close(self) -> None:
        self.answers.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def s3() -> Generator[S3]:
    made = S3()
    try:
        yield made
    finally:
        made.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, store: S3) -> None:
        self.store = store
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def _store(self) -> S3:
        return cast("_Server", self.server).store

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if not self._is_refused():
            self._store.objects[self.path] = content
            self._store.has_kept.set()
            self._store.answers.wait(30)
            self._answer(200)

    def do_GET(self) -> None:
        if not self._is_refused():
            found = self._store.objects.get(self.path)
            self._answer(404 if found is None else 200, found or b"")

    def do_POST(self) -> None:
        """Deletion, which the library asks for several objects at a time, also for one."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self._is_refused():
            return
        bucket, entries = self.path.partition("?")[0].strip("/"), ""
        for key in re.findall("<Key>(.*?)</Key>", body):
            if self._store.keeps_all:
                entries += f"<Error><Key>{key}</Key><Code>AccessDenied</Code><Message>kept</Message></Error>"
            else:
                self._store.objects.pop(f"/{bucket}/{key}", None)
                entries += f"<Deleted><Key>{key}</Key></Deleted>"
        self._answer(200, f"<DeleteResult>{entries}</DeleteResult>".encode())

    def _is_refused(self) -> bool:
        store = self._store
        store.requests.append((self.command, self.path))
        is_known = f"Credential={ACCESS}/" in self.headers.get("Authorization", "")
        status = store.refusal or (0 if is_known else 403)
        if status:
            self._answer(status, b"<Error><Code>Refused</Code></Error>")
        return bool(status)

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(ConnectionError):  # the client has been killed
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the class above
        """Nothing is logged."""
