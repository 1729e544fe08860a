"""The client of a service that may be away: an event is kept first and delivered then.

Order of things: make the event durable, leased to this process; look at the service's health; ask the breaker; call; finish the
row. Whatever goes wrong on the way, the event stays and the caller gets a value, not an exception. While events wait, the
service is asked how it is now and then, and what waits is sent when it is back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Protocol

from bartack.errors import ResilienceError
from bartack.resilience._breaker import CircuitBreaker, status_of
from bartack.resilience._executor import ResilientExecutor
from bartack.resilience._health import DOWN, HealthChecker
from bartack.resilience._outcome import CallFailed, CallIgnored, CallRejected, CallSucceeded, Outcome
from bartack.resilience.addresses import CALL_TIMEOUT_S, TRACK, call_once, check_answer, origin_of
from bartack.resilience.cache import Beside, Kept, PatternCache, verdict_of
from bartack.resilience.outbox.row import DELIVERED, RELEASED
from bartack.resilience.settings import URL, given, load_settings

_log = logging.getLogger("bartack.resilience")
Body = dict[str, object]


class EventCache(Protocol):
    """What a cache must have at least to take the place of a ``PatternCache``."""

    async def cache_pattern_event(self, event: Mapping[str, object]) -> str:
        """Keep an event and return its id."""
        ...

    def get_stats(self) -> dict[str, object]:
        """What waits and what has been counted so far."""
        ...


class ResilientAPIClient:
    """Sends pattern events to a service, and keeps what it cannot take now.

    Args:
        base_url: The service.
        enable_caching: Whether events are kept until they are delivered.
        enable_circuit_breaker: Whether a failing service is left alone for a while.
    """

    def __init__(
        self, base_url: str = URL, enable_caching: bool = True, enable_circuit_breaker: bool = True
    ) -> None:
        self._settings = load_settings()
        self.base_url = given(base_url, self._settings.url).rstrip("/")
        self.executor = ResilientExecutor()
        self._background = ResilientExecutor()
        self._recovering: asyncio.Task[None] | None = None
        self._syncing: asyncio.Task[None] | None = None
        own = PatternCache() if enable_caching else None
        self._cache: PatternCache | EventCache | None = own
        store = own.store if own else None
        origin = origin_of(self.base_url)
        self.health_checker = HealthChecker(self.base_url, store=store, settings=self._settings)
        self.health_checker.on_recovery = self._on_recovery
        self.circuit_breaker = CircuitBreaker(name=origin, store=store) if enable_circuit_breaker else None
        if own is not None:
            own.recipient = self.base_url

    @property
    def cache(self) -> PatternCache | EventCache | None:
        """Where events are kept. Setting it shares breaker and health with the new one's database."""
        return self._cache

    @cache.setter
    def cache(self, cache: PatternCache | EventCache | None) -> None:
        self._cache = cache
        if isinstance(cache, PatternCache):
            cache.recipient = self.base_url
            self.health_checker.store = cache.store
            if isinstance(self.circuit_breaker, CircuitBreaker):
                self.circuit_breaker.share(cache.store, origin_of(self.base_url))

    def track_pattern_resilient(
        self,
        event_type: str,
        pattern_id: str,
        pattern_name: str = "",
        pattern_data: Mapping[str, object] | None = None,
        **kwargs: object,
    ) -> Coroutine[object, object, Body]:
        """Track one event. It is durable when this returns; the coroutine delivers it and says what became of it."""
        event: Body = {
            "event_type": event_type,
            "pattern_id": pattern_id,
            "pattern_name": pattern_name,
            "pattern_data": dict(pattern_data or {}),
            **kwargs,
        }
        return self.deliver(event, self.keep(event))

    def keep(self, event: Body, *, lease: bool = True, beside: Beside | None = None) -> Kept | None:
        """Make an event durable; ``None`` where this client keeps nothing, or leaves that to a foreign cache."""
        if not isinstance(self._cache, PatternCache):
            return None
        event_id = event.get("event_id")
        if not isinstance(event_id, str) or not event_id:
            event_id = self._cache.new_event_id(event.get("pattern_id"))
            event["event_id"] = event_id
        return self._cache.keep(event, event_id=event_id, recipient=self.base_url, lease=lease, beside=beside)

    async def deliver(self, event: Body, kept: Kept | None) -> Body:
        """Deliver an event that ``keep`` has made durable."""
        released = True
        try:
            outcome = await self._attempt(event)
            released = False
        except Exception as error:  # noqa: BLE001 - tracking never fails its caller
            outcome, released = CallFailed(error), False
        finally:
            # Cancelled: the event must not wait for the end of its lease.
            if released and kept and kept.claim:
                self._settle(kept, None)
        return await self._conclude(event, kept, outcome)

    async def track_lineage(self, *, event_id: str | None = None, **event: object) -> Body:
        """Deliver one event, by one call through the breaker.

        Raises:
            CircuitOpenError: The breaker did not let it through.
            ServiceAnswerError: The service answered with a failure.
        """
        data = {**event, "event_id": event_id} if event_id else dict(event)
        return (await self._through_breaker(data)).unwrap()

    async def can_deliver(self) -> bool:
        """Ask the service whether it accepts events now. If it does, a breaker that failures have opened may try at once.

        A client whose calls are replaced is always asked to deliver: the health of the service says nothing about it.
        """
        if self._is_replaced("_call_api") or self._is_replaced("track_lineage"):
            return True
        if not await self.health_checker.check_health(force=True):
            return False
        self._on_recovery()
        return True

    async def get_stats(self) -> dict[str, object]:
        """The state of all parts."""
        stats: dict[str, object] = {
            "executor": self.executor.get_stats(),
            "health": self.health_checker.get_health_status(),
        }
        if self.circuit_breaker is not None:
            stats["circuit_breaker"] = self.circuit_breaker.get_state()
        if self._cache is not None:
            stats["cache"] = self._cache.get_stats()
        return stats

    async def _call_api(
        self,
        endpoint: str,
        method: str = "POST",
        data: Mapping[str, object] | None = None,
        timeout: float = CALL_TIMEOUT_S,  # noqa: ASYNC109 - the name is part of the promise
    ) -> Body | None:
        """One call without the breaker; ``None`` on any error."""
        try:
            return await self._request(endpoint, method, data, timeout)
        except Exception as error:  # noqa: BLE001 - that is what this form promises
            _log.warning("%s%s: %s: %s", self.base_url, endpoint, type(error).__name__, error)
            return None

    async def _request(
        self, endpoint: str, method: str, data: Mapping[str, object] | None, timeout_s: float
    ) -> Body:
        url = f"{self.base_url}{endpoint}"
        answer = await call_once(url, self._settings, method=method, data=data, timeout_s=timeout_s)
        return check_answer(url, answer)

    async def _attempt(self, event: Body) -> Outcome[Body]:
        if not await self.health_checker.check_health():
            if isinstance(self.circuit_breaker, CircuitBreaker) and self._known_down():
                self.circuit_breaker.note_failure()
            return CallRejected(0.0, "unhealthy")
        return await self._through_breaker(event)

    def _known_down(self) -> bool:
        return self.health_checker.get_health_status().get("level") == DOWN

    async def _through_breaker(self, event: Body) -> Outcome[Body]:
        call = self._calling(event)
        if self.circuit_breaker is None:
            try:
                outcome: Outcome[Body] = CallSucceeded(await call())
            except Exception as error:  # noqa: BLE001 - the same values as with a breaker
                outcome = CallFailed(error)
        else:
            outcome = await self.circuit_breaker.execute(call)
        self._learn(outcome)
        return outcome

    def _calling(self, event: Body) -> Callable[[], Coroutine[object, object, Body]]:
        """The raising call. A replaced ``_call_api`` is used, with its ``None`` taken for the failure that it is."""
        if not self._is_replaced("_call_api"):
            return lambda: self._request(TRACK, "POST", event, CALL_TIMEOUT_S)

        async def through_replacement() -> Body:
            found = await self._call_api(TRACK, method="POST", data=event)
            if found is None:
                raise ConnectionError("the call gave no answer")
            return found

        return through_replacement

    def _is_replaced(self, method: str) -> bool:
        own: object = getattr(ResilientAPIClient, method)
        return getattr(getattr(self, method), "__func__", None) is not own

    def _learn(self, outcome: Outcome[Body]) -> None:
        """Results of real calls are as good as a health check."""
        note = getattr(self.health_checker, "note", None)  # a replaced checker may have none
        if note is not None and isinstance(outcome, CallSucceeded | CallIgnored):
            note(usable=True)
        elif note is not None and isinstance(outcome, CallFailed) and not status_of(outcome.error):
            note(usable=False)

    async def _conclude(self, event: Body, kept: Kept | None, outcome: Outcome[Body]) -> Body:
        event_id = event.get("event_id", "")
        if isinstance(outcome, CallSucceeded):
            self._settle(kept, outcome)
            self._sync_in_background()
            return {
                "success": True, "cached": False, "data": outcome.value, "event_id": event_id,
                "message": "delivered",
            }  # fmt: skip
        if isinstance(outcome, CallIgnored) and verdict_of(outcome.error).kind == "dead":
            self._settle(kept, outcome)
            message = f"the service refused the event: {outcome.error}"
            return {"success": False, "cached": False, "dead": True, "event_id": event_id, "message": message}
        self._settle(kept, outcome)
        if kept is None:
            kept = await self._keep_in_foreign_cache(event)
        if not kept.event_id:
            return {"success": False, "cached": False, "message": f"not delivered: {_why(outcome)}"}
        self._watch_recovery()
        message = f"kept until the service is back: {_why(outcome)}"
        return {"success": False, "cached": True, "event_id": kept.event_id, "message": message}

    async def _keep_in_foreign_cache(self, event: Body) -> Kept:
        if self._cache is None or isinstance(self._cache, PatternCache):
            return Kept("")
        return Kept(str(await self._cache.cache_pattern_event(event)))

    def _settle(self, kept: Kept | None, outcome: Outcome[Body] | None) -> None:
        if kept is None or kept.claim is None or not isinstance(self._cache, PatternCache):
            return
        if isinstance(outcome, CallSucceeded):
            verdict = DELIVERED
        elif isinstance(outcome, CallFailed | CallIgnored):
            verdict = verdict_of(outcome.error)
        else:
            verdict = RELEASED
        self._cache.settle(kept.claim, verdict)

    def _on_recovery(self) -> None:
        """The service is back: what waits for it is due, and the breaker may try."""
        if isinstance(self.circuit_breaker, CircuitBreaker):
            self.circuit_breaker.note_healthy()
        if not isinstance(self._cache, PatternCache):
            return
        try:
            self._cache.outbox.wake(self.base_url)
        except ResilienceError as error:
            _log.debug("waiting events are kept: %s", error)

    def _waits(self) -> bool:
        try:
            return isinstance(self._cache, PatternCache) and bool(
                self._cache.outbox.waiting().get(self.base_url)
            )
        except ResilienceError:
            return False

    def _sync_in_background(self) -> None:
        if self._waits() and (self._syncing is None or self._syncing.done()):
            self._syncing = self._background.fire_and_forget(self._sync())

    async def _sync(self) -> None:
        assert isinstance(self._cache, PatternCache)
        await self._cache.sync_cached_events(self, max_retries=None, recipient=self.base_url)

    def _watch_recovery(self) -> None:
        if isinstance(self._cache, PatternCache) and (self._recovering is None or self._recovering.done()):
            self._recovering = self._background.fire_and_forget(self._until_recovered())

    async def _until_recovered(self) -> None:
        """Ask the service how it is until nothing waits for it."""
        pause = asyncio.Event()
        while self._waits():
            await _wait(pause, self.health_checker.check_interval)
            if await self.health_checker.check_health(force=True):
                self._on_recovery()
                await self._sync()


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


def _why(outcome: Outcome[Body]) -> str:
    if isinstance(outcome, CallRejected):
        return "it is down" if outcome.state == "unhealthy" else f"the breaker is {outcome.state}"
    return str(outcome.error) if isinstance(outcome, CallFailed | CallIgnored) else "unknown"
