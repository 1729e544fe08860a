"""Pattern events kept for a service: the outbox as Python programs see it.

``keep`` makes an event durable before it returns: in the database, or in the spool when the database is busy or cannot be
written. The client given to ``sync_cached_events`` delivers them.
"""

from __future__ import annotations

import inspect
import logging
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, cast

from bartack.core.clock import Clock
from bartack.core.redact import Redactor
from bartack.errors import (
    CircuitOpenError,
    OutboxFullError,
    ResilienceError,
    ServiceUnprovenError,
    TokenFileError,
)
from bartack.resilience._breaker import fault_of, status_of
from bartack.resilience._store import INGEST_BUSY_S, StateStore
from bartack.resilience.home import state_home
from bartack.resilience.importing import import_files, import_spool
from bartack.resilience.mirror import encode_event, parse_object, read_mirrored
from bartack.resilience.outbox.outbox import CLAIM_MOST, Limits, Outbox, bump
from bartack.resilience.outbox.row import DELIVERED, PATTERN, RELEASED, Claim, NewEvent, Verdict
from bartack.resilience.settings import MAX_AGE_DAYS, MAX_SIZE_MB, given, load_settings
from bartack.resilience.spool import PATTERN_EVENT, Header, Spool
from bartack.telemetry import NO_TELEMETRY, Telemetry

_log = logging.getLogger("bartack.resilience")
_OLDER_FOLDER: Final = "~/.claude/hooks/.cache/patterns"
_TRANSIENT_4XX: Final = {408, 425, 429}
_ID_PART: Final = 150
Beside = Callable[[sqlite3.Connection], None]


class Kept(NamedTuple):
    """Where an event is: its id, empty if it could not be kept, and the claim if it is leased to this process."""

    event_id: str
    claim: Claim | None = None


class TakenBackError(Exception):
    """Raised beside an insert, to take the event back with everything that was done for it."""


