from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import httpx
import pytest

from bartack.errors import CircuitOpenError, ServiceAnswerError
from bartack.resilience import PatternCache, ResilientAPIClient
from bartack.testing import CountingService

TRACK = "/lineage/track"


@pytest.fixture
def client(service: CountingService) -> ResilientAPIClient:
    return ResilientAPIClient(service.url)


def cache_of(client: ResilientAPIClient) -> PatternCache:
    assert isinstance(client.cache, PatternCache)
    return client.cache


async def track(client: ResilientAPIClient, pattern: str = "p") -> dict[str, object]:
    return await client.track_pattern_resilient(
        "pattern_created", pattern, "name", {"code": "x"}, language="python"
    )


def test_a_healthy_service_gets_the_event(client: ResilientAPIClient, service: CountingService) -> None:
    result = asyncio.run(track(client))

    assert (result["success"], result["cached"]) == (True, False)
    body = service.bodies[str(result["event_id"])]
    assert (body["event_type"], body["pattern_id"], body["language"]) == ("pattern_created", "p", "python")
    assert cache_of(client).get_stats()["total_synced"] == 1


def test_events_are_durable_before_the_coroutine_runs(client: ResilientAPIClient) -> None:
    coroutines = [client.track_pattern_resilient("pattern_created", f"p{n}") for n in range(10)]
    for coroutine in coroutines:
        coroutine.close()

    assert cache_of(client).get_stats()["pending_events"] == 10


@pytest.mark.requirement("durable-when-it-returns")
def test_ten_events_of_a_loop_that_closes_at_once_are_all_there(client: ResilientAPIClient) -> None:
    async def scenario() -> None:
        for n in range(10):
            client.executor.fire_and_forget(client.track_pattern_resilient("pattern_created", f"p{n}"))

    asyncio.run(scenario())

    stats = cache_of(client).get_stats()
    assert stats["total_cached"] == 10


def test_an_unreachable_service_keeps_the_event(client: ResilientAPIClient, service: CountingService) -> None:
    service.go_away()

    result = asyncio.run(track(client))

    assert (result["success"], result["cached"]) == (False, True)
    assert cache_of(client).outbox.known([str(result["event_id"])])


