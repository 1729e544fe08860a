"""Delivering what waits now, in this process: what ``bartack track sync`` does, with or without a daemon."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from bartack.resilience import Deliverer, PatternCache, Settings
from bartack.tracking.daemon._hook import HookProcessor


class SyncReport(NamedTuple):
    """What became of the events that waited."""

    found: int
    delivered: int
    dead: int
    waiting: int
    away: tuple[str, ...]
    timed_out: bool


async def sync_now(cache: PatternCache, settings: Settings, timeout_s: float) -> SyncReport:
    """Deliver what waits in one outbox, at most for ``timeout_s`` seconds.

    Raises:
        StoreUnavailableError: The database cannot be used.
    """
    cache.take_in()
    cache.outbox.release_dead()
    processor = HookProcessor(cache.outbox, settings)
    while processor.process():
        pass
    before = cache.outbox.count("pattern")
    away: list[str] = []
    timed_out = False
    try:
        async with asyncio.timeout(timeout_s):
            for url in cache.outbox.waiting():
                away += [] if await _deliver(cache, settings, url) else [url]
    except TimeoutError:
        timed_out = True
    after = cache.outbox.count("pattern")
    waiting = after["pending"] + after["leased"]
    return SyncReport(
        before["pending"] + before["leased"],
        after["delivered"] - before["delivered"],
        after["dead"] - before["dead"],
        waiting,
        tuple(away),
        timed_out,
    )


async def _deliver(cache: PatternCache, settings: Settings, url: str) -> bool:
    """Deliver to one service; whether it can be used."""
    deliverer = Deliverer(cache.outbox, url, settings)
    try:
        if not await deliverer.health.check_health(force=True):
            return False
        deliverer.breaker.note_healthy()
        cache.outbox.hasten(url)
        await deliverer.drain()
    finally:
        await deliverer.close()
    return True
