"""The process: one server for a user, on this machine only. A second command adds its workspaces to the first one's server.

The name of its pages is its own. Cookies know hosts and not ports, and all ports of a host are one site: under ``127.0.0.1`` or
``localhost`` every other server of this machine, for instance one that an agent has started, would be sent our cookie.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, cast

import msgspec
import uvicorn

from bartack._version import __version__
from bartack.core.watch import open_watch
from bartack.depot.elsewhere import Elsewhere
from bartack.errors import ConfigError, PeerRefusedError, UnsafeBindError, WebPortError, WebRefusedError
from bartack.resilience.loopback import open_listener, stop_signals
from bartack.resilience.own_socket import OwnSocket
from bartack.runtime.rundir.inside import find_enclosing, reason_of
from bartack.web._app import make_app
from bartack.web._site import DEFAULT_PORT, OWN_NAME, Site
from bartack.web._socket import (
    ANSWER_S,
    ControlAnswer,
    ControlRequest,
    ControlSocket,
    ask_server,
    page_of,
    socket_path,
)

GRACE_S: Final = 0.2
"""How long requests in progress may take when the server ends."""
_SHARED_NAMES: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""Names that other servers of this machine have, too."""
_OWN_DOMAIN: Final = ".localhost"
_NO_SUCH_FAMILY: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


class WebRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a person asks to see.

    Attributes:
        workspaces: Where the runs are.
        run: The run that the first page shows; empty for the start page.
        port: The port; 0 takes a free one.
        name: The name in the address of the pages.
        read_only: Show runs, and take no action.
        allow_actions: Take actions although other servers of this machine have the same name.
        cache_mb: The most memory that the spans of all followed runs may take.
        databases: Where more runs are.
    """

    workspaces: tuple[Path, ...]
    run: str = ""
    port: int = DEFAULT_PORT
    name: str = OWN_NAME
    read_only: bool = False
    allow_actions: bool = False
    cache_mb: int = 256
    databases: tuple[Elsewhere, ...] = ()

    @property
    def is_read_only(self) -> bool:
        """Whether no action is possible."""
        return self.read_only or (self.name in _SHARED_NAMES and not self.allow_actions)


def serve_web(request: WebRequest, ready: Callable[[ControlAnswer], None]) -> bool:
    """Show runs in a browser until SIGINT or SIGTERM, or have the server that this user has already show them.

    Args:
        request: What to show.
        ready: Called with the link, and what is known of the server.

    Returns:
        Whether this process was the server.

    Raises:
        PeerRefusedError: This process belongs to a run.
        UnsafeBindError: The name does not lead to this machine.
        WebPortError: The port is taken.
        WebRefusedError: The server that this user has does not answer.
    """
    inside = find_enclosing(os.getpid())
    if inside is not None:
        raise PeerRefusedError("a web server", reason_of(inside))
    check_name(request.name)
    with ExitStack() as stack:
        own = stack.enter_context(OwnSocket(socket_path()))
        other = _join_server(own, request)
        if other is not None:
            ready(other)
            return False
        listeners = [stack.enter_context(one) for one in open_listeners(request.port)]
        port: int = listeners[0].getsockname()[1]
        site = make_site(request, port)
        url = site.new_link(page_of(request.run))
        facts = ControlAnswer(url=url, pid=os.getpid(), version=__version__, read_only=site.read_only)
        _serve(site, listeners, own.listeners[0], lambda: ready(facts))
    return True


def make_site(request: WebRequest, port: int) -> Site:
    """What a server on a port shows."""
    return Site(
        request.workspaces,
        read_only=request.is_read_only,
        cache_mb=request.cache_mb,
        name=request.name,
        port=port,
        databases=request.databases,
    )


def check_name(name: str) -> None:
    """Raise unless a name leads to this machine wherever it is used.

    Raises:
        UnsafeBindError: It does not.
    """
    labels = name.removesuffix(_OWN_DOMAIN).split(".")
    is_own = name.endswith(_OWN_DOMAIN) and all(
        label.isascii() and label.replace("-", "").isalnum() and label == label.lower() for label in labels
    )
    if not is_own and name not in _SHARED_NAMES:
        error = UnsafeBindError(name)
        error.remedy = (
            f"Use {OWN_NAME}, another name below .localhost, or 127.0.0.1. From another machine use ssh -L."
        )
        raise error


def open_listeners(port: int) -> list[socket.socket]:
    """Listen on both addresses of this machine: browsers may use either for one name, and another program could have the other.

    Raises:
        WebPortError: The port is taken.
    """
    opened: list[socket.socket] = []
    try:
        for host in ("127.0.0.1", "::1"):
            opened.append(open_listener(host, opened[0].getsockname()[1] if opened else port))
    except ConfigError as error:
        cause = error.__cause__
        if opened and isinstance(cause, OSError) and cause.errno in _NO_SUCH_FAMILY:
            return opened  # this machine has no IPv6
        for listener in opened:
            listener.close()
        raise WebPortError(port, str(cause or error)) from error
    return opened


def _join_server(own: OwnSocket, request: WebRequest) -> ControlAnswer | None:
    """Have the server of this user show these workspaces, too; ``None`` if this process has to be the server.

    One that has begun just now does not answer yet, and one that ends just now no longer does.
    """
    places = [str(one.resolve()) for one in request.workspaces]
    asked = ControlRequest("link", places, request.run, list(request.databases))
    limit = time.monotonic() + ANSWER_S
    with open_watch(str(own.path.parent)) as watch:
        while not own.listeners and not own.open():
            answer = ask_server(asked, own.path)
            if answer is not None:
                return answer
            if time.monotonic() > limit:
                problem = f"no server answers on {own.path}, and none can be started there"
                raise WebRefusedError(problem, status=503)
            watch.wait(0.05)
    return None


class _Server(uvicorn.Server):
    """Ends streams of events first: they would last until their browsers leave."""

    def __init__(self, config: uvicorn.Config, site: Site) -> None:
        super().__init__(config)
        self._site = site

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See ``uvicorn.Server.shutdown``."""
        self._site.sessions.close()
        logging.getLogger("uvicorn.error").disabled = True  # requests that are cancelled now are not errors
        await super().shutdown(sockets)


def _serve(
    site: Site, listeners: Sequence[socket.socket], control: socket.socket, ready: Callable[[], None]
) -> None:
    config = uvicorn.Config(
        make_app(site),
        access_log=False,
        http="h11",  # the stricter parser
        lifespan="on",
        log_config=None,
        proxy_headers=False,  # the ends of a connection are what its socket says
        server_header=False,
        timeout_graceful_shutdown=cast("int", GRACE_S),  # asyncio takes parts of a second
        ws="none",
    )
    server = _Server(config, site)

    def stop() -> None:
        server.should_exit = True

    async def run() -> None:
        commands = ControlSocket(site, stop)
        async with await asyncio.start_unix_server(commands.serve, sock=control):
            await server.serve(sockets=list(listeners))
            await commands.close()

    with stop_signals(stop):
        ready()
        asyncio.run(run())
