"""How costs grow: with the steps of a run, with the workers that live at once, with the length of the journal that a command reads.

Run with ``python -m bench.growth [--json] [--quick] [--rounds N] [--only TABLE] [--check]``. There are no peers and no ratios: each
number is the median of the rounds, and what counts is how it changes from left to right.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bartack.journal import Draft, open_journal, open_reader
from bartack.runtime import Run
from bartack.runtime.state.entries import StepFinished
from bartack.supervision.process.tree import find_by_environment
from bench._runs import hub_pid, kill_everything, make_run
from bench._spans import write_long_run
from bench._tables import Limit, Row, Table, TableBench, main

PATIENCE_S: Final = 600.0
LAST: Final = 1000
"""The cost of a step is that of the last of them."""

WAITING: Final = 8
"""How many workers wait beside a full mailbox."""


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


# Messages that nothing takes.


def measure_queued(directory: str, messages: int) -> Row:
    """The memory of a hub with waiting workers and this many messages in a mailbox."""
    run = make_run(_fresh(directory), "full_mailbox", WAITING, messages, durability="process")
    run.resume()
    _wait_until(run, lambda kind, data: kind == "step.started" and data.get("about") == "wait")
    found = _pss_mb(hub_pid(run))
    kill_everything(run)
    return {f"memory of the hub with {WAITING} workers, PSS (MB)": found}


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
    "queued": Table("Messages that wait in a mailbox", "messages", (1_000, 10_000), (1_000,), measure_queued),
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

BENCH: Final = TableBench(
    name="growth",
    title="Growth",
    tables=TABLES,
    limits=(
        Limit("steps", 1_000, "resume to the next new step (s)", 0.3, 0.2),
        Limit("steps", 10_000, "resume to the next new step (s)", 0.8, 0.5),
        Limit("workers", 8, "memory of the hub, PSS (MB)", 60.0, 45.0),
        Limit("workers", 8, "memory of a waiting worker, PSS (MB)", 6.0, 4.0),
        Limit("queued", 10_000, "memory of the hub with 8 workers, PSS (MB)", 60.0, 45.0),
        Limit("spans", 1_000_000, "memory (MB)", 100.0, 40.0),
        Limit("spans", 1_000_000, "at(seq), rows, median (ms of CPU)", 1.0, 0.5),
        Limit("spans", 1_000_000, "window, the costliest of all zooms (ms of CPU)", 20.0, 10.0),
        Limit("spans", 1_000_000, "build (s of CPU)", 20.0, 8.0),
    ),
)

if __name__ == "__main__":
    sys.exit(main(BENCH))
