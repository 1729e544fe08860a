"""The results that a page shows: their types, how they are read from the files that benchmarks save, and how they are kept.

``docs/benchmarks.json`` has the published ones. Results of single rounds are not in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from bench._report import NOT_HERE, Judged, Mark, judged_value

OURS: Final = "bartack"


class ResultError(Exception):
    """A file that has not the result of a benchmark in it, or a reason that belongs to none."""


class Spread(msgspec.Struct, frozen=True):
    """See ``_report.Spread``."""

    median: float
    q1: float
    q3: float
    low: float
    high: float


class Entrant(msgspec.Struct, frozen=True, omit_defaults=True):
    """A contestant of a race: in how many rounds it was measured, or why it took no part."""

    label: str
    absent: str | None = None
    rounds: int = 0
    facts: dict[str, str] = {}
    spread: Spread | None = None
    ratio: Spread | None = None

    @property
    def why_absent(self) -> str:
        """Why it has no value; empty if it has one."""
        return (self.absent or "").replace("not installed", NOT_HERE)


class Contest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A race; or one value of a table, which then has a series and a size."""

    title: str
    unit: str
    better: Literal["higher", "lower"]
    contestants: dict[str, Entrant]
    series: str = ""
    size: int = 0


class Bound(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was asked of a race, and what came of it."""

    race: str
    title: str
    against: str | None
    unit: str
    bound: Literal["at least", "at most"]
    target: float
    stretch: float
    result: Spread | None
    mark: Mark
    judged: Judged = "median"

    @property
    def value(self) -> float | None:
        """What of the result counts."""
        return None if self.result is None else judged_value(self.result, self.judged, self.bound)


class Load(msgspec.Struct, frozen=True):
    """The load of the machine, over one, five and fifteen minutes."""

    before: tuple[float, float, float]
    after: tuple[float, float, float]


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one benchmark gave on one day."""

    bench: str
    title: str
    date: str
    rounds: int
    quick: bool
    machine: dict[str, str | int]
    load: Load
    sync_s: Spread
    races: dict[str, Contest]
    goals: list[Bound]
    warnings: list[str] = []
    notes: list[str] = []

    def reason_key(self, goal: Bound) -> str:
        """The name of a goal, by which a reason is given for it."""
        return ".".join(filter(None, (self.bench, goal.race, goal.against)))


class Published(msgspec.Struct, frozen=True):
    """All that a page shows: the newest result of each benchmark, and why a bound was missed, by the key of its goal."""

    results: list[Result] = []
    reasons: dict[str, str] = {}

    def goals(self) -> Iterator[GoalOf]:
        """Every goal, with its result and its key."""
        for result in self.results:
            for goal in result.goals:
                yield GoalOf(result, goal, result.reason_key(goal))

    def unexplained(self) -> list[str]:
        """The keys of missed goals without a reason."""
        return [key for _, goal, key in self.goals() if goal.mark == "missed" and key not in self.reasons]


class GoalOf(NamedTuple):
    """A goal with the result that it is part of, and its key."""

    result: Result
    goal: Bound
    key: str


def load_result(file: Path) -> Result:
    """The result that a benchmark has saved.

    Raises:
        ResultError: The file has none.
    """
    try:
        return msgspec.json.decode(file.read_bytes(), type=Result)
    except (msgspec.DecodeError, OSError) as error:
        raise ResultError(f"{file.name}: not the result of a benchmark ({error}); measure it again") from None


def load_published(file: Path) -> Published:
    """What was published so far; nothing if there is no file.

    Raises:
        ResultError: The file is damaged.
    """
    try:
        return msgspec.json.decode(file.read_bytes(), type=Published)
    except FileNotFoundError:
        return Published()
    except msgspec.DecodeError as error:
        raise ResultError(f"{file.name}: {error}") from None


def merge(before: Published, results: Iterable[Result], reasons: Mapping[str, str]) -> Published:
    """Put newer results in the place of older ones; a reason is kept as long as its bound is missed.

    Raises:
        ResultError: A new reason is not for a missed bound.
    """
    found = {result.bench: result for result in before.results}
    found |= {result.bench: result for result in results}
    merged = Published(results=[found[name] for name in sorted(found)])
    missed = {key for _, goal, key in merged.goals() if goal.mark == "missed"}
    for key in reasons:
        if key not in missed:
            raise ResultError(
                f"{key} is not a missed bound; missed are: {', '.join(sorted(missed)) or 'none'}"
            )
    kept = {key: text for key, text in {**before.reasons, **reasons}.items() if key in missed}
    return Published(results=merged.results, reasons=dict(sorted(kept.items())))


def encode(published: Published) -> str:
    """The text of the file that is kept."""
    return msgspec.json.format(msgspec.json.encode(published), indent=1).decode() + "\n"
