"""Which requests are answered. Every request passes here before a route sees it, and every answer gets its headers here.

Every request names this server in its one ``Host``, so that no foreign name leads here (DNS rebinding), and does not come from a
page of another site or another server of this machine (``Sec-Fetch-Site``). Without a session only the page to enter and its files
are there. A request that acts besides comes from a page of ours (``Origin``), carries the session's token, is small, and comes from
a process outside every run (``_peer.py``).

The checks stand in the order in which they cost: nothing is read from a request that is refused by its headers.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bartack.errors import BartackError, PeerRefusedError, WebEnterError, WebRefusedError
from bartack.web._headers import secure
from bartack.web._refusals import JSON, answer_error, path_of
from bartack.web._sessions import COOKIE, Session, keep_session, session_of
from bartack.web._site import Site
from bartack.web._static import STATIC
from bartack.web._templates import render

ENTER: Final = "/enter"
LEAVE: Final = "/leave"
FORM: Final = "application/x-www-form-urlencoded"
BODY_LIMIT: Final = 1024 * 1024
"""The longest body of a request, in bytes."""
BODY_S: Final = 10.0
"""How long a body may take to arrive."""
_FIELD_LIMIT: Final = 1000

_SAFE: Final = frozenset({"GET", "HEAD"})
_OWN_SITES: Final = frozenset({"same-origin", "none"})
_ELSEWHERE: Final = "elsewhere.html"


class Guard:
    """Passes on the requests that may be answered; an ASGI application around another one.

    Args:
        app: The application.
        site: What it shows.
    """

    def __init__(self, app: ASGIApp, site: Site) -> None:
        self._app = app
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send = _with_headers(send)
        request = Request(scope, receive)
        try:
            answer = self._check(request)
            if answer is None and request.method not in _SAFE:
                receive = await self._check_action(request)
        except BartackError as error:
            answer = answer_error(request, error)
        except ClientDisconnect:
            return  # in the middle of its request
        await (answer or self._app)(scope, receive, send)

    def _check(self, request: Request) -> Response | None:
        """What holds for every request; the answer where another one takes the place of the route's."""
        if _values(request, "host") != [self._site.host]:
            raise WebRefusedError(f"this server is reached as {self._site.origin} only")
        if not set(_values(request, "sec-fetch-site")) <= _OWN_SITES:
            if _is_visit(request):
                return render(request, _ELSEWHERE, {"address": self._own_address(request)})
            raise WebRefusedError("the request comes from a page of another server")
        session = self._find_session(request)
        if session is None and not _is_open(request):
            raise WebEnterError("this browser has not entered, or the server was started again since")
        return None

    def _own_address(self, request: Request) -> str:
        """The address that was asked for, for a link: whatever it begins with, it leads nowhere else."""
        path, query = (request.scope[part].decode("latin-1") for part in ("raw_path", "query_string"))
        return f"{self._site.origin}/{path.partition('?')[0].lstrip('/')}{f'?{query}' if query else ''}"

    def _find_session(self, request: Request) -> Session | None:
        given = cookies_of(request)
        session = self._site.sessions.find(given[0]) if len(given) == 1 else None
        if session is not None:
            keep_session(request, session)
        return session

    async def _check_action(self, request: Request) -> Receive:
        """What holds for every request that acts besides; returns where its body comes from, which has been read."""
        path = path_of(request)
        if _values(request, "origin") != [self._site.origin]:
            raise WebRefusedError("the request does not come from a page of this server")
        if self._site.read_only and path not in {ENTER, LEAVE}:
            raise WebRefusedError("this server is read-only")
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in {JSON, FORM}:
            raise WebRefusedError(f"send the body as {JSON} or {FORM}", status=400)
        await self._check_peer(request)
        body = await _read_body(request)
        if path != ENTER:
            given = _values(request, "x-csrf-token") or (_read_tokens(body) if kind == FORM else [])
            if len(given) != 1 or not hmac.compare_digest(
                given[0].encode(), session_of(request).csrf.encode()
            ):
                raise WebRefusedError("the token of the page is missing or wrong; load the page again")
        return _replay(body, request.receive)

    async def _check_peer(self, request: Request) -> None:
        client, server = request.scope.get("client"), request.scope.get("server")
        reason = "the ends of the connection are not known"
        if client is not None and server is not None:
            reason = await run_in_threadpool(self._site.judge_peer, tuple(client), tuple(server))
        if reason:
            raise PeerRefusedError("acting through the web", reason)


def _values(request: Request, name: str) -> list[str]:
    return request.headers.getlist(name)


def _is_open(request: Request) -> bool:
    """Whether a request is answered without a session: the page to enter, and the files of pages."""
    path = path_of(request)
    return path == ENTER or (request.method in _SAFE and path.startswith(f"{STATIC}/"))


def _is_visit(request: Request) -> bool:
    """Whether a person follows a link to a page."""
    headers = request.headers
    return (
        request.method == "GET"
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )


def cookies_of(request: Request) -> list[str]:
    """The values of our cookie in a request. A browser sends one; several would not say which counts."""
    pairs = (pair.strip().partition("=") for line in _values(request, "cookie") for pair in line.split(";"))
    return [value for name, _, value in pairs if name == COOKIE]


def _read_tokens(body: bytes) -> Sequence[str]:
    return parse_form(body).get("csrf", [])


def parse_form(body: bytes) -> dict[str, list[str]]:
    """The fields of a form.

    Raises:
        WebRefusedError: It is not one.
    """
    try:
        return parse_qs(
            body.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_FIELD_LIMIT,
        )
    except ValueError:
        raise WebRefusedError("the body is not a form", status=400) from None


async def _read_body(request: Request) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > BODY_LIMIT:
                    raise WebRefusedError("the body is longer than 1 MiB", status=400)
    except TimeoutError:
        raise WebRefusedError("the body did not arrive in time", status=400) from None
    return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return left.pop() if left else await receive()

    return replayed


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            secure(MutableHeaders(scope=message))
        await send(message)

    return sending
