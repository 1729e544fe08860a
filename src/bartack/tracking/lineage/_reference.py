"""The reference page of the lineage service, made from the table of its endpoints.

To bring the page up to date::

    python -m bartack.tracking.lineage._reference > docs/reference/lineage-api.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import cast

from bartack._schema_page import members_table
from bartack.resilience.proof import PROOF_PATH
from bartack.tracking.lineage._api import (
    BASE,
    ENDPOINTS,
    OPEN,
    REFUSALS,
    Endpoint,
    Schema,
    openapi,
    refusals_of,
)

_INTRODUCTION = f"""\
# Lineage service

`bartack lineage serve` answers these requests on `http://127.0.0.1:8053`. [Follow code back to where it came
from](../how-to/lineage.md) shows it at work. `GET {BASE}/openapi.json` gives the same description to programs, as OpenAPI 3.1.

- Every request but the one for health proves that its client knows the token, which is in the file `token` of your state home:
  `Authorization: Bartack …`, after a challenge that the service has to answer first (`GET {PROOF_PATH}`;
  [how](tracking.md#proof-of-the-service)). `Authorization: Bearer TOKEN` is accepted, too, for tools such as `curl` and for a
  server with TLS in front. A client that sends it to a port reveals the token to any program that listens there.
- The service listens on this machine only, answers only to `127.0.0.1`, `localhost` and `[::1]` in the `Host` header, and
  refuses every request with an `Origin` header, which is what a web page would send.
- A body is JSON, sent as `application/json`, of at most 4 MiB.
- An id in a path is percent-encoded; it may contain anything, also a slash (`%2F`).

An answer is `{{"success": true, "data": …, "metadata": {{"operation": …, "processing_time_ms": …}}}}`. A refusal is
`{{"success": false, "error": {{"code": …, "message": …, "field": …}}}}`; `field` is there if one member is to blame. Health answers
without this frame.

What was answered with 200 is on the disk. An event that comes again, with the same `event_id` or without one and with the same
content, gets its first answer with `duplicate: true` and changes nothing; the same `event_id` with another content is refused.
Events may come in any order: a parent that is not known yet is kept as a name and filled in when its own event comes.

A cursor belongs to the query whose answer it came with, and the pages after the first show the graph as the first one saw it.
"""


def reference_page() -> str:
    """The whole page."""
    document = openapi()
    schemas = cast("dict[str, Schema]", cast("Schema", document["components"])["schemas"])
    return (
        "\n".join([_INTRODUCTION, *_endpoints(schemas), *_types(schemas), *_refusals()]).rstrip("\n") + "\n"
    )


def _endpoints(schemas: dict[str, Schema]) -> Iterator[str]:
    yield "## Endpoints\n"
    for endpoint in ENDPOINTS:
        yield f"### {endpoint.method} {BASE}{endpoint.path}\n"
        yield f"{endpoint.what}{' Needs no token.' if endpoint.name in OPEN else ''}\n"
        for kind, heading in ((endpoint.query, "query"), (endpoint.body, "body")):
            if kind is not None:
                yield from members_table(schemas[kind.__name__], heading)
        yield _answer(endpoint)


def _answer(endpoint: Endpoint) -> str:
    data = (
        f"`data` is [{endpoint.data.__name__}](#{endpoint.data.__name__.lower()}). " if endpoint.data else ""
    )
    if endpoint.name in OPEN and endpoint.data:
        data = f"The answer is [{endpoint.data.__name__}](#{endpoint.data.__name__.lower()}), also with 503. "
    return f"{data}May be refused with {', '.join(map(str, refusals_of(endpoint)))}.\n"


def _types(schemas: dict[str, Schema]) -> Iterator[str]:
    yield "## Answers\n"
    asked = {kind.__name__ for one in ENDPOINTS for kind in (one.query, one.body) if kind is not None}
    for name, schema in sorted(schemas.items()):
        if name not in asked:
            yield f"### {name}\n"
            yield str(schema["description"]).replace("``", "`") + "\n"
            yield from members_table(schema, "member")


def _refusals() -> Iterator[str]:
    yield "## Refusals\n"
    yield "| status | code | meaning |\n|---:|---|---|"
    for status, (codes, meaning) in REFUSALS.items():
        yield f"| {status} | {', '.join(f'`{code}`' for code in codes)} | {meaning} |"


if __name__ == "__main__":
    sys.stdout.write(reference_page())
