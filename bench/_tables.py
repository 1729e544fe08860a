"""A benchmark without contestants: tables of values at some sizes, each the median of a few rounds.

What counts is how a value changes with the size, and the limits that some of them have. The result is the same JSON as that of
the races of ``_harness.py``: every value at every size is a race of one.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final, Literal, NamedTuple

from bench._disk import InMemoryError, data_directory, describe_machine, time_sync
from bench._harness import OURS, RESULTS, Shares, save
from bench._report import NOT_HERE, Goal, RaceResult, Report, align, as_json, show, today

ROUNDS: Final = 3

Row = dict[str, float]
"""Values by what they are, with the unit in brackets."""

_UNIT: Final = re.compile(r"(?P<what>.*) \((?P<unit>[^()]+)\)")


class NotHereError(Exception):
    """The machine does not have what a table needs."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{NOT_HERE} ({what})")


class Table(NamedTuple):
    """Something that is measured at some sizes."""

    title: str
    head: str
    sizes: tuple[int, ...]
    quick: tuple[int, ...]
    measure: Callable[[str, int], Row]


class Limit(NamedTuple):
    """What must be reached: table, size, value and the bound; and what we would like to reach."""

    table: str
    size: int
    what: str
    target: float
    stretch: float
    bound: Literal["at least", "at most"] = "at most"


@dataclass(frozen=True, kw_only=True)
class TableBench:
    """Tables that are measured together, and their limits; for some of them the versions of programs that they use."""

    name: str
    title: str
    tables: Mapping[str, Table]
    limits: Sequence[Limit]
    versions: Mapping[str, Callable[[], dict[str, str]]] = field(
        default_factory=dict[str, Callable[[], dict[str, str]]]
    )


@dataclass(kw_only=True)
class Values:
    """The rows of each round, by table and size; and why a table has none."""

    rows: dict[str, dict[int, list[Row]]] = field(default_factory=dict[str, dict[int, list[Row]]])
    absent: dict[str, str] = field(default_factory=dict[str, str])
    sync_s: list[float] = field(default_factory=list[float])

    def median(self, table: str, size: int) -> Row:
        """The median of each value of a table."""
        rows = self.rows[table][size]
        return {what: median(row[what] for row in rows) for what in rows[0]}


def measure(
    bench: TableBench,
    names: Sequence[str],
    directory: str,
    rounds: int,
    *,
    quick: bool = False,
    limit_s: float = math.inf,
) -> Values:
    """All tables of these names; each size at least once, and again as far as its share of the time allows."""
    found = Values()
    sizes = {name: bench.tables[name].quick if quick else bench.tables[name].sizes for name in names}
    shares = Shares(limit_s, sum(map(len, sizes.values())))
    for name in names:
        for size in sizes[name]:
            is_late = shares.next()
            if name not in found.absent:
                print(f"{bench.name}: {name} {size}", file=sys.stderr)
                _measure_rounds(bench.tables[name], name, size, found, directory, rounds, is_late)
    return found


def _measure_rounds(
    table: Table,
    name: str,
    size: int,
    found: Values,
    directory: str,
    rounds: int,
    is_late: Callable[[], bool],
) -> None:
    rows = found.rows.setdefault(name, {}).setdefault(size, [])
    for number in range(rounds):
        if number and is_late():
            return
        found.sync_s.append(time_sync(directory))
        try:
            rows.append(table.measure(directory, size))
        except NotHereError as error:
            found.rows.pop(name)
            found.absent[name] = str(error)
            return


# As a report


def as_report(
    bench: TableBench,
    values: Values,
    directory: str,
    *,
    rounds: int,
    quick: bool,
    load: tuple[float, float, float],
) -> Report:
    """What was measured, as races of one."""
    races = [
        _race(bench, name, size, what, [row[what] for row in rows])
        for name, by_size in values.rows.items()
        for size, rows in by_size.items()
        for what in rows[0]
    ]
    for limit in bench.limits:
        if limit.table in values.absent:
            race = _race(bench, limit.table, limit.size, limit.what, [])
            race.absent[OURS] = values.absent[limit.table]
            races.append(race)
    if races:
        races[0].sync_s += values.sync_s
    versions = {name: find() for name, find in bench.versions.items() if name in values.rows}
    for race in races:
        race.facts[OURS] = versions.get(race.key.partition("-")[0], {})
    measured = {race.key for race in races}
    goals = [_goal(bench, limit) for limit in bench.limits]
    return Report(
        name=bench.name,
        title=bench.title,
        date=today(),
        rounds=rounds,
        quick=quick,
        machine=describe_machine(directory),
        load=(load, os.getloadavg()),
        races=races,
        goals=[goal for goal in goals if goal.race in measured],
        notes=(),
    )


