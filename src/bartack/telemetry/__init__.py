"""What happens inside Bartack, told to whoever attached a handler; nearly free when nobody did."""

from bartack.telemetry._bus import NO_TELEMETRY, Handler, HandlerFunction, Telemetry
from bartack.telemetry._catalogue import (
    CATALOGUE,
    BreakerChanged,
    Event,
    HealthChanged,
    JournalBlobWritten,
    JournalCommitted,
    JournalOpened,
    JournalPoisoned,
    JournalRecovered,
    OutboxDropped,
    OutboxQuarantined,
    Shape,
    TelemetryHandlerFailed,
    shape_of,
)

__all__ = [
    "CATALOGUE",
    "NO_TELEMETRY",
    "BreakerChanged",
    "Event",
    "Handler",
    "HandlerFunction",
    "HealthChanged",
    "JournalBlobWritten",
    "JournalCommitted",
    "JournalOpened",
    "JournalPoisoned",
    "JournalRecovered",
    "OutboxDropped",
    "OutboxQuarantined",
    "Shape",
    "Telemetry",
    "TelemetryHandlerFailed",
    "shape_of",
]
