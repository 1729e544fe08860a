"""What a durable step costs: from a worker's process through its hub to the disk and back.

Run with ``python -m bench.steps [--json] [--quick] [--rounds N] [--check]``.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Final

from bench._harness import OURS, Bench, Contestant, Race, main
from bench._peers import (
    DBOS_NEEDS,
    LANGGRAPH_NEEDS,
    SAVER_NEEDS,
    TEMPORAL_ADDRESS,
    TEMPORAL_NEEDS,
    dbos_concurrent,
    dbos_sequential,
    langgraph_loop,
    langgraph_sequential,
    temporal_sequential,
)
from bench._report import Goal
from bench._runner import Sample
from bench._runs import cpu_seconds, drive_here, make_run, run_worker
from bench._work import write_and_sync, write_for_others

BRANCHES: Final = 64
LINE: Final = b"x" * 239 + b"\n"
"""As long as the entry of such a step."""


def steps_sequential(directory: str, size: int) -> Sample:
    """Steps per second of one worker, one after the other."""
    return Sample(value=size / run_worker(directory, float, "sequential", size))


def steps_in_branches(directory: str, size: int) -> Sample:
    """Steps per second of one worker with many branches."""
    each = size // BRANCHES
    return Sample(value=BRANCHES * each / run_worker(directory, float, "branches", BRANCHES, each))


def steps_in_processes(directory: str, size: int) -> Sample:
    """Steps per second of many workers, each in a process of its own."""
    each = max(size // BRANCHES, 1)
    return Sample(value=BRANCHES * each / run_worker(directory, float, "processes", BRANCHES, each))


def cpu_of_a_step(directory: str, size: int) -> Sample:
    """Microseconds of CPU per step, of worker and hub together, without the sync and without their start."""
    small = _cpu(os.path.join(directory, "small"), 1)
    large = _cpu(os.path.join(directory, "large"), size)
    return Sample(value=(large - small) / size * 1e6)


def _cpu(directory: str, size: int) -> float:
    os.makedirs(directory)
    run = make_run(directory, "sequential", size, durability="process")
    before = cpu_seconds()
    drive_here(run, "process")
    return cpu_seconds() - before


def write_sequential(directory: str, size: int) -> Sample:
    """Lines per second, each written and synced before the next."""
    return Sample(value=write_and_sync(directory, LINE, size))


def write_through_another(directory: str, size: int) -> Sample:
    """Lines per second of one process, each written and synced by another one before the next."""
    return Sample(value=write_for_others(directory, LINE, 1, size))


def write_for_processes(directory: str, size: int) -> Sample:
    """Lines per second of many processes, written and synced by one."""
    return Sample(value=write_for_others(directory, LINE, BRANCHES, size // BRANCHES))


def write_groups(directory: str, size: int) -> Sample:
    """Lines per second, one sync for as many as there are branches."""
    return Sample(value=write_and_sync(directory, LINE * BRANCHES, size // BRANCHES) * BRANCHES)


BENCH: Final = Bench(
    name="steps",
    title="Durable steps",
    races=(
        Race(
            key="sequential",
            title="one worker, one step after the other, synced",
            unit="steps/s",
            better="higher",
            contestants=(
                Contestant(key=OURS, label="bartack", measure=steps_sequential, size=1000),
                Contestant(
                    key="floor", label="floor: write + fdatasync", measure=write_sequential, size=1000
                ),
                Contestant(
                    key="another",
                    label="the same, asked of another process",
                    measure=write_through_another,
                    size=1000,
                ),
                Contestant(
                    key="dbos",
                    label="DBOS on SQLite, WAL",
                    measure=partial(dbos_sequential, wal=True),
                    size=200,
                    quick_size=60,
                    needs=DBOS_NEEDS,
                    every=3,
                ),
                Contestant(
                    key="langgraph",
                    label='LangGraph, one node in a loop, SqliteSaver, durability="sync"',
                    measure=langgraph_loop,
                    size=300,
                    quick_size=60,
                    needs=LANGGRAPH_NEEDS,
                    every=3,
                ),
                Contestant(
                    key="saver",
                    label="LangGraph SqliteSaver alone, without a graph",
                    measure=langgraph_sequential,
                    size=600,
                    needs=SAVER_NEEDS,
                    every=3,
                ),
                Contestant(
                    key="temporal",
                    label=f"Temporal, activities, the server at {TEMPORAL_ADDRESS}",
                    measure=temporal_sequential,
                    size=200,
                    needs=TEMPORAL_NEEDS,
                    settings=(TEMPORAL_ADDRESS,),
                    every=3,
                ),
            ),
        ),
        Race(
            key="branches",
            title=f"{BRANCHES} branches of one worker, synced",
            unit="steps/s",
            better="higher",
            contestants=(
                Contestant(key=OURS, label="bartack", measure=steps_in_branches, size=BRANCHES * 50),
                Contestant(
                    key="floor",
                    label=f"floor: write of {BRANCHES} lines + fdatasync",
                    measure=write_groups,
                    size=BRANCHES * 200,
                ),
                Contestant(
                    key="dbos",
                    label=f"DBOS on SQLite, WAL, {BRANCHES} workflows",
                    measure=partial(dbos_concurrent, wal=True),
                    size=BRANCHES * 3,
                    quick_size=BRANCHES,
                    needs=DBOS_NEEDS,
                    every=3,
                ),
            ),
        ),
        Race(
            key="processes",
            title=f"{BRANCHES} workers in processes of their own, synced",
            unit="steps/s",
            better="higher",
            contestants=(
                Contestant(
                    key=OURS, label="bartack", measure=steps_in_processes, size=BRANCHES * 250, every=3
                ),
                Contestant(
                    key="bare",
                    label="bare processes, write + fdatasync by one",
                    measure=write_for_processes,
                    size=BRANCHES * 250,
                    every=3,
                ),
            ),
        ),
        Race(
            key="cpu",
            title="CPU of one step, worker and hub together, not synced",
            unit="µs",
            better="lower",
            contestants=(Contestant(key=OURS, label="bartack", measure=cpu_of_a_step, size=10_000, every=3),),
        ),
    ),
    goals=(
        Goal(
            race="sequential",
            title="steps to write + fdatasync",
            bound="at least",
            target=0.5,
            stretch=0.65,
            against="floor",
        ),
        Goal(
            race="sequential",
            title="steps to DBOS",
            bound="at least",
            target=6.0,
            stretch=8.0,
            against="dbos",
        ),
        Goal(
            race="sequential",
            title="steps to a LangGraph graph",
            bound="at least",
            target=3.0,
            stretch=4.0,
            against="langgraph",
        ),
        Goal(
            race="branches",
            title="branches to raw group commit",
            bound="at least",
            target=0.15,
            stretch=0.25,
            against="floor",
        ),
        Goal(
            race="branches",
            title="branches to DBOS",
            bound="at least",
            target=50.0,
            stretch=80.0,
            against="dbos",
        ),
        Goal(
            race="processes",
            title="steps of 64 processes to bare ones",
            bound="at least",
            target=0.3,
            stretch=0.45,
            against="bare",
        ),
        Goal(race="cpu", title="CPU of one step", bound="at most", target=120.0, stretch=90.0),
    ),
)

if __name__ == "__main__":
    sys.exit(main(BENCH))
