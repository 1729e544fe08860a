"""The doors of the daemon: a socket for this user's processes, HTTP on the loopback interface for the agent's http hooks.

Both hand bytes to one ``Ingest``, which makes everything that waits durable with one commit and answers then. There is no answer
from memory.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from bartack.core import typed
from bartack.core.sockets import peer_of
from bartack.errors import OutboxFullError, ResilienceError
from bartack.resilience import NewEvent, Outbox
from bartack.resilience.loopback import names_service
from bartack.resilience.outbox.outbox import bump
from bartack.resilience.spool import Header, Spool, split_event
from bartack.resilience.tokens import hook_token

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp

_log = logging.getLogger("bartack.tracking")
BODY_MOST: Final = 16 * 1024 * 1024
FRAME_MOST: Final = BODY_MOST + 64 * 1024
_BUSY_S: Final = 0.1
Command = Callable[[Header], str | None]


class Answer(NamedTuple):
    """What became of an event: ``ok`` with its id, ``full``, or ``error`` with a code."""

    kind: str
    detail: str = ""

    def line(self) -> bytes:
        """The answer on the socket."""
        return f"{self.kind} {self.detail}".strip().encode("ascii", "replace") + b"\n"


class _Waiting(NamedTuple):
    data: bytes
    event: NewEvent | None
    home: str
    done: asyncio.Future[Answer]


class Ingest:
    """Makes events durable, all that wait with one commit.

    Args:
        outbox_for: The outbox for the event with this header.
        notify: Called with the outbox after an event in it is durable.
        to_event: Reads the bytes of an event.
    """

    def __init__(
        self,
        outbox_for: Callable[[Header], Outbox],
        notify: Callable[[Outbox], None],
        to_event: Callable[[bytes], NewEvent | None],
    ) -> None:
        self._outbox_for = outbox_for
        self._notify = notify
        self._to_event = to_event
        self._waiting: list[tuple[Outbox, _Waiting]] = []
        self._scheduled = False
        self.closed = False
        self.taken = 0

    def submit(self, data: bytes) -> asyncio.Future[Answer]:
        """Take one event; the future ends when it is durable or cannot be."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Answer] = loop.create_future()
        if self.closed:
            done.set_result(Answer("error", "stopping"))
            return done
        try:
            header, _ = split_event(data)
            event = self._to_event(data)
        except ValueError:
            done.set_result(Answer("error", "malformed"))
            return done
        outbox = self._outbox_for(header)
        self._waiting.append((outbox, _Waiting(data, event, str(outbox.store.directory), done)))
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._commit)
        return done

    def _commit(self) -> None:
        self._scheduled = False
        waiting, self._waiting = self._waiting, []
        by_home: dict[str, tuple[Outbox, list[_Waiting]]] = {}
        for outbox, one in waiting:
            by_home.setdefault(one.home, (outbox, []))[1].append(one)
        for outbox, some in by_home.values():
            self._commit_some(outbox, some)
            self._notify(outbox)

    def _commit_some(self, outbox: Outbox, waiting: list[_Waiting]) -> None:
        events = [one.event for one in waiting if one.event is not None]
        empty = len(waiting) - len(events)
        try:
            outbox.put(events, busy_s=_BUSY_S, beside=partial(bump, name="empty_hooks", by=empty))
        except OutboxFullError:
            self._one_by_one(outbox, waiting)
            return
        except ResilienceError as error:
            _log.warning("events go to the spool: %s", error)
            for one in waiting:
                _answer(one, _spooled(one))
            return
        self.taken += len(events)
        for one in waiting:
            _answer(one, _accepted(one))

    def _one_by_one(self, outbox: Outbox, waiting: list[_Waiting]) -> None:
        """One that does not fit must not keep the others out."""
        if len(waiting) == 1:
            _answer(waiting[0], Answer("full"))
            return
        for one in waiting:
            self._commit_some(outbox, [one])


def _accepted(one: _Waiting) -> Answer:
    return Answer("ok", one.event.event_id if one.event else "empty")


def _spooled(one: _Waiting) -> Answer:
    header, body = split_event(one.data)
    try:
        Spool(one.home).put(header, body)
    except OSError as error:
        _log.warning("event not kept: %s", error)
        return Answer("error", "unavailable")
    return _accepted(one)


def _answer(one: _Waiting, answer: Answer) -> None:
    if not one.done.done():
        one.done.set_result(answer)


