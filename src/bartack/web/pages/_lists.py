"""The list of runs, and the open questions of all runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from bartack.web._queries import Nothing, RunsQuery, read_query
from bartack.web._site import site_of
from bartack.web._templates import render
from bartack.web.models._parts import Filter
from bartack.web.reading._lists import read_all_questions, read_runs
from bartack.web.streams._list_stream import list_address, question_parts, run_parts, state_of

EVENTS: Final = "/api/v1/events"


async def _runs(request: Request) -> Response:
    query = read_query(request.query_params, RunsQuery)
    found = await read_runs(site_of(request), query)
    parts = run_parts(found, query)
    members = {
        "view": "runs",
        "status": list(query.status),
        "q": query.q,
        "ws": query.ws,
        "limit": query.limit,
        "state": state_of(parts),
    }
    values = {
        "nav": "runs",
        "runs": found,
        "query": query,
        "filters": parts[:1],
        "parts": parts[1:],
        "places": _places(query, found.workspaces),
        "more": list_address(query, after=found.next) if found.next else "",
        "stream": "" if query.after else _events(members),
    }
    return render(request, "runs.html", values)


def _events(members: Mapping[str, object]) -> str:
    return f"{EVENTS}?{urlencode({name: value for name, value in members.items() if value}, doseq=True)}"


def _places(query: RunsQuery, workspaces: list[str]) -> list[Filter]:
    """Links to the runs of each workspace, if there are several."""
    if len(workspaces) <= 1:
        return []
    return [
        Filter(
            name=place or "all workspaces",
            address=list_address(query, ws=place, after=""),
            is_current=query.ws == place,
        )
        for place in ("", *workspaces)
    ]


async def _questions(request: Request) -> Response:
    read_query(request.query_params, Nothing)
    site = site_of(request)
    found = await read_all_questions(site)
    parts = await question_parts(site, found.questions)
    stream = _events({"view": "questions", "state": state_of(parts)})
    values = {"nav": "questions", "parts": parts, "unread": found.unread, "stream": stream}
    return render(request, "questions.html", values)


ROUTES: Final[list[BaseRoute]] = [
    Route("/", _runs, methods=["GET"]),
    Route("/runs", _runs, methods=["GET"]),
    Route("/questions", _questions, methods=["GET"]),
]
