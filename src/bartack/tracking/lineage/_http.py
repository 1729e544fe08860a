"""The lineage service as a Starlette application: who may ask, what a request says, and how an answer looks.

Imported only when a service is started, because of what it imports. What is answered comes from ``_store.py``.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar
from urllib.parse import unquote

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from bartack.errors import (
    BartackError,
    CursorError,
    EventConflictError,
    EventInvalidError,
    EventValueError,
    LineageCycleError,
    LineageError,
    PatternNotFoundError,
    StoreTooNewError,
    StoreUnavailableError,
)
from bartack.resilience.loopback import names_service
from bartack.resilience.proof import NONCE_HEADER, PROOF_PATH, UNIX_ENDS, ProofSessions, tcp_ends
from bartack.tracking.lineage._api import BASE, BODY_LIMIT, ENDPOINTS, OPEN, Endpoint, openapi
from bartack.tracking.lineage._store import LineageStore
from bartack.tracking.lineage.wire import (
    BatchAnswer,
    BatchItem,
    BatchRequest,
    Event,
    HealthAnswer,
    Level,
    LineageQuery,
    PageQuery,
    Problem,
    SearchRequest,
    Tracked,
    ValidateRequest,
    convert,
    decode_json,
    parse_event,
    try_event,
)

S = TypeVar("S", bound=msgspec.Struct)

WAITING_LIMIT: Final = 1000
"""The most events that wait to be written; more are refused."""

_STATUS: Final[tuple[tuple[type[BartackError], int, str], ...]] = (
    (EventValueError, 422, "bad_value"),
    (EventInvalidError, 400, "invalid"),
    (CursorError, 400, "invalid"),
    (PatternNotFoundError, 404, "unknown_pattern"),
    (EventConflictError, 409, "conflict"),
    (LineageCycleError, 409, "cycle"),
    (StoreUnavailableError, 503, "store_unavailable"),
    (StoreTooNewError, 503, "store_unavailable"),
)

_HTTP_CODES: Final = {
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    415: "unsupported_media_type",
}

_log = logging.getLogger("bartack.tracking.lineage")


class BusyError(Exception):
    """Too many events wait to be written."""


def build_app(store: LineageStore, token: str) -> ASGIApp:
    """The application; ``store`` has to be open while it is used."""
    handlers = Handlers(store)
    app = Starlette(
        routes=[_route(endpoint, handlers) for endpoint in ENDPOINTS],
        exception_handlers={
            BartackError: _answer_error,
            BusyError: _answer_busy,
            HTTPException: _answer_http,
            Exception: _answer_defect,
        },
    )
    app.router.redirect_slashes = False
    return Guard(app, token)


class Guard:
    """Admits requests that name this machine, do not come from a web page, and prove or carry the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()
        self._sessions = ProofSessions(token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Routes are found in the path as it was sent: an id may have a slash in it, as %2F.
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        scope = {**scope, "path": raw.partition(b"?")[0].decode("latin-1")}
        await (self._refusal(scope) or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if not names_service(_values(scope, b"host")):
            return refuse(
                403, "forbidden", "the Host header does not name this machine as 127.0.0.1 or localhost"
            )
        if any(name == b"origin" for name, _ in headers):
            return refuse(403, "forbidden", "requests from web pages are not answered")
        if scope["path"] == PROOF_PATH and scope["method"] == "GET":
            return self._prove(scope)
        if scope["path"] not in _OPEN_PATHS and not self._knows_token(scope):
            response = refuse(401, "unauthorized", "the token is missing or wrong")
            response.headers["WWW-Authenticate"] = "Bearer"
            return response
        return None

    def _prove(self, scope: Scope) -> Response:
        nonces = _values(scope, NONCE_HEADER.lower().encode())
        proof = self._sessions.challenge(nonces[0], ends_of(scope)) if len(nonces) == 1 else None
        if proof is None:
            return refuse(400, "invalid", f"a challenge has one {NONCE_HEADER} of 64 hexadecimal digits")
        return Response(headers=proof)

    def _knows_token(self, scope: Scope) -> bool:
        given = _values(scope, b"authorization")
        if len(given) != 1:
            return False
        scheme, _, token = given[0].partition(" ")
        if scheme.lower() == "bearer":
            return hmac.compare_digest(token.strip().encode(), self._token)
        query: bytes = scope["query_string"]
        target = scope["path"] + (f"?{query.decode('latin-1')}" if query else "")
        return self._sessions.admits(given[0], ends_of(scope), scope["method"], target)


def ends_of(scope: Scope) -> str:
    """Both ends of the connection that a request came over, for its proof; empty if they are not known."""
    client, server = scope.get("client"), scope.get("server")
    if server is not None and server[1] is None:
        return UNIX_ENDS
    return tcp_ends(client, server) if client and server else ""


def _values(scope: Scope, wanted: bytes) -> list[str]:
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    return [value.decode("latin-1") for name, value in headers if name == wanted]


_OPEN_PATHS: Final = frozenset(BASE + endpoint.path for endpoint in ENDPOINTS if endpoint.name in OPEN)


class Writer:
    """Brings events that wait at the same time to the disk together: one sync for all of them.

    The caller that gets the turn writes everything that waits; the others find their answers ready when it is theirs.
    """

    def __init__(self, store: LineageStore) -> None:
        self._store = store
        self._turn = asyncio.Lock()
        self._waiting: list[_Group] = []

    async def write(self, events: Sequence[Event]) -> list[Tracked | LineageError]:
        """What became of the events, in their order.

        Raises:
            StoreUnavailableError: None of them was recorded.
            BusyError: Too many wait already.
        """
        if sum(len(group.events) for group in self._waiting) >= WAITING_LIMIT:
            raise BusyError
        group = _Group(events)
        self._waiting.append(group)
        try:
            async with self._turn:
                if group.results is None and group.error is None:
                    await self._write_waiting()
        finally:
            if group in self._waiting:
                self._waiting.remove(group)
        if group.error is not None:
            raise StoreUnavailableError(group.error.path, group.error.reason)
        assert group.results is not None, "the current writer has written it"
        return group.results

    async def _write_waiting(self) -> None:
        groups = list(self._waiting)
        events = [event for group in groups for event in group.events]
        try:
            results = await run_in_threadpool(self._store.track_many, events)
        except StoreUnavailableError as error:
            for group in groups:
                group.error = error
        else:
            for group in groups:
                group.results, results = results[: len(group.events)], results[len(group.events) :]
        self._waiting = [group for group in self._waiting if group not in groups]


class _Group:
    """Events of one request that wait to be written, and what became of them."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self.results: list[Tracked | LineageError] | None = None
        self.error: StoreUnavailableError | None = None


class Handlers:
    """One method for each line of the table: takes a request, returns the ``data`` of the answer."""

    def __init__(self, store: LineageStore) -> None:
        self._store = store
        self._writer = Writer(store)

    async def track(self, request: Request) -> object:
        """See ``ENDPOINTS``."""
        event = parse_event(await read_json(request))
        (result,) = await self._writer.write([event])
        if isinstance(result, LineageError):
            raise result
        return result

    async def track_batch(self, request: Request) -> object:
        """See ``ENDPOINTS``."""
        batch = convert(await read_json(request), BatchRequest)
        parsed = [try_event(body) for body in batch.events]
        events = [one for one in parsed if isinstance(one, Event)]
        written = iter(await self._writer.write(events) if events else [])
        return BatchAnswer([_item(next(written) if isinstance(one, Event) else one) for one in parsed])

    async def lineage(self, request: Request) -> object:
        """See ``ENDPOINTS``."""
        return await run_in_threadpool(
            self._store.lineage, read_id(request), read_query(request, LineageQuery)
        )

    async def evolution(self, request: Request) -> object:
        """See ``ENDPOINTS``."""
        return await run_in_threadpool(
            self._store.evolution, read_id(request), read_query(request, PageQuery)
        )

    async def orphans(self, request: Request) -> object:
        """See ``ENDPOINTS``."""
        return await run_in_threadpool(self._store.orphans, read_query(request, PageQuery))

    async def cycles(self, request: Request) -> object:
        """See ``ENDPOINTS``."""
        return await run_in_threadpool(self._store.cycles, read_query(request, PageQuery))

    async def search(self, request: Request) -> object:
        """See ``ENDPOINTS``."""
        return await run_in_threadpool(self._store.search, convert(await read_json(request), SearchRequest))

    async def validate(self, request: Request) -> object:
        """See ``ENDPOINTS``."""
        return await run_in_threadpool(
            self._store.validate, convert(await read_json(request), ValidateRequest)
        )

    async def health(self, request: Request) -> object:
        """See ``ENDPOINTS``."""
        started = time.perf_counter()
        readable = await run_in_threadpool(self._readable)
        writing: Level = "degraded" if self._store.write_failed else "healthy"
        status: Level = writing if readable else "unhealthy"
        reading: Level = "healthy" if readable else "unhealthy"
        return HealthAnswer(
            status=status,
            components={"lineage_tracker": status, "search": reading},
            timestamp=datetime.now(UTC).isoformat(),
            response_time_ms=_ms_since(started),
        )

    def _readable(self) -> bool:
        try:
            self._store.check_readable()
        except (StoreUnavailableError, StoreTooNewError):
            return False
        return True

    async def openapi(self, request: Request) -> object:
        """See ``ENDPOINTS``."""
        return openapi()


def _item(result: Tracked | BartackError) -> BatchItem:
    if isinstance(result, Tracked):
        return BatchItem(success=True, data=result)
    return BatchItem(success=False, error=_problem(result)[1])


def _route(endpoint: Endpoint, handlers: Handlers) -> Route:
    handler: Callable[[Request], Awaitable[object]] = getattr(handlers, endpoint.name)

    async def answer(request: Request) -> Response:
        started = time.perf_counter()
        data = await handler(request)
        if isinstance(data, HealthAnswer):
            return _json(data, 200 if data.status == "healthy" else 503)
        if endpoint.data is None:
            return _json(data)
        metadata = {"operation": endpoint.name, "processing_time_ms": _ms_since(started)}
        return _json({"success": True, "data": data, "metadata": metadata})

    return Route(BASE + endpoint.path, answer, methods=[endpoint.method], name=endpoint.name)


def _ms_since(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)


async def read_json(request: Request) -> object:
    """The body of a request.

    Raises:
        HTTPException: It is too long, or not said to be JSON.
        EventInvalidError: It is not JSON.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, "send the body with 'Content-Type: application/json'")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > BODY_LIMIT:
        raise HTTPException(413, "the body is longer than 4 MiB")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_LIMIT:
            raise HTTPException(413, "the body is longer than 4 MiB")
    return decode_json(bytes(body))


def read_query(request: Request, kind: type[S]) -> S:
    """The members of the query string.

    Raises:
        EventInvalidError: One of them is wrong.
    """
    return convert(dict(request.query_params), kind, from_text=True)


def read_id(request: Request) -> str:
    """The id in the path.

    Raises:
        EventInvalidError: It is not UTF-8.
    """
    try:
        return unquote(str(request.path_params["id"]), errors="strict")
    except UnicodeDecodeError:
        raise EventInvalidError("is not UTF-8", "id") from None


def refuse(status: int, code: str, message: str, field: str = "") -> Response:
    """The answer to a request that is not fulfilled."""
    return _json({"success": False, "error": Problem(code, message, field)}, status)


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def _problem(error: BartackError) -> tuple[int, Problem]:
    for kind, status, code in _STATUS:
        if isinstance(error, kind):
            field = error.field if isinstance(error, EventInvalidError) else ""
            return status, Problem(code, error.message, "cursor" if kind is CursorError else field)
    return 500, Problem("internal", "an unexpected error occurred in the service")


def _answer_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, BartackError)
    status, problem = _problem(error)
    if status >= 500:
        _log.error("%s: %s", request.url.path, error)
    response = refuse(status, problem.code, problem.message, problem.field)
    if status == 503:
        response.headers["Retry-After"] = "5"
    return response


def _answer_busy(request: Request, error: Exception) -> Response:
    response = refuse(429, "busy", "too many events wait to be written")
    response.headers["Retry-After"] = "1"
    return response


def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _HTTP_CODES.get(error.status_code, "invalid")
    response = refuse(error.status_code, code, error.detail)
    response.headers.update(error.headers or {})
    return response


def _answer_defect(request: Request, error: Exception) -> Response:
    return refuse(500, "internal", "an unexpected error occurred in the service")
