"""What telemetry costs the code that emits: nobody listening, somebody listening elsewhere, one handler, four.

The floor is a call of an empty function, timed in the same rounds. The first two rows are what every commit of a journal
pays, and must stay under a microsecond.

Run with ``python -m bench.telemetry [--json]``.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable

from bartack.telemetry import JournalCommitted, Telemetry

ROUNDS = 15
CALLS = 20_000
BUDGET_NS = 1_000.0


def empty() -> None:
    """Does nothing: the floor."""


def listener(*_: object) -> None:
    """A handler that does nothing."""


def emitter(telemetry: Telemetry) -> Callable[[], None]:
    """What an emitter writes in its code."""

    def emit() -> None:
        if telemetry.wanted(JournalCommitted):
            telemetry.emit(JournalCommitted(entries=1, size_bytes=120, duration_ns=150_000))

    return emit


def listened_to(*patterns: str) -> Telemetry:
    telemetry = Telemetry()
    for number, pattern in enumerate(patterns):
        telemetry.attach(f"listener-{number}", pattern, listener)
    return telemetry


def subjects() -> dict[str, Callable[[], None]]:
    return {
        "floor": empty,
        "nobody": emitter(listened_to()),
        "elsewhere": emitter(listened_to("journal.opened")),
        "one_handler": emitter(listened_to("journal.*")),
        "four_handlers": emitter(listened_to(*["journal.*"] * 4)),
    }


def time_ns(subject: Callable[[], None]) -> float:
    """Nanoseconds per call, the loop around it included."""
    started = time.perf_counter_ns()
    for _ in range(CALLS):
        subject()
    return (time.perf_counter_ns() - started) / CALLS


def measure() -> dict[str, object]:
    """Interleaved rounds; medians, and medians of the ratios within each round."""
    timed = subjects()
    rounds = [{name: time_ns(subject) for name, subject in timed.items()} for _ in range(ROUNDS)]
    medians = {name: statistics.median(row[name] for row in rounds) for name in timed}
    return {
        "bench": "telemetry",
        "rounds": ROUNDS,
        "ns_per_call": {name: round(ns, 1) for name, ns in medians.items()},
        "ratios": {
            f"{name}_to_floor": round(statistics.median(row[name] / row["floor"] for row in rounds), 2)
            for name in timed
            if name != "floor"
        },
        "targets": {
            f"{name}_under_1us": {
                "limit_ns": BUDGET_NS,
                "ns": round(medians[name], 1),
                "ok": medians[name] <= BUDGET_NS,
            }
            for name in ("nobody", "elsewhere")
        },
    }


def table(result: dict[str, object]) -> str:
    costs = result["ns_per_call"]
    assert isinstance(costs, dict)
    rows = [f"  {name:<14} {ns:>8.1f} ns" for name, ns in costs.items()]
    return "\n".join(["telemetry, per event (median of interleaved rounds)", *rows])


def main() -> None:
    result = measure()
    print(json.dumps(result) if "--json" in sys.argv[1:] else table(result))


if __name__ == "__main__":
    main()
