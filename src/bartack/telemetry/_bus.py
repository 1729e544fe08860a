"""Brings events to handlers. Owns who listens to what; the events themselves are in ``catalogue.py``.

An emitter asks before it builds an event, so that one without a handler costs a dictionary lookup::

    if telemetry.wanted(JournalCommitted):
        telemetry.emit(JournalCommitted(entries=3, size_bytes=412, duration_ns=150_000))

Routes are computed when a handler is attached or detached, and replaced as a whole: emitting takes no lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from threading import Lock
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from bartack.telemetry.catalogue import CATALOGUE, Event, Shape, TelemetryHandlerFailed, shape_of

HandlerFunction = Callable[[str, Mapping[str, int], Mapping[str, object], object], None]
"""Called with the event's name, its measurements, its metadata and the ``config`` given to ``attach``."""


class Handler(NamedTuple):
    """One attached function."""

    handler_id: str
    pattern: str
    function: HandlerFunction
    config: object


class Tracer(Protocol):
    """Makes spans of events, and knows where in a trace they are."""

    def traceparent(self, event: Event) -> str:
        """The place in its trace of the span that ``event`` begins, as W3C Trace Context writes it; empty if it has none.

        The span begins now if the event was not emitted yet: what carries it on is often there before it is durable.
        """
        ...


class _Route(NamedTuple):
    shape: Shape
    handlers: tuple[Handler, ...]


class Telemetry:
    """The meeting point of those who emit events and those who listen."""

    def __init__(self, catalogue: Mapping[str, type[Event]] = CATALOGUE) -> None:
        self._catalogue = catalogue
        self._lock = Lock()
        self._handlers: dict[str, Handler] = {}
        self._routes: dict[type[Event], _Route] = {}
        self._tracer: Tracer | None = None

    def attach(self, handler_id: str, pattern: str, function: HandlerFunction, config: object = None) -> None:
        """Call ``function`` for every event whose name matches ``pattern`` (a glob: ``journal.*``).

        It runs in the emitter's thread, so it should be quick. One that raises is detached and reported by
        ``telemetry.handler_failed``; the emitter does not notice.

        Raises:
            ValueError: The id is taken, or no event matches the pattern.
        """
        if not any(fnmatchcase(name, pattern) for name in self._catalogue):
            raise ValueError(f"no event matches {pattern!r}")
        with self._lock:
            if handler_id in self._handlers:
                raise ValueError(f"a handler {handler_id!r} is attached already")
            self._handlers[handler_id] = Handler(handler_id, pattern, function, config)
            self._reroute()

    def detach(self, handler_id: str) -> bool:
        """Stop calling a handler; return whether there was one.

        A call in progress in another thread is finished.
        """
        with self._lock:
            if self._handlers.pop(handler_id, None) is None:
                return False
            self._reroute()
        return True

    def handlers(self) -> tuple[Handler, ...]:
        """The attached handlers, in the order in which they are called."""
        with self._lock:
            return tuple(self._handlers.values())

    @property
    def traces(self) -> bool:
        """Whether spans are made of the events, so that asking for ``traceparent`` is worth the time."""
        return self._tracer is not None

    def trace_with(self, tracer: Tracer | None) -> None:
        """Ask ``tracer`` for places in traces from here on; no tracer if it is ``None``.

        Raises:
            ValueError: Another one is asked already.
        """
        with self._lock:
            if tracer is not None and self._tracer is not None:
                raise ValueError("a tracer is attached already")
            self._tracer = tracer

    def traceparent(self, event: Event) -> str:
        """The place in its trace of the span that ``event`` begins; empty if no spans are made."""
        return "" if self._tracer is None else self._tracer.traceparent(event)

    def wanted(self, event_type: type[Event]) -> bool:
        """Whether a handler listens to this event, so that building it is worth the time."""
        return event_type in self._routes

    def emit(self, event: Event) -> None:
        """Call every handler of this event. Never raises what a handler raised."""
        route = self._routes.get(type(event))
        if route is None:
            return
        measurements = _fields(event, route.shape.measurements)
        metadata = _fields(event, route.shape.metadata)
        for handler in route.handlers:
            try:
                handler.function(event.name, measurements, metadata, handler.config)
            except Exception as error:  # noqa: BLE001 - a listener's fault must not become the emitter's
                self._drop(handler, event, error)

    def _drop(self, handler: Handler, event: Event, error: Exception) -> None:
        with self._lock:
            # Another thread may have dropped it already, and the id may have been reused since.
            if self._handlers.get(handler.handler_id) is not handler:
                return
            del self._handlers[handler.handler_id]
            self._reroute()
        if self.wanted(TelemetryHandlerFailed):
            problem = f"{type(error).__name__}: {error}"
            self.emit(TelemetryHandlerFailed(handler=handler.handler_id, event=event.name, error=problem))

    def _reroute(self) -> None:
        routes: dict[type[Event], _Route] = {}
        for name, event_type in self._catalogue.items():
            listening = tuple(h for h in self._handlers.values() if fnmatchcase(name, h.pattern))
            if listening:
                routes[event_type] = _Route(shape_of(event_type), listening)
        self._routes = routes


NO_TELEMETRY: Final = Telemetry(catalogue={})
"""For emitters that were given none. It knows no event, so nothing can be attached to it."""


def _fields(event: Event, names: Iterable[str]) -> Mapping[str, Any]:
    return MappingProxyType({name: getattr(event, name) for name in names})