def test_ten_refused_connections_open_the_breaker_after_three(
    client: ResilientAPIClient, service: CountingService, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    original = httpx.AsyncClient.post

    async def counted(self: httpx.AsyncClient, url: str, **kwargs: object) -> httpx.Response:
        calls.append(url)
        return await original(self, url, **kwargs)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - handed through

    monkeypatch.setattr(httpx.AsyncClient, "post", counted)
    service.go_away()

    async def scenario() -> list[type]:
        kinds: list[type] = []
        for _ in range(10):
            try:
                await client.track_lineage(event_type="pattern_created", pattern_id="p")
            except Exception as error:  # noqa: BLE001 - its class is what is looked at
                kinds.append(type(error))
        return kinds

    kinds = asyncio.run(scenario())

    assert len(calls) == 3
    assert kinds[3:] == [CircuitOpenError] * 7


def test_tracking_an_unreachable_service_opens_the_breaker_too(
    client: ResilientAPIClient, service: CountingService
) -> None:
    service.go_away()

    async def scenario() -> None:
        for _ in range(4):
            await track(client)

    asyncio.run(scenario())
    assert client.circuit_breaker is not None
    assert client.circuit_breaker.get_state()["state"] == "open"


def test_a_refused_event_is_dead_and_the_breaker_stays_closed(
    client: ResilientAPIClient, service: CountingService
) -> None:
    service.status = 422

    result = asyncio.run(track(client))

    assert (result["success"], result["cached"], result["dead"]) == (False, False, True)
    (row,) = cache_of(client).outbox.rows()
    assert (row.state, row.reason) == ("dead", "refused:422")
    assert client.circuit_breaker is not None
    assert client.circuit_breaker.get_state()["failure_count"] == 0


def test_a_wrong_token_trips_the_breaker_and_kills_no_event(
    client: ResilientAPIClient, service: CountingService
) -> None:
    service.status = 401

    result = asyncio.run(track(client))

    assert result["cached"] is True
    (row,) = cache_of(client).outbox.rows()
    assert (row.state, row.attempts) == ("pending", 0)
    assert client.circuit_breaker is not None
    assert client.circuit_breaker.details()["reason"] == "auth"


@pytest.mark.parametrize("status", [500, 503, 429, 408])
def test_a_passing_failure_keeps_the_event(
    client: ResilientAPIClient, service: CountingService, status: int
) -> None:
    service.status = status

    result = asyncio.run(track(client))

    assert result["cached"] is True
    (row,) = cache_of(client).outbox.rows()
    assert (row.state, row.attempts) == ("pending", 1)


def test_retry_after_keeps_the_service_in_peace(client: ResilientAPIClient, service: CountingService) -> None:
    service.status, service.headers = 503, {"Retry-After": "120"}
    asyncio.run(track(client))
    service.status = 200

    result = asyncio.run(track(client))

    assert result["cached"] is True
    assert service.requests[TRACK] == 1
    assert client.circuit_breaker is not None
    assert 60 < float(str(client.circuit_breaker.details()["next_probe_s"])) <= 120


def test_a_degraded_service_still_gets_events(client: ResilientAPIClient, service: CountingService) -> None:
    service.health = (503, {"status": "degraded"})

    assert asyncio.run(track(client))["success"] is True


def test_a_success_takes_along_what_waits(client: ResilientAPIClient, service: CountingService) -> None:
    for n in range(5):
        cache_of(client).keep({"event_type": "pattern_created", "pattern_id": f"w{n}"})

    async def scenario() -> None:
        await track(client)
        await client._background.wait_for_completion()

    asyncio.run(scenario())

    assert len(service.received) == 6
    assert set(service.received.values()) == {1}


@pytest.mark.requirement("recovery-within-interval")
def test_what_waits_goes_soon_after_the_service_is_back(
    monkeypatch: pytest.MonkeyPatch, service: CountingService
) -> None:
    monkeypatch.setenv("HEALTH_CHECK_INTERVAL", "0.1")
    client = ResilientAPIClient(service.url)
    outbox = cache_of(client).outbox
    for n in range(100):
        cache_of(client).keep({"event_type": "pattern_created", "pattern_id": f"w{n}"})
    outbox.store.write(
        lambda connection: connection.execute("UPDATE outbox SET next_attempt_at=next_attempt_at+250")
    )
    service.go_away()

    async def scenario() -> bool:
        await track(client)
        threading.Timer(0.2, service.come_back).start()
        return await asyncio.to_thread(service.wait_for, 101)

    assert asyncio.run(scenario())
    assert set(service.received.values()) == {1}


def test_a_cancelled_delivery_gives_the_event_back(
    client: ResilientAPIClient, service: CountingService
) -> None:
    async def scenario() -> None:
        await track(client)  # the service is known to be healthy
        service.hang()
        async with asyncio.TaskGroup() as group:
            tracking = group.create_task(track(client, "other"))
            assert await asyncio.to_thread(service.wait_for_requests, "/lineage/track", 2)
            tracking.cancel()

    asyncio.run(scenario())

    counted = cache_of(client).outbox.count()
    assert (counted["pending"], counted["leased"], counted["delivered"]) == (1, 0, 1)


def test_without_cache_and_service_the_caller_is_notified(service: CountingService) -> None:
    client = ResilientAPIClient(service.url, enable_caching=False)
    service.go_away()

    result = asyncio.run(track(client))

    assert (result["success"], result["cached"]) == (False, False)
    assert client.cache is None


def test_without_breaker_calls_are_just_made(service: CountingService) -> None:
    client = ResilientAPIClient(service.url, enable_circuit_breaker=False)

    assert asyncio.run(track(client))["success"] is True
    assert "circuit_breaker" not in asyncio.run(client.get_stats())


def test_tracking_lineage_raises_what_went_wrong(
    client: ResilientAPIClient, service: CountingService
) -> None:
    service.status = 422

    with pytest.raises(ServiceAnswerError) as raised:
        asyncio.run(client.track_lineage(event_type="x", pattern_id="p"))

    assert raised.value.status == 422


def test_a_token_is_sent_only_where_a_certificate_or_the_person_vouches_for_the_service(home: Path) -> None:
    from bartack.core.user_home import user_home  # noqa: PLC0415 - only here
    from bartack.resilience import load_settings  # noqa: PLC0415 - only here
    from bartack.resilience.addresses import bearer_for  # noqa: PLC0415 - only here
    from bartack.resilience.tokens import load_token  # noqa: PLC0415 - only here

    own, named = load_token(user_home() / "token"), load_token(home / "named")
    plain = load_settings()
    waived = plain._replace(proof="off")
    other = plain._replace(token_file=str(home / "named"))

    assert bearer_for("http://127.0.0.1:8053", plain) == ""
    assert bearer_for("http://localhost:8053/x", waived) == ""
    assert bearer_for("http://localhost:8053/x", other) == ""
    assert bearer_for("http://example.org", other._replace(proof="off")) == named
    assert bearer_for("https://localhost:8053", plain) == own
    assert bearer_for("https://example.org", plain) == ""
    assert bearer_for("https://example.org", other) == named


def test_a_deliverer_sends_batches_and_finds_the_one_at_fault(
    service: CountingService, tmp_path: Path
) -> None:
    from bartack.resilience import Deliverer, NewEvent, load_settings  # noqa: PLC0415 - only here

    cache = PatternCache(tmp_path / "c")
    cache.outbox.put([NewEvent(f"e{n}", "pattern", service.url, b'{"pattern_id":"p"}') for n in range(100)])
    cache.outbox.put([NewEvent("bad", "pattern", service.url, b"not json")])
    deliverer = Deliverer(cache.outbox, service.url, load_settings())

    async def scenario() -> int:
        try:
            return await deliverer.drain()
        finally:
            await deliverer.close()

    assert asyncio.run(scenario()) == 100
    assert len(service.received) == 100
    assert service.requests["/lineage/track/batch"] <= 5
    assert cache.outbox.count() == {"pending": 0, "leased": 0, "delivered": 100, "dead": 1}


def test_two_drainers_deliver_each_event_once(service: CountingService, tmp_path: Path) -> None:
    from bartack.resilience import Deliverer, NewEvent, load_settings  # noqa: PLC0415 - only here

    first, second = PatternCache(tmp_path / "c"), PatternCache(tmp_path / "c")
    first.outbox.put([NewEvent(f"e{n}", "pattern", service.url, b'{"pattern_id":"p"}') for n in range(200)])
    drainers = [Deliverer(cache.outbox, service.url, load_settings()) for cache in (first, second)]

    async def scenario() -> list[int]:
        try:
            return list(await asyncio.gather(*(one.drain() for one in drainers)))
        finally:
            for one in drainers:
                await one.close()

    counts = asyncio.run(scenario())

    assert sum(counts) == 200
    assert len(service.received) == 200
    assert set(service.received.values()) == {1}
    assert first.outbox.count()["delivered"] == 200
