"""Whether a service can be used, asked as seldom as possible.

What real calls learn counts as much as a check. With a store, all processes share one record per service.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from bartack.core.boot import boot_id
from bartack.core.clock import Clock, SystemClock
from bartack.errors import ResilienceError, ServiceUnprovenError, TokenFileError
from bartack.resilience._store import INGEST_BUSY_S, StateStore
from bartack.resilience.addresses import HEALTH, Answer, call_once, origin_of
from bartack.resilience.mirror import iso, parse_object
from bartack.resilience.settings import HEALTH_INTERVAL, HEALTH_TIMEOUT, URL, Settings, given, load_settings
from bartack.telemetry import NO_TELEMETRY, Telemetry
from bartack.telemetry.catalogue import HealthChanged

_log = logging.getLogger("bartack.resilience")

UNKNOWN: Final = "unknown"
HEALTHY: Final = "healthy"
DEGRADED: Final = "degraded"
DOWN: Final = "down"
UNPROVEN: Final = "unproven"
GOOD: Final = {HEALTHY, DEGRADED}
_FAILURES_DOWN: Final = 3
_LOG_S: Final = 30 * 86_400.0


class HealthRecord(NamedTuple):
    """What is known of a service, and since when."""

    level: str = UNKNOWN
    checked_at: float = 0.0
    checked_wall: float | None = None
    boot: str = ""
    failures: int = 0
    successes: int = 0
    data: dict[str, object] | None = None


class HealthChecker:
    """Asks a service how it is, and remembers the answer for a while.

    Args:
        base_url: The service.
        check_interval: Seconds that an answer is reused.
        timeout: Seconds to wait for an answer.
        store: Where the record is shared. Without, it is private to this object.
        clock: What time it is, for a private record.
        telemetry: Receives changes.
        settings: How the service proves itself; by default as in the working directory.
    """

    def __init__(
        self,
        base_url: str = URL,
        check_interval: float = HEALTH_INTERVAL,
        timeout: float = HEALTH_TIMEOUT,
        *,
        store: StateStore | None = None,
        clock: Clock | None = None,
        telemetry: Telemetry = NO_TELEMETRY,
        settings: Settings | None = None,
    ) -> None:
        settings = load_settings() if settings is None else settings
        self._settings = settings
        self.base_url = given(base_url, settings.url).rstrip("/")
        self.check_interval = given(check_interval, settings.health_interval)
        self.timeout = given(timeout, settings.health_timeout)
        self.store = store
        self.on_recovery: Callable[[], None] | None = None
        self._clock = clock or SystemClock()
        self._telemetry = telemetry
        self._own = HealthRecord()
        self._asking: tuple[asyncio.AbstractEventLoop, asyncio.Future[bool]] | None = None

    # The attributes of the older API. What is known is shared, so they are read from the record and not kept here.

    @property
    def is_healthy(self) -> bool:
        """Whether the service can be used, as far as is known without asking."""
        return self.get_health_status()["is_healthy"] is True

    @property
    def last_check(self) -> float:
        """When something was learned last, in seconds since 1970; 0 if nothing was."""
        return self._load().checked_wall or 0.0

    @property
    def last_health_data(self) -> dict[str, object] | None:
        """The last answer of the health endpoint."""
        return self._load().data

    @property
    def consecutive_failures(self) -> int:
        """How many checks and calls in a row got no usable answer."""
        return self._load().failures

    @consecutive_failures.setter
    def consecutive_failures(self, count: int) -> None:
        self._set(self._load()._replace(failures=count))

    @property
    def consecutive_successes(self) -> int:
        """How many checks and calls in a row got a usable answer."""
        return self._load().successes

    @consecutive_successes.setter
    def consecutive_successes(self, count: int) -> None:
        self._set(self._load()._replace(successes=count))

    async def check_health(self, force: bool = False) -> bool:
        """Whether the service can be used. Never raises; asks only if nothing was learned for ``check_interval`` seconds."""
        if not force:
            known = self._fresh()
            if known is not None:
                return known.level in GOOD
        loop = asyncio.get_running_loop()
        if self._asking is None or self._asking[0] is not loop or self._asking[1].done():
            self._asking = (loop, loop.create_task(self._ask()))
        # Shielded: one impatient caller must not take the answer from the others.
        return await asyncio.shield(self._asking[1])

    def get_health_status(self) -> dict[str, object]:
        """What is known, without asking."""
        known = self._load()
        level = known.level if self._is_fresh(known) or self.store is None else UNKNOWN
        components = (known.data or {}).get("components")
        return {
            "is_healthy": level in GOOD,
            "last_check": iso(known.checked_wall),
            "consecutive_failures": known.failures,
            "consecutive_successes": known.successes,
            "last_health_data": known.data,
            "base_url": self.base_url,
            "level": level,
            "components": components if isinstance(components, dict) else {},
        }

    def note(self, usable: bool) -> None:
        """Learn from a real call: it got an answer, or none."""
        known = self._load()
        if usable:
            self._learn(known.level if known.level in GOOD else HEALTHY, known.data)
        elif known.failures + 1 >= _FAILURES_DOWN:
            self._learn(DOWN, known.data)
        else:  # one lost call must not keep all others waiting
            self._set(known._replace(failures=known.failures + 1, successes=0))

    async def _ask(self) -> bool:
        try:
            url = f"{self.base_url}{HEALTH}"
            answer = await call_once(url, self._settings, method="GET", timeout_s=self.timeout)
            level, data = level_of(answer), answer.body
        except (ServiceUnprovenError, TokenFileError) as error:
            _log.log(logging.DEBUG if self._load().level == DOWN else logging.WARNING, "%s", error)
            level, data = DOWN, dict[str, object](status=UNPROVEN, detail=str(error))
        except Exception as error:  # noqa: BLE001 - no answer, for whatever reason, is an answer
            _log.debug("%s: %s: %s", self.base_url, type(error).__name__, error)
            level, data = DOWN, None
        self._learn(level, data)
        return level in GOOD

    def _learn(self, level: str, data: dict[str, object] | None) -> None:
        before = self._load()
        good = level in GOOD
        after = HealthRecord(
            level,
            self._clock_now(),
            self._clock_wall(),
            self._boot(),
            0 if good else before.failures + 1,
            before.successes + 1 if good else 0,
            data,
        )
        self._own = after
        self._share(before, after)
        if before.level != level:
            self._report(before, after)
            if good and before.level == DOWN and self.on_recovery is not None:
                self.on_recovery()

    def _set(self, known: HealthRecord) -> None:
        """Replace the counts; the level stays."""
        self._own = known
        self._share(known, known)

    def _fresh(self) -> HealthRecord | None:
        known = self._load()
        return known if self._is_fresh(known) else None

    def _is_fresh(self, known: HealthRecord) -> bool:
        age = self._clock_now() - known.checked_at
        return known.level != UNKNOWN and known.boot == self._boot() and age < self.check_interval

    def _load(self) -> HealthRecord:
        if self.store is None:
            return self._own
        try:
            row = self.store.read(self._select)
        except ResilienceError:
            return self._own
        if row is None:
            return HealthRecord()
        return HealthRecord(*row[:6], data=parse_object(row[6].encode()) if row[6] else None)

    def _select(self, connection: sqlite3.Connection) -> tuple[str, float, float, str, int, int, str] | None:
        query = "SELECT level,checked_at,checked_wall,boot,failures,successes,data FROM health WHERE origin=?"
        found: tuple[str, float, float, str, int, int, str] | None = connection.execute(
            query, (origin_of(self.base_url),)
        ).fetchone()
        return found

    def _share(self, before: HealthRecord, after: HealthRecord) -> None:
        if self.store is None:
            return
        origin = origin_of(self.base_url)
        data = msgspec.json.encode(after.data, enc_hook=str).decode() if after.data else None
        wall = after.checked_wall or 0.0

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT OR REPLACE INTO health VALUES(?,?,?,?,?,?,?,?)",
                (
                    origin,
                    after.level,
                    after.checked_at,
                    wall,
                    after.boot,
                    after.failures,
                    after.successes,
                    data,
                ),
            )
            if before.level != after.level:
                connection.execute("INSERT INTO health_log VALUES(?,?,?)", (origin, wall, after.level))
                connection.execute("DELETE FROM health_log WHERE at<?", (wall - _LOG_S,))

        try:
            self.store.write(work, busy_s=INGEST_BUSY_S, durable=False)
        except ResilienceError as error:
            _log.debug("health of %s is not shared now: %s", origin, error)

    def _report(self, before: HealthRecord, after: HealthRecord) -> None:
        level = logging.INFO if after.level in GOOD else logging.WARNING
        _log.log(level, "service %s is %s, was %s", self.base_url, after.level, before.level)
        if self._telemetry.wanted(HealthChanged):
            self._telemetry.emit(
                HealthChanged(
                    failures=after.failures,
                    origin=origin_of(self.base_url),
                    before=before.level,
                    after=after.level,
                )
            )

    def _clock_now(self) -> float:
        return self.store.now() if self.store else self._clock.monotonic_ns() / 1e9

    def _clock_wall(self) -> float:
        return self.store.wall() if self.store else self._clock.now_us() / 1e6

    def _boot(self) -> str:
        return self.store.boot if self.store else boot_id()


Phase4HealthChecker = HealthChecker
"""The name under which programs of an older tool import it."""


def level_of(answer: Answer) -> str:
    """What an answer of the health endpoint says. A degraded service can still be used."""
    status = str((answer.body or {}).get("status", ""))
    if answer.status == 200:
        return DEGRADED if status == DEGRADED else HEALTHY
    return DEGRADED if answer.status == 503 and status == DEGRADED else DOWN
