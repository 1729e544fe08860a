"""What it costs to watch runs in a browser, as far as the server is concerned.

Measured are first answers, requests while a long journal is being read, the events of a busy run, and what a page costs its run.
Run with ``python -m bench.web [--json] [--quick] [--rounds N] [--only TABLE] [--check]``. Each number is the median of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Final, NamedTuple

from bartack.journal import open_journal
from bartack.runtime.state import entries as e
from bartack.runtime.state.entries import draft
from bench._disk import InMemoryError, data_directory, describe_machine
from bench._harness import RESULTS
from bench._report import align, show
from bench._runs import drive_here, make_run
from bench._spans import WORKERS, write_long_run
from bench._web import WebServer

ROUNDS: Final = 3
RUN: Final = "run-20261118-101010-0123abcd"
SMALL: Final = "run-20261118-101009-0123abcd"
LOOKS: Final = 20
WATCHED_S: Final = 10.0
STEPS: Final = 2000

Row = dict[str, float]
"""Values by what they are, with the unit in brackets."""


class Table(NamedTuple):
    """Something that is measured at some sizes."""

    title: str
    head: str
    sizes: tuple[int, ...]
    quick: tuple[int, ...]
    measure: Callable[[str, int], Row]


def _place(directory: str, run: str = RUN) -> str:
    place = Path(directory, ".bartack", "runs")
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    place.parent.chmod(0o700)
    return str(place / run)


def _fresh(directory: str) -> str:
    place = os.path.join(directory, "workspace")
    shutil.rmtree(place, ignore_errors=True)
    os.makedirs(place)
    return place


# First answers.


def measure_first(directory: str, entries: int) -> Row:
    """A server that has just started, and a run with this many entries."""
    workspace = _fresh(directory)
    write_long_run(_place(workspace), entries)
    write_long_run(_place(workspace, SMALL), 1000)
    run = f"/api/v1/runs/{RUN}"
    with WebServer(workspace) as server:
        before = server.resident_mb()
        first = server.get(run)
        began = time.perf_counter() - first.took_s
        slowest = _ask_while_reading(server, run)
        whole = time.perf_counter() - began
        warm = [server.get(run).took_s for _ in range(LOOKS)]
        draw = Random(1)
        last = server.get(run).json["last_seq"]
        places = [draw.randint(1, last) for _ in range(LOOKS)]
        panels = [server.get(f"{run}?at={place}").took_s for place in places]
        lines = [server.get(f"{run}/timeline?px=1200&at={place}").took_s for place in places]
        return {
            "first answer (s)": first.took_s,
            "all of it (s)": whole,
            "the slowest request meanwhile (ms)": slowest * 1e3,
            "warm answer, median (s)": median(warm),
            "panels at any entry, median (ms)": median(panels) * 1e3,
            "timeline at any entry, median (ms)": median(lines) * 1e3,
            "memory that the server has taken for it (MB)": server.resident_mb() - before,
        }


def _ask_while_reading(server: WebServer, run: str) -> float:
    """Ask for all kinds of things until the journal was read; returns what the slowest answer took, but for its worst hundredth."""
    paths = [
        run,
        f"{run}/entries",
        f"{run}/steps",
        f"{run}/timeline",
        "/api/v1/runs",
        f"/api/v1/runs/{SMALL}",
        f"/api/v1/runs/{SMALL}/steps",
        "/api/v1/questions",
    ]
    took: list[float] = []
    while True:
        for path in paths:
            answer = server.get(path)
            took.append(answer.took_s)
            if path == run and answer.json.get("state", "current") != "building":
                return sorted(took)[max(len(took) * 99 // 100 - 1, 0)]


# A run that is watched.


def measure_watched(directory: str, rate: int) -> Row:
    """A run of 64 workers that writes this many entries a second, with one page that shows it."""
    workspace = _fresh(directory)
    place = _place(workspace)
    with WebServer(workspace) as server:
        written: dict[int, float] = {}
        is_ready, is_over = threading.Event(), threading.Event()
        writer = threading.Thread(target=_write, args=(place, rate, written, is_ready, is_over), daemon=True)
        writer.start()
        is_ready.wait(30)
        delays: list[float] = []
        used = began = 0.0
        shown = 0
        for name, seq, at in server.events(f"/api/v1/runs/{RUN}/events"):
            if not began:
                began, used = time.monotonic(), server.cpu_s()
                continue
            if name == "parts":
                news = range(shown + 1, seq + 1) if shown else range(0)
                delays += [at - written[entry] for entry in news if entry in written]
                shown = seq
            if time.monotonic() - began > WATCHED_S:
                break
        busy = (server.cpu_s() - used) / (time.monotonic() - began)
        is_over.set()
        writer.join(30)
        parts = statistics.quantiles(delays, n=20)
        return {
            "server (% of a core)": busy * 100,
            "entry written to event received, p50 (ms)": median(delays) * 1e3,
            "entry written to event received, p95 (ms)": parts[-1] * 1e3,
        }


def _write(
    place: str, rate: int, written: dict[int, float], is_ready: threading.Event, is_over: threading.Event
) -> None:
    """Write entries of many workers at a rate until it is over."""
    with open_journal(place, durability="process") as journal:
        for data in _beginning():
            journal.stage(draft(data))
        journal.commit()
        is_ready.set()
        entries = _entries()
        began, count = time.monotonic(), 0
        while not is_over.is_set():
            due = int((time.monotonic() - began) * rate)
            while count < due:
                journal.stage(draft(*next(entries)))
                count += 1
                if count % 4 == 0 or count == due:
                    journal.commit()
                    written[journal.synced_seq] = time.time()
            is_over.wait(0.002)


def _beginning() -> Iterator[e.EntryData]:
    yield e.RunCreated(run=RUN, worker="t:main", name="main", program="", workspace="", root="", seed=0)
    yield e.HubStarted(hub=1)
    yield e.WorkerSpawned(path="main", worker="t:main")
    yield e.StepStarted(p="main", n=1, step="delegate", fp="f")
    for number in range(1, WORKERS + 1):
        yield e.WorkerSpawned(path=f"main/1.{number}:w", worker="t:w", p="main", n=1)


def _entries() -> Iterator[tuple[e.EntryData, bytes | None]]:
    """Steps that begin and end, in any of the workers."""
    draw = Random(2)
    numbers = [0] * WORKERS
    opened = [False] * WORKERS
    while True:
        place = draw.randrange(WORKERS)
        p = f"main/1.{place + 1}:w"
        if opened[place]:
            yield (
                e.StepFinished(p=p, n=numbers[place], step="shell", fp="f"),
                b'{"status":0,"stdout":"passed"}',
            )
        else:
            numbers[place] += 1
            about = f"pytest -q tests/test_{numbers[place]}.py"
            yield e.StepStarted(p=p, n=numbers[place], step="shell", fp="f", about=about), None
        opened[place] = not opened[place]


# What it costs the run.


def measure_run(directory: str, steps: int) -> Row:
    """Steps one after the other, in a worker process through its hub: without a page, and with one that shows the run."""
    ratios: list[float] = []
    for _ in range(3):
        alone = _run_steps(_fresh(directory), steps, watched=False)
        watched = _run_steps(_fresh(directory), steps, watched=True)
        ratios.append(watched / alone)
    return {"steps a second with a page, of those without (%)": median(ratios) * 100}


def _run_steps(workspace: str, steps: int, *, watched: bool) -> float:
    """Steps a second of a run."""
    run = make_run(workspace, "sequential", steps)
    if not watched:
        drive_here(run)
        return steps / run.result(float)
    with WebServer(workspace) as server:
        seen = threading.Event()

        def read() -> None:
            for _ in server.events(f"/api/v1/runs/{run.id}/events"):
                seen.set()

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        seen.wait(30)
        drive_here(run)
        return steps / run.result(float)


TABLES: Final = {
    "first": Table(
        "A server that has just started", "entries", (10_000, 1_000_000), (10_000, 100_000), measure_first
    ),
    "watched": Table("A run that is watched, 64 workers", "entries/s", (200, 2_000), (200,), measure_watched),
    "run": Table("What a page costs the run that it shows", "steps", (STEPS,), (500,), measure_run),
}

LIMITS: Final = (
    ("first", 10_000, "first answer (s)", "at most", 1.0),
    ("first", 10_000, "warm answer, median (s)", "at most", 0.3),
    ("first", 1_000_000, "first answer (s)", "at most", 1.0),
    ("first", 1_000_000, "all of it (s)", "at most", 20.0),
    ("first", 1_000_000, "the slowest request meanwhile (ms)", "at most", 50.0),
    ("first", 1_000_000, "panels at any entry, median (ms)", "at most", 150.0),
    ("first", 1_000_000, "memory that the server has taken for it (MB)", "at most", 100.0),
    ("watched", 200, "server (% of a core)", "at most", 5.0),
    ("watched", 2_000, "server (% of a core)", "at most", 12.0),
    ("watched", 200, "entry written to event received, p95 (ms)", "at most", 200.0),
    ("run", STEPS, "steps a second with a page, of those without (%)", "at least", 97.0),
)
"""What must be reached: table, size, row, and the bound."""

Values = dict[str, dict[int, Row]]
"""By table and size."""


def measure(names: Sequence[str], directory: str, rounds: int, *, quick: bool) -> Values:
    """All tables."""
    found: Values = {}
    for name in names:
        table = TABLES[name]
        for size in table.quick if quick else table.sizes:
            print(f"web: {name} {size}", file=sys.stderr)
            rows = [table.measure(directory, size) for _ in range(rounds)]
            found.setdefault(name, {})[size] = {what: median(row[what] for row in rows) for what in rows[0]}
    return found


def missed(values: Values) -> list[str]:
    """The bounds that were not kept."""
    found: list[str] = []
    for name, size, what, bound, limit in LIMITS:
        row = values.get(name, {}).get(size)
        if row is not None and (row[what] > limit if bound == "at most" else row[what] < limit):
            found.append(f"{what} at {size:,} {TABLES[name].head}: {show(row[what])}, {bound} {limit:g}")
    return found


def as_text(values: Values) -> str:
    """The tables for people."""
    parts: list[str] = []
    for name, by_size in values.items():
        head = [TABLES[name].head, *(f"{size:,}" for size in by_size)]
        rows = [
            [what, *(show(row[what]) for row in by_size.values())] for what in next(iter(by_size.values()))
        ]
        parts += [f"{name}: {TABLES[name].title}", align([head, *rows]), ""]
    parts += [f"missed: {text}" for text in missed(values)]
    return "\n".join(parts)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(prog="python -m bench.web", description=__doc__)
    parser.add_argument("--rounds", type=int, help=f"how many rounds (default {ROUNDS}; quick: 1)")
    parser.add_argument(
        "--quick", action="store_true", help="one round of smaller sizes: a glance, not a result"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the tables")
    parser.add_argument("--check", action="store_true", help="end with 1 if a bound is missed")
    parser.add_argument("--only", action="append", choices=list(TABLES), default=[], help="only this table")
    given = parser.parse_args(argv)
    try:
        directory = data_directory(RESULTS)
    except InMemoryError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    rounds = given.rounds or (1 if given.quick else ROUNDS)
    try:
        values = measure(given.only or list(TABLES), directory, rounds, quick=given.quick)
        machine = describe_machine(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    report = {"name": "web", "rounds": rounds, "quick": given.quick, "machine": machine, "tables": values}
    if not given.only:
        os.makedirs(RESULTS, exist_ok=True)
        Path(RESULTS, "web.json").write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report) if given.json else as_text(values))
    return 1 if given.check and missed(values) else 0


if __name__ == "__main__":
    sys.exit(main())
