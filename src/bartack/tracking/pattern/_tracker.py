"""The pattern tracker: what Python programs and hooks call.

Every ``track_*`` is a plain function that makes its event durable before it returns and gives back a coroutine that only
delivers it: a coroutine that never runs loses nothing. None of them raises; what a caller got wrong is in the result.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import ClassVar, Final

from bartack.core.redact import Redactor
from bartack.core.user_home import user_home
from bartack.errors import ResilienceError
from bartack.resilience import Kept, PatternCache, ResilientAPIClient, load_settings
from bartack.resilience.cache import TakenBackError
from bartack.resilience.link import DaemonLink, register_outbox
from bartack.resilience.outbox.outbox import bump
from bartack.resilience.settings import ENABLED, given
from bartack.tracking.pattern._analytics import analytics_of
from bartack.tracking.pattern._event import ArgumentFault, Context, Draft, Drafter

_log = logging.getLogger("bartack.tracking")
Result = dict[str, object]
Delivering = Coroutine[object, object, Result]

INLINE: Final = "inline"
DAEMON: Final = "daemon"
_INLINE_MOST_S: Final = 3.0
_COUNTS: Final[tuple[str, ...]] = ("total_found", "synced", "failed", "skipped")


class PatternTracker:
    """Tracks how pieces of code come into being and change.

    Args:
        base_url: The lineage service; by default that of the settings.
        enable_tracking: Whether anything is tracked at all.
    """

    _instance: ClassVar[PatternTracker | None] = None
    _instance_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, base_url: str | None = None, enable_tracking: bool = ENABLED) -> None:
        settings = load_settings()
        self.enabled = bool(given(enable_tracking, settings.enabled))
        self.base_url = (base_url or settings.url).rstrip("/")
        self.delivery = settings.delivery or INLINE
        self.api_client = ResilientAPIClient(self.base_url)
        self._keep_code = settings.store == "code"
        self._redactor = Redactor(os.environ)
        self._registered: str | None = None

    @classmethod
    async def get_instance(cls) -> PatternTracker:
        """The one tracker of this process."""
        return cls.shared()

    @classmethod
    def shared(cls) -> PatternTracker:
        """Like ``get_instance``, for code that cannot wait."""
        with cls._instance_lock:
            if cls._instance is None:
                cls._instance = cls()
            return cls._instance

    @classmethod
    def reset_instance(cls) -> None:
        """Forget the tracker of this process; the next use makes another one."""
        with cls._instance_lock:
            cls._instance = None

    def track_pattern_creation(
        self, code: str, context: Context, parent_pattern_ids: Sequence[str] | None = None
    ) -> Delivering:
        """Some code came into being, perhaps from other patterns."""
        parents = list(parent_pattern_ids or ())
        return self._track(lambda drafter: drafter.created(self._clean(code), context, parents))

    def track_pattern_modification(
        self, pattern_id: str, new_code: str, context: Context, reason: str | None = None
    ) -> Delivering:
        """A pattern was changed into something else."""
        return self._track(
            lambda drafter: drafter.modified(pattern_id, self._clean(new_code), context, reason)
        )

    def track_pattern_application(self, pattern_id: str, context: Context) -> Delivering:
        """A pattern was used as it is."""
        return self._track(lambda drafter: drafter.applied(pattern_id, context))

    def track_pattern_merge(
        self,
        source_pattern_ids: Sequence[str],
        merged_code: str,
        context: Context,
        reason: str | None = None,
    ) -> Delivering:
        """Several patterns became one."""
        sources = list(source_pattern_ids)
        return self._track(lambda drafter: drafter.merged(sources, self._clean(merged_code), context, reason))

    def track_file(
        self, code: str, context: Context, *, delivery: str | None = None, pattern_id: str | None = None
    ) -> Delivering:
        """A file was written: a change of the pattern it held, or a creation if it held none."""

        def draft(drafter: Drafter) -> Draft | ArgumentFault:
            parent = pattern_id or drafter.pattern_of_file(str(context.get("file_path") or ""))
            if parent is None:
                return drafter.created(self._clean(code), context)
            return drafter.modified(parent, self._clean(code), context, by_path=pattern_id is None)

        return self._track(draft, delivery)

    async def get_tracker_stats(self) -> dict[str, object]:
        """The state of tracking, of everything below it, and what the numbers say."""
        cache = self._cache()
        known = cache.store.read(
            lambda connection: connection.execute("SELECT count(*) FROM patterns").fetchone()[0]
        )
        return {
            "tracker": {"enabled": self.enabled, "base_url": self.base_url, "cached_patterns": known},
            "resilience": await self.api_client.get_stats(),
            "analytics": analytics_of(cache.outbox, self.base_url),
        }

    async def sync_offline_events(self) -> Result:
        """Deliver what waits, if the service takes it now. A success only if everything that waited is delivered."""
        try:
            stats, problem = await self._sync()
        except ResilienceError as error:
            return {"success": False, "sync_stats": dict.fromkeys(_COUNTS, 0), "message": str(error)}
        message = f"{stats['synced']} of {stats['total_found']} events delivered"
        left = stats["total_found"] - stats["synced"]
        if left:
            why = problem or "not all were taken; to see why: bartack track status"
            message += f": {why}"
        return {"success": not left, "sync_stats": stats, "message": message}

    async def cleanup_cache(self) -> Result:
        """Give up what is too old."""
        return {"success": True, "removed": await self._cache().cleanup_old_events()}

    async def _sync(self) -> tuple[dict[str, int], str]:
        """Deliver what waits; the counts, and why nothing was tried if nothing was."""
        cache = self._cache()
        asks = getattr(self.api_client, "can_deliver", None)  # a replaced client may have none
        if asks is not None and not await asks():
            found = cache.count_waiting()
            counts = dict(zip(_COUNTS, (found, 0, found, 0), strict=True))
            return (
                counts,
                f"{self.base_url} cannot be used now; the events are kept. Sync again when it is back",
            )
        return await cache.sync_cached_events(self.api_client, max_retries=None), ""

    def drafter(self) -> Drafter:
        """Makes events with what this tracker's database remembers."""
        return Drafter(self._cache().store, keep_code=self._keep_code)

    def _cache(self) -> PatternCache:
        cache = self.api_client.cache
        if not isinstance(cache, PatternCache):
            raise TypeError("this needs the client's own kind of cache")
        return cache

    def _clean(self, code: str) -> str:
        # Before the id is made, so that the same code has the same id wherever its secrets are known.
        return self._redactor.redact_text(code)

    def _track(
        self, make: Callable[[Drafter], Draft | ArgumentFault], delivery: str | None = None
    ) -> Delivering:
        try:
            return self._keep(make, delivery or self.delivery)
        except Exception as error:  # noqa: BLE001 - tracking never fails its caller
            _log.warning("not tracked: %s: %s", type(error).__name__, error)
            return _answering(
                {"success": False, "cached": False, "error": f"{type(error).__name__}: {error}"}
            )

    def _keep(self, make: Callable[[Drafter], Draft | ArgumentFault], delivery: str) -> Delivering:
        if not self.enabled:
            return _answering({"success": False, "skipped": True, "reason": "disabled"})
        draft = make(self.drafter())
        if isinstance(draft, ArgumentFault):
            return _answering({"success": False, "error": draft.problem})
        facts = _facts(draft)
        wall = self._cache().store.wall()
        try:
            kept = self.api_client.keep(
                draft.event,
                lease=delivery == INLINE,
                beside=lambda connection: draft.remember(connection, wall),
            )
        except TakenBackError:
            self._count_repeated()
            return _answering(
                {"success": True, "cached": True, "duplicate": True, "pattern_id": draft.pattern_id}
            )
        if delivery == INLINE:
            return self._deliver(draft.event, kept, facts)
        return _answering({**self._queued(kept), **facts})

    def _count_repeated(self) -> None:
        self._cache().store.write(lambda connection: bump(connection, "duplicates", 1), durable=False)

    async def _deliver(self, event: dict[str, object], kept: Kept | None, facts: Result) -> Result:
        try:
            async with asyncio.timeout(_INLINE_MOST_S):
                result = await self.api_client.deliver(event, kept)
        except TimeoutError:
            result = {
                "success": False,
                "cached": bool(kept and kept.event_id),
                "event_id": event.get("event_id", ""),
                "message": "kept: no answer in time",
            }
        if result.get("cached"):
            self._register()
        return {**result, **facts}

    def _queued(self, kept: Kept | None) -> Result:
        if kept is None or not kept.event_id:
            return {"success": False, "cached": False, "message": "the event could not be kept"}
        reached = DaemonLink().notify(self._cache().cache_dir)
        if not reached:
            self._register()
        away = self._away()
        message = away or ("passed to the daemon" if reached else "kept until the daemon runs")
        return {
            "success": not away,
            "cached": True,
            "queued": True,
            "event_id": kept.event_id,
            "message": message,
        }

    def _away(self) -> str:
        breaker = self.api_client.circuit_breaker
        if breaker is not None and breaker.get_state()["state"] == "open":
            return "kept: the breaker is open"
        down = self.api_client.health_checker.get_health_status().get("level") == "down"
        return "kept: the service is down" if down else ""

    def _register(self) -> None:
        """Record for a later daemon where something waits."""
        directory = str(self._cache().cache_dir)
        if self._registered == directory or os.path.realpath(directory) == os.path.realpath(user_home()):
            return
        self._registered = directory
        try:
            register_outbox(directory)
        except ResilienceError as error:
            _log.debug("the daemon will not find %s by itself: %s", directory, error)


