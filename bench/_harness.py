"""How a comparison is made: contestants do the same work in turns, round after round, and only ratios within a round count.

A machine is never quiet and never the same twice, so an absolute number says little. In each round every contestant is
measured once, in an order that moves on by one from round to round; the ratio of two contestants is taken within the round,
and the median of these ratios is the result. How far they spread is always shown with it.

``_runner.py`` runs a contestant, ``_report.py`` computes and prints, ``_disk.py`` knows the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, Literal, TypeVar

from bench._disk import InMemoryError, data_directory, describe_machine, find_program, time_sync
from bench._report import NOT_HERE, Goal, RaceResult, Report, as_json, as_table, today
from bench._runner import Failure, Measure, Prepare, Runner, Sample

T = TypeVar("T")

RESULTS: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "results")
ROUNDS: Final = 33
QUICK_ROUNDS: Final = 3
QUICK_PART: Final = 10
OURS: Final = "bartack"


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """A program that can do the work of a race.

    Attributes:
        key: Its name in the JSON result.
        label: Its name in the table.
        measure: Does ``size`` pieces of the work in a directory and returns the value in the race's unit.
        size: How many pieces one measurement takes; slow contestants take fewer.
        prepare: Fills the directory once; without it, every measurement gets an empty one.
        needs: Distributions that have to be installed.
        programs: Programs that have to be on the machine.
        settings: Environment variables that have to name a server.
        quick_size: As ``size``, for a quick run; a tenth of it if not given.
        every: Takes part in the first round and then in every n-th, for those that take long to begin.
    """

    key: str
    label: str
    measure: Measure
    size: int
    prepare: Prepare | None = None
    needs: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    quick_size: int = 0
    every: int = 1

    def size_for(self, *, quick: bool) -> int:
        """How many pieces one measurement takes."""
        return self.quick_size or max(1, self.size // QUICK_PART) if quick else self.size

    def takes_part_in(self, number: int) -> bool:
        """Whether it is measured in this round; round 0 is the one that does not count."""
        return number == 0 or (number - 1) % self.every == 0


@dataclass(frozen=True, kw_only=True)
class Race:
    """The same work for several contestants; exactly one of them has the key ``bartack``."""

    key: str
    title: str
    unit: str
    better: Literal["higher", "lower"]
    contestants: tuple[Contestant, ...]

    def __post_init__(self) -> None:
        keys = [contestant.key for contestant in self.contestants]
        if len(set(keys)) != len(keys) or OURS not in keys:
            raise ValueError(f"race {self.key}: keys must be unique and include {OURS!r}, not {keys}")


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Races that are run together, and what is asked of them."""

    name: str
    title: str
    races: tuple[Race, ...]
    goals: tuple[Goal, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line asks for.

    With ``limit_s`` a race ends after the first round that comes to the end of its share of that time.
    """

    rounds: int = ROUNDS
    limit_s: float = math.inf
    quick: bool = False
    json: bool = False
    check: bool = False
    only: tuple[str, ...] = field(default=())


def main(bench: Bench, argv: Sequence[str] | None = None) -> int:
    """Run a benchmark as a program; returns its exit code."""
    options = parse_options(bench, argv)
    try:
        directory = data_directory(RESULTS)
    except InMemoryError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    try:
        report = run_bench(bench, options, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if not options.only:
        save(report, RESULTS)
    print(json.dumps(as_json(report)) if options.json else as_table(report))
    failures = [(race.key, race.absent[OURS]) for race in report.races if OURS in race.absent]
    for race, reason in failures:
        print(f"bench: {race}: {OURS} {reason}", file=sys.stderr)
    return 1 if failures or (options.check and not report.passed) else 0


def parse_options(bench: Bench, argv: Sequence[str] | None) -> Options:
    """What the command line asks for; ends the program if it makes no sense."""
    parser = argparse.ArgumentParser(prog=f"python -m bench.{bench.name}", description=bench.title)
    parser.add_argument(
        "--rounds", type=_positive, help=f"how many rounds (default {ROUNDS}; quick: {QUICK_ROUNDS})"
    )
    parser.add_argument(
        "--limit",
        type=_positive,
        metavar="SECONDS",
        help="begin no further round after this time; each race has at least one, and its part of it",
    )
    parser.add_argument("--quick", action="store_true", help="run fewer and smaller rounds, for a quick look")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--check", action="store_true", help="end with 1 if a target is missed")
    keys = [race.key for race in bench.races]
    parser.add_argument(
        "--only", action="append", choices=keys, default=[], help="run only this race; saves nothing"
    )
    given = parser.parse_args(argv)
    return Options(
        rounds=given.rounds or (QUICK_ROUNDS if given.quick else ROUNDS),
        limit_s=given.limit or math.inf,
        quick=given.quick,
        json=given.json,
        check=given.check,
        only=tuple(given.only),
    )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def run_bench(bench: Bench, options: Options, directory: str) -> Report:
    """All races, one after the other."""
    before = os.getloadavg()
    races = [race for race in bench.races if not options.only or race.key in options.only]
    shares = Shares(options.limit_s, len(races))
    results = [run_race(race, options, directory, shares.next()) for race in races]
    measured = {race.key for race in races}
    return Report(
        name=bench.name,
        title=bench.title,
        date=today(),
        rounds=max(len(race.sync_s) for race in results),
        quick=options.quick,
        machine=describe_machine(directory),
        load=(before, os.getloadavg()),
        races=results,
        goals=[goal for goal in bench.goals if goal.race in measured],
        notes=bench.notes,
    )


class Shares:
    """Divides a time among parts that follow each other; what one leaves, the next ones have.

    Args:
        limit_s: The whole time.
        parts: How many parts there are.
        clock: Seconds, of any beginning.
    """

    def __init__(self, limit_s: float, parts: int, clock: Callable[[], float] = monotonic) -> None:
        self._began = clock()
        self._each = limit_s / max(parts, 1)
        self._count = 0
        self._clock = clock

    def next(self) -> Callable[[], bool]:
        """Whether the time of the next part is used up, as a function to ask again and again."""
        self._count += 1
        end = self._began + self._each * self._count
        return lambda: self._clock() >= end


def _never() -> bool:
    return False


def run_race(
    race: Race, options: Options, directory: str, is_late: Callable[[], bool] = _never
) -> RaceResult:
    """All rounds of one race. A first round that does not count pays for imports and cold caches."""
    result = RaceResult(
        key=race.key,
        title=race.title,
        unit=race.unit,
        better=race.better,
        ours=OURS,
        labels={contestant.key: contestant.label for contestant in race.contestants},
    )
    print(f"{race.key}: {options.rounds} rounds of {len(race.contestants)} contestants", file=sys.stderr)
    with contextlib.ExitStack() as stack:
        runners = _start(race, result, directory, stack)
        for number in range(options.rounds + 1):
            if number > 1 and is_late():
                break
            if number:
                result.sync_s.append(time_sync(directory))
            for contestant in rotate(race.contestants, number):
                if contestant.key not in result.absent and contestant.takes_part_in(number):
                    outcome = runners[contestant.key].run(contestant.size_for(quick=options.quick))
                    _record(result, contestant.key, number, outcome)
    return result


def rotate(items: Sequence[T], by: int) -> list[T]:
    """The same items in the same circle, beginning ``by`` places further on."""
    start = by % len(items)
    return [*items[start:], *items[:start]]


def _start(race: Race, result: RaceResult, directory: str, stack: contextlib.ExitStack) -> dict[str, Runner]:
    runners: dict[str, Runner] = {}
    for contestant in race.contestants:
        absent = _why_absent(contestant, result)
        if absent:
            result.absent[contestant.key] = absent
            continue
        place = os.path.join(directory, race.key, contestant.key)
        os.makedirs(place)
        runner = Runner(contestant.measure, contestant.prepare, place)
        stack.callback(runner.close)
        runners[contestant.key] = runner
    return runners


def _why_absent(contestant: Contestant, result: RaceResult) -> str:
    """What the machine does not have for a contestant; empty if it can take part."""
    unset = [name for name in contestant.settings if not os.environ.get(name)]
    if unset:
        return f"{NOT_HERE} ({', '.join(unset)} not set)"
    missing = _note_versions(contestant, result)
    if missing:
        return f"not installed ({', '.join(missing)})"
    lacking = [name for name in contestant.programs if find_program(name) is None]
    return f"{NOT_HERE} ({', '.join(lacking)})" if lacking else ""


def _note_versions(contestant: Contestant, result: RaceResult) -> list[str]:
    """Record the versions of what a contestant needs; return what is missing."""
    missing: list[str] = []
    for name in contestant.needs:
        try:
            result.facts.setdefault(contestant.key, {})[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    return missing


def _record(result: RaceResult, key: str, number: int, outcome: Sample | Failure) -> None:
    if isinstance(outcome, Failure):
        result.absent[key] = f"failed: {outcome.reason}"
        result.values.pop(key, None)
        return
    result.facts.setdefault(key, {}).update(outcome.facts)
    if number > 0:
        result.values.setdefault(key, {})[number] = outcome.value


def save(report: Report, directory: str) -> None:
    """Keep the result of a whole run."""
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, f"{report.name}.json"), "w", encoding="utf-8") as file:
        json.dump(as_json(report), file, indent=2)
        file.write("\n")
