"""Statistics of tracking, computed from the counters of the outbox and the log of health checks."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from typing import Final

from bartack.resilience import Outbox
from bartack.resilience.addresses import origin_of

_DAY_S: Final = 86_400.0
_GOOD: Final = {"healthy", "degraded"}


def analytics_of(outbox: Outbox, base_url: str) -> dict[str, object]:
    """Share of delivered events, healthy share per day (oldest first), share of repeated creations; null without data."""
    counted = outbox.counters()
    delivered, died = counted.get("total_synced", 0), counted.get("died", 0)
    created, repeated = counted.get("creations", 0), counted.get("duplicates", 0)
    return {
        "success_rate": _share(delivered, delivered + died),
        "health_trend": _trend(outbox, base_url),
        "dedup_hit_rate": _share(repeated, created + repeated),
    }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _trend(outbox: Outbox, base_url: str) -> list[dict[str, object]] | None:
    def work(connection: sqlite3.Connection) -> list[tuple[float, str]]:
        query = "SELECT at,level FROM health_log WHERE origin=? ORDER BY at"
        return connection.execute(query, (origin_of(base_url),)).fetchall()

    changes = outbox.store.read(work)
    if not changes:
        return None
    ends = [at for at, _ in changes[1:]] + [max(outbox.store.wall(), changes[-1][0])]
    good: dict[int, float] = {}
    known: dict[int, float] = {}
    for (start, level), end in zip(changes, ends, strict=True):
        for day, seconds in _by_day(start, end):
            known[day] = known.get(day, 0.0) + seconds
            good[day] = good.get(day, 0.0) + (seconds if level in _GOOD else 0.0)
    return [
        {
            "day": datetime.fromtimestamp(day * _DAY_S, UTC).date().isoformat(),
            "healthy": good[day] / known[day],
        }
        for day in sorted(known)
        if known[day] > 0
    ]


def _by_day(start: float, end: float) -> list[tuple[int, float]]:
    parts: list[tuple[int, float]] = []
    while start < end:
        day = int(start // _DAY_S)
        until = min(end, (day + 1) * _DAY_S)
        parts.append((day, until - start))
        start = until
    return parts
