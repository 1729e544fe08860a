"""The events of breakers and outboxes: every event by a real action."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from bartack.resilience import Backoff, CircuitBreaker, NewEvent, Outbox, StateStore
from bartack.resilience.outbox.outbox import Limits
from bartack.resilience.outbox.row import Verdict
from bartack.telemetry import Telemetry
from bartack.testing import VirtualClock

Events = list[tuple[str, dict[str, object]]]


def listening(pattern: str) -> tuple[Telemetry, Events]:
    reported: Events = []

    def note(
        name: str, measurements: Mapping[str, int], metadata: Mapping[str, object], config: object
    ) -> None:
        reported.append((name, {**measurements, **metadata}))

    telemetry = Telemetry()
    telemetry.attach("test", pattern, note)
    return telemetry, reported


def fails() -> None:
    raise ConnectionError("away")


def test_a_breaker_reports_every_change_of_its_state_and_every_call_it_refuses() -> None:
    telemetry, reported = listening("breaker.*")
    clock = VirtualClock()
    breaker = CircuitBreaker(2, 60, name="service", clock=clock, telemetry=telemetry)

    async def live() -> None:
        await breaker.call(fails)
        await breaker.call(fails)
        await breaker.call(fails)
        clock.advance(60.0)
        await breaker.call(lambda: "back")

    asyncio.run(live())

    assert [name for name, _ in reported] == [
        "breaker.opened",
        "breaker.rejected",
        "breaker.half_open",
        "breaker.closed",
    ]
    opened, rejected, half_open, closed = (facts for _, facts in reported)
    assert (opened["failures"], opened["open_for_ns"], opened["before"]) == (2, 60_000_000_000, "closed")
    assert rejected == {"retry_after_ns": 60_000_000_000, "breaker": "service", "reason": "open"}
    assert (half_open["before"], closed["before"]) == ("open", "half_open")


def test_an_outbox_reports_what_becomes_of_its_events(tmp_path: Path) -> None:
    telemetry, reported = listening("outbox.*")
    limits = Limits(max_attempts=2, backoff=Backoff(base_s=0.0))
    with StateStore(tmp_path, telemetry=telemetry) as store:
        outbox = Outbox(store, limits)
        outbox.put([NewEvent("a", "pattern", "http://service", b"{}")])
        outbox.put([NewEvent("a", "pattern", "http://service", b"{}")])
        outbox.put([NewEvent("b", "pattern", "http://service", b"{}")])
        for verdict in (Verdict("transient", "away"), Verdict("released")):
            outbox.settle([(claim, verdict) for claim in outbox.claim(any_time=True)])
        first, second = outbox.claim(any_time=True)
        outbox.settle([(first, Verdict("delivered")), (second, Verdict("transient", "away"))])
        path = str(store.path)

    to = {"path": path, "kind": "pattern", "recipient": "http://service"}
    added = ("outbox.added", {"events": 1, "size_bytes": 2, "path": path})
    retried = ("outbox.retried", {"attempts": 1, "reason": "away", **to})
    assert reported == [
        added,
        added,
        retried,
        retried,
        ("outbox.delivered", {"attempts": 2, **to}),
        ("outbox.dead", {"attempts": 2, "reason": "away", **to}),
    ]
