"""Lineage: how long it takes to follow a pattern back in a large graph, and to record an event.

The graph has 100,000 nodes with two parents each, so a pattern has up to two thousand ancestors within ten generations. The
floor is SQLite itself on the same file, without any of our checks. A recursive query that carries the path it came by, as is
often shown for graphs, gives the same answer; it visits each path, we visit each node.

Run with ``python -m bench.lineage [--json] [--quick] [--rounds N] [--check]``.
"""

from __future__ import annotations

import os
import random
import sqlite3
import sys
from contextlib import closing
from statistics import median
from time import perf_counter
from typing import Final

from bartack.tracking import LineageQuery, LineageStore
from bench._harness import OURS, Bench, Contestant, Race, main
from bench._report import Goal
from bench._runner import Sample

NODES: Final = 100_000
BATCH: Final = 500
DEPTH: Final = 10
QUERY: Final = LineageQuery(max_depth=DEPTH)

PATHS: Final = """
WITH RECURSIVE up(node_id, distance, path) AS (
  SELECT node_id, 0, '/' || node_id || '/' FROM nodes WHERE pattern_id = ?
  UNION ALL
  SELECT e.source_node_id, up.distance + 1, up.path || e.source_node_id || '/'
  FROM up JOIN edges e ON e.target_node_id = up.node_id
  WHERE up.distance < ? AND instr(up.path, '/' || e.source_node_id || '/') = 0)
SELECT node_id, min(distance) AS distance FROM up GROUP BY node_id ORDER BY distance LIMIT 101
"""

REACHED: Final = """
WITH RECURSIVE up(node_id, distance) AS (
  SELECT node_id, 0 FROM nodes WHERE pattern_id = ?
  UNION
  SELECT e.source_node_id, up.distance + 1 FROM up JOIN edges e ON e.target_node_id = up.node_id
  WHERE up.distance < ?)
SELECT node_id, min(distance) AS distance FROM up GROUP BY node_id ORDER BY distance LIMIT 101
"""


def event(number: int, chance: random.Random) -> dict[str, object]:
    """An event that makes a node with two parents among the thousand before it."""
    first = max(0, number - 1000)
    parents = [f"pattern-{chance.randrange(first, number)}" for _ in range(2)] if number else []
    return {
        "event_id": f"event-{number}",
        "event_type": "pattern_modified",
        "pattern_id": f"pattern-{number}",
        "pattern_name": f"name {number % 977}",
        "language": "python",
        "pattern_data": {"code": f"def f{number % 991}(x):\n    return x + {number}\n"},
        "parent_pattern_ids": parents,
        "parent_versions": ["1.0.0" for _ in parents],
    }


def fill(directory: str, size: int) -> None:
    """Make the graph."""
    del size
    chance = random.Random(1)
    with LineageStore(path_of(directory)) as store:
        for start in range(0, NODES, BATCH):
            store.track_all([event(number, chance) for number in range(start, start + BATCH)])


def path_of(directory: str) -> str:
    """Where the database of a contestant is."""
    return os.path.join(directory, "lineage.db")


def ancestry(directory: str, size: int) -> Sample:
    """Milliseconds for the first page of ancestors of patterns chosen at random."""
    chance = random.Random(2)
    times: list[float] = []
    with LineageStore(path_of(directory), read_only=True) as store:
        store.lineage("pattern-1", QUERY)
        for _ in range(size):
            name = f"pattern-{chance.randrange(NODES // 2, NODES)}"
            started = perf_counter()
            store.lineage(name, QUERY)
            times.append((perf_counter() - started) * 1000)
    return _sample(times)


def by_paths(directory: str, size: int) -> Sample:
    """The same by a recursive query that carries its path."""
    return _ask(directory, size, PATHS)


def by_reach(directory: str, size: int) -> Sample:
    """The same by a recursive query over nodes and distances: the ids alone, without what is known of them."""
    return _ask(directory, size, REACHED)


def _ask(directory: str, size: int, query: str) -> Sample:
    chance = random.Random(2)
    times: list[float] = []
    with closing(sqlite3.connect(path_of(directory))) as db:
        db.execute(query, ("pattern-1", DEPTH)).fetchall()
        for _ in range(size):
            name = f"pattern-{chance.randrange(NODES // 2, NODES)}"
            started = perf_counter()
            db.execute(query, (name, DEPTH)).fetchall()
            times.append((perf_counter() - started) * 1000)
    return _sample(times)


