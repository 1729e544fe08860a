"""What happens inside Bartack, for attached handlers; nearly free without one.

Start with ``catalogue.py`` (every event) and ``_bus.py`` (how handlers get them). Spans and metrics are made in ``otel/``, which
is loaded only on request.
"""

from bartack.telemetry._bus import NO_TELEMETRY, Handler, HandlerFunction, Telemetry, Tracer
from bartack.telemetry.catalogue import CATALOGUE, Event, StepStart, StepStop

__all__ = [
    "CATALOGUE",
    "NO_TELEMETRY",
    "Event",
    "Handler",
    "HandlerFunction",
    "StepStart",
    "StepStop",
    "Telemetry",
    "Tracer",
]
