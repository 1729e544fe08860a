"""How long it takes until something runs: a worker, an import, a command.

Run with ``python -m bench.start [--json] [--quick] [--rounds N] [--check]``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from statistics import median
from time import perf_counter
from typing import Final

from bench._harness import OURS, Bench, Contestant, Race, main
from bench._report import Goal
from bench._runner import Sample
from bench._runs import run_worker


def worker_start(directory: str, size: int) -> Sample:
    """Milliseconds from asking for a worker to its first line, the median."""
    return Sample(value=median(run_worker(directory, list[float], "starts", size)) * 1e3)


def extra(directory: str, size: int, *, words: tuple[str, ...]) -> Sample:
    """Milliseconds that a command takes longer than an interpreter that does nothing, the median of pairs."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    _time((sys.executable, *words), env)
    pairs = [
        _time((sys.executable, *words), env) - _time((sys.executable, "-c", "pass"), env) for _ in range(size)
    ]
    return Sample(value=median(pairs) * 1e3)


def _time(command: tuple[str, ...], env: dict[str, str]) -> float:
    began = perf_counter()
    subprocess.run(command, env=env, stdout=subprocess.DEVNULL, check=True)
    return perf_counter() - began


BENCH: Final = Bench(
    name="start",
    title="Starting",
    races=(
        Race(
            key="worker",
            title="a worker, from asking to its first line",
            unit="ms",
            better="lower",
            contestants=(Contestant(key=OURS, label="bartack", measure=worker_start, size=50, every=2),),
        ),
        Race(
            key="import",
            title="import bartack, over a bare interpreter",
            unit="ms",
            better="lower",
            contestants=(
                Contestant(
                    key=OURS,
                    label="bartack",
                    measure=partial(extra, words=("-c", "import bartack")),
                    size=10,
                    every=2,
                ),
            ),
        ),
        Race(
            key="help",
            title="bartack --help, over a bare interpreter",
            unit="ms",
            better="lower",
            contestants=(
                Contestant(
                    key=OURS,
                    label="bartack",
                    measure=partial(extra, words=("-m", "bartack", "--help")),
                    size=10,
                    every=2,
                ),
            ),
        ),
    ),
    goals=(
        Goal(race="worker", title="start of a worker", bound="at most", target=10.0, stretch=5.0),
        Goal(race="import", title="import bartack", bound="at most", target=50.0, stretch=30.0),
        Goal(race="help", title="bartack --help", bound="at most", target=120.0, stretch=80.0),
    ),
)

if __name__ == "__main__":
    sys.exit(main(BENCH))
