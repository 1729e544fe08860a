"""Draining an outbox: claim what is due, hand it to its service, finish the rows.

For those who deliver a lot and wait for nothing else, the daemon first of all: events go in batches over kept connections, and the
database is used in a thread of its own, so that a busy one does not stop the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, cast

from bartack.errors import ResilienceError, ServiceAnswerError
from bartack.resilience._breaker import CircuitBreaker, status_of
from bartack.resilience._health import HealthChecker
from bartack.resilience._outcome import CallIgnored, CallRejected, CallSucceeded, Outcome
from bartack.resilience.addresses import (
    CALL_TIMEOUT_S,
    TRACK,
    TRACK_BATCH,
    check_answer,
    open_client,
    origin_of,
    read_answer,
)
from bartack.resilience.cache import verdict_of
from bartack.resilience.mirror import parse_object
from bartack.resilience.outbox.outbox import CLAIM_MOST, Outbox
from bartack.resilience.outbox.row import DELIVERED, RELEASED, Claim, Verdict
from bartack.resilience.settings import Settings

if TYPE_CHECKING:
    import httpx

_log = logging.getLogger("bartack.resilience")
T = TypeVar("T")
IN_FLIGHT: Final = 8
_NO_BATCH: Final = {404, 405, 413}


class Deliverer:
    """Delivers the events of one outbox to one service.

    Args:
        outbox: Whose events.
        base_url: The service.
        settings: Limits of breaker and health.
        database: Where database work is done; by default in the loop itself.
        timeout_s: How long one call may take.
    """

    def __init__(
        self,
        outbox: Outbox,
        base_url: str,
        settings: Settings,
        *,
        database: Executor | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> None:
        self.outbox = outbox
        self.base_url = base_url
        self.breaker = CircuitBreaker(
            settings.failure_threshold,
            settings.breaker_timeout,
            name=origin_of(base_url),
            store=outbox.store,
            max_in_flight=IN_FLIGHT,
        )
        self.health = HealthChecker(
            base_url,
            settings.health_interval,
            settings.health_timeout,
            store=outbox.store,
            settings=settings,
        )
        self.health.on_recovery = self.recovered
        self.delivered = 0
        self._database = database
        self._timeout_s = timeout_s
        self._settings = settings
        self._client: httpx.AsyncClient | None = None
        self._batches = True

    async def drain(self) -> int:
        """Deliver what is due until nothing is, or the service does not take more; how many were delivered."""
        before = self.delivered
        workers = [asyncio.ensure_future(self._work()) for _ in range(2)]  # noqa: TID251 - owned and awaited by the next lines
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
        return self.delivered - before

    async def probe(self) -> bool:
        """Ask the service how it is, if nothing was learned for a while; whether it can be used."""
        return await self.health.check_health()

    def recovered(self) -> None:
        """The service is back: the breaker may try, and what waits is due."""
        try:
            self.breaker.note_healthy()
            self.outbox.wake(self.base_url)
        except ResilienceError as error:
            _log.debug("waiting events are kept: %s", error)

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _work(self) -> None:
        while await self._deliver_some():
            pass

    async def _deliver_some(self) -> bool:
        """Deliver one portion; whether to continue with the next."""
        if not self.breaker.get_state()["is_available"]:
            return False
        most = CLAIM_MOST if self._batches else IN_FLIGHT
        claims = await self._in_database(partial(self.outbox.claim, recipient=self.base_url, limit=most))
        if not claims:
            return False
        verdicts: list[Verdict] = [RELEASED] * len(claims)
        try:
            verdicts = await self._hand_over(claims)
        finally:
            await self._in_database(partial(self.outbox.settle, list(zip(claims, verdicts, strict=True))))
        self.delivered += verdicts.count(DELIVERED)
        return all(verdict.kind in {"delivered", "dead"} for verdict in verdicts)

    async def _hand_over(self, claims: Sequence[Claim]) -> list[Verdict]:
        events = [parse_object(claim.payload) for claim in claims]
        good = [
            {**event, "event_id": claim.event_id}
            for claim, event in zip(claims, events, strict=True)
            if event is not None
        ]
        answers = iter(await self._send(good))
        return [Verdict("dead", "unparsable") if event is None else next(answers) for event in events]

    async def _send(self, events: list[dict[str, object]]) -> list[Verdict]:
        if self._batches and len(events) > 1:
            verdicts = await self._send_batch(events)
            if verdicts is not None:
                return verdicts
        return list(await asyncio.gather(*(self._send_one(event) for event in events)))

    async def _send_one(self, event: dict[str, object]) -> Verdict:
        outcome: Outcome[dict[str, object]] = await self.breaker.execute(
            lambda: self._post(TRACK, event), call_timeout=self._timeout_s
        )
        if isinstance(outcome, CallSucceeded):
            self._note_answer()
            return DELIVERED
        if isinstance(outcome, CallRejected):
            return RELEASED
        self._note_failure(outcome.error)
        return verdict_of(outcome.error)

    def _note_failure(self, error: Exception) -> None:
        if not status_of(error):
            self.health.note(usable=False)

    async def _send_batch(self, events: list[dict[str, object]]) -> list[Verdict] | None:
        """One call for all; ``None`` if the service knows no batches."""
        outcome: Outcome[dict[str, object]] = await self.breaker.execute(
            lambda: self._post(TRACK_BATCH, {"events": events}), call_timeout=self._timeout_s
        )
        if isinstance(outcome, CallSucceeded):
            self._note_answer()
            return _batch_verdicts(outcome.value, len(events))
        if isinstance(outcome, CallRejected):
            return [RELEASED] * len(events)
        if isinstance(outcome, CallIgnored):
            # The batch as a whole was refused: only one by one it shows which event is at fault.
            self._batches = self._batches and getattr(outcome.error, "status", 0) not in _NO_BATCH
            return None
        self._note_failure(outcome.error)
        return [verdict_of(outcome.error)] * len(events)

    def _note_answer(self) -> None:
        if self.health.get_health_status()["level"] not in {"healthy", "degraded"}:
            self.health.note(usable=True)

    async def _post(self, path: str, data: dict[str, object]) -> dict[str, object]:
        if self._client is None:
            self._client = open_client(self.base_url, self._timeout_s, self._settings)
        url = f"{self.base_url}{path}"
        answer = read_answer(await self._client.post(url, json=data))
        if answer.status in {401, 403}:
            await self.close()  # the token may have been made since
        return check_answer(url, answer)

    async def _in_database(self, work: Callable[[], T]) -> T:
        if self._database is None:
            return work()
        # A cancelled caller must not leave the thread's work half known: it is awaited to its end.
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._database, work))


def _batch_verdicts(body: dict[str, object], count: int) -> list[Verdict]:
    data = body.get("data")
    found = cast("dict[str, object]", data).get("results") if isinstance(data, dict) else None
    results = cast("list[object]", found) if isinstance(found, list) else []
    if len(results) != count:
        return [Verdict("transient", "the answer to a batch has another length")] * count
    return [_item_verdict(result) for result in results]


def _item_verdict(result: object) -> Verdict:
    item = cast("dict[str, object]", result) if isinstance(result, dict) else {}
    if item.get("success") is True:
        return DELIVERED
    error = item.get("error")
    code = str(cast("dict[str, object]", error).get("code", "")) if isinstance(error, dict) else ""
    if code == "duplicate":
        return DELIVERED
    status = _STATUS.get(code)
    if status is None:
        return Verdict("transient", f"batch item: {code or 'no answer'}")
    return verdict_of(ServiceAnswerError("batch", status, detail=code))


_STATUS: Final = {
    "invalid": 400, "unauthorized": 401, "forbidden": 403, "unknown_pattern": 404, "conflict": 409, "cycle": 409,
    "too_large": 413, "bad_value": 422, "busy": 429, "store_unavailable": 503,
}  # fmt: skip
