"""The endpoints of the lineage service, as one table.

Everything that has to agree is made from it: the routes of the service (``_http.py``), its OpenAPI document and the
reference page of the docs. To add an endpoint, add a line and the method of the same name.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import msgspec

from bartack import __version__
from bartack.tracking.lineage.wire import (
    BatchAnswer,
    BatchRequest,
    CyclesAnswer,
    EvolutionAnswer,
    HealthAnswer,
    LineageAnswer,
    LineageQuery,
    OrphansAnswer,
    PageQuery,
    Problem,
    SearchAnswer,
    SearchRequest,
    Tracked,
    TrackRequest,
    ValidateAnswer,
    ValidateRequest,
)

BASE: Final = "/api/pattern-traceability"
BODY_LIMIT: Final = 4 * 1024 * 1024

Schema = dict[str, object]


class Endpoint(NamedTuple):
    """One line of the table. ``name`` is the operation, and the method that answers it."""

    name: str
    method: Literal["GET", "POST"]
    path: str
    what: str
    data: type[msgspec.Struct] | None
    query: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | None = None
    refusals: tuple[int, ...] = ()


ENDPOINTS: Final = (
    Endpoint(
        "track",
        "POST",
        "/lineage/track",
        "Record one event.",
        Tracked,
        body=TrackRequest,
        refusals=(409, 429),
    ),
    Endpoint(
        "track_batch",
        "POST",
        "/lineage/track/batch",
        "Record several events, each for itself, with one sync.",
        BatchAnswer,
        body=BatchRequest,
        refusals=(429,),
    ),
    Endpoint(
        "orphans",
        "GET",
        "/lineage/orphans",
        "List the patterns that are known by name only.",
        OrphansAnswer,
        PageQuery,
    ),
    Endpoint("cycles", "GET", "/lineage/cycles", "List the cycles.", CyclesAnswer, PageQuery),
    Endpoint(
        "lineage",
        "GET",
        "/lineage/{id}",
        "Show the relatives of a pattern.",
        LineageAnswer,
        LineageQuery,
        None,
        (404,),
    ),
    Endpoint(
        "evolution",
        "GET",
        "/lineage/{id}/evolution",
        "Show the versions that came one from the other.",
        EvolutionAnswer,
        PageQuery,
        refusals=(404,),
    ),
    Endpoint("search", "POST", "/search", "Find patterns by words.", SearchAnswer, body=SearchRequest),
    Endpoint("validate", "POST", "/validate", "Check the graph.", ValidateAnswer, body=ValidateRequest),
    Endpoint("health", "GET", "/health", "Report whether the service works.", HealthAnswer),
    Endpoint("openapi", "GET", "/openapi.json", "This description, for programs.", None),
)

OPEN: Final = frozenset({"health"})
"""Operations that need no token."""

REFUSALS: Final[dict[int, tuple[tuple[str, ...], str]]] = {
    400: (("invalid",), "The request is not JSON, or a member is missing or has the wrong type."),
    401: (("unauthorized",), "The token is missing or wrong."),
    403: (("forbidden",), "The request names another host, or comes from a web page."),
    404: (
        ("unknown_pattern", "not_found"),
        "No event has mentioned the pattern, or there is no such endpoint.",
    ),
    405: (("method_not_allowed",), "The endpoint does not know this method."),
    409: (("conflict", "cycle"), "Another event has this id, or a pattern would come from itself."),
    413: (("too_large",), "The body is longer than 4 MiB."),
    415: (("unsupported_media_type",), "The body is not sent as application/json."),
    422: (("bad_value",), "A member has none of the values it may have."),
    429: (("busy",), "Too many events wait to be written; Retry-After says when to try again."),
    503: (("store_unavailable",), "The database cannot be used now; nothing was recorded."),
}
"""The codes of the errors that come with a status, and what it means."""


def refusals_of(endpoint: Endpoint) -> list[int]:
    """The statuses, other than 200, with which an endpoint may answer."""
    found = {403, *endpoint.refusals}
    if endpoint.name not in OPEN:
        found.add(401)
    if endpoint.data is not None:
        found.add(503)
    if endpoint.query is not None:
        found |= {400, 422}
    if endpoint.body is not None:
        found |= {400, 413, 415, 422}
    if "{id}" in endpoint.path:
        found.add(400)
    return sorted(found)


def openapi() -> Schema:
    """The OpenAPI document of the service."""
    types = [kind for one in ENDPOINTS for kind in (one.data, one.query, one.body) if kind is not None]
    _, components = msgspec.json.schema_components(
        [*types, Problem], ref_template="#/components/schemas/{name}"
    )
    paths: dict[str, dict[str, object]] = {}
    for endpoint in ENDPOINTS:
        path = paths.setdefault(BASE + endpoint.path, {})
        path[endpoint.method.lower()] = _operation(endpoint, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Bartack lineage service",
            "version": __version__,
            "summary": "Which piece of code came from which.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: Endpoint, components: dict[str, Schema]) -> Schema:
    operation: Schema = {
        "operationId": endpoint.name,
        "summary": endpoint.what,
        "parameters": _parameters(endpoint, components),
        "responses": {"200": _success(endpoint)}
        | {str(status): _refusal(endpoint, status) for status in refusals_of(endpoint)},
        "security": [] if endpoint.name in OPEN else [{"token": []}],
    }
    if endpoint.body is not None:
        operation["requestBody"] = {"required": True, "content": _content(_ref(endpoint.body))}
    return operation


def _parameters(endpoint: Endpoint, components: dict[str, Schema]) -> list[Schema]:
    found: list[Schema] = []
    if "{id}" in endpoint.path:
        schema = {"type": "string", "minLength": 1, "description": "The id of a pattern, percent-encoded."}
        found.append({"name": "id", "in": "path", "required": True, "schema": schema})
    for name, schema in query_members(endpoint, components).items():
        found.append({"name": name, "in": "query", "required": False, "schema": schema})
    return found


def query_members(endpoint: Endpoint, components: dict[str, Schema]) -> dict[str, Schema]:
    """The members of an endpoint's query string with their schemas."""
    if endpoint.query is None:
        return {}
    properties = components[endpoint.query.__name__]["properties"]
    assert isinstance(properties, dict)
    return properties  # pyright: ignore[reportUnknownVariableType] - the library promises no more than an object


def _success(endpoint: Endpoint) -> Schema:
    if endpoint.data is None:
        return {"description": "The description.", "content": _content({"type": "object"})}
    if endpoint.name in OPEN:
        return {"description": "It works.", "content": _content(_ref(endpoint.data))}
    metadata = {
        "type": "object",
        "properties": {"operation": {"const": endpoint.name}, "processing_time_ms": {"type": "number"}},
        "required": ["operation", "processing_time_ms"],
    }
    schema: Schema = {
        "type": "object",
        "properties": {"success": {"const": True}, "data": _ref(endpoint.data), "metadata": metadata},
        "required": ["success", "data", "metadata"],
    }
    return {"description": "Done.", "content": _content(schema)}


def _refusal(endpoint: Endpoint, status: int) -> Schema:
    if endpoint.name in OPEN and status == 503:
        assert endpoint.data is not None
        return {"description": "It works in part, or not at all.", "content": _content(_ref(endpoint.data))}
    schema: Schema = {
        "type": "object",
        "properties": {"success": {"const": False}, "error": _ref(Problem)},
        "required": ["success", "error"],
    }
    return {"description": REFUSALS[status][1], "content": _content(schema)}


def _ref(kind: type) -> Schema:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _content(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}
