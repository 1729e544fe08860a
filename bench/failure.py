"""How fast a failure reaches all workers: from ``raise`` in one worker to the exception in the last of eight blocked ones.

Run with ``python -m bench.failure [--json] [--quick] [--rounds N] [--check]``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from typing import Final

from bench._harness import OURS, Bench, Contestant, Race, main
from bench._report import Goal
from bench._runner import Sample
from bench._runs import drive_here, make_run

BLOCKED: Final = 8


def spread(directory: str, size: int) -> Sample:
    """Milliseconds, the median of several runs."""
    times: list[float] = []
    for number in range(size):
        folder = Path(directory, str(number))
        folder.mkdir()
        drive_here(make_run(str(folder), "failure", BLOCKED))
        raised = float((folder / "raised").read_text())
        seen = [float((folder / f"seen-{n}").read_text()) for n in range(BLOCKED)]
        times.append(max(seen) - raised)
    return Sample(value=median(times) * 1e3)


BENCH: Final = Bench(
    name="failure",
    title="Failure",
    races=(
        Race(
            key="spread",
            title=f"raise in one worker → raised in the last of {BLOCKED}",
            unit="ms",
            better="lower",
            contestants=(
                Contestant(key=OURS, label="bartack", measure=spread, size=3, quick_size=1, every=2),
            ),
        ),
    ),
    goals=(Goal(race="spread", title="failure to the last of 8", bound="at most", target=3.0, stretch=2.0),),
)

if __name__ == "__main__":
    sys.exit(main(BENCH))
