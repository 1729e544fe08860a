"""What keeping runs in PostgreSQL costs, against rows that the same server inserts and syncs, and against other libraries.

Run with ``python -m bench.depot [--json] [--quick] [--rounds N] [--check]``. The server is started by the benchmark itself.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Final

from bench._depot import (
    NEEDS,
    PARTS,
    PREPARE,
    PROGRAMS,
    RUNS,
    append_beside_open,
    append_in_turn,
    append_together,
    insert_in_turn,
    insert_together,
    update_beside_open,
)
from bench._depot_peers import MANY, ONE
from bench._depot_runs import follower, idle_node, runs_on_node, steps
from bench._harness import OURS, Bench, Contestant, Race, main
from bench._report import Goal
from bench._runner import Measure

OPEN_APPENDS: Final = 30_000


def _contestant(key: str, label: str, measure: Measure, size: int, *, every: int = 1) -> Contestant:
    return Contestant(
        key=key,
        label=label,
        measure=measure,
        size=size,
        prepare=PREPARE,
        needs=NEEDS,
        programs=PROGRAMS,
        every=every,
    )


def _ours(measure: Measure, size: int, *, every: int = 1) -> Contestant:
    return _contestant(OURS, "bartack", measure, size, every=every)


IN_TURN: Final = _contestant("raw", "INSERT and commit", insert_in_turn, 1000)
TOGETHER: Final = _contestant(
    "raw", f"{RUNS} INSERTs, pipelined, in a transaction", insert_together, 100 * RUNS
)

RACES: Final = (
    Race(
        key="append",
        title="one append after the other, synced",
        unit="appends/s",
        better="higher",
        contestants=(_ours(append_in_turn, 1000), IN_TURN),
    ),
    Race(
        key="together",
        title=f"{RUNS} runs by one statement, synced",
        unit="appends/s",
        better="higher",
        contestants=(_ours(append_together, 100 * RUNS), TOGETHER),
    ),
    Race(
        key="steps",
        title="steps of a worker, one after the other, synced",
        unit="steps/s",
        better="higher",
        contestants=(_ours(steps, 500), IN_TURN, *ONE),
    ),
    Race(
        key="runs",
        title=f"steps of {RUNS} runs on one node, synced",
        unit="steps/s",
        better="higher",
        contestants=(_ours(runs_on_node, 100 * RUNS, every=3), TOGETHER, *MANY),
    ),
    Race(
        key="open",
        title=f"{OPEN_APPENDS:,} appends beside an open transaction: the last {OPEN_APPENDS // PARTS:,} over the first",
        unit="times",
        better="higher",
        contestants=(
            _ours(append_beside_open, OPEN_APPENDS, every=6),
            _contestant(
                "update", "the place in the row of the owner", update_beside_open, OPEN_APPENDS, every=6
            ),
        ),
    ),
    Race(
        key="claimed",
        title="from queueing a run until an idle node has claimed it",
        unit="ms",
        better="lower",
        contestants=(_ours(partial(idle_node, until="claim"), 10, every=6),),
    ),
    Race(
        key="first",
        title="from queueing a run until an idle node executes its first step",
        unit="ms",
        better="lower",
        contestants=(_ours(partial(idle_node, until="step"), 10, every=6),),
    ),
    Race(
        key="follower",
        title="from an entry until another machine that follows the run sees it",
        unit="ms",
        better="lower",
        contestants=(_ours(follower, 40, every=6),),
    ),
)


def _at_least(race: str, title: str, target: float, stretch: float, against: str | None = None) -> Goal:
    return Goal(race=race, title=title, bound="at least", target=target, stretch=stretch, against=against)


def _at_most(race: str, title: str, target: float, stretch: float) -> Goal:
    return Goal(race=race, title=title, bound="at most", target=target, stretch=stretch)


BENCH: Final = Bench(
    name="depot",
    title="Runs in PostgreSQL",
    races=RACES,
    goals=(
        _at_least("append", "fenced append to INSERT", 0.6, 0.8, "raw"),
        _at_least("together", f"{RUNS} appends to {RUNS} INSERTs", 0.9, 1.2, "raw"),
        _at_least("steps", "durable step to INSERT", 0.3, 0.5, "raw"),
        _at_least("steps", "durable step to Absurd", 1.3, 2.0, "absurd"),
        _at_least("steps", "durable step to DBOS", 4.0, 6.0, "dbos"),
        _at_least("runs", f"{RUNS} runs to {RUNS} INSERTs", 0.4, 0.6, "raw"),
        _at_least("runs", f"{RUNS} runs to Absurd, one worker", 10.0, 20.0, "absurd"),
        _at_least("runs", f"{RUNS} runs to Absurd, 16 workers", 10.0, 20.0, "absurd_workers"),
        _at_least("runs", f"{RUNS} runs to DBOS", 10.0, 20.0, "dbos"),
        _at_least("open", "appends beside an open transaction do not get slower", 0.9, 1.0),
        _at_most("claimed", "queued until claimed", 20.0, 10.0),
        _at_most("first", "queued until the first step", 1000.0, 500.0),
        _at_most("follower", "entry until a follower sees it", 150.0, 50.0),
    ),
    notes=(
        "The server is started by the benchmark itself, with a unix socket and every commit synced.",
        "Queueing a run does not include looking at its program and writing its first entries, which comes before.",
    ),
)

if __name__ == "__main__":
    sys.exit(main(BENCH))
