"""The socket of the server, for commands of the same user: another link, one more workspace, the end.

It is in the state home, for this user only. A process that belongs to a run is refused, as by a hub: a link is a way to act.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, cast

import msgspec

from bartack._version import __version__
from bartack.core import typed
from bartack.core.ids import parse_run_id
from bartack.core.sockets import is_own_socket, peer_of
from bartack.core.user_home import user_home
from bartack.depot.elsewhere import Elsewhere
from bartack.errors import BartackError, PeerRefusedError, WebRefusedError
from bartack.runtime.rundir.inside import find_enclosing, reason_of

if TYPE_CHECKING:
    from bartack.web._site import Site

NAME: Final = "web.sock"
ANSWER_S: Final = 5.0
"""How long a command waits for an answer, and the server for a request."""
_LONGEST: Final = 65536
_END_S: Final = 0.1


class ControlRequest(msgspec.Struct, omit_defaults=True):
    """What a command asks for.

    Attributes:
        do: A link, or the end of the server.
        workspaces: Workspaces that the server shows from now on.
        run: The run that the link leads to; empty for the start page.
        databases: Databases whose runs the server shows from now on.
    """

    do: Literal["link", "stop"]
    workspaces: list[str] = []
    run: str = ""
    databases: list[Elsewhere] = []


class ControlAnswer(msgspec.Struct, omit_defaults=True):
    """What the server answers: a link or nothing, what the server is, or why it refuses.

    Attributes:
        url: The link.
        pid: The process of the server.
        version: Its version of Bartack.
        read_only: It shows runs only.
        inside: The command belongs to a run, and how that shows.
        problem: What is wrong with the request.
    """

    url: str = ""
    pid: int = 0
    version: str = ""
    read_only: bool = False
    inside: str = ""
    problem: str = ""


def socket_path() -> Path:
    """Where the socket of this user's server is, or a link to it."""
    return user_home() / NAME


def page_of(run: str) -> str:
    """The address of the page of a run; that of the start page without one.

    Raises:
        RunIdError: It is not the id of a run.
    """
    return f"/r/{parse_run_id(run)}" if run else "/"


def ask_server(request: ControlRequest, path: Path | None = None) -> ControlAnswer | None:
    """Ask the server of this user; ``None`` if there is none. After ``stop`` this waits for its end.

    Raises:
        PeerRefusedError: This process belongs to a run.
        WebRefusedError: The server refuses the request.
    """
    place = os.path.realpath(socket_path() if path is None else path)
    if not is_own_socket(place):
        return None
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(ANSWER_S)
            try:
                client.connect(place)
            except (ConnectionError, FileNotFoundError):
                return None
            client.sendall(msgspec.json.encode(request) + b"\n")
            with client.makefile("rb") as file:
                line = file.readline(_LONGEST)
                if request.do == "stop":
                    file.read()  # the connection ends with the server
    except OSError as error:
        raise WebRefusedError(f"the server of this user does not answer: {error}") from error
    answer = typed.decode(line or b"{}", type=ControlAnswer)
    if answer.inside:
        raise PeerRefusedError("a link into the web server", answer.inside)
    if answer.problem:
        raise WebRefusedError(answer.problem)
    return answer


class ControlSocket:
    """The server's side of it.

    Args:
        site: What the server shows.
        stop: Lets the server end.
    """

    def __init__(self, site: Site, stop: Callable[[], None]) -> None:
        self._site = site
        self._stop = stop
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[object]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the one request of a connection."""
        self._open.add(writer)
        task = cast("asyncio.Task[object]", asyncio.current_task())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        request: ControlRequest | None = None
        with suppress(OSError, TimeoutError, ValueError):
            async with asyncio.timeout(ANSWER_S):
                answer, request = await self._answer(reader, *peer_of(writer.get_extra_info("socket")))
                writer.write(msgspec.json.encode(answer) + b"\n")
                await writer.drain()
        if request is not None and request.do == "stop":
            self._stop()  # the connection stays open until then: the command waits for its end
        else:
            self._open.discard(writer)
            writer.close()

    async def close(self) -> None:
        """End all connections: commands that wait for the end of the server get it by this."""
        for writer in self._open:
            writer.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_END_S)

    async def _answer(
        self, reader: asyncio.StreamReader, pid: int, uid: int
    ) -> tuple[ControlAnswer, ControlRequest | None]:
        """The answer, and the request if it is fulfilled. It is read first: what is left unread would break the connection."""
        line = await reader.readline()
        if uid != os.getuid():
            return ControlAnswer(problem="the server belongs to another user"), None
        # A process without a number is outside the namespace of this one, so no run of this namespace started it.
        inside = await asyncio.to_thread(find_enclosing, pid) if pid else None
        if inside is not None:
            return ControlAnswer(inside=reason_of(inside)), None
        try:
            request = typed.decode(line, type=ControlRequest)
            to = page_of(request.run)
            for workspace in request.workspaces:
                self._site.add(Path(workspace))
            for database in request.databases:
                self._site.add_database(database)
        except (msgspec.DecodeError, BartackError) as error:
            return ControlAnswer(problem=str(error)), None
        url = self._site.new_link(to) if request.do == "link" else ""
        read_only = self._site.read_only
        return ControlAnswer(url=url, pid=os.getpid(), version=__version__, read_only=read_only), request
