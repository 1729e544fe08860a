"""The JSON API of what can be read: the routes of ``api/_endpoints.py``, downloads, and the description for programs."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from functools import partial
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from bartack.web._queries import AtQuery, ValueQuery, read_query
from bartack.web._refusals import API, JSON
from bartack.web._site import site_of
from bartack.web._threads import in_thread
from bartack.web.api._endpoints import ARTIFACT, ENDPOINTS, Asked, Endpoint
from bartack.web.api._openapi import openapi
from bartack.web.reading._journal import read_whole_value
from bartack.web.reading._open import open_view
from bartack.web.reading._receipts import open_receipt_file

CHUNK: Final = 256 * 1024
BYTES: Final = "application/octet-stream"

_encode: Final = msgspec.json.Encoder().encode


def _route(endpoint: Endpoint) -> BaseRoute:
    async def answer(request: Request) -> Response:
        asked = _asked(request, endpoint)
        if endpoint.name == "value" and asked.query.download:
            return await _download_value(asked)
        return Response(_encode(await endpoint.read(asked)), media_type=JSON)

    # The id of a pattern may have a slash in it.
    path = endpoint.path.replace("{pattern}", "{pattern:path}")
    return Route(API + path, answer, methods=["GET"], name=endpoint.name)


def _asked(request: Request, endpoint: Endpoint) -> Asked:
    query = read_query(request.query_params, endpoint.query)
    return Asked(site_of(request), {name: str(part) for name, part in request.path_params.items()}, query)


def attached(name: str, size: int) -> dict[str, str]:
    """The headers of a file that a browser saves and does not show, under a name of ours."""
    return {"Content-Disposition": f'attachment; filename="{name}"', "Content-Length": str(size)}


async def _download_value(asked: Asked) -> Response:
    seq = asked.number("seq")
    query: ValueQuery = asked.query
    view = await open_view(asked.site, asked.run, query.at)
    content = await read_whole_value(view, seq)
    return Response(content, media_type=BYTES, headers=attached(f"entry-{seq}.json", len(content)))


async def _download_artifact(request: Request) -> Response:
    asked = Asked(
        site_of(request),
        {name: str(part) for name, part in request.path_params.items()},
        read_query(request.query_params, AtQuery),
    )
    step, number = asked.number("step"), asked.number("number")
    view = await open_view(asked.site, asked.run, asked.query.at)
    descriptor, size = open_receipt_file(view, asked.path["task"], step, number)
    return StreamingResponse(
        _chunks(descriptor, size), media_type=BYTES, headers=attached(f"artifact-{step}-{number}", size)
    )


async def _chunks(descriptor: int, size: int) -> AsyncIterator[bytes]:
    """The content of a file, no more than it had when it was opened."""
    try:
        while size > 0:
            chunk = await in_thread(partial(os.read, descriptor, min(CHUNK, size)))
            if not chunk:
                return
            size -= len(chunk)
            yield chunk
    finally:
        os.close(descriptor)


async def _describe(request: Request) -> Response:
    return Response(_encode(openapi()), media_type=JSON)


ROUTES: Final[list[BaseRoute]] = [
    *(_route(endpoint) for endpoint in ENDPOINTS),
    Route(API + ARTIFACT, _download_artifact, methods=["GET"]),
    Route(f"{API}/openapi.json", _describe, methods=["GET"]),
]
