"""The application: the guard around the routes, and how a refusal or an error is answered.

A request passes ``_guard.py``, then a route: ``pages/`` (HTML), ``_api.py`` (JSON), ``_stream.py`` (events), ``_actions.py``
(POST), each of which has a list ``ROUTES``. A handler gets the site by ``site_of(request)`` and its session by
``session_of(request)``. It raises a ``BartackError`` to refuse; ``_refusals.py`` makes the answer of it.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from bartack.errors import BartackError
from bartack.web import _actions, _api, _enter, _static, _stream, pages
from bartack.web._guard import Guard
from bartack.web._refusals import answer_defect, answer_error, answer_http
from bartack.web._site import Site

SWITCH_S: Final = 0.001
PARTS: Final = (_enter, _static, _actions, pages, _api, _stream)
"""The modules with routes. Actions come first: the address of one is also that of a letter with its name, by its pattern."""


def make_app(site: Site) -> Starlette:
    """The application that shows a site; what it shows is followed while it serves."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        # A thread that makes a call of the system waits this long for the loop, after each of them, while a journal is read.
        usual = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        try:
            async with site.opened():
                yield
        finally:
            sys.setswitchinterval(usual)

    app = Starlette(
        routes=[route for part in PARTS for route in part.ROUTES],
        exception_handlers={
            BartackError: answer_error,
            HTTPException: answer_http,
            Exception: answer_defect,
        },
        middleware=[Middleware(Guard, site)],
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.site = site
    return app
