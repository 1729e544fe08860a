"""The lineage service: an ASGI application, its token, and a server that only this machine can reach.

Starlette and uvicorn are imported when a service is used, not before. The requests are answered in ``_http.py``.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bartack.resilience.loopback import open_listener, stop_signals
from bartack.resilience.own_socket import OwnSocket
from bartack.resilience.service_files import service_socket
from bartack.resilience.tokens import load_token
from bartack.tracking.lineage._store import LineageStore

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

DEFAULT_PORT: Final = 8053


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

        def stop() -> None:
            server.should_exit = True

        with stop_signals(stop):
            if ready is not None:
                ready()
            asyncio.run(server.serve(sockets=list(listeners)))


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
        with LineageStore(db) as store, OwnSocket(service_socket(number)) as own:
            announce = None if ready is None else partial(ready, f"http://{name}:{number}")
            LineageService(store, token).serve(listener, *own.listeners, ready=announce)
