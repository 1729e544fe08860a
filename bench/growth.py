"""How costs grow: with the steps of a run, with the workers that live at once, with the length of the journal that a command reads.

Run with ``python -m bench.growth [--json] [--quick] [--rounds N] [--only TABLE] [--check]``. There are no peers and no ratios: each
number is the median of the rounds, and what counts is how it changes from left to right.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from bartack.journal import Draft, open_journal, open_reader
from bartack.runtime import Run
from bartack.runtime.state.entries import StepFinished
from bartack.supervision.process.tree import find_by_environment
from bench._disk import InMemoryError, data_directory, describe_machine
from bench._harness import RESULTS
from bench._report import align, show
from bench._runs import hub_pid, kill_everything, make_run
from bench._spans import write_long_run

ROUNDS: Final = 3
PATIENCE_S: Final = 600.0
LAST: Final = 1000
"""The cost of a step is that of the last of them."""

Row = dict[str, float]
"""Values by what they are, with the unit in brackets."""


class Table(NamedTuple):
    """Something that grows."""

    title: str
    head: str
    sizes: tuple[int, ...]
    quick: tuple[int, ...]
    measure: Callable[[str, int], Row]


# The steps of a run.


def measure_steps(directory: str, steps: int) -> Row:
    """A worker with this many steps that waits, is killed with all processes of its run, and resumes."""
    row: Row = {}
    for name, worker in (("", "long_history"), (", ctx.restart every 1,000", "restarting")):
        place = _fresh(directory)
        run = make_run(place, worker, steps, durability="process")
        run.resume()
        _wait_until(run, lambda kind, data: kind == "step.started" and data["step"] == "receive")
        if not name:
            row["cost of a step (µs)"] = _cost_of_last(run)
            row["memory of the hub, PSS (MB)"] = _pss_mb(hub_pid(run))
            row["memory of the waiting worker, PSS (MB)"] = _pss_mb(_worker(run, worker))
        kill_everything(run)
        began = _resume(run, place)
        row[f"resume to the next new step{name} (s)"] = run.result(float) - began
    return row


def _cost_of_last(run: Run) -> float:
    with open_reader(run.dir) as reader:
        at = [entry.at for entry in reader.read() if entry.kind == "step.finished"][-LAST - 1 :]
    return (at[-1] - at[0]) / (len(at) - 1)


# Workers that live at once.


def measure_workers(directory: str, many: int) -> Row:
    """``many`` workers that wait, are killed with all processes of their run, and resume."""
    place = _fresh(directory)
    run = make_run(place, "all_living", many, durability="process")
    run.resume()
    waiting = 0

    def all_wait(kind: str, data: dict[str, object]) -> bool:
        nonlocal waiting
        waiting += (
            kind == "step.started" and data["step"] == "receive" and data.get("about") in {"go", "wait"}
        )
        return waiting == many + 1

    _wait_until(run, all_wait)
    hub = _pss_mb(hub_pid(run))
    one = _pss_mb(_worker(run, f"all_living/3.{many}:living"))
    kill_everything(run)
    resuming = _resume(run, place)
    began, there, again = run.result(list[float])
    resumed = again - resuming
    return {
        "start, all waiting (s)": there - began,
        "start, of each (ms)": (there - began) / many * 1e3,
        "resume, all answered (s)": resumed,
        "resume, of each (ms)": resumed / many * 1e3,
        "memory of the hub, PSS (MB)": hub,
        "memory of a waiting worker, PSS (MB)": one,
    }


# Commands that look at a run.


def measure_views(directory: str, steps: int) -> Row:
    """The time and memory of commands that show a run with this many steps."""
    run = _long_run(_fresh(directory), steps)
    row: Row = {}
    for name, words in (
        ("show STEP", ("show", run.id, str(steps // 2))),
        ("status RUN", ("status", run.id)),
        ("show", ("show", run.id)),
    ):
        seconds, megabytes = _command(str(run.dir), words)
        row[f"{name} (s)"], row[f"{name}, peak memory (MB)"] = seconds, megabytes
    return row


def _long_run(directory: str, steps: int) -> Run:
    """A run whose journal records this many steps: written directly, which is quicker."""
    run = make_run(directory, "long_history", steps, durability="process")
    with open_journal(run.dir, durability="process") as journal:
        for n in range(1, steps + 1):
            data = StepFinished(p="long_history", n=n, step="body", fp=f"{n:064x}", about="do_nothing")
            journal.stage(Draft(data.kind, data, str(n).encode(), None))
            if n % 100 == 0:
                journal.commit()
        journal.commit()
    return run


def _command(directory: str, words: tuple[str, ...]) -> tuple[float, float]:
    """Seconds and megabytes that a command takes."""
    workspace = Path(directory).parents[2]
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "bartack", *words], cwd=workspace, stdout=subprocess.DEVNULL
    ) as command:
        _, status, usage = os.wait4(command.pid, 0)
        command.returncode = os.waitstatus_to_exitcode(status)
    if command.returncode:
        raise RuntimeError(f"bartack {' '.join(words)} ended with {command.returncode}")
    return time.perf_counter() - began, usage.ru_maxrss / 1024


def measure_spans(directory: str, entries: int) -> Row:
    """A run with this many entries as spans: what a live view and a look back cost."""
    place = os.path.join(_fresh(directory), "run-1")
    write_long_run(place, entries)
    done = subprocess.run(
        [sys.executable, "-m", "bench._spans", place], stdout=subprocess.PIPE, text=True, check=True
    )
    row: Row = json.loads(done.stdout)
    return row


# What measurements share.


def _fresh(directory: str) -> str:
    place = os.path.join(directory, "run")
    shutil.rmtree(place, ignore_errors=True)
    os.makedirs(place)
    return place


def _wait_until(run: Run, is_there: Callable[[str, dict[str, object]], bool]) -> None:
    with open_reader(run.dir) as reader:
        for entry in reader.follow(timeout_s=PATIENCE_S):
            if is_there(entry.kind, entry.data):
                return
    raise RuntimeError(f"{run.id} did not come to where it is measured")


def _worker(run: Run, path: str) -> int:
    found = [
        facts.pid
        for facts in find_by_environment("BARTACK_RUN_DIR", str(run.dir))
        if f"BARTACK_WORKER={path}#".encode() in Path(f"/proc/{facts.pid}/environ").read_bytes()
    ]
    return found[0]


def _pss_mb(pid: int) -> float:
    """The memory of a process, with its share of shared pages; 0 if the system does not report it."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except FileNotFoundError:
        return 0.0
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _resume(run: Run, directory: str) -> float:
    """Resume a run to its end; when ``bartack resume`` was started, by the clock that its workers note."""
    run.send("wait", None)
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "bartack", "resume", run.id],
        cwd=directory,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return began