class PatternCache:
    """Keeps pattern events until a service has them.

    Args:
        cache_dir: The state home; by default that of the working directory.
        max_age_days: Older events are given up.
        max_cache_size_mb: How much is kept, in MiB.
        clock: What time it is.
        telemetry: Receives drops and damage.
    """

    def __init__(
        self,
        cache_dir: str | os.PathLike[str] | None = None,
        max_age_days: float = MAX_AGE_DAYS,
        max_cache_size_mb: float = MAX_SIZE_MB,
        *,
        clock: Clock | None = None,
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        settings = load_settings()
        self.max_age_days = given(max_age_days, settings.max_age_days)
        self.max_cache_size_mb = given(max_cache_size_mb, settings.max_size_mb)
        self.recipient = settings.url
        self.lost = 0
        self.store = StateStore(state_home(cache_dir), clock=clock, telemetry=telemetry)
        self._outbox = Outbox(self.store, Limits.of(settings))
        self._redactor = Redactor(os.environ)
        self._may_adopt = cache_dir is None

    @property
    def cache_dir(self) -> Path:
        """The state home. Setting it moves this object to another one; what is in the old one stays there."""
        return self.store.directory

    @cache_dir.setter
    def cache_dir(self, directory: str | os.PathLike[str]) -> None:
        self.store.rehome(Path(os.path.expanduser(os.fspath(directory))))

    @property
    def outbox(self) -> Outbox:
        """The outbox, with the limits that hold now."""
        self._outbox.limits = self._outbox.limits._replace(
            max_age_days=self.max_age_days, quota_bytes=int(self.max_cache_size_mb * 1024 * 1024)
        )
        return self._outbox

    def new_event_id(self, pattern_id: object) -> str:
        """An id for an event: when, what, and something random."""
        return f"{self.store.clock.now_us() // 1000}_{str(pattern_id or 'unknown')[:_ID_PART]}_{os.urandom(4).hex()}"

    def keep(
        self,
        event: Mapping[str, object],
        *,
        event_id: str | None = None,
        recipient: str | None = None,
        lease: bool = False,
        beside: Beside | None = None,
    ) -> Kept:
        """Make an event durable now. ``beside`` is done in the same transaction.

        Raises:
            TakenBackError: By ``beside``, and by nothing else.
        """
        event_id = event_id or self.new_event_id(event.get("pattern_id"))
        recipient = recipient or self.recipient
        payload = b""
        try:
            payload = encode_event(cast("Mapping[str, object]", self._redactor.redact_value(event)))
            new = NewEvent(event_id, PATTERN, recipient, payload)
            claim = self.outbox.insert([new], lease=lease, busy_s=INGEST_BUSY_S, beside=beside)[0]
            return Kept(event_id, claim if lease else None)
        except TakenBackError:
            raise
        except OutboxFullError as error:
            return self._lose(event_id, error, count=True)
        except ResilienceError as error:
            return self._keep_in_spool(event_id, recipient, payload, error)
        except Exception as error:  # noqa: BLE001 - tracking never fails its caller
            return self._lose(event_id, error)

    def settle(self, claim: Claim, verdict: Verdict) -> None:
        """Finish a claim; what cannot be finished now is finished by the end of its lease."""
        try:
            self.outbox.settle([(claim, verdict)])
        except ResilienceError as error:
            _log.warning("event %s stays leased until its lease ends: %s", claim.event_id, error)

    async def cache_pattern_event(self, event: Mapping[str, object]) -> str:
        """Keep an event and return its id; empty only when neither database nor spool can be written."""
        named = event.get("event_id")
        return self.keep(event, event_id=named if isinstance(named, str) and named else None).event_id

    async def sync_cached_events(
        self, api_client: object, max_retries: int | None = 3, *, recipient: str | None = None
    ) -> dict[str, int]:
        """Deliver what waits, one event after the other, and say what became of it.

        Args:
            api_client: Anything with an async ``track_lineage`` (or ``track_pattern_resilient``).
            max_retries: Events with at least this many failed attempts are skipped; ``None``: none is. An event dies of its
                last attempt, so none is tried for ever.
            recipient: Only what waits for this service.
        """
        counts = {"total_found": 0, "synced": 0, "failed": 0, "skipped": 0}
        try:
            waiting = self._take_stock(recipient)
            counts["total_found"] = len(waiting)
            wanted = [
                event_id for event_id, attempts in waiting if max_retries is None or attempts < max_retries
            ]
            counts["skipped"] = len(waiting) - len(wanted)
            for start in range(0, len(wanted), CLAIM_MOST):
                await self._sync_some(api_client, wanted[start : start + CLAIM_MOST], counts)
        except ResilienceError as error:
            _log.warning("sync stopped: %s", error)
            counts["failed"] = counts["total_found"] - counts["synced"] - counts["skipped"]
        return counts

    def count_waiting(self, recipient: str | None = None) -> int:
        """How many events wait, what other programs have left included.

        Raises:
            StoreUnavailableError: The database cannot be used.
        """
        return len(self._take_stock(recipient))

    async def cleanup_old_events(self) -> int:
        """Give up events that are too old; how many that were. A copy whose time was set back makes its event that old."""
        try:
            self.take_in()
            return self.outbox.expire(also_older=self._ages())
        except ResilienceError as error:
            _log.warning("clean-up stopped: %s", error)
            return 0

    def get_stats(self) -> dict[str, object]:
        """What waits and what has been counted so far."""
        try:
            rows, counted = self.outbox.count(PATTERN), self.outbox.counters()
        except ResilienceError:
            rows, counted = {}, {}
        return {
            "pending_events": rows.get("pending", 0) + rows.get("leased", 0),
            "total_cached": counted.get("total_cached", 0),
            "total_synced": counted.get("total_synced", 0),
            "cache_dir": str(self.cache_dir),
            "max_age_days": self.max_age_days,
            "dead_events": rows.get("dead", 0),
            "dropped_events": counted.get("dropped", 0) + self.lost,
            "size_bytes": counted.get("bytes", 0),
        }

    def take_in(self, *, spool: bool = True) -> int:
        """Import what others have left: the spool, and copies without a row; how many events that were."""
        taken = import_spool(self.outbox, Spool(self.cache_dir), self._redactor) if spool else 0
        taken += import_files(self.outbox, self.cache_dir, self.recipient)
        if self._may_adopt:
            taken += self._adopt_older()
        return taken

    def import_folder(self, folder: str | os.PathLike[str]) -> int:
        """Import the waiting events of another folder; how many were new. A file goes after its row is committed."""
        return import_files(self.outbox, Path(folder), self.recipient)

    def _adopt_older(self) -> int:
        """Take over, once, what an older tool has left in its own folder."""
        self._may_adopt = False
        folder = Path(os.path.expanduser(_OLDER_FOLDER))
        if not folder.is_dir() or self.outbox.counters().get("older_folder"):
            return 0
        taken = import_files(self.outbox, folder, self.recipient)
        self.store.write(lambda connection: bump(connection, "older_folder", 1))
        return taken

    def _take_stock(self, recipient: str | None) -> list[tuple[str, int]]:
        """Everything that waits, by id and attempts. Leases of dead processes end here."""
        self.take_in()
        self.outbox.release_dead()
        return self._waiting(recipient)

    def _waiting(self, recipient: str | None) -> list[tuple[str, int]]:
        query = (
            "SELECT event_id,attempts FROM outbox WHERE kind=:kind AND state IN ('pending','leased')"
            " AND (:to IS NULL OR recipient=:to) ORDER BY seq"
        )
        facts = {"kind": PATTERN, "to": recipient}
        return self.store.read(lambda connection: connection.execute(query, facts).fetchall())

    async def _sync_some(self, api_client: object, ids: Sequence[str], counts: dict[str, int]) -> None:
        claims = self.outbox.claim(ids=ids, any_time=True, limit=len(ids))
        counts["skipped"] += len(ids) - len(claims)
        left = list(claims)
        try:
            while left:
                verdict = await self._hand_over(api_client, left[0])
                self.outbox.settle([(left.pop(0), verdict)])
                counts["synced" if verdict is DELIVERED else "failed"] += 1
        finally:
            if left:
                self.outbox.settle([(claim, RELEASED) for claim in left])

    async def _hand_over(self, api_client: object, claim: Claim) -> Verdict:
        event = parse_object(claim.payload)
        if event is None:
            return Verdict("dead", "unparsable")
        try:
            answer = await _delivering(api_client, claim.event_id, event)
        except Exception as error:  # noqa: BLE001 - whatever a foreign client raises, the event is kept
            return verdict_of(error)
        if isinstance(answer, dict) and cast("dict[str, object]", answer).get("success") is False:
            return Verdict("transient", "the client reported no success")
        return DELIVERED

    def _ages(self) -> dict[str, float]:
        ages: dict[str, float] = {}
        for path in self._outbox.mirror.paths():
            try:
                found = read_mirrored(path)
            except (OSError, ValueError):
                continue
            ages[found.event_id] = found.created_at
        return ages

    def _keep_in_spool(self, event_id: str, recipient: str, payload: bytes, cause: Exception) -> Kept:
        header = Header(
            PATTERN_EVENT,
            self.store.clock.now_us() * 1000,
            str(self.cache_dir),
            home=str(self.cache_dir),
            event_id=event_id,
            recipient=recipient,
        )
        try:
            Spool(self.cache_dir).put(header, payload)
        except OSError as error:
            return self._lose(event_id, error)
        _log.debug("event %s is in the spool: %s", event_id, cause)
        return Kept(event_id)

    def _lose(self, event_id: str, error: Exception, *, count: bool = False) -> Kept:
        self.lost += 1
        _log.warning("event %s could not be kept: %s", event_id, error)
        if count:
            try:
                self.store.write(lambda connection: bump(connection, "rejected", 1), busy_s=INGEST_BUSY_S)
            except ResilienceError as failed:
                _log.debug("not counted: %s", failed)
        return Kept("")


def verdict_of(error: Exception) -> Verdict:
    """What a failed call means for its event."""
    status, wait = status_of(error), getattr(error, "retry_after", None) or 0.0
    if isinstance(error, CircuitOpenError | ServiceUnprovenError | TokenFileError) or fault_of(status):
        # The endpoint is at fault, or was not asked at all: that does not count as an attempt of this event.
        return Verdict("released", str(error), wait)
    if 400 <= status < 500 and status not in _TRANSIENT_4XX:
        return Verdict("dead", f"refused:{status}")
    return Verdict("transient", f"{type(error).__name__}: {error}"[:500], wait)


async def _delivering(api_client: object, event_id: str, event: dict[str, object]) -> object:
    track = getattr(api_client, "track_lineage", None)
    if track is None:
        track = getattr(api_client, "track_pattern_resilient", None)
    if track is None:
        raise TypeError(f"{type(api_client).__name__} has no track_lineage")
    if _names_event_id(track):
        event = {**event, "event_id": event_id}
    found = cast("Callable[..., object]", track)(**event)
    return await found if inspect.isawaitable(found) else found


def _names_event_id(function: object) -> bool:
    """Whether a client asks for the id by its name; others get the event just as it was given."""
    try:
        return "event_id" in inspect.signature(cast("Callable[..., object]", function)).parameters
    except (TypeError, ValueError):
        return False
