"""The API keeps what its own description promises, for whatever a generator of requests makes of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.checks import positive_data_acceptance, unsupported_method
from tests.crash.test_recorded_runs import restore
from tests.web.sites import make_site

from bartack.resilience.loopback import open_listener
from bartack.web import make_app
from bartack.web._refusals import API
from bartack.web._sessions import COOKIE
from bartack.web.api._endpoints import ENDPOINTS
from bartack.web.api._openapi import REFUSALS, openapi
from bartack.web.api._reference import reference_page

REFERENCE = Path(__file__).parents[2] / "docs/reference/web-api.md"
EXAMPLES = 60 if "SOAK" in os.environ else 6
"""For each operation. ``make soak`` tries more, and others each time."""
SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
KINDS = ("plain", "failed", "pipeline")


class Running:
    """A server with recorded runs."""

    def __init__(self, address: str, host: str, cookie: str) -> None:
        self.address = address
        self.headers = {"Host": host, "Cookie": cookie}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    workspace = tmp_path_factory.mktemp("openapi")
    for kind in KINDS:
        restore(kind, workspace)
    site = make_site(workspace)
    token = site.sessions.enter(site.sessions.new_code()).token
    with open_listener(port=0) as listener:
        config = uvicorn.Config(make_app(site), lifespan="on", log_config=None, ws="none")
        running = uvicorn.Server(config)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
        thread.start()
        yield Running(f"http://127.0.0.1:{listener.getsockname()[1]}", site.host, f"{COOKIE}={token}")
        running.should_exit = True
        thread.join(60)


def reading() -> dict[str, Any]:
    """The part of the description that reads, about a run that there is."""
    document = openapi()
    paths = {
        path.replace("{run}", "latest"): {
            "get": {
                **operations["get"],
                "parameters": [one for one in operations["get"]["parameters"] if one["name"] != "run"],
            }
        }
        for path, operations in document["paths"].items()
        if "get" in operations
    }
    # Each request carries the cookie; what becomes of others is a matter of the guard.
    components = {"schemas": document["components"]["schemas"]}
    return {**document, "paths": paths, "components": components, "security": []}


schema = schemathesis.openapi.from_dict(reading())
Test = TypeVar("Test", bound=Callable[..., None])


def every_operation(test: Test) -> Test:
    """Runs a test for each operation of the description."""
    return cast("Test", schema.parametrize()(test))  # pyright: ignore[reportUnknownMemberType] - not typed there


@pytest.mark.requirement("web-api-is-described")
@every_operation
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=SLOW)
def test_every_request_is_answered_as_the_description_says(case: Case[Any], server: Running) -> None:
    case.call_and_validate(  # pyright: ignore[reportUnknownMemberType] - its checks are not typed there
        base_url=server.address,
        headers=server.headers,
        # What the guard refuses, it refuses before the method is looked at.
        excluded_checks=[positive_data_acceptance, unsupported_method],
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
