"""The frame of all pages of a run: which run and entry are meant, the head, the tabs, and what is shown if it cannot be read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import quote, urlencode

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from bartack.errors import JournalError, JournalFormatError, RunBeingReadError
from bartack.runtime.rundir.follower import TAIL
from bartack.web._queries import AtQuery, read_query
from bartack.web._settings import SiteSettings
from bartack.web._site import Site, site_of
from bartack.web._templates import render
from bartack.web.following._follow import Followed
from bartack.web.models._journal import Entries
from bartack.web.models._parts import Head
from bartack.web.reading._journal import read_last_entries
from bartack.web.reading._moment import read_beginning
from bartack.web.reading._open import follow, open_view
from bartack.web.reading._view import RunView
from bartack.web.streams._parts import HeadParts, Part, actions_of

EVENTS: Final = "/api/v1/runs/{run}/events"
_SEE_OTHER: Final = 303


class RunPage(NamedTuple):
    """What a page of a run is made of."""

    site: Site
    view: RunView
    path: Mapping[str, str]
    """The parts of its address."""
    query: Any
    """What its query asks for."""


Read = Callable[[RunPage], Awaitable[Mapping[str, object] | Response]]


class RunTab(NamedTuple):
    """A page of a run.

    Attributes:
        path: Its address below that of the run; empty: it is the first page.
        title: The words on its tab; empty: it has none.
        template: What it is rendered with.
        query: The members of its query; ``at`` is one of them.
        read: Reads the values of its template, or leads to another page.
        parent: The path of the page whose tab is the current one, if it has none of its own.
        view: Which events it gets.
    """

    path: str
    title: str
    template: str
    read: Read
    query: type[AtQuery] = AtQuery
    parent: str = ""
    view: Literal["overview", "head", "steps", "talk"] = "head"


class Tab(msgspec.Struct, frozen=True):
    """A tab, as the frame shows it."""

    title: str
    address: str
    is_current: bool
    path: str


def run_routes(pages: Sequence[RunTab]) -> list[BaseRoute]:
    """The routes of the pages of a run."""
    return [_route(page, pages) for page in pages]


def _route(page: RunTab, pages: Sequence[RunTab]) -> BaseRoute:
    async def answer(request: Request) -> Response:
        site, asked = site_of(request), str(request.path_params["run"])
        query = read_query(filled(request.query_params), page.query)
        followed = await follow(site, asked)
        run = followed.run.id
        if asked != run:
            return RedirectResponse(_address_of(request, asked, run), _SEE_OTHER)
        tabs = _tabs(page, pages, run, query.at)
        try:
            view = await open_view(site, asked, query.at)
        except (RunBeingReadError, JournalFormatError):
            return _unread(request, followed, tabs)
        path = {name: str(part) for name, part in request.path_params.items()}
        values = await page.read(RunPage(site, view, path, query))
        if isinstance(values, Response):
            return values
        heads = HeadParts().parts(view)
        stream = _stream(page, view) if view.is_live else ""
        frame = _frame_values(heads, tabs, query.at)
        return render(request, page.template, {"stream": stream, **values, **frame})

    path = f"/r/{{run}}/{page.path}" if page.path else "/r/{run}"
    return Route(path, answer, methods=["GET"])


def _frame_values(heads: list[Part], tabs: list[Tab], at: int | None) -> dict[str, object]:
    head = heads[0].model
    assert isinstance(head, Head), "the head is the first part"
    return {
        "heads": heads,
        "head": head,
        "run": head.run,
        "tabs": tabs,
        "at": at,
        "nav": "runs",
        "base": f"/r/{quote(head.run.run)}",
    }


def filled(params: QueryParams) -> QueryParams:
    """The members that have a value: forms also send the fields that were left blank."""
    return QueryParams([(name, value) for name, value in params.multi_items() if value])


def _address_of(request: Request, asked: str, run: str) -> str:
    rest = str(request.scope["path"]).removeprefix(f"/r/{asked}")
    query = str(request.scope["query_string"], "latin-1")
    return f"/r/{quote(run)}{quote(rest)}{f'?{query}' if query else ''}"


def _tabs(page: RunTab, pages: Sequence[RunTab], run: str, at: int | None) -> list[Tab]:
    query = "" if at is None else f"?{urlencode({'at': at})}"
    current = page.path if page.title else page.parent
    return [
        Tab(one.title, f"/r/{quote(run)}{one.path and f'/{one.path}'}{query}", one.path == current, one.path)
        for one in pages
        if one.title
    ]


def _stream(page: RunTab, view: RunView) -> str:
    return f"{EVENTS.format(run=quote(view.run.id))}?{urlencode({'view': page.view, 'since': view.seq})}"


def _unread(request: Request, followed: Followed, tabs: list[Tab]) -> Response:
    """The page of a run whose journal is being read, or cannot be: what is known of it besides, and the last entries."""
    settings = site_of(request).settings
    moment = read_beginning(followed, settings)
    head = Head(
        run=moment.run,
        state=moment.state,
        built=moment.built,
        problem=moment.problem,
        seq=moment.seq,
        last_seq=moment.last_seq,
        at=moment.at,
        hub=moment.hub,
    )
    heads = [Part("head", "head", head), Part("actions", "actions", actions_of(head))]
    questions = [Part(f"q{one.row}", "question", one) for one in moment.questions]
    is_building = moment.state == "building"
    stream = f"{EVENTS.format(run=quote(moment.run.run))}?view=head" if is_building else ""
    found = _last_entries(followed, settings)
    values = {"moment": moment, "questions": questions, "stream": stream, "found": found}
    return render(request, "unread.html", {**values, **_frame_values(heads, tabs, None)})


def _last_entries(followed: Followed, settings: SiteSettings) -> Entries:
    try:
        return read_last_entries(followed, settings, TAIL)
    except JournalError:
        return Entries(entries=[], last_seq=0)
