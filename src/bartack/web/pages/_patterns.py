"""Tracked patterns: search, and one pattern with a drawing of its lineage, its versions, and the code of two of them."""

from __future__ import annotations

import difflib
from itertools import zip_longest
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from bartack.errors import LineageMissingError
from bartack.tracking import LineageNode, LineagePicture, LineageStore
from bartack.tracking.lineage.draw import draw_shapes
from bartack.tracking.lineage.wire import OrphansAnswer, PageQuery, SearchAnswer, SearchRequest
from bartack.web._hide import Hider
from bartack.web._queries import Query, Short, Text, read_query
from bartack.web._site import Site, site_of
from bartack.web._templates import render
from bartack.web.pages._frame import filled
from bartack.web.reading._patterns import ask_lineage

PAGE: Final = 50
"""Patterns in one list."""
MOST_NODES: Final = 300
"""Versions in one drawing."""
MOST_LINES: Final = 2000
"""Lines of code that are compared."""

Side = tuple[int, str] | None


class PatternsQuery(Query, frozen=True, kw_only=True):
    """Which patterns are searched for."""

    q: Text = ""
    cursor: Short | None = None
    orphans: bool = False
    """Only those of which nothing is known but a name, or whose parents are such."""


class PatternPageQuery(Query, frozen=True, kw_only=True):
    """Which version of a pattern is shown, how far its relatives are drawn, and which version it is compared with."""

    version: Short = ""
    depth: Annotated[int, Meta(ge=1, le=20)] = 3
    other: Short = ""


class CodeLine(NamedTuple):
    """A line of two codes side by side; a side is ``None`` if it has no line there."""

    change: Literal["same", "changed"]
    before: Side
    after: Side


class Found(NamedTuple):
    """What the database knows of a pattern."""

    picture: LineagePicture
    versions: list[LineageNode]
    code: str
    other: str


async def _search(request: Request) -> Response:
    query = read_query(filled(request.query_params), PatternsQuery)
    try:
        found = await ask_lineage(lambda store: _find(store, query))
    except LineageMissingError:
        found = None
    answer = None if found is None else _hider(site_of(request)).hide_any(found)
    return render(request, "patterns.html", {"nav": "patterns", "query": query, "answer": answer})


def _find(store: LineageStore, query: PatternsQuery) -> SearchAnswer | OrphansAnswer:
    if query.orphans:
        return store.orphans(PageQuery(limit=PAGE, cursor=query.cursor or msgspec.UNSET))
    return store.search(SearchRequest(query=query.q, limit=PAGE, cursor=query.cursor))


async def _show(request: Request) -> Response:
    query = read_query(filled(request.query_params), PatternPageQuery)
    pattern = str(request.path_params["pattern"])
    found = await ask_lineage(lambda store: _look_up(store, pattern, query))
    hider = _hider(site_of(request))
    nodes = {name: hider.hide_any(node) for name, node in found.picture.nodes.items()}
    picture = found.picture._replace(root=hider.hide_any(found.picture.root), nodes=nodes)
    code, other = hider.text(found.code), hider.text(found.other)
    values = {
        "nav": "patterns",
        "query": query,
        "picture": picture,
        "drawing": draw_shapes(picture),
        "versions": [hider.hide_any(node) for node in found.versions],
        "code": code,
        "lines": side_by_side(other, code) if query.other else [],
    }
    return render(request, "pattern.html", values)


def _look_up(store: LineageStore, pattern: str, query: PatternPageQuery) -> Found:
    version = query.version or None
    picture = store.picture(pattern, version, depth=query.depth)
    while len(picture.nodes) > MOST_NODES and (depth := query.depth - 1):
        query = msgspec.structs.replace(query, depth=depth)
        picture = store.picture(pattern, version, depth=depth)
    versions = store.evolution(pattern).evolution_nodes
    other = store.code(pattern, query.other) if query.other else ""
    return Found(picture, versions, store.code(pattern, version), other)


def _hider(site: Site) -> Hider:
    """The one for patterns, which belong to no workspace."""
    return site.settings.hider(str(site.workspaces[0]) if site.workspaces else "")


def side_by_side(before: str, after: str) -> list[CodeLine]:
    """The lines of two texts, those that belong together beside each other."""
    old, new = before.splitlines()[:MOST_LINES], after.splitlines()[:MOST_LINES]
    found: list[CodeLine] = []
    for change, a1, a2, b1, b2 in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        left = [(number + 1, old[number]) for number in range(a1, a2)]
        right = [(number + 1, new[number]) for number in range(b1, b2)]
        kind: Literal["same", "changed"] = "same" if change == "equal" else "changed"
        found += [CodeLine(kind, one, other) for one, other in zip_longest(left, right)]
    return found


ROUTES: Final[list[BaseRoute]] = [
    Route("/patterns", _search, methods=["GET"]),
    # The id of a pattern may have a slash in it.
    Route("/patterns/{pattern:path}", _show, methods=["GET"]),
]
