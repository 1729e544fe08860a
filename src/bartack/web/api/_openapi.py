"""The OpenAPI document of the API, made of the types that it answers with."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, cast

import msgspec

from bartack import __version__
from bartack.web._actions import ACTIONS
from bartack.web._queries import AtQuery, Query
from bartack.web._refusals import API, JSON, Refusal
from bartack.web.api._endpoints import ARTIFACT, ENDPOINTS, STREAMS, Endpoint

Schema = dict[str, Any]

REFUSALS: Final[dict[int, str]] = {
    400: "The request is malformed.",
    401: "The browser has not entered, or its session has ended.",
    403: "The request comes from elsewhere, from inside a run, or the server is read-only.",
    404: "There is no such run, step, entry, or other part of it.",
    409: "The run is not in a state for this; for an answer: another one was first.",
    410: "The run was deleted while it was followed.",
    422: "A member has a value that is not allowed.",
    503: "The journal is still being read or cannot be read, or the server is overloaded.",
}
"""The statuses of refusals, and what they mean."""

_OF_RUNS: Final = (401, 403, 404, 410, 422, 503)
_OF_LISTS: Final = (401, 403, 404, 422, 503)
_OF_ACTIONS: Final = (400, 401, 403, 404, 409, 410, 422, 503)
_PARTS: Final[dict[str, Schema]] = {
    "run": {
        "type": "string",
        "minLength": 1,
        "description": "The id of a run, a unique beginning of it, or `latest`.",
    },
    "seq": {"type": "integer", "minimum": 0, "maximum": 999_999_999_999_999},
    "step": {"type": "integer", "minimum": 0, "maximum": 999_999_999_999_999},
    "number": {"type": "integer", "minimum": 0, "maximum": 999_999_999_999_999},
}
"""The parts of paths that are not any text."""
_BYTES: Final[Schema] = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_EVENTS: Final[Schema] = {"text/event-stream": {"schema": {"type": "string"}}}


@cache
def openapi() -> Schema:
    """The document."""
    types = [
        *(one.answer for one in ENDPOINTS),
        *(one.query for one in ENDPOINTS),
        *(one.body for one in ACTIONS),
        *STREAMS.values(),
    ]
    schemas, components = msgspec.json.schema_components(
        [*types, Refusal], schema_hook=any_value, ref_template="#/components/schemas/{name}"
    )
    by_place = dict(zip(range(len(types)), schemas, strict=False))
    paths: dict[str, Schema] = {}
    for place, endpoint in enumerate(ENDPOINTS):
        paths[API + endpoint.path] = {"get": _reading(endpoint, by_place[place], components)}
    paths[API + ARTIFACT] = {"get": _download(components)}
    for path, query in STREAMS.items():
        paths[API + path] = {"get": _streaming(path, query, components)}
    for action in ACTIONS:
        body = {"$ref": f"#/components/schemas/{action.body.__name__}"}
        paths.setdefault(f"{API}/runs/{{run}}/{action.name}", {})["post"] = _acting(
            action.name, action.body, body
        )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Bartack web API",
            "version": __version__,
            "summary": "The runs of a user, to watch and to act on.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"session": {"type": "apiKey", "in": "cookie", "name": "__Host-bartack"}},
        },
        "security": [{"session": []}],
    }


def any_value(kind: type) -> Schema:
    """The schema of a value that may be anything."""
    if kind is object or kind is msgspec.Raw:
        return {"description": "Any value."}
    raise NotImplementedError


def _reading(endpoint: Endpoint, answer: Schema, components: dict[str, Schema]) -> Schema:
    statuses = _OF_RUNS if "{run}" in endpoint.path else _OF_LISTS
    return {
        "operationId": endpoint.name,
        "summary": endpoint.what,
        "parameters": [*_path_parameters(endpoint.path), *_query_parameters(endpoint.query, components)],
        "responses": {
            "200": {"description": "The answer.", "content": _contents(endpoint, answer)},
            **{str(status): _refusal(status) for status in statuses},
        },
    }


def _contents(endpoint: Endpoint, answer: Schema) -> Schema:
    if endpoint.name == "value":
        # With ``download`` it is the value itself.
        return {**_content(answer), **_BYTES}
    return _content(answer)


def _download(components: dict[str, Schema]) -> Schema:
    return {
        "operationId": "artifact",
        "summary": "Download an artifact of a receipt as it is in the workspace now, by its place in the list, from 0.",
        "parameters": [*_path_parameters(ARTIFACT), *_query_parameters(AtQuery, components)],
        "responses": {
            "200": {"description": "The file.", "content": _BYTES},
            **{str(status): _refusal(status) for status in _OF_RUNS},
        },
    }


def _streaming(path: str, query: type[Query], components: dict[str, Schema]) -> Schema:
    of_run = "{run}" in path
    return {
        "operationId": "run_events" if of_run else "events",
        "summary": f"Follow {'a run' if of_run else 'the list of runs or of questions'} as server-sent events.",
        "parameters": [*_path_parameters(path), *_query_parameters(query, components)],
        "responses": {
            "200": {"description": "Events, until the reader leaves.", "content": _EVENTS},
            **{str(status): _refusal(status) for status in (_OF_RUNS if of_run else _OF_LISTS)},
        },
    }


def _acting(name: str, body: type, schema: Schema) -> Schema:
    return {
        "operationId": name.replace("/", "_"),
        "summary": (body.__doc__ or "").partition("\n")[0],
        "parameters": _path_parameters("{run}"),
        "requestBody": {"required": True, "content": _content(schema)},
        "responses": {
            "200": {"description": "It was done.", "content": _content({"type": "object"})},
            **{str(status): _refusal(status) for status in _OF_ACTIONS},
        },
    }


def _path_parameters(path: str) -> list[Schema]:
    names = [part.strip("{}") for part in path.split("/") if part.startswith("{")]
    text: Schema = {"type": "string", "minLength": 1}
    return [
        {"name": name, "in": "path", "required": True, "schema": _PARTS.get(name, text)} for name in names
    ]


def _query_parameters(query: type[Query], components: dict[str, Schema]) -> list[Schema]:
    described = components[query.__name__]
    required = cast("list[str]", described.get("required", []))
    found: list[Schema] = []
    for name, schema in cast("dict[str, Schema]", described["properties"]).items():
        found.append(
            {"name": name, "in": "query", "required": name in required, "schema": _without_null(schema)}
        )
    return found


def _without_null(schema: Schema) -> Schema:
    """A query string cannot say null: the member is absent instead."""
    choices = schema.get("anyOf")
    if not choices:
        return schema
    left = [choice for choice in choices if choice.get("type") != "null"]
    rest = {name: value for name, value in schema.items() if name not in {"anyOf", "default"}}
    return {**rest, **left[0]} if len(left) == 1 else {**rest, "anyOf": left}


def _refusal(status: int) -> Schema:
    schema: Schema = {
        "type": "object",
        "properties": {"error": {"$ref": f"#/components/schemas/{Refusal.__name__}"}},
        "required": ["error"],
    }
    return {"description": REFUSALS[status], "content": _content(schema)}


def _content(schema: Schema) -> Schema:
    return {JSON: {"schema": schema}}