TABLES: Final = {
    "steps": Table(
        "One worker and its steps, durability process",
        "steps",
        (1_000, 10_000, 100_000),
        (1_000, 10_000),
        measure_steps,
    ),
    "workers": Table("Workers that live at once", "workers", (8, 64, 300, 1_000), (8, 64), measure_workers),
    "views": Table(
        "Commands that look at a run", "steps", (100_000, 1_000_000), (10_000, 100_000), measure_views
    ),
    "spans": Table(
        "A run as spans, followed and looked at",
        "entries",
        (10_000, 100_000, 1_000_000),
        (10_000, 100_000),
        measure_spans,
    ),
}

LIMITS: Final = (
    ("steps", 1_000, "resume to the next new step (s)", 0.3),
    ("steps", 10_000, "resume to the next new step (s)", 0.8),
    ("workers", 8, "memory of the hub, PSS (MB)", 60.0),
    ("workers", 8, "memory of a waiting worker, PSS (MB)", 6.0),
    ("spans", 1_000_000, "memory (MB)", 100.0),
    ("spans", 1_000_000, "at(seq), rows, median (ms of CPU)", 1.0),
    ("spans", 1_000_000, "window, the costliest of all zooms (ms of CPU)", 20.0),
    ("spans", 1_000_000, "build (s of CPU)", 20.0),
)
"""What must be reached: table, size, row and the most that is allowed."""

Values = dict[str, dict[int, Row]]
"""By table and size."""


def measure(names: Sequence[str], directory: str, rounds: int, *, quick: bool) -> Values:
    """All tables."""
    found: Values = {}
    for name in names:
        table = TABLES[name]
        for size in table.quick if quick else table.sizes:
            print(f"growth: {name} {size}", file=sys.stderr)
            rows = [table.measure(directory, size) for _ in range(rounds)]
            found.setdefault(name, {})[size] = {what: median(row[what] for row in rows) for what in rows[0]}
    return found


def missed(values: Values) -> list[str]:
    """The limits that were not kept."""
    return [
        f"{what} at {size:,} {TABLES[name].head}: {show(row[what])}, at most {limit:g}"
        for name, size, what, limit in LIMITS
        if (row := values.get(name, {}).get(size)) is not None and row[what] > limit
    ]


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
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    parser.add_argument("--rounds", type=int, help=f"how many rounds (default {ROUNDS}; quick: 1)")
    parser.add_argument(
        "--quick", action="store_true", help="one round of smaller sizes: a glance, not a result"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the tables")
    parser.add_argument("--check", action="store_true", help="end with 1 if a limit is missed")
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
    report = {"name": "growth", "rounds": rounds, "quick": given.quick, "machine": machine, "tables": values}
    if not given.only:
        os.makedirs(RESULTS, exist_ok=True)
        Path(RESULTS, "growth.json").write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report) if given.json else as_text(values))
    return 1 if given.check and missed(values) else 0


if __name__ == "__main__":
    sys.exit(main())
