"""How long it takes until something runs: a worker, an import, a command; and the demo, as a person watches it.

Run with ``python -m bench.start [--json] [--quick] [--rounds N] [--check]``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
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


def demo(directory: str, size: int) -> Sample:
    """Seconds of ``bartack demo`` on a terminal, with the pauses that let a person see what happens."""
    env = {name: value for name, value in os.environ.items() if name not in {"CI", "COLUMNS", "LINES"}}
    times: list[float] = []
    for _ in range(size):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        began = perf_counter()
        with subprocess.Popen(
            [sys.executable, "-m", "bartack", "demo"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={**env, "TERM": "xterm-256color", "TMPDIR": directory},
        ) as process:
            os.close(theirs)
            with contextlib.suppress(OSError):  # the end of a terminal
                while os.read(ours, 65536):
                    pass
            os.close(ours)
        times.append(perf_counter() - began)
        if process.returncode:
            raise RuntimeError(f"the demo ended with {process.returncode}")
    return Sample(value=median(times))


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
        Race(
            key="demo",
            title="bartack demo, from its first line to its last",
            unit="s",
            better="lower",
            contestants=(
                Contestant(key=OURS, label="bartack", measure=demo, size=1, quick_size=1, every=11),
            ),
        ),
    ),
    goals=(
        Goal(race="worker", title="start of a worker", bound="at most", target=10.0, stretch=5.0),
        Goal(race="import", title="import bartack", bound="at most", target=50.0, stretch=30.0),
        Goal(race="help", title="bartack --help", bound="at most", target=120.0, stretch=80.0),
        Goal(race="demo", title="bartack demo", bound="at most", target=60.0, stretch=30.0),
    ),
)

if __name__ == "__main__":
    sys.exit(main(BENCH))
