"""What happens inside Bartack, told to whoever attached a handler; nearly free when nobody did."""

from bartack.telemetry._bus import NO_TELEMETRY, Handler, HandlerFunction, Telemetry
from bartack.telemetry._catalogue import (
    CATALOGUE,
    Event,
    JournalBlobWritten,
    JournalCommitted,
    JournalOpened,
    JournalPoisoned,
    JournalRecovered,
    Shape,
    TelemetryHandlerFailed,
    shape_of,
)

__all__ = [
    "CATALOGUE",
    "NO_TELEMETRY",
    "Event",
    "Handler",
    "HandlerFunction",
    "JournalBlobWritten",
    "JournalCommitted",
    "JournalOpened",
    "JournalPoisoned",
    "JournalRecovered",
    "Shape",
    "Telemetry",
    "TelemetryHandlerFailed",
    "shape_of",
]