def _sample(times: list[float]) -> Sample:
    times.sort()
    return Sample(value=median(times), facts={"p99 ms": f"{times[int(len(times) * 0.99)]:.2f}"})


def track_one_by_one(directory: str, size: int) -> Sample:
    """Milliseconds from an event to its acknowledgement, synced, one after the other."""
    chance = random.Random(3)
    times: list[float] = []
    with LineageStore(path_of(directory)) as store:
        for number in range(size):
            body = event(number, chance)
            started = perf_counter()
            store.track(body)
            times.append((perf_counter() - started) * 1000)
    return _sample(times)


def insert_one_by_one(directory: str, size: int) -> Sample:
    """Milliseconds for one row of the same size, synced."""
    times: list[float] = []
    with closing(_plain(directory)) as db:
        for number in range(size):
            started = perf_counter()
            db.execute("INSERT INTO events(body) VALUES (?)", (str(number) * 60,))
            times.append((perf_counter() - started) * 1000)
    return _sample(times)


def track_in_batches(directory: str, size: int) -> Sample:
    """Events a second, 500 with one sync."""
    chance = random.Random(4)
    batches = [[event(start + number, chance) for number in range(BATCH)] for start in range(0, size, BATCH)]
    with LineageStore(path_of(directory)) as store:
        started = perf_counter()
        for batch in batches:
            store.track_all(batch)
        return Sample(value=len(batches) * BATCH / (perf_counter() - started))


def insert_in_batches(directory: str, size: int) -> Sample:
    """Rows a second, 500 with one sync."""
    with closing(_plain(directory)) as db:
        started = perf_counter()
        for start in range(0, size, BATCH):
            db.execute("BEGIN")
            rows = [(str(start + number) * 60,) for number in range(BATCH)]
            db.executemany("INSERT INTO events(body) VALUES (?)", rows)
            db.execute("COMMIT")
        return Sample(value=size / (perf_counter() - started))


def _plain(directory: str) -> sqlite3.Connection:
    db = sqlite3.connect(path_of(directory), isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("CREATE TABLE IF NOT EXISTS events(seq INTEGER PRIMARY KEY, body TEXT)")
    return db


BENCH: Final = Bench(
    name="lineage",
    title="Lineage of 100,000 patterns",
    races=(
        Race(
            key="ancestry",
            title=f"ancestors within {DEPTH} generations, first page, in {NODES:,} nodes",
            unit="ms",
            better="lower",
            contestants=(
                Contestant(key=OURS, label="bartack", measure=ancestry, size=100, prepare=fill),
                Contestant(
                    key="reach",
                    label="one query over distances, ids only",
                    measure=by_reach,
                    size=100,
                    prepare=fill,
                ),
                Contestant(
                    key="paths",
                    label="one query that carries its path, ids only",
                    measure=by_paths,
                    size=100,
                    prepare=fill,
                ),
            ),
        ),
        Race(
            key="track",
            title="record an event, synced, one after the other",
            unit="ms",
            better="lower",
            contestants=(
                Contestant(key=OURS, label="bartack", measure=track_one_by_one, size=500),
                Contestant(key="floor", label="floor: one row, synced", measure=insert_one_by_one, size=500),
            ),
        ),
        Race(
            key="batch",
            title="record events, 500 with one sync",
            unit="events/s",
            better="higher",
            contestants=(
                Contestant(key=OURS, label="bartack", measure=track_in_batches, size=5_000, quick_size=1_000),
                Contestant(
                    key="floor",
                    label="floor: one row each",
                    measure=insert_in_batches,
                    size=5_000,
                    quick_size=1_000,
                ),
            ),
        ),
    ),
    goals=(
        Goal(race="ancestry", title="ancestry at depth 10, ms", bound="at most", target=20.0, stretch=10.0),
        Goal(race="track", title="one event, synced, ms", bound="at most", target=5.0, stretch=2.0),
        Goal(race="batch", title="events/s in batches", bound="at least", target=2_000.0, stretch=4_000.0),
    ),
    notes=(
        "The queries of the ancestry race return ids; bartack's answer also has name, version, generation and edge of each.",
    ),
)


if __name__ == "__main__":
    sys.exit(main(BENCH))
