"""Streams of events: of one run, and of lists."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from bartack.errors import JournalNotFoundError, RunBeingReadError
from bartack.web._queries import EventsQuery, ListEventsQuery, read_query
from bartack.web._refusals import API
from bartack.web._sessions import session_of
from bartack.web._site import site_of
from bartack.web._templates import PartRenderer
from bartack.web.reading._open import follow
from bartack.web.reading._steps import StepFilter
from bartack.web.streams._list_stream import ListStream
from bartack.web.streams._run_stream import RunStream
from bartack.web.streams._sse import EventResponse


async def _run_events(request: Request) -> Response:
    query = read_query(request.query_params, EventsQuery)
    site = site_of(request)
    followed = await follow(site, str(request.path_params["run"]))
    with suppress(RunBeingReadError):  # the stream reports how far that is
        await followed.wait_until_built()
    if followed.follower.state == "deleted":
        raise JournalNotFoundError(str(followed.run.path))
    steps = StepFilter(
        query.worker, frozenset(query.kind), frozenset(query.status), query.q, everything=query.all
    )
    session = session_of(request)
    base = f"/r/{followed.run.id}"
    renderer = PartRenderer(site, session, base, base)
    stream = RunStream(site, followed, query, renderer, steps)
    return EventResponse(stream, session, stream.hello())


async def _list_events(request: Request) -> Response:
    query = read_query(request.query_params, ListEventsQuery)
    site, session = site_of(request), session_of(request)
    stream = ListStream(site, query, PartRenderer(site, session, f"/{query.view}"))
    return EventResponse(stream, session, stream.hello())


ROUTES: Final[list[BaseRoute]] = [
    Route(f"{API}/events", _list_events, methods=["GET"]),
    Route(f"{API}/runs/{{run}}/events", _run_events, methods=["GET"]),
]
