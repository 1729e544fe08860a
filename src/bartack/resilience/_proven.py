"""HTTP over connections whose service has proved itself, as a transport for httpx. Loaded when the first call is made.

Nothing but a nonce is sent before the proof. A connection that is lost is replaced by one that has to be proved again, so a process
that takes over the port gets nothing either. The protocol is in ``proof.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, cast

import httpcore
import httpx

from bartack.core.sockets import is_own_socket
from bartack.errors import ServiceUnprovenError
from bartack.resilience.proof import (
    NONCE_HEADER,
    PROOF_HEADER,
    PROOF_PATH,
    SCHEME,
    UNIX_ENDS,
    Handshake,
    new_nonce,
    tcp_ends,
)
from bartack.resilience.service_files import service_socket

_LOOPBACK: Final = {"localhost", "127.0.0.1", "::1"}
_ANSWER_MOST: Final = 64 * 1024


class ProvenTransport(httpx.AsyncBaseTransport):
    """Sends requests to one service, each over a connection on which the service has proved that it knows the token.

    Args:
        url: The service; its scheme is http.
        token: Reads the token; called for every new connection.
    """

    def __init__(self, url: str, token: Callable[[], str]) -> None:
        parts = httpx.URL(url)
        self._url = f"http://{parts.netloc.decode('ascii')}"
        self._host = parts.host
        self._port = parts.port or 80
        self._token = token
        self._idle: list[_Connection] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request.

        Raises:
            ServiceUnprovenError: What listens there does not know the token; nothing of the request was sent.
            TokenFileError: The token cannot be read; nothing was sent.
        """
        body = await request.aread()
        with _as_httpx(request):
            connection = await self._take() or await self._open(request)
            response = await connection.send(request, body)
        if connection.is_reusable():
            self._idle.append(connection)
        else:
            await connection.close()
        return response

    async def aclose(self) -> None:
        """Close all connections that are not in use."""
        while self._idle:
            await self._idle.pop().close()

    async def _take(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_reusable():
                return connection
            await connection.close()
        return None

    async def _open(self, request: httpx.Request) -> _Connection:
        token = self._token()
        times = _times(request)
        stream, ends = await self._connect(times.get("connect"))
        origin = httpcore.Origin(b"http", self._host.encode(), self._port)
        line = httpcore.AsyncHTTP11Connection(origin, stream)
        nonce = new_nonce()
        host = request.headers["Host"]
        try:
            answer = await line.handle_async_request(
                httpcore.Request(
                    "GET",
                    httpcore.URL(
                        scheme=b"http", host=origin.host, port=self._port, target=PROOF_PATH.encode()
                    ),
                    headers=[("Host", host), (NONCE_HEADER, nonce)],
                    extensions={"timeout": times},
                )
            )
            handshake = Handshake(token, nonce, _header(answer, NONCE_HEADER), ends)
            await self._check(answer, handshake)
        except BaseException:
            await line.aclose()
            raise
        return _Connection(line, handshake)

    async def _check(self, answer: httpcore.Response, handshake: Handshake) -> None:
        size = 0
        async for part in answer.aiter_stream():
            size += len(part)
            if size > _ANSWER_MOST:
                raise ServiceUnprovenError(self._url, "its answer to the challenge does not end")
        await answer.aclose()
        proof = _header(answer, PROOF_HEADER)
        if answer.status != 200 or not proof:
            raise ServiceUnprovenError(
                self._url, f"it answered the challenge with {answer.status} and no proof"
            )
        if not handshake.is_from_service(proof):
            raise ServiceUnprovenError(self._url, "its proof is wrong: it has another token, or is a relay")

    async def _connect(self, timeout_s: float | None) -> tuple[httpcore.AsyncNetworkStream, str]:
        """The user's own socket of this service if there is one, else its port."""
        backend = cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())
        place = _own_socket(self._host, self._port)
        if place:
            try:
                return await backend.connect_unix_socket(place, timeout_s), UNIX_ENDS
            except httpcore.ConnectError:  # left by a service that was killed
                pass
        stream = await backend.connect_tcp(self._host, self._port, timeout_s)
        near, far = stream.get_extra_info("client_addr"), stream.get_extra_info("server_addr")
        return stream, tcp_ends(near, far)


class _Connection:
    """One connection to a service that has proved itself."""

    def __init__(self, line: httpcore.AsyncHTTP11Connection, handshake: Handshake) -> None:
        self._line = line
        self._handshake = handshake
        self._count = 0

    async def send(self, request: httpx.Request, body: bytes) -> httpx.Response:
        """Send a request with the proof that it comes from a client with the token."""
        self._count += 1
        target = request.url.raw_path
        proof = self._handshake.request_proof(self._count, request.method, target.decode("ascii"))
        said = f"{SCHEME} {self._handshake.server_nonce} {self._count} {proof}"
        kept = [(name, value) for name, value in request.headers.raw if name.lower() != b"authorization"]
        url = httpcore.URL(
            scheme=b"http", host=request.url.raw_host, port=request.url.port or 80, target=target
        )
        sent = httpcore.Request(
            request.method,
            url,
            headers=[*kept, (b"Authorization", said.encode("ascii"))],
            content=body,
            extensions={"timeout": _times(request)},
        )
        try:
            answer = await self._line.handle_async_request(sent)
            content = b"".join([part async for part in answer.aiter_stream()])
            await answer.aclose()
        except BaseException:
            await self.close()
            raise
        return httpx.Response(answer.status, headers=answer.headers, content=content)

    def is_reusable(self) -> bool:
        """Whether another request can be sent."""
        return self._line.is_idle() and not self._line.has_expired()

    async def close(self) -> None:
        """Close the connection."""
        await self._line.aclose()


def _own_socket(host: str, port: int) -> str:
    """Where this user's own service for a port of this machine listens; empty if there is none."""
    place = os.path.realpath(service_socket(port))
    return place if host in _LOOPBACK and is_own_socket(place) else ""


def _times(request: httpx.Request) -> dict[str, float | None]:
    return cast("dict[str, float | None]", request.extensions.get("timeout", {}))


def _header(answer: httpcore.Response, name: str) -> str:
    wanted = name.lower().encode()
    found = [value.decode("latin-1") for key, value in answer.headers if key.lower() == wanted]
    return found[0] if len(found) == 1 else ""


@contextmanager
def _as_httpx(request: httpx.Request) -> Generator[None]:
    try:
        yield
    except httpcore.ConnectTimeout as error:
        raise httpx.ConnectTimeout(str(error), request=request) from error
    except httpcore.TimeoutException as error:
        raise httpx.ReadTimeout(str(error), request=request) from error
    except httpcore.ConnectError as error:
        raise httpx.ConnectError(str(error), request=request) from error
    except httpcore.NetworkError as error:
        raise httpx.ReadError(str(error), request=request) from error
    except httpcore.ProtocolError as error:
        raise httpx.RemoteProtocolError(str(error), request=request) from error
