"""Entering and leaving: a link's code becomes a session, and a session ends."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from bartack.core import typed
from bartack.errors import WebRefusedError
from bartack.web._guard import ENTER, LEAVE, cookies_of, parse_form
from bartack.web._refusals import JSON
from bartack.web._sessions import COOKIE
from bartack.web._site import site_of
from bartack.web._templates import render

_SEE_OTHER: Final = 303


class _Given(msgspec.Struct):
    code: str


async def _page(request: Request) -> Response:
    """The page to enter: its script sends the code in the fragment of its address; without script a person can."""
    return render(request, "enter.html")


async def _enter(request: Request) -> Response:
    body = await request.body()
    by_script = request.headers["content-type"].startswith(JSON)
    sessions = site_of(request).sessions
    entered = sessions.enter(_code_of(body) if by_script else _field_of(body))
    for token in cookies_of(request):
        sessions.leave(token)
    answer = JSONResponse({"to": entered.to}) if by_script else RedirectResponse(entered.to, _SEE_OTHER)
    answer.set_cookie(COOKIE, entered.token, path="/", secure=True, httponly=True, samesite="strict")
    return answer


def _code_of(body: bytes) -> str:
    try:
        return typed.decode(body, type=_Given).code
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WebRefusedError(f"the body is wrong: {error}", status=400) from None


def _field_of(body: bytes) -> str:
    # A person may paste the whole link.
    return parse_form(body).get("code", [""])[0].strip().rpartition("#")[2]


async def _leave(request: Request) -> Response:
    """End the session."""
    for token in cookies_of(request):
        site_of(request).sessions.leave(token)
    answer = RedirectResponse(ENTER, _SEE_OTHER)
    answer.delete_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="strict")
    return answer


ROUTES: Final[list[BaseRoute]] = [
    Route(ENTER, _page),
    Route(ENTER, _enter, methods=["POST"]),
    Route(LEAVE, _leave, methods=["POST"]),
]
