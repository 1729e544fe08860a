"""Measurements as metrics: every event is counted, durations are histograms in seconds, levels are gauges, the rest adds up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opentelemetry.metrics import Counter, Histogram, Meter
from opentelemetry.metrics import _Gauge as Gauge
from opentelemetry.util.types import AttributeValue

LEVELS: Final = frozenset({"queued", "capacity", "active", "restarts", "failures"})
"""Measurements that say how high something stands now."""

DIMENSIONS: Final = frozenset(
    {
        "mailbox",
        "recipient",
        "kind",
        "reason",
        "outcome",
        "ack",
        "policy",
        "strategy",
        "ok",
        "topic",
        "status",
    }
    | {
        "error",
        "source",
        "automatic",
        "normal",
        "by",
        "breaker",
        "origin",
        "handler",
        "event",
        "deduplicated",
    }
)
"""Metadata that a metric is divided by. Ids and places are not: there is no end to them."""

_NS: Final = "_ns"
_BYTES: Final = "_bytes"


class Metrics:
    """One instrument for every measurement of every event, made when it is first needed."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        self._gauges: dict[str, Gauge] = {}

    def measure(self, name: str, measurements: Mapping[str, int], metadata: Mapping[str, object]) -> None:
        """Take the measurements of an event."""
        attributes = _attributes(metadata)
        self._count(f"bartack.{name}", "{event}", measurements.get("count", 1), attributes)
        for field, value in measurements.items():
            if field == "count":
                continue
            if field.endswith(_NS):
                seconds = self._histogram(f"bartack.{name}.{field.removesuffix(_NS)}")
                seconds.record(value / 1e9, attributes)
            elif field in LEVELS:
                self._gauge(f"bartack.{name}.{field}").set(value, attributes)
            else:
                unit = "By" if field.endswith(_BYTES) else "1"
                self._count(f"bartack.{name}.{field.removesuffix(_BYTES)}", unit, value, attributes)

    def _count(self, name: str, unit: str, value: int, attributes: Mapping[str, AttributeValue]) -> None:
        counter = self._counters.get(name)
        if counter is None:
            counter = self._counters[name] = self._meter.create_counter(name, unit)
        counter.add(value, attributes)

    def _histogram(self, name: str) -> Histogram:
        found = self._histograms.get(name)
        if found is None:
            found = self._histograms[name] = self._meter.create_histogram(name, "s")
        return found

    def _gauge(self, name: str) -> Gauge:
        found = self._gauges.get(name)
        if found is None:
            found = self._gauges[name] = self._meter.create_gauge(name)
        return found


def _attributes(metadata: Mapping[str, object]) -> dict[str, AttributeValue]:
    return {
        f"bartack.{name}": value if isinstance(value, bool | int) else _plain(str(value))
        for name, value in metadata.items()
        if name in DIMENSIONS and value != ""
    }


def _plain(text: str) -> str:
    """Inboxes come and go with their workers: they count as one."""
    return "@" if text.startswith("@") else text
