"""What code written against the older API relies on: one test each, in the order of the reference."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import time
from pathlib import Path
from unittest.mock import AsyncMock, MagicMock

import pytest

from bartack import resilience, tracking
from bartack.resilience import (
    CircuitBreaker,
    HealthChecker,
    PatternCache,
    Phase4HealthChecker,
    ResilientAPIClient,
    ResilientExecutor,
    graceful_tracking,
)
from bartack.testing import CountingService
from bartack.tracking import PatternTracker

pytestmark = pytest.mark.requirement("older-api-works")

EVENT: dict[str, object] = {"event_type": "pattern_created", "pattern_id": "p", "pattern_data": {}}


def defaults(function: object) -> dict[str, object]:
    assert callable(function)
    parameters = inspect.signature(function).parameters.values()
    return {
        one.name: one.default
        for one in parameters
        if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD and one.name != "self"
    }


NO = inspect.Parameter.empty


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (ResilientExecutor.wait_for_completion, {"timeout": 5.0}),
        (CircuitBreaker, {"failure_threshold": 3, "timeout": 60, "half_open_max_calls": 1}),
        (PatternCache, {"cache_dir": None, "max_age_days": 7, "max_cache_size_mb": 50}),
        (PatternCache.sync_cached_events, {"api_client": NO, "max_retries": 3}),
        (HealthChecker, {"base_url": "http://localhost:8053", "check_interval": 30, "timeout": 1.0}),
        (HealthChecker.check_health, {"force": False}),
        (graceful_tracking, {"fallback_return": None, "log_errors": True}),
        (
            ResilientAPIClient,
            {"base_url": "http://localhost:8053", "enable_caching": True, "enable_circuit_breaker": True},
        ),
        (
            ResilientAPIClient.track_pattern_resilient,
            {"event_type": NO, "pattern_id": NO, "pattern_name": "", "pattern_data": None},
        ),
        (ResilientAPIClient._call_api, {"endpoint": NO, "method": "POST", "data": None, "timeout": 2.0}),
        (PatternTracker, {"base_url": None, "enable_tracking": True}),
        (PatternTracker.track_pattern_creation, {"code": NO, "context": NO, "parent_pattern_ids": None}),
        (
            PatternTracker.track_pattern_modification,
            {"pattern_id": NO, "new_code": NO, "context": NO, "reason": None},
        ),
        (PatternTracker.track_pattern_application, {"pattern_id": NO, "context": NO}),
        (
            PatternTracker.track_pattern_merge,
            {"source_pattern_ids": NO, "merged_code": NO, "context": NO, "reason": None},
        ),
        (
            tracking.track_edit_tool_pattern,
            {"file_path": NO, "pattern_id": NO, "new_content": NO, "language": None, "reason": None},
        ),
    ],
)
def test_names_order_and_defaults_are_as_they_were(function: object, expected: dict[str, object]) -> None:
    found = defaults(function)

    assert list(found) == list(expected)
    assert found == expected


def test_the_names_are_where_they_are_expected() -> None:
    assert {"ResilientExecutor", "CircuitBreaker", "PatternCache", "Phase4HealthChecker"} <= set(
        resilience.__all__
    )
    assert {"PatternTracker", "track_write_tool_pattern", "track_edit_tool_pattern"} <= set(tracking.__all__)


def test_fire_and_forget_returns_a_task_and_its_error_stays_inside() -> None:
    executor = ResilientExecutor()

    async def fail() -> None:
        raise ValueError

    async def scenario() -> float:
        started = time.thread_time()
        task = executor.fire_and_forget(fail())
        took = time.thread_time() - started
        assert isinstance(task, asyncio.Task)
        await executor.wait_for_completion()
        return took

    assert min(asyncio.run(scenario()) for _ in range(5)) < 0.001
    stats = executor.get_stats()
    assert (stats["error_count"], stats["success_count"]) == (5, 0)


def test_wait_for_completion_is_true_when_idle_and_false_at_its_timeout() -> None:
    executor = ResilientExecutor()

    async def scenario() -> None:
        assert await executor.wait_for_completion() is True
        task = executor.fire_and_forget(asyncio.Event().wait())
        assert await executor.wait_for_completion(timeout=0.01) is False
        assert not task.done()
        task.cancel()

    asyncio.run(scenario())


def failing() -> None:
    raise ConnectionError


def failing_with_value() -> str:
    raise ConnectionError


def test_call_gives_the_value_or_none_and_the_third_failure_opens() -> None:
    breaker = CircuitBreaker()

    async def scenario() -> list[object]:
        async def value() -> str:
            return "ok"

        found: list[object] = [await breaker.call(value)]
        for _ in range(3):
            outcome: object = await breaker.call(failing_with_value)
            found.append(outcome)
        return found

    assert asyncio.run(scenario()) == ["ok", None, None, None]
    assert breaker.get_state()["state"] == "open"


def test_an_open_breaker_calls_nothing_and_one_trial_closes_it() -> None:
    breaker = CircuitBreaker(timeout=600)
    called = AsyncMock(return_value="ok")

    async def scenario() -> None:
        for _ in range(3):
            await breaker.call(failing)
        assert breaker.get_state()["is_available"] is False
        assert await breaker.call(called) is None
        called.assert_not_called()
        breaker.timeout = 0
        assert await breaker.call(called) == "ok"
        assert breaker.get_state()["state"] == "closed"

    asyncio.run(scenario())


def test_reset_closes_and_zeroes() -> None:
    breaker = CircuitBreaker(failure_threshold=1)
    asyncio.run(breaker.call(failing))

    breaker.reset()

    state = breaker.get_state()
    assert (state["state"], state["failure_count"]) == ("closed", 0)


def test_limits_may_be_assigned_on_live_objects(tmp_path: Path) -> None:
    breaker, cache = CircuitBreaker(), PatternCache(tmp_path)

    breaker.failure_threshold, breaker.timeout = 1, 0.01
    cache.max_age_days, cache.max_cache_size_mb = 1, 2
    cache.cache_dir = tmp_path / "other"
    asyncio.run(breaker.call(failing))
    asyncio.run(cache.cache_pattern_event(EVENT))

    assert breaker.get_state()["state"] == "open"
    assert cache.get_stats()["max_age_days"] == 1
    assert len(list((tmp_path / "other").glob("pending_*.json"))) == 1


def test_caching_leaves_a_file_with_the_expected_members(tmp_path: Path) -> None:
    cache = PatternCache(cache_dir=tmp_path)

    event_id = asyncio.run(cache.cache_pattern_event(EVENT))

    found = json.loads((tmp_path / f"pending_{event_id}.json").read_text())
    assert found["event_data"] == EVENT
    assert {"event_id", "timestamp", "event_type", "pattern_id", "retry_count", "last_retry"} < set(found)


def test_sync_takes_any_object_with_track_lineage(tmp_path: Path) -> None:
    cache = PatternCache(tmp_path)
    asyncio.run(cache.cache_pattern_event(EVENT))
    client = MagicMock()
    client.track_lineage = AsyncMock(side_effect=ConnectionError)

    failed = asyncio.run(cache.sync_cached_events(client))
    (path,) = tmp_path.glob("pending_*.json")
    assert json.loads(path.read_text())["retry_count"] == 1
    client.track_lineage = AsyncMock(return_value={"success": True})
    synced = asyncio.run(cache.sync_cached_events(client))

    client.track_lineage.assert_awaited_once_with(**EVENT)
    assert failed == {"total_found": 1, "synced": 0, "failed": 1, "skipped": 0}
    assert synced == {"total_found": 1, "synced": 1, "failed": 0, "skipped": 0}
    assert list(tmp_path.glob("pending_*.json")) == []


def test_cleanup_counts_files_that_are_too_old(tmp_path: Path) -> None:
    cache = PatternCache(tmp_path, max_age_days=7)
    for _ in range(3):
        asyncio.run(cache.cache_pattern_event(EVENT))
    first, second, _ = sorted(tmp_path.glob("pending_*.json"))
    old = time.time() - 8 * 86_400
    os.utime(first, (old, old))
    data = json.loads(second.read_text())
    second.write_text(json.dumps({**data, "timestamp": "2020-01-01T00:00:00+00:00"}))

    assert asyncio.run(cache.cleanup_old_events()) == 2
    assert len(list(tmp_path.glob("pending_*.json"))) == 1


def test_health_is_asked_once_within_its_interval_unless_forced(service: CountingService) -> None:
    checker = HealthChecker(service.url)

    async def scenario() -> list[bool]:
        return [
            await checker.check_health(),
            await checker.check_health(),
            await checker.check_health(force=True),
        ]

    assert asyncio.run(scenario()) == [True, True, True]
    assert service.requests["/health"] == 2
    assert asyncio.run(HealthChecker("http://127.0.0.1:9").check_health()) is False


def test_health_has_its_counts_and_its_last_answer_as_attributes(service: CountingService) -> None:
    checker = Phase4HealthChecker(service.url)
    before = (checker.is_healthy, checker.last_check, checker.last_health_data)
    counts = [(checker.consecutive_successes, checker.consecutive_failures)]

    for away in (False, False, True, True, False):
        (service.go_away if away else service.come_back)()
        asyncio.run(checker.check_health(force=True))
        counts.append((checker.consecutive_successes, checker.consecutive_failures))

    assert before == (False, 0.0, None)
    assert counts == [(0, 0), (1, 0), (2, 0), (0, 1), (0, 2), (1, 0)]
    assert (checker.is_healthy, checker.last_health_data) == (True, {"status": "healthy"})
    assert checker.last_check == pytest.approx(time.time(), abs=60)


def test_the_counts_of_health_may_be_assigned(service: CountingService) -> None:
    checker = HealthChecker(service.url)
    checker.consecutive_failures = 5
    checker.consecutive_successes = 7

    status = checker.get_health_status()

    assert (status["consecutive_failures"], status["consecutive_successes"]) == (5, 7)


def test_graceful_tracking_returns_value_fallback_or_none(caplog: pytest.LogCaptureFixture) -> None:
    @graceful_tracking(fallback_return="fallback", log_errors=False)
    async def work(fail: bool) -> str:
        if fail:
            raise ValueError
        return "value"

    async def scenario() -> list[str]:
        return [await work(fail=False), await work(fail=True)]

    assert asyncio.run(scenario()) == ["value", "fallback"]
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_tracking_reports_success_or_cached_with_an_id(service: CountingService) -> None:
    client = ResilientAPIClient(service.url)

    async def scenario() -> tuple[dict[str, object], dict[str, object]]:
        first = await client.track_pattern_resilient("pattern_created", "p")
        service.go_away()
        await client.health_checker.check_health(force=True)
        return first, await client.track_pattern_resilient("pattern_created", "p")

    first, second = asyncio.run(scenario())
    assert first["success"] is True
    assert (second["success"], second["cached"]) == (False, True)
    assert second["event_id"]


def test_parts_can_be_replaced(tmp_path: Path) -> None:
    client = ResilientAPIClient("http://127.0.0.1:9")
    client.executor = ResilientExecutor()
    client.cache = PatternCache(tmp_path / "other")
    client.circuit_breaker = CircuitBreaker(failure_threshold=1)
    client.health_checker = MagicMock()
    client.health_checker.check_health = AsyncMock(return_value=True)
    call = AsyncMock(return_value={"success": True})
    client._call_api = call  # type: ignore[method-assign]  # - that it can be is tested

    result = asyncio.run(client.track_pattern_resilient("pattern_created", "p"))

    assert result["success"] is True
    call.assert_awaited_once()
    assert (tmp_path / "other" / "outbox.db").exists()


def test_a_replaced_call_that_gives_none_counts_as_a_failure() -> None:
    client = ResilientAPIClient("http://127.0.0.1:9")
    client.health_checker.check_health = AsyncMock(return_value=True)  # type: ignore[method-assign]  # - that it can be is tested
    client._call_api = AsyncMock(return_value=None)  # type: ignore[method-assign]  # - that it can be is tested

    async def scenario() -> list[object]:
        return [(await client.track_pattern_resilient("pattern_created", "p"))["cached"] for _ in range(4)]

    assert asyncio.run(scenario()) == [True] * 4
    assert client.circuit_breaker is not None
    assert client.circuit_breaker.get_state()["state"] == "open"
    assert client._call_api.await_count == 3


def test_a_foreign_cache_gets_what_could_not_be_delivered() -> None:
    client = ResilientAPIClient("http://127.0.0.1:9")
    cache = MagicMock()
    cache.cache_pattern_event = AsyncMock(return_value="their-id")
    client.cache = cache
    client.health_checker.check_health = AsyncMock(return_value=False)  # type: ignore[method-assign]  # - that it can be is tested

    result = asyncio.run(client.track_pattern_resilient("pattern_created", "p"))

    assert (result["cached"], result["event_id"]) == (True, "their-id")


def test_httpx_can_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = MagicMock(status_code=200, headers={}, text="")
    answer.json.return_value = {"status": "healthy"}
    http = MagicMock()
    http.return_value.__aenter__ = AsyncMock(return_value=MagicMock(get=AsyncMock(return_value=answer)))
    http.return_value.__aexit__ = AsyncMock(return_value=None)
    monkeypatch.setattr("httpx.AsyncClient", http)

    assert asyncio.run(HealthChecker("http://nowhere").check_health()) is True


def test_the_stats_have_their_four_parts() -> None:
    assert set(asyncio.run(ResilientAPIClient("http://127.0.0.1:9").get_stats())) == {
        "executor",
        "health",
        "circuit_breaker",
        "cache",
    }


def test_down_open_kept_back_and_synced(service: CountingService) -> None:
    client = ResilientAPIClient(service.url)
    cache = client.cache
    assert isinstance(cache, PatternCache)
    service.go_away()

    async def scenario() -> dict[str, int]:
        for n in range(5):
            result = await client.track_pattern_resilient("pattern_created", f"p{n}")
            assert result["cached"] is True
        assert client.circuit_breaker is not None
        assert client.circuit_breaker.get_state()["state"] == "open"
        service.come_back()
        assert await client.health_checker.check_health(force=True) is True
        return await cache.sync_cached_events(client)

    assert asyncio.run(scenario()) == {"total_found": 5, "synced": 5, "failed": 0, "skipped": 0}
    assert len(service.received) == 5
    assert list(cache.cache_dir.glob("pending_*.json")) == []


def test_the_tracker_is_one_object_and_never_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    PatternTracker.reset_instance()

    async def scenario() -> None:
        first, second = await PatternTracker.get_instance(), await PatternTracker.get_instance()
        assert first is second
        monkeypatch.setattr(first, "drafter", MagicMock(side_effect=RuntimeError("boom")))
        result = await first.track_pattern_creation("x", {})
        assert result["success"] is False

    asyncio.run(scenario())
    PatternTracker.reset_instance()
