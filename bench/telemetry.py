"""The cost of telemetry for the code that emits: without a handler, with a handler for other events, with one handler.

The floor is a call of an empty function. The first two races are what every commit of a journal pays.

Run with ``python -m bench.telemetry [--json] [--quick] [--rounds N] [--check]``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter_ns
from typing import Final

from bartack.telemetry import Telemetry
from bartack.telemetry.catalogue import JournalCommitted
from bench._harness import OURS, Bench, Contestant, Race, main
from bench._report import Goal
from bench._runner import Sample

EVENTS: Final = 200_000


def no_handler(directory: str, size: int) -> Sample:
    """Nanoseconds per event without a handler."""
    del directory
    return _time(_emitter(), size)


def other_handler(directory: str, size: int) -> Sample:
    """Nanoseconds per event while only another one is wanted."""
    del directory
    return _time(_emitter("journal.opened"), size)


def one_handler(directory: str, size: int) -> Sample:
    """Nanoseconds per event that is built and handed to one handler."""
    del directory
    return _time(_emitter("journal.*"), size)


def empty_call(directory: str, size: int) -> Sample:
    """Nanoseconds per call of a function that does nothing."""
    del directory
    return _time(_nothing, size)


def _emitter(*patterns: str) -> Callable[[], None]:
    telemetry = Telemetry()
    for number, pattern in enumerate(patterns):
        telemetry.attach(f"listener-{number}", pattern, _nothing)

    def emit() -> None:
        if telemetry.wanted(JournalCommitted):
            telemetry.emit(JournalCommitted(entries=1, size_bytes=120, duration_ns=150_000))

    return emit


def _nothing(*_: object) -> None:
    return None


def _time(call: Callable[[], None], size: int) -> Sample:
    started = perf_counter_ns()
    for _ in range(size):
        call()
    return Sample(value=(perf_counter_ns() - started) / size)


def _race(key: str, title: str, measure: Callable[[str, int], Sample]) -> Race:
    return Race(
        key=key,
        title=title,
        unit="ns",
        better="lower",
        contestants=(
            Contestant(key=OURS, label="bartack", measure=measure, size=EVENTS),
            Contestant(key="floor", label="floor: an empty call", measure=empty_call, size=EVENTS),
        ),
    )


BENCH: Final = Bench(
    name="telemetry",
    title="Telemetry",
    races=(
        _race("unhandled", "one event, no handler", no_handler),
        _race("elsewhere", "one event, a handler for other events", other_handler),
        _race("handled", "one event, one handler", one_handler),
    ),
    goals=(
        Goal(
            race="unhandled", title="an event without a handler", bound="at most", target=1_000, stretch=100
        ),
        Goal(
            race="elsewhere",
            title="an event without a handler, others have one",
            bound="at most",
            target=1_000,
            stretch=100,
        ),
    ),
    notes=("the loop around the call is included",),
)

if __name__ == "__main__":
    sys.exit(main(BENCH))
