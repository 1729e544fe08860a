"""The reference page of the web API, made from the table of its endpoints.

To bring the page up to date::

    python -m bartack.web.api._reference > docs/reference/web-api.md
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any, Final, cast

import msgspec

from bartack._schema_page import members_table, type_words
from bartack.web._actions import ACTIONS
from bartack.web._refusals import API
from bartack.web.api._endpoints import ARTIFACT, ENDPOINTS, STREAMS, Endpoint
from bartack.web.api._openapi import REFUSALS, any_value, openapi
from bartack.web.models._events import Bars, Hello, Over, Parts, Reset, TalkLines

Schema = dict[str, Any]

_INTRODUCTION: Final = f"""\
# Web API

`bartack web` answers these requests below `{API}`, on this machine only. The browser that has entered by its link asks with its
cookie, [as for pages](../how-to/watch-in-the-browser.md). `GET {API}/openapi.json` gives this description to programs, as
OpenAPI 3.1.

- A run is named by its id, a unique beginning of it, or `latest`.
- Members that end in `_at` are moments, in microseconds since 1970, UTC. Members that end in `_s` are seconds. A member that has
  its default is absent.
- `at` shows a run as it was after an entry of its journal. Without it the run is shown as it is now.
- Texts are without the secrets of the workspace, and otherwise as they were. They may contain anything, and are not markup.
- A value of more than 256 kB is shown by its beginning. `value/SEQ?download=true` is the whole of it.
- While a long journal is being read, requests for the run are refused with 503 and the code BT1023. `GET {API}/runs/RUN`,
  `entries` without `from`, and events are answered.

A refusal is `{{"error": {{"code": …, "message": …, "help": …}}}}`; [errors](errors.md) explains the codes.
"""

_EVENTS: Final = f"""\
## Events

`GET {API}/runs/RUN/events` and `GET {API}/events` are streams of server-sent events (`text/event-stream`). The data of an event is
one line of JSON, its `id` the last entry up to which the reader has everything. A page that comes back gives that as `since`.

The first change is sent at once, then there are at most ten frames a second of at most 64 kB. A reader that is further back, or
did not take a frame for 2 seconds, gets `reset`. A comment is sent every 15 seconds.
"""

_EVENT_TYPES: Final = {
    "hello": Hello,
    "parts": Parts,
    "bars": Bars,
    "talk": TalkLines,
    "reset": Reset,
    "over": Over,
}


def reference_page() -> str:
    """The whole page."""
    document = openapi()
    schemas = cast("dict[str, Schema]", document["components"]["schemas"])
    parts = [_INTRODUCTION, *_endpoints(document), *_actions(schemas), _EVENTS, *_events()]
    return "\n".join([*parts, *_types(schemas), *_refusals()]).rstrip("\n") + "\n"


def _endpoints(document: Schema) -> Iterator[str]:
    schemas = document["components"]["schemas"]
    yield "## Reading\n"
    for endpoint in ENDPOINTS:
        yield f"### GET {endpoint.path}\n"
        yield f"{endpoint.what}\n"
        if endpoint.query.__struct_fields__:
            yield from members_table(schemas[endpoint.query.__name__], "query")
        yield _answer(document, endpoint)
    yield f"### GET {ARTIFACT}\n"
    yield f"{document['paths'][API + ARTIFACT]['get']['summary']}\n"


def _answer(document: Schema, endpoint: Endpoint) -> str:
    operation = document["paths"][API + endpoint.path]["get"]
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    statuses = [status for status in operation["responses"] if status != "200"]
    return f"The answer is {type_words(schema)}. May be refused with {', '.join(statuses)}.\n"


def _actions(schemas: dict[str, Schema]) -> Iterator[str]:
    yield "## Acting\n"
    yield "Requests that act are JSON, and carry the token of the session in the header `X-CSRF-Token`.\n"
    for action in ACTIONS:
        yield f"### POST /runs/{{run}}/{action.name}\n"
        yield f"{_text(schemas[action.body.__name__])}\n"
        if action.body.__struct_fields__:
            yield from members_table(schemas[action.body.__name__], "body")


def _events() -> Iterator[str]:
    types = [*_EVENT_TYPES.values(), *STREAMS.values()]
    _, found = msgspec.json.schema_components(types, schema_hook=any_value, ref_template="#/{name}")
    schemas = cast("dict[str, Schema]", found)
    for name, query in STREAMS.items():
        yield f"### GET {name}\n"
        yield from members_table(schemas[query.__name__], "query")
    for name, kind in _EVENT_TYPES.items():
        yield f"### Event {name}\n"
        yield f"{_text(schemas[kind.__name__])}\n"
        yield from members_table(schemas[kind.__name__], "member")


def _types(schemas: dict[str, Schema]) -> Iterator[str]:
    yield "## Answers\n"
    asked = {one.query.__name__ for one in ENDPOINTS} | {one.body.__name__ for one in ACTIONS}
    asked |= {query.__name__ for query in STREAMS.values()}
    for name, schema in sorted(schemas.items()):
        if name not in asked and "properties" in schema:
            yield f"### {name}\n"
            yield f"{_text(schema)}\n"
            yield from members_table(schema, "member")


def _text(schema: Schema) -> str:
    """The first sentence or two of what a type is; what follows describes its members."""
    first = str(schema.get("description", "")).partition("\n\n")[0]
    return re.sub(r"\s+", " ", first.replace("``", "`"))


def _refusals() -> Iterator[str]:
    yield "## Refusals\n"
    yield "| status | meaning |\n|---:|---|"
    for status, meaning in REFUSALS.items():
        yield f"| {status} | {meaning} |"


if __name__ == "__main__":
    sys.stdout.write(reference_page())