class SocketListener:
    """Serves connections of this user's processes.

    Args:
        ingest: Where events go.
        command: What a frame without an event means; ``None`` if it is an event.
    """

    def __init__(self, ingest: Ingest, command: Command) -> None:
        self._ingest = ingest
        self._command = command

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the frames of one connection until it ends."""
        try:
            if peer_of(writer.get_extra_info("socket"))[1] == os.getuid():
                while (frame := await _read_frame(reader)) is not None:
                    writer.write((await self._answer(frame)).line())
                    await writer.drain()
        except _RefusedError as refused:
            writer.write(Answer("error", str(refused)).line())
        except (OSError, asyncio.IncompleteReadError) as error:
            _log.debug("connection lost: %s", error)
        finally:
            writer.close()

    async def _answer(self, frame: bytes) -> Answer:
        try:
            header, _ = split_event(frame)
        except ValueError:
            return Answer("error", "malformed")
        answer = self._command(header)
        return Answer("ok", answer) if answer is not None else await self._ingest.submit(frame)


class _RefusedError(Exception):
    """A frame that is not read at all."""


async def _read_frame(reader: asyncio.StreamReader) -> bytes | None:
    try:
        length = int.from_bytes(await reader.readexactly(4), "big")
    except asyncio.IncompleteReadError:
        return None
    if length > FRAME_MOST:
        raise _RefusedError("too_large")
    return await reader.readexactly(length)


def build_door(ingest: Ingest, token: str, version: str) -> ASGIApp:
    """The HTTP application for hooks. A success has an empty body: any text would be put before the model."""
    from starlette.applications import Starlette  # noqa: PLC0415 - only the daemon needs it
    from starlette.exceptions import HTTPException  # noqa: PLC0415 - as above
    from starlette.responses import JSONResponse, Response  # noqa: PLC0415 - as above
    from starlette.routing import Route  # noqa: PLC0415 - as above

    def refuse(status: int, code: str, message: str) -> Response:
        return JSONResponse({"error": {"code": code, "message": message}}, status)

    async def hook(request: Request) -> Response:
        refusal = _refusal(request, token)
        if refusal is not None:
            return refuse(*refusal)
        body = await _read_body(request)
        if body is None:
            return refuse(413, "too_large", f"a body has at most {BODY_MOST} bytes")
        header = Header(request.path_params["event"], time.time_ns(), _cwd_of(body))
        answer = await ingest.submit(header.encode() + b"\n" + body)
        if answer.kind != "ok":
            return refuse(503, answer.kind, answer.detail or "the event cannot be kept now")
        return Response(status_code=200, headers={"X-Bartack-Event": answer.detail})

    async def health(request: Request) -> Response:
        refusal = _foreign(request)
        return refuse(*refusal) if refusal else JSONResponse({"status": "healthy", "version": version})

    def failed(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "refused")
        return refuse(error.status_code, code, error.detail)

    routes = [
        Route("/hooks/v1/{event:str}", hook, methods=["POST"]),
        Route("/health", health, methods=["GET"]),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: failed})


def _foreign(request: Request) -> tuple[int, str, str] | None:
    if not names_service(request.headers.getlist("host")):
        return 403, "forbidden", "the Host header does not name this machine"
    if "origin" in request.headers:
        return 403, "forbidden", "requests from web pages are not answered"
    return None


def _refusal(request: Request, token: str) -> tuple[int, str, str] | None:
    foreign = _foreign(request)
    if foreign is not None:
        return foreign
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    # Hooks that were installed by older versions carry the token itself.
    known = [hmac.compare_digest(given.strip().encode(), one.encode()) for one in (hook_token(token), token)]
    if scheme.lower() != "bearer" or not any(known):
        return 401, "unauthorized", "the token is missing or wrong"
    return None


async def _read_body(request: Request) -> bytes | None:
    """The body, or ``None`` if it is longer than allowed; what is too much is not kept in memory."""
    length = request.headers.get("content-length", "0")
    if length.isdigit() and int(length) > BODY_MOST:
        return None
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_MOST:
            return None
        parts.append(part)
    return b"".join(parts)


class _Where(msgspec.Struct):
    cwd: str = ""


def _cwd_of(body: bytes) -> str:
    try:
        cwd = typed.decode(body, type=_Where).cwd
    except (msgspec.DecodeError, ValueError, RecursionError):
        return "/"
    return cwd if os.path.isabs(cwd) and "\0" not in cwd else "/"