def track_write_tool_pattern(file_path: str, content: str, language: str | None = None) -> Delivering:
    """A tool wrote a file. Returns when the event is durable; the daemon delivers it."""
    context = {"file_path": file_path, "language": language, "tool_name": "Write"}
    return _for_hooks(lambda tracker: tracker.track_file(content, context, delivery=_hook_delivery(tracker)))


def track_edit_tool_pattern(
    file_path: str,
    pattern_id: str | None,
    new_content: str,
    language: str | None = None,
    reason: str | None = None,
) -> Delivering:
    """A tool edited a file. Without a pattern id, the one that the file held last is meant."""
    context = {"file_path": file_path, "language": language, "tool_name": "Edit", "reason": reason}
    return _for_hooks(
        lambda tracker: tracker.track_file(
            new_content, context, delivery=_hook_delivery(tracker), pattern_id=pattern_id
        )
    )


def _hook_delivery(tracker: PatternTracker) -> str:
    return load_settings().delivery or (DAEMON if tracker.delivery == INLINE else tracker.delivery)


def _for_hooks(track: Callable[[PatternTracker], Delivering]) -> Delivering:
    try:
        return track(PatternTracker.shared())
    except Exception as error:  # noqa: BLE001 - tracking never fails its caller
        _log.warning("not tracked: %s: %s", type(error).__name__, error)
        return _answering({"success": False, "cached": False, "error": str(error)})


def _facts(draft: Draft) -> Result:
    facts: Result = {"pattern_id": draft.pattern_id}
    if draft.parent is not None:
        facts |= {
            "parent_pattern_id": draft.parent,
            "version": draft.event.get("pattern_version"),
            "similarity": draft.similarity,
        }
    return facts


async def _answering(result: Mapping[str, object]) -> Result:
    return dict(result)
