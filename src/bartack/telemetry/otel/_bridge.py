"""The bridge itself: which events are spans, how spans hang together, and which measurement becomes which metric.

Events come when they are durable, spans have to be known earlier: what is started carries the trace on. So a span may begin by
``traceparent``, and the event that begins it finds it there. ``_metrics.py`` does the metrics.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import cache
from typing import Final

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.util.types import AttributeValue

from bartack.telemetry import Event, Telemetry
from bartack.telemetry.catalogue import Shape, shape_of
from bartack.telemetry.otel._metrics import Metrics

HANDLER: Final = "otel"
"""The id under which the bridge is attached."""

SCOPE: Final = "bartack"
MAX_OPEN: Final = 10_000
"""The most spans that are open; the oldest ends when there is one more."""

_PRODUCERS: Final = frozenset({"send", "broadcast", "mailbox.sent"})
_OWNERS: Final = ("worker", "child", "sender", "watcher", "receiver")
"""Which metadata names the worker that an event belongs to."""
_DESTINATIONS: Final = ("mailbox", "recipient")

Key = tuple[str, str, str]
"""A span: run, kind and id."""


class OtelBridge:
    """Turns events into spans and metrics. ``attach_otel`` makes one.

    Args:
        tracer: Makes the spans.
        meter: Makes the instruments.
        parent: The trace that runs belong to, if they are part of something larger.
    """

    def __init__(self, tracer: trace.Tracer, meter: metrics.Meter, parent: Context) -> None:
        self._tracer = tracer
        self._parent = parent
        self._metrics = Metrics(meter)
        self._open: dict[Key, Span] = {}
        self._telemetry: Telemetry | None = None

    def attach(self, telemetry: Telemetry) -> None:
        """Listen to everything."""
        telemetry.trace_with(self)
        telemetry.attach(HANDLER, "*", self.handle)
        self._telemetry = telemetry

    def close(self) -> None:
        """Listen no more, and end every span that is open."""
        if self._telemetry is not None:
            self._telemetry.detach(HANDLER)
            self._telemetry.trace_with(None)
            self._telemetry = None
        while self._open:
            self._open.popitem()[1].end()

    def handle(
        self, name: str, measurements: Mapping[str, int], metadata: Mapping[str, object], config: object
    ) -> None:
        """Take an event."""
        what, _, phase = name.rpartition(".")
        if phase == "start":
            self._begin(what, measurements, metadata)
        elif phase in {"stop", "exception"}:
            self._end(what, phase, measurements, metadata)
        elif name == "mailbox.sent":
            self._sent(measurements, metadata)
        elif name == "mailbox.delivered":
            self._delivered(name, metadata)
        else:
            self._note(name, measurements, metadata)
        self._metrics.measure(name, measurements, metadata)

    def traceparent(self, event: Event) -> str:
        """See ``Tracer.traceparent``."""
        shape = _shape(type(event))
        measurements = {name: getattr(event, name) for name in shape.measurements}
        metadata = {name: getattr(event, name) for name in shape.metadata}
        what = event.name.removesuffix(".start")
        if what == "mailbox.sent" and (sent := self._open.get(_key("send", metadata))) is not None:
            return _format(sent.get_span_context())
        return _format(self._begin(what, measurements, metadata).get_span_context())

    # Spans.

    def _begin(
        self, what: str, measurements: Mapping[str, int], metadata: Mapping[str, object], took_ns: int = 0
    ) -> Span:
        key = _key(what, metadata)
        known = self._open.get(key)
        if known is not None:
            return known
        span = self._tracer.start_span(
            f"bartack.{what}",
            self._context_of(what, metadata),
            kind=SpanKind.PRODUCER if what in _PRODUCERS else SpanKind.INTERNAL,
            attributes=_attributes(measurements, metadata),
            start_time=time.time_ns() - took_ns,
        )
        self._open[key] = span
        if len(self._open) > MAX_OPEN:
            self._open.pop(next(iter(self._open))).end()
        return span

    def _end(
        self, what: str, phase: str, measurements: Mapping[str, int], metadata: Mapping[str, object]
    ) -> None:
        span = self._begin(what, measurements, metadata, measurements.get("duration_ns", 0))
        span.set_attributes(_attributes(measurements, metadata))
        if phase == "exception":
            error = metadata.get("error") or metadata.get("outcome") or metadata.get("status")
            span.set_status(Status(StatusCode.ERROR, str(error)))
            span.set_attribute("error.type", str(error))
        self._open.pop(_key(what, metadata), None)
        span.end()
        if what == "run":
            self._end_run(str(metadata["run"]))

    def _end_run(self, run: str) -> None:
        """What is open when a run ends has no end of its own: its hub stops."""
        for key in [key for key in self._open if key[0] == run]:
            self._open.pop(key).end()

    def _sent(self, measurements: Mapping[str, int], metadata: Mapping[str, object]) -> None:
        supervised = self._open.get(_key("send", metadata))
        if supervised is not None:
            supervised.set_attribute("messaging.message.id", str(metadata["message"]))
            return
        span = self._begin("mailbox.sent", measurements, metadata)
        self._open.pop(_key("mailbox.sent", metadata), None)
        span.end()

    def _delivered(self, name: str, metadata: Mapping[str, object]) -> None:
        sent = _parse(str(metadata["traceparent"]))
        self._tracer.start_span(
            f"bartack.{name}",
            self._context_of(name, metadata),
            kind=SpanKind.CONSUMER,
            attributes=_attributes({}, metadata),
            links=[Link(sent)] if sent is not None else [],
        ).end()

    def _note(self, name: str, measurements: Mapping[str, int], metadata: Mapping[str, object]) -> None:
        """Whatever else happens to a worker is noted in its span."""
        owner = self._owner(metadata)
        if owner is not None:
            owner.add_event(f"bartack.{name}", _attributes(measurements, metadata))

    # How they hang together.

    def _context_of(self, what: str, metadata: Mapping[str, object]) -> Context:
        if what == "run":
            return self._parent
        run = str(metadata.get("run", ""))
        if what == "worker":
            parent = self._open.get((run, "step", str(metadata["parent"]))) or self._open.get(
                (run, "run", run)
            )
        else:
            parent = self._owner(metadata)
        return self._parent if parent is None else trace.set_span_in_context(parent, self._parent)

    def _owner(self, metadata: Mapping[str, object]) -> Span | None:
        """The span of the worker that an event belongs to, or else that of its run."""
        run = str(metadata.get("run", ""))
        path = next((str(metadata[name]) for name in _OWNERS if name in metadata), "")
        while path:
            found = self._open.get((run, "worker", path))
            if found is not None:
                return found
            # A branch of a worker is written with a point after its worker's path.
            path = path.rpartition(".")[0]
        return self._open.get((run, "run", run))


def attach_otel(
    telemetry: Telemetry,
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
    *,
    traceparent: str | None = None,
) -> OtelBridge:
    """Make spans and metrics of everything that ``telemetry`` gets; ``close`` what this returns when that is over.

    Args:
        telemetry: Where the events are.
        tracer_provider: Takes the spans; the one that is set for this process if it is not given.
        meter_provider: Takes the metrics; likewise.
        traceparent: The trace that runs belong to; by default the one in the environment (``TRACEPARENT``), if there is one.

    Raises:
        ValueError: A bridge is attached already.
    """
    tracer = (tracer_provider or trace.get_tracer_provider()).get_tracer(SCOPE)
    meter = (meter_provider or metrics.get_meter_provider()).get_meter(SCOPE)
    outer = _parse(os.environ.get("TRACEPARENT", "") if traceparent is None else traceparent)
    parent = Context()
    if outer is not None:
        parent = trace.set_span_in_context(trace.NonRecordingSpan(outer), parent)
    bridge = OtelBridge(tracer, meter, parent)
    bridge.attach(telemetry)
    return bridge


@cache
def _shape(event_type: type[Event]) -> Shape:
    return shape_of(event_type)


def _key(what: str, metadata: Mapping[str, object]) -> Key:
    run = str(metadata.get("run", ""))
    field = {"run": "run", "mailbox.sent": "message"}.get(what, what)
    return run, what, str(metadata.get(field, ""))


def _attributes(measurements: Mapping[str, int], metadata: Mapping[str, object]) -> dict[str, AttributeValue]:
    found: dict[str, AttributeValue] = {
        f"bartack.{name}": value if isinstance(value, bool | int | float) else str(value)
        for name, value in (*metadata.items(), *measurements.items())
        if value != ""
    }
    destination = next((str(metadata[name]) for name in _DESTINATIONS if name in metadata), "")
    if destination:
        found["messaging.system"] = "bartack"
        found["messaging.destination.name"] = destination
    if metadata.get("message"):
        found["messaging.message.id"] = str(metadata["message"])
    return found


def _format(context: SpanContext) -> str:
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def _parse(traceparent: str) -> SpanContext | None:
    parts = traceparent.split("-")
    try:
        version, trace_id, span_id, flags = parts[0], *(int(part, 16) for part in parts[1:4])
    except ValueError:
        return None
    context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return context if version != "ff" and context.is_valid else None
