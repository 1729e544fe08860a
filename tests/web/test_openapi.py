"""The API keeps what its own description promises, for whatever a generator of requests makes of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import httpx
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.checks import positive_data_acceptance, unsupported_method
from starlette.routing import Route
from tests.crash.test_recorded_runs import restore
from tests.waiting import PATIENCE_S
from tests.web.journals import finished, started, written_run
from tests.web.sites import make_site

from bartack.resilience.loopback import open_listener
from bartack.runtime.rundir.origin import mark_of
from bartack.runtime.state import entries as e
from bartack.web import Site, _actions, _api, _stream, make_app
from bartack.web._refusals import API
from bartack.web._sessions import COOKIE
from bartack.web.api._endpoints import ENDPOINTS, STREAMS
from bartack.web.api._openapi import REFUSALS, openapi
from bartack.web.api._reference import reference_page

REFERENCE = Path(__file__).parents[2] / "docs/reference/web-api.md"
EXAMPLES = 60 if "SOAK" in os.environ else 6
"""For each operation. ``make soak`` tries more, and others each time."""
SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
KINDS = ("plain", "failed", "pipeline")


DONE = "run-20261118-101010-0123abcd"
OPEN = "run-20261118-101011-0123abcd"
STREAMED = {API + path for path in STREAMS}


class Running:
    """A server with recorded runs, and with two that may be changed."""

    def __init__(self, address: str, site: Site) -> None:
        token = site.sessions.enter(site.sessions.new_code()).token
        session = site.sessions.find(token)
        assert session is not None
        self.address = address
        self.reading = {"Host": site.host, "Cookie": f"{COOKIE}={token}"}
        self.acting = {**self.reading, "Origin": site.origin, "X-CSRF-Token": session.csrf}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    workspace = tmp_path_factory.mktemp("openapi")
    for name in (DONE, OPEN):
        with written_run(workspace, name) as run:
            run.begin(origin=mark_of(run.run))
            run.write(started(1, about="git status"))
            run.write(finished(1))
            run.write(e.LetterAdded(message="m-9", mailbox="results", reason="timeout"), value="two")
            run.write(started(2, step="ask", question="q1"), value={"question": "Which?", "type": "int"})
            if name == DONE:
                run.write(e.RunEnded(status="completed"), value=None)
            run.mirror()
    for kind in KINDS:
        restore(kind, workspace)
    site = make_site(workspace)
    with open_listener(port=0) as listener:
        config = uvicorn.Config(make_app(site), lifespan="on", log_config=None, ws="none")
        running = uvicorn.Server(config)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
        thread.start()
        yield Running(f"http://127.0.0.1:{listener.getsockname()[1]}", site)
        running.should_exit = True
        thread.join(60)


def part(method: str, run: Callable[[str], dict[str, Any] | None]) -> dict[str, Any]:
    """The operations of the description with a method, without streams, which do not end.

    Args:
        method: ``get`` or ``post``.
        run: What the run in a path may be, by its path; ``None``: the operation is left out.
    """
    document = openapi()
    paths: dict[str, Any] = {}
    for path, operations in document["paths"].items():
        named = run(path)
        if method in operations and path not in STREAMED and named is not None:
            parameters = [
                {**one, "schema": named} if one["name"] == "run" else one
                for one in operations[method]["parameters"]
            ]
            paths[path] = {method: {**operations[method], "parameters": parameters}}
    # Each request carries the cookie; what becomes of others is a matter of the guard.
    components = {"schemas": document["components"]["schemas"]}
    return {**document, "paths": paths, "components": components, "security": []}


def disposable(path: str) -> dict[str, Any]:
    """A run that may be changed. Only one that has ended may be resumed: no process is to be started."""
    return {"enum": [DONE] if path.endswith("/resume") else [DONE, OPEN]}


Test = TypeVar("Test", bound=Callable[..., None])


def every_operation(document: dict[str, Any]) -> Callable[[Test], Test]:
    """Runs a test for each operation of a description."""
    schema = schemathesis.openapi.from_dict(document)
    return cast("Callable[[Test], Test]", schema.parametrize())  # pyright: ignore[reportUnknownMemberType] - not typed there


def check(case: Case[Any], address: str, headers: dict[str, str]) -> None:
    """Send a request, and compare the answer with the description."""
    case.call_and_validate(  # pyright: ignore[reportUnknownMemberType] - its checks are not typed there
        base_url=address,
        headers=headers,
        # What the guard refuses, it refuses before the method is looked at.
        excluded_checks=[positive_data_acceptance, unsupported_method],
    )


@pytest.mark.requirement("web-api-is-described")
@every_operation(part("get", lambda path: {"enum": ["latest"]}))
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=SLOW)
def test_every_request_is_answered_as_the_description_says(case: Case[Any], server: Running) -> None:
    check(case, server.address, server.reading)


@pytest.mark.requirement("web-api-is-described")
@every_operation(part("post", disposable))
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=SLOW)
def test_every_action_is_answered_as_the_description_says(case: Case[Any], server: Running) -> None:
    check(case, server.address, server.acting)


@pytest.mark.requirement("web-api-is-described")
@every_operation(
    part("get", lambda path: {"type": "string", "minLength": 1} if path.endswith("{run}") else None)
)
@settings(max_examples=EXAMPLES * 3, deadline=None, suppress_health_check=SLOW)
def test_any_text_can_be_asked_for_as_a_run(case: Case[Any], server: Running) -> None:
    check(case, server.address, server.reading)


@pytest.mark.requirement("web-api-is-described")
@pytest.mark.parametrize("path", sorted(STREAMED))
def test_a_stream_is_of_the_type_that_the_description_says(server: Running, path: str) -> None:
    (described,) = openapi()["paths"][path]["get"]["responses"]["200"]["content"]
    address = server.address + path.replace("{run}", DONE)
    with httpx.stream("GET", address, headers=server.reading, timeout=PATIENCE_S) as answer:
        first = next(line for line in answer.iter_lines() if line.startswith("event:"))
    wrong = httpx.get(f"{address}?view=nonsense", headers=server.reading, timeout=PATIENCE_S)

    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, described)
    assert first == "event: hello"
    assert (wrong.status_code, wrong.headers["content-type"]) == (422, "application/json")


def test_every_route_below_the_api_is_described() -> None:
    routes = [
        (route.path.replace(":path", ""), method.lower())
        for one in (_api, _stream, _actions)
        for route in one.ROUTES
        if isinstance(route, Route) and route.path.startswith(API)
        for method in (route.methods or set()) - {"HEAD"}
    ]
    paths = openapi()["paths"]

    assert sorted(routes) == sorted(
        [(path, method) for path, one in paths.items() for method in one] + [(f"{API}/openapi.json", "get")]
    )


def test_every_endpoint_is_described_with_its_refusals() -> None:
    paths = openapi()["paths"]

    assert {API + endpoint.path for endpoint in ENDPOINTS} <= set(paths)
    statuses = {
        int(status)
        for one in paths.values()
        for operation in one.values()
        for status in operation["responses"]
    }
    assert statuses - {200} == set(REFUSALS)


@pytest.mark.requirement("web-api-is-described")
def test_the_reference_page_says_what_the_types_say() -> None:
    hint = "python -m bartack.web.api._reference > docs/reference/web-api.md"

    assert REFERENCE.read_text(encoding="utf-8") == reference_page(), hint
