"""The lineage service: an ASGI application, its token, and a server that only this machine can reach.

Starlette and uvicorn are imported when a service is used, not before. The requests are answered in ``_http.py``.
"""

from __future__ import annotations

import ipaddress
import signal
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bartack.errors import ConfigError, UnsafeBindError
from bartack.resilience import load_token
from bartack.tracking._own_socket import OwnSocket
from bartack.tracking.lineage._store import LineageStore

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

DEFAULT_PORT: Final = 8053
_BACKLOG: Final = 2048


class LineageService:
    """Answers requests about a lineage database over HTTP; an ASGI application.

    Every request has to prove that it comes from a client with the token, or to carry the token itself, but for the one that asks
    whether the service works. Requests that name another host, or come from a web page, are refused.

    Args:
        store: The database; it has to be open while the service is used.
        token: What a request has to know.
    """

    def __init__(self, store: LineageStore, token: str) -> None:
        self.store = store
        self._token = token

    @cached_property
    def app(self) -> ASGIApp:
        """The application of the service."""
        from bartack.tracking.lineage._http import build_app  # noqa: PLC0415 - slow, and only a server needs it

        return build_app(self.store, self._token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await self.app(scope, receive, send)

    def serve(self, *listeners: socket.socket, ready: Callable[[], None] | None = None) -> None:
        """Answer requests until SIGINT or SIGTERM; requests in progress are finished first.

        Args:
            listeners: Where they come in; see ``open_listener`` and ``OwnSocket``.
            ready: Called when the first of them will be answered.
        """
        import asyncio  # noqa: PLC0415 - only a server needs it

        import uvicorn  # noqa: PLC0415 - only a server needs it

        config = uvicorn.Config(
            self,
            access_log=False,
            lifespan="off",
            log_config=None,
            proxy_headers=False,  # the ends of a connection are what its socket says
            server_header=False,
            timeout_graceful_shutdown=5,
            ws="none",
        )
        server = uvicorn.Server(config)

        def stop(number: int, frame: object) -> None:
            server.should_exit = True

        # The server has handlers of its own while it runs, and repeats the signal that ended it. Both ends are covered: a
        # signal before it runs stops it, and the repeated one does no harm.
        with _handled(stop):
            if ready is not None:
                ready()
            asyncio.run(server.serve(sockets=list(listeners)))


@contextmanager
def _handled(stop: Callable[[int, object], None]) -> Generator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def serve_lineage(
    db: str | Path,
    token_file: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve a lineage database until SIGINT or SIGTERM.

    Args:
        db: The database; made if it is not there.
        token_file: Holds the token; made if it is not there.
        host: An address of this machine that no other can reach.
        port: 0 takes a free one.
        ready: Called with the URL when requests will be answered.

    Raises:
        UnsafeBindError: Other machines could reach the address.
        ConfigError: The port is taken.
        TokenFileError: The token cannot be used.
        StoreTooNewError: A newer version of Bartack wrote the database.
        StoreUnavailableError: The database cannot be opened.
    """
    with open_listener(host, port) as listener:
        token = load_token(token_file)
        address, number = listener.getsockname()[:2]
        name = f"[{address}]" if ":" in address else address
        with LineageStore(db) as store, OwnSocket(number) as own:
            announce = None if ready is None else partial(ready, f"http://{name}:{number}")
            LineageService(store, token).serve(listener, *own.listeners, ready=announce)


def open_listener(host: str = "127.0.0.1", port: int = DEFAULT_PORT) -> socket.socket:
    """A socket that listens on this machine only; port 0 takes a free one.

    Raises:
        UnsafeBindError: Other machines could reach it.
        ConfigError: The port is taken.
    """
    address = _loopback(host)
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    # The protocol is named because asyncio looks at it: without, answers wait 40 ms for a reader's acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((str(address), port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        raise ConfigError("port", f"cannot listen on {host} port {port}: {error}") from error
    return listener


def _loopback(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host.strip("[]"))
    except ValueError:
        raise UnsafeBindError(host) from None
    if not address.is_loopback:
        raise UnsafeBindError(host)
    return address