def _race(bench: TableBench, table: str, size: int, what: str, values: Sequence[float]) -> RaceResult:
    name, unit = _split(what)
    wants_more = any(limit.what == what and limit.bound == "at least" for limit in bench.limits)
    return RaceResult(
        key=_key(table, size, what),
        title=f"{name}, {size:,} {bench.tables[table].head}",
        unit=unit,
        better="higher" if wants_more else "lower",
        ours=OURS,
        labels={OURS: "bartack"},
        values={OURS: dict(enumerate(values, 1))} if values else {},
        series=f"{bench.tables[table].title}: {what}",
        size=size,
    )


def _goal(bench: TableBench, limit: Limit) -> Goal:
    return Goal(
        race=_key(limit.table, limit.size, limit.what),
        title=f"{_split(limit.what)[0]}, {limit.size:,} {bench.tables[limit.table].head}",
        bound=limit.bound,
        target=limit.target,
        stretch=limit.stretch,
    )


def _split(what: str) -> tuple[str, str]:
    """A value without its unit, and the unit."""
    found = _UNIT.fullmatch(what)
    return (found["what"], found["unit"]) if found else (what, "")


def _key(table: str, size: int, what: str) -> str:
    return f"{table}-{size}-{re.sub('[^a-z0-9]+', '-', what.lower()).strip('-')}"


# As a table for people


def missed(report: Report) -> list[str]:
    """The limits that were measured and not kept."""
    found: list[str] = []
    for goal in report.goals:
        result = report.result_of(goal)
        if result is not None and report.mark_of(goal) == "missed":
            unit = report.unit_of(goal)
            found.append(f"{goal.title}: {show(goal.value_of(result))} {unit}, {goal.bound} {goal.target:g}")
    return found


def as_text(bench: TableBench, values: Values, report: Report) -> str:
    """The tables for people."""
    parts: list[str] = []
    for name, by_size in values.rows.items():
        columns = [values.median(name, size) for size in by_size]
        head = [bench.tables[name].head, *(f"{size:,}" for size in by_size)]
        rows = [[what, *(show(column[what]) for column in columns)] for what in columns[0]]
        parts += [f"{name}: {bench.tables[name].title}", align([head, *rows]), ""]
    parts += [f"{name}: {bench.tables[name].title}: {reason}\n" for name, reason in values.absent.items()]
    parts += [f"missed: {text}" for text in missed(report)]
    return "\n".join(parts)


def main(bench: TableBench, argv: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(prog=f"python -m bench.{bench.name}", description=bench.title)
    parser.add_argument("--rounds", type=int, help=f"how many rounds (default {ROUNDS}; quick: 1)")
    parser.add_argument(
        "--limit",
        type=int,
        metavar="SECONDS",
        help="repeat nothing after this time; each size is measured at least once",
    )
    parser.add_argument(
        "--quick", action="store_true", help="one round of smaller sizes: a glance, not a result"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the tables")
    parser.add_argument("--check", action="store_true", help="end with 1 if a limit is missed")
    parser.add_argument(
        "--only",
        action="append",
        choices=list(bench.tables),
        default=[],
        help="only this table; saves nothing",
    )
    given = parser.parse_args(argv)
    try:
        directory = data_directory(RESULTS)
    except InMemoryError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    rounds = given.rounds or (1 if given.quick else ROUNDS)
    load = os.getloadavg()
    try:
        names = given.only or list(bench.tables)
        limit_s = given.limit or math.inf
        values = measure(bench, names, directory, rounds, quick=given.quick, limit_s=limit_s)
        report = as_report(bench, values, directory, rounds=rounds, quick=given.quick, load=load)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if not given.only:
        save(report, RESULTS)
    print(json.dumps(as_json(report)) if given.json else as_text(bench, values, report))
    return 1 if given.check and missed(report) else 0
