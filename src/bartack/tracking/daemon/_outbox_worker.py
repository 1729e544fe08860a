"""One outbox as the daemon works on it: take in what was left, read hook events, deliver, give up what is too old."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Final, TypeVar

from bartack.errors import ResilienceError
from bartack.notices import NOTICE, WATCH
from bartack.resilience import Deliverer, Outbox, PatternCache, Settings
from bartack.resilience.outbox.outbox import Limits
from bartack.tracking.daemon._hook import HookProcessor

_log = logging.getLogger("bartack.tracking")
T = TypeVar("T")
_LOOK_S: Final = 5.0
"""How often a spool is looked at without a notification."""
_EXPIRE_S: Final = 600.0
_CALL_S: Final = 10.0
"""How long a service may take to answer. Nothing waits for the daemon: a call that is given up too soon is only sent again."""


class OutboxWorker:
    """Works on one outbox until it is stopped.

    Args:
        directory: The state home.
        settings: The settings that hold there.
        database: The thread for database work.
        own_spool: Whether spool files belong here whatever they say; those of the user's home belong to many outboxes.
    """

    def __init__(self, directory: Path, settings: Settings, database: Executor, *, own_spool: bool) -> None:
        self.directory = directory
        self.cache = PatternCache(
            directory, max_age_days=settings.max_age_days, max_cache_size_mb=settings.max_size_mb
        )
        self.outbox: Outbox = self.cache.outbox
        self.outbox.limits = Limits.of(settings)
        self.settings = settings
        self.waiting = 0
        self._database = database
        self._own_spool = own_spool
        self._stopping = False
        self._deliverers: dict[str, Deliverer] = {}
        self._awake = asyncio.Event()
        self._expired_at = -_EXPIRE_S

    def wake(self) -> None:
        """Something is there to do."""
        self._awake.set()

    def reload(self, settings: Settings) -> None:
        """Continue with other settings."""
        self.settings = settings
        self.outbox.limits = Limits.of(settings)
        self._deliverers.clear()
        self.wake()

    def stop(self) -> None:
        """End after the current round."""
        self._stopping = True
        self.wake()

    async def run(self) -> None:
        """Work, and wait for more work, until cancelled."""
        try:
            while not self._stopping:
                self._awake.clear()
                pause = await self._round()
                await _wait(self._awake, pause)
        finally:
            await self._give_back()

    async def _round(self) -> float:
        try:
            await self._off_loop(self._look_after)
            while await self._off_loop(self._processor().process):
                pass
            blocked = [url for url in await self._off_loop(self._addressees) if not await self._deliver(url)]
            pause = await self._off_loop(self._pause)
            return min(self.settings.health_interval, _LOOK_S) if blocked else pause
        except ResilienceError as error:
            _log.warning("%s: %s; tried again later", self.directory, error)
            return _LOOK_S
        except Exception:  # noqa: BLE001 - the daemon continues with its other outboxes
            _log.exception("%s: unexpected", self.directory)
            return _LOOK_S

    def _processor(self) -> HookProcessor:
        return HookProcessor(self.outbox, self.settings)

    def _look_after(self) -> None:
        self.cache.take_in(spool=self._own_spool)
        self.outbox.release_dead()
        now = self.outbox.store.now()
        if now - self._expired_at >= _EXPIRE_S:
            self._expired_at = now
            self.outbox.expire()

    def _addressees(self) -> list[str]:
        waiting = self.outbox.waiting()
        self.waiting = sum(waiting.values())
        return [url for url in waiting if url.startswith(("http://", "https://"))]

    async def _deliver(self, url: str) -> bool:
        """Deliver what is due for a service; whether it takes anything now."""
        deliverer = self._deliverers.get(url)
        if deliverer is None:
            deliverer = Deliverer(self.outbox, url, self.settings, database=self._database, timeout_s=_CALL_S)
            self._deliverers[url] = deliverer
        if not await deliverer.probe():
            return False
        delivered = await deliverer.drain()
        if delivered:
            _log.info("%d events delivered to %s", delivered, url)
        return bool(deliverer.breaker.get_state()["is_available"])

    def _pause(self) -> float:
        """Until the next row is due, but never so long that a recovery or a spool file is missed."""
        self.waiting = sum(self.outbox.waiting().values())
        due = self.outbox.next_due_s(besides=(NOTICE, WATCH))
        if due is None:
            return _LOOK_S
        return min(max(due, 0.05), self.settings.health_interval, _LOOK_S)

    async def _give_back(self) -> None:
        for deliverer in self._deliverers.values():
            await deliverer.close()
        try:
            self.outbox.release_own()
            self.outbox.store.checkpoint()
        except ResilienceError as error:
            _log.warning("%s: %s", self.directory, error)
        self.outbox.store.close()

    async def _off_loop(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._database, work)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
