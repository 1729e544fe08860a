"""What it costs to watch runs in a browser: the server, the run that is watched, and the page itself.

Measured are first answers, requests while a long journal is being read, the events of a busy run, and what a page costs its run;
where Chromium is, also how soon its page is there, how soon an entry is shown, what the page takes, and what it keeps after as many
entries as come in an hour (``_browser.py``).
Run with ``python -m bench.web [--json] [--quick] [--rounds N] [--only TABLE] [--check]``. Each number is the median of the rounds.
"""

from __future__ import annotations

import sys
import time
from random import Random
from statistics import median, quantiles
from typing import Final

from bench._browser import measure_hour, measure_live, measure_paint, versions
from bench._runs import drive_here, make_run
from bench._tables import Limit, Row, Table, TableBench, main
from bench._watched import RUN, SMALL, WATCHED_S, BusyRun, fresh, recorded
from bench._web import WebServer

LOOKS: Final = 20
STEPS: Final = 2000
PAIRS: Final = 5
HOUR: Final = 200 * 3600

# First answers.


def measure_first(directory: str, entries: int) -> Row:
    """A server that has just started, and a run with this many entries."""
    workspace = recorded(directory, entries)
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
    workspace = fresh(directory)
    with WebServer(workspace) as server, BusyRun(workspace, rate) as run:
        delays: list[float] = []
        used = began = 0.0
        shown = 0
        for name, seq, at in server.events(f"/api/v1/runs/{RUN}/events"):
            if not began:
                began, used = time.monotonic(), server.cpu_s()
                continue
            if name == "bars":  # the last event of a frame
                delays += run.delays(shown, seq, at)
                shown = seq
            if time.monotonic() - began > WATCHED_S:
                break
        busy = (server.cpu_s() - used) / (time.monotonic() - began)
    return {
        "server (% of a core)": busy * 100,
        "entry written to event received, p50 (ms)": median(delays) * 1e3,
        "entry written to event received, p95 (ms)": quantiles(delays, n=20)[-1] * 1e3,
    }


# What it costs the run.


def measure_run(directory: str, steps: int) -> Row:
    """Steps one after the other, in a worker process through its hub: without a page, and with one that shows the run."""
    ratios: list[float] = []
    for _ in range(PAIRS):
        alone = _run_steps(fresh(directory), steps, watched=False)
        watched = _run_steps(fresh(directory), steps, watched=True)
        ratios.append(watched / alone)
    return {"steps a second with a page, of those without (%)": median(ratios) * 100}


def _run_steps(workspace: str, steps: int, *, watched: bool) -> float:
    """Steps a second of a run."""
    run = make_run(workspace, "sequential", steps)
    if not watched:
        drive_here(run)
        return steps / run.result(float)
    with WebServer(workspace) as server, server.watch(f"/api/v1/runs/{run.id}/events"):
        drive_here(run)
        return steps / run.result(float)


TABLES: Final = {
    "first": Table(
        "A server that has just started", "entries", (10_000, 1_000_000), (10_000, 100_000), measure_first
    ),
    "watched": Table("A run that is watched, 64 workers", "entries/s", (200, 2_000), (200,), measure_watched),
    "run": Table("What a page costs the run that it shows", "steps", (STEPS,), (500,), measure_run),
    "browser": Table(
        "The page of a run in Chromium", "entries", (10_000, 1_000_000), (10_000,), measure_paint
    ),
    "live": Table(
        "The page of a busy run in Chromium, 64 workers", "entries/s", (200, 2_000), (200,), measure_live
    ),
    "hour": Table(
        "The page after an hour of 200 entries a second, 64 workers",
        "entries",
        (HOUR,),
        (20_000,),
        measure_hour,
    ),
}

BENCH: Final = TableBench(
    name="web",
    title="Runs in a browser",
    tables=TABLES,
    versions={"browser": versions, "live": versions, "hour": versions},
    limits=(
        Limit("first", 10_000, "first answer (s)", 1.0, 0.4),
        Limit("first", 10_000, "warm answer, median (s)", 0.3, 0.15),
        Limit("first", 1_000_000, "first answer (s)", 1.0, 0.5),
        Limit("first", 1_000_000, "all of it (s)", 20.0, 8.0),
        Limit("first", 1_000_000, "the slowest request meanwhile (ms)", 50.0, 20.0),
        Limit("first", 1_000_000, "panels at any entry, median (ms)", 150.0, 60.0),
        Limit("first", 1_000_000, "memory that the server has taken for it (MB)", 100.0, 40.0),
        Limit("watched", 200, "server (% of a core)", 5.0, 2.0),
        Limit("watched", 2_000, "server (% of a core)", 12.0, 4.0),
        Limit("watched", 200, "entry written to event received, p95 (ms)", 200.0, 120.0),
        Limit("run", STEPS, "steps a second with a page, of those without (%)", 97.0, 99.0, "at least"),
        Limit("browser", 10_000, "first contentful paint, server just started (s)", 1.0, 0.4),
        Limit("browser", 10_000, "first contentful paint, warm (s)", 0.3, 0.15),
        Limit("browser", 10_000, "weight of the page, uncompressed (kB)", 150.0, 80.0),
        Limit("browser", 1_000_000, "first contentful paint, server just started (s)", 1.0, 0.5),
        Limit("browser", 1_000_000, "slider moved to line drawn, median (ms)", 16.0, 8.0),
        Limit("browser", 1_000_000, "slider moved to entry shown, median (ms)", 150.0, 60.0),
        Limit("live", 200, "entry written to shown, p50 (ms)", 80.0, 60.0),
        Limit("live", 200, "entry written to shown, p95 (ms)", 200.0, 120.0),
        Limit("live", 200, "main thread of the page (%)", 25.0, 10.0),
        Limit("live", 2_000, "main thread of the page (%)", 50.0, 25.0),
        Limit("hour", HOUR, "heap of the page (MB)", 60.0, 30.0),
    ),
)

if __name__ == "__main__":
    sys.exit(main(BENCH))
