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
from bench._depot_links import append_linked
from bench._depot_peers import MANY, ONE
from bench._depot_runs import (
    claimed,
    copied_steps,
    first_step,
    follower,
    git_status,
    runs_on_node,
    steps,
    steps_on_node,
)
from bench._harness import OURS, Bench, Contestant, Race, main
from bench._report import Goal
from bench._runner import Measure
from bench.snapshot import make_tree

OPEN_APPENDS: Final = 30_000
FILES: Final = 5_000
EDITED: Final = 10
"""Files of a workspace, and how many of them a step edits that edits some."""


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


def _copied(key: str, title: str, edited: int) -> Race:
    """Steps with copies, against ``git status`` of as many files."""
    measure = partial(copied_steps, files=FILES, edited=edited)
    status = Contestant(
        key="git",
        label="git status",
        measure=git_status,
        size=FILES,
        quick_size=FILES,
        prepare=make_tree,
        programs=("git",),
        every=3,
    )
    return Race(
        key=key,
        title=title,
        unit="ms",
        better="lower",
        contestants=(_ours(measure, 50, every=3), status),
    )


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
        key="link",
        title="one append after the other, over the link of a hub to its node, synced",
        unit="appends/s",
        better="higher",
        contestants=(_ours(partial(append_linked, runs=1), 1000), IN_TURN),
    ),
    Race(
        key="links",
        title=f"{RUNS} runs, each over its link, synced",
        unit="appends/s",
        better="higher",
        contestants=(_ours(partial(append_linked, runs=RUNS), 100 * RUNS), TOGETHER),
    ),
    Race(
        key="here",
        title="steps of a worker with run --here, one after the other, synced",
        unit="steps/s",
        better="higher",
        contestants=(_ours(steps, 500), IN_TURN, *ONE),
    ),
    Race(
        key="steps",
        title="steps of a worker on a node, one after the other, synced",
        unit="steps/s",
        better="higher",
        contestants=(_ours(steps_on_node, 500, every=2), IN_TURN, *ONE),
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
        title="from the first entry of a run that is submitted until an idle node has claimed it",
        unit="ms",
        better="lower",
        contestants=(_ours(claimed, 10, every=6),),
    ),
    Race(
        key="first",
        title="from submitting a run until an idle node executes its first step",
        unit="ms",
        better="lower",
        contestants=(_ours(first_step, 10, every=6),),
    ),
    _copied("copied", f"a step on a node with a copy of {FILES:,} files, of which none has changed", 0),
    _copied("edited", f"a step on a node that edits {EDITED} of {FILES:,} files, with the copy", EDITED),
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


def _steps(race: str, title: str) -> tuple[Goal, ...]:
    return (
        _at_least(race, f"{title}, to INSERT", 0.3, 0.5, "raw"),
        _at_least(race, f"{title}, to Absurd", 1.3, 2.0, "absurd"),
        _at_least(race, f"{title}, to DBOS", 4.0, 6.0, "dbos"),
    )


BENCH: Final = Bench(
    name="depot",
    title="Runs in PostgreSQL",
    races=RACES,
    goals=(
        _at_least("append", "fenced append to INSERT", 0.6, 0.8, "raw"),
        _at_least("together", f"{RUNS} appends to {RUNS} INSERTs", 0.9, 1.2, "raw"),
        _at_least("link", "append over a link to INSERT", 0.3, 0.5, "raw"),
        _at_least("links", f"{RUNS} appends over links to {RUNS} INSERTs", 0.4, 0.9, "raw"),
        *_steps("here", "durable step, --here"),
        *_steps("steps", "durable step on a node"),
        _at_least("runs", f"{RUNS} runs to {RUNS} INSERTs", 0.4, 0.6, "raw"),
        _at_least("runs", f"{RUNS} runs to Absurd, one worker", 10.0, 20.0, "absurd"),
        _at_least("runs", f"{RUNS} runs to Absurd, 16 workers", 10.0, 20.0, "absurd_workers"),
        _at_least("runs", f"{RUNS} runs to DBOS", 10.0, 20.0, "dbos"),
        _at_least("open", "appends beside an open transaction do not get slower", 0.9, 1.0),
        _at_most("claimed", "submitted until claimed", 20.0, 10.0),
        _at_most("first", "submitted until the first step", 1000.0, 500.0),
        _at_most("copied", "step with a copy of unchanged files", 100.0, 60.0),
        _at_most("edited", f"step that edits {EDITED} files, with the copy", 150.0, 100.0),
        _at_most("follower", "entry until a follower sees it", 150.0, 50.0),
    ),
    notes=(
        "The server is started by the benchmark itself, with a unix socket and every commit synced.",
        "Submitting a run includes looking at its program, in a process that runs already; its first entries come after that.",
        "The ends of the links of all hubs are in one process, which is not that of the node.",
    ),
)

if __name__ == "__main__":
    sys.exit(main(BENCH))
