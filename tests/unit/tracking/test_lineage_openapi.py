"""The service keeps what its own description promises, for whatever a generator of requests makes of it."""

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
from schemathesis.checks import positive_data_acceptance

from bartack.resilience.loopback import open_listener
from bartack.tracking.lineage._api import BASE, ENDPOINTS, REFUSALS, openapi, refusals_of
from bartack.tracking.lineage._reference import reference_page
from bartack.tracking.lineage._service import LineageService
from bartack.tracking.lineage._store import LineageStore

TOKEN = "a-token-for-tests-only"  # noqa: S105 - it guards nothing
REFERENCE = Path(__file__).parents[3] / "docs/reference/lineage-api.md"
EXAMPLES = 100 if "SOAK" in os.environ else 12
"""For each operation. ``make soak`` tries more, and others each time."""
SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]

BEYOND_SCHEMAS = {"cursor", "parent_versions", "occurred_at", "since"}
"""Members with rules between them, or about times that UTC cannot express."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with (
        LineageStore(tmp_path_factory.mktemp("openapi") / "lineage.db") as store,
        open_listener(port=0) as listener,
    ):
        for number in range(5):
            store.track(
                {
                    "event_type": "pattern_created",
                    "pattern_id": f"p{number}",
                    "parent_pattern_ids": [f"p{number - 1}"] if number else [],
                }
            )
        config = uvicorn.Config(LineageService(store, TOKEN), lifespan="off", log_config=None, ws="none")
        running = uvicorn.Server(config)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        running.should_exit = True
        thread.join(60)


schema = schemathesis.openapi.from_dict(openapi())
Test = TypeVar("Test", bound=Callable[..., None])


def every_operation(test: Test) -> Test:
    """Runs a test for each operation of the description."""
    return cast("Test", schema.parametrize()(test))  # pyright: ignore[reportUnknownMemberType] - not typed there


@every_operation
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=SLOW)
def test_every_request_is_answered_as_the_description_says(case: Case[Any], server: str) -> None:
    answer = case.call_and_validate(  # pyright: ignore[reportUnknownMemberType] - its checks are not typed there
        base_url=server,
        headers={"Authorization": f"Bearer {TOKEN}"},
        excluded_checks=[positive_data_acceptance],
    )

    # What fits the description is accepted, but for the little that no schema can say.
    if case.meta and case.meta.generation.mode.is_positive and answer.status_code in {400, 422}:
        problem = answer.json()["error"]
        assert problem.get("field", "").partition(".")[0] in BEYOND_SCHEMAS, problem


def test_the_description_lists_the_refusals_of_every_endpoint() -> None:
    paths = cast("dict[str, object]", openapi()["paths"])

    assert {path.removeprefix(BASE) for path in paths} == {endpoint.path for endpoint in ENDPOINTS}
    assert {status for endpoint in ENDPOINTS for status in refusals_of(endpoint)} | {405} == set(REFUSALS)


def test_the_reference_page_says_what_the_table_says() -> None:
    hint = "python -m bartack.tracking.lineage._reference > docs/reference/lineage-api.md"

    assert REFERENCE.read_text(encoding="utf-8") == reference_page(), hint
