"""What the rounds of a benchmark say: medians, spreads, ratios within rounds, goals met or missed; as a table and as JSON.

``_published.py`` has the types of the JSON, ``report.py`` makes a page of it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple, Protocol

Mark = Literal["stretch", "met", "missed", "not measured"]
Sense = Literal["at least", "at most"]
Judged = Literal["median", "worst"]
"""Whether the median of all rounds counts, or the worst of them."""
SIGNS: Final[Mapping[Mark, str]] = {"stretch": "++", "met": "+", "missed": "MISSED", "not measured": "?"}
_WORST: Final[Mapping[Judged, str]] = {"median": "", "worst": ", worst"}
NOT_HERE: Final = "not on this machine"
"""Why a contestant is absent that cannot simply be installed."""
LOADED: Final = 0.75
"""A load per core above this, without our own, makes absolute numbers worth little and ratios uncertain."""


class Spread(NamedTuple):
    """A median, and how far the values lie apart: the quarters and the ends."""

    median: float
    q1: float
    q3: float
    low: float
    high: float


class Ends(Protocol):
    """A ``Spread``, of this module or of a published result."""

    @property
    def median(self) -> float:
        """The value in the middle."""
        ...

    @property
    def low(self) -> float:
        """The lowest value."""
        ...

    @property
    def high(self) -> float:
        """The highest value."""
        ...


def judged_value(found: Ends, judged: Judged, bound: Sense) -> float:
    """The value that is compared with a bound."""
    if judged == "median":
        return found.median
    return found.low if bound == "at least" else found.high


def spread(values: Sequence[float]) -> Spread:
    """The median of ``values`` and how they spread."""
    q1, median, q3 = (
        statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    )
    return Spread(median, q1, q3, min(values), max(values))


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What is asked of us in a race: a ratio to another contestant, or a value in the race's unit.

    Attributes:
        race: Key of the race.
        title: What is measured, in a few words.
        bound: Whether the result has to be at least or at most the target.
        target: What has to be reached.
        stretch: What we would like to reach.
        against: Key of the contestant we are compared with; without one, the value itself counts.
        judged: What has to keep the bound: the median of all rounds, or the worst of them.
    """

    race: str
    title: str
    bound: Sense
    target: float
    stretch: float
    against: str | None = None
    judged: Judged = "median"

    def __post_init__(self) -> None:
        if not self._reaches(self.stretch, self.target):
            raise ValueError(f"goal {self.title!r}: the stretch is easier than the target")

    def mark(self, value: float | None) -> Mark:
        """How a result stands to this goal."""
        if value is None:
            return "not measured"
        if self._reaches(value, self.stretch):
            return "stretch"
        return "met" if self._reaches(value, self.target) else "missed"

    def value_of(self, found: Spread) -> float:
        """What of a result counts."""
        return judged_value(found, self.judged, self.bound)

    def _reaches(self, value: float, limit: float) -> bool:
        return value >= limit if self.bound == "at least" else value <= limit


@dataclass(kw_only=True)
class RaceResult:
    """What a race gave: for each contestant its values by round, or in ``absent`` why it has none.

    A race that is one value of a table at one size has them as ``series`` and ``size``.
    """

    key: str
    title: str
    unit: str
    better: Literal["higher", "lower"]
    ours: str
    labels: dict[str, str]
    values: dict[str, dict[int, float]] = field(default_factory=dict[str, dict[int, float]])
    absent: dict[str, str] = field(default_factory=dict[str, str])
    facts: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    sync_s: list[float] = field(default_factory=list[float])
    series: str = ""
    size: int = 0

    def spread_of(self, key: str) -> Spread | None:
        """How the values of one contestant spread."""
        return spread(list(self.values[key].values())) if key in self.values else None

    def ratio_to(self, key: str) -> Spread | None:
        """Our value over that of another contestant, taken within each round that both took part in."""
        ours, theirs = self.values.get(self.ours, {}), self.values.get(key, {})
        ratios = [ours[number] / theirs[number] for number in ours if number in theirs]
        return spread(ratios) if ratios else None


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a whole benchmark gave."""

    name: str
    title: str
    date: str
    rounds: int
    quick: bool
    machine: Mapping[str, str | int]
    load: tuple[tuple[float, float, float], tuple[float, float, float]]
    races: Sequence[RaceResult]
    goals: Sequence[Goal]
    notes: Sequence[str]

    def result_of(self, goal: Goal) -> Spread | None:
        """The spread of what a goal asks for."""
        race = next((race for race in self.races if race.key == goal.race), None)
        if race is None:
            return None
        return race.spread_of(race.ours) if goal.against is None else race.ratio_to(goal.against)

    def mark_of(self, goal: Goal) -> Mark:
        """How a result stands to a goal."""
        result = self.result_of(goal)
        return goal.mark(None if result is None else goal.value_of(result))

    def unit_of(self, goal: Goal) -> str:
        """The unit of a goal's numbers."""
        return "x" if goal.against is not None else next(r.unit for r in self.races if r.key == goal.race)

    @property
    def passed(self) -> bool:
        """Whether every target is reached; one against a server that the machine does not have does not count."""
        return all(self.mark_of(goal) in {"met", "stretch"} or self._lacks_peer(goal) for goal in self.goals)

    def _lacks_peer(self, goal: Goal) -> bool:
        race = next(race for race in self.races if race.key == goal.race)
        return goal.against is not None and race.absent.get(goal.against, "").startswith(NOT_HERE)

    @property
    def sync(self) -> Spread:
        """Seconds a sync of the disk took, measured before each round."""
        return spread([seconds for race in self.races for seconds in race.sync_s])

    @property
    def warnings(self) -> list[str]:
        """What makes this run worth less than it looks."""
        found: list[str] = []
        if self.quick:
            found.append("a quick run: too little work in too few rounds for a result")
        others = max(self.load[0][0], self.load[1][0] - 1)
        if others > LOADED * int(self.machine["cores"]):
            found.append(f"the machine was busy with other things (load {others:.2f} without ours)")
        return found


# JSON


def as_json(report: Report) -> dict[str, object]:
    """The whole report as one JSON object."""
    return {
        "bench": report.name,
        "title": report.title,
        "date": report.date,
        "rounds": report.rounds,
        "quick": report.quick,
        "machine": dict(report.machine),
        "load": {"before": _rounded(report.load[0]), "after": _rounded(report.load[1])},
        "sync_s": _spread_json(report.sync),
        "passed": report.passed,
        "ratios": _ratios_json(report),
        "goals": [_goal_json(report, goal) for goal in report.goals],
        "races": {race.key: _race_json(race) for race in report.races},
        "warnings": report.warnings,
        "notes": list(report.notes),
    }


def _ratios_json(report: Report) -> dict[str, float | None]:
    """Medians of our value over that of each other contestant; none for one that is absent."""
    ratios: dict[str, float | None] = {}
    for race in report.races:
        for key in race.labels:
            if key != race.ours:
                ratio = race.ratio_to(key)
                ratios[f"{race.key}_to_{key}"] = None if ratio is None else _significant(ratio.median)
    return ratios


def _goal_json(report: Report, goal: Goal) -> dict[str, object]:
    result = report.result_of(goal)
    return {
        "race": goal.race,
        "title": goal.title,
        "against": goal.against,
        "unit": report.unit_of(goal),
        "bound": goal.bound,
        "judged": goal.judged,
        "target": goal.target,
        "stretch": goal.stretch,
        "result": None if result is None else _spread_json(result),
        "mark": report.mark_of(goal),
    }


def _race_json(race: RaceResult) -> dict[str, object]:
    contestants: dict[str, object] = {}
    for key, label in race.labels.items():
        found, ratio = race.spread_of(key), race.ratio_to(key)
        contestants[key] = {
            "label": label,
            "absent": race.absent.get(key),
            "facts": race.facts.get(key, {}),
            "rounds": len(race.values.get(key, {})),
            "values": [_significant(value) for value in race.values.get(key, {}).values()],
            "spread": None if found is None else _spread_json(found),
            "ratio": None if ratio is None else _spread_json(ratio),
        }
    return {
        "title": race.title,
        "unit": race.unit,
        "better": race.better,
        "series": race.series,
        "size": race.size,
        "contestants": contestants,
    }


def _spread_json(value: Spread) -> dict[str, float]:
    return {name: _significant(number) for name, number in value._asdict().items()}


def _significant(number: float) -> float:
    return float(f"{number:.5g}")


def _rounded(load: tuple[float, float, float]) -> list[float]:
    return [round(number, 2) for number in load]


# Table


def as_table(report: Report) -> str:
    """The whole report for people."""
    parts = [_head(report)]
    parts += [_race_table(race) for race in report.races]
    if report.goals:
        parts.append(_goal_table(report))
    remarks = [*(f"warning: {text}" for text in report.warnings), *report.notes]
    parts.append("\n".join(f"- {text}" for text in remarks))
    return "\n\n".join(part for part in parts if part)


def today() -> str:
    """The date of a result."""
    return datetime.now(UTC).date().isoformat()


def _head(report: Report) -> str:
    machine, sync = report.machine, report.sync
    return "\n".join(
        [
            f"{report.title}: {report.rounds} interleaved rounds",
            f"{machine['system']} {machine['architecture']}, {machine['cores']} cores, Python {machine['python']}, "
            f"{machine['file_system']}; load {report.load[0][0]:.2f} before, {report.load[1][0]:.2f} after",
            f"one short append and sync of this disk: {sync.median * 1e3:.3f} ms "
            f"({sync.low * 1e3:.3f} to {sync.high * 1e3:.3f} between rounds)",
        ]
    )


def _race_table(race: RaceResult) -> str:
    rows = [[race.title, f"{race.unit}, median", "middle half", "min to max", "bartack / this"]]
    for key, label in race.labels.items():
        rows.append([label, *_race_cells(race, key)])
    facts = [
        f"  {race.labels[key]}: {', '.join(f'{name} {value}' for name, value in facts.items())}"
        for key, facts in race.facts.items()
        if facts
    ]
    return "\n".join([align(rows), *facts])


def _race_cells(race: RaceResult, key: str) -> list[str]:
    found, ratio = race.spread_of(key), race.ratio_to(key)
    if found is None:
        return [race.absent.get(key, "not measured"), "", "", ""]
    compared = ""
    if ratio is not None and key != race.ours:
        compared = f"{show(ratio.median)} x ({_range(ratio.q1, ratio.q3)})"
    return [show(found.median), _range(found.q1, found.q3), _range(found.low, found.high), compared]


def _goal_table(report: Report) -> str:
    rows = [["goal", "result", "middle half", "target", "stretch", ""]]
    for goal in report.goals:
        result, unit = report.result_of(goal), report.unit_of(goal)
        sign = "≥" if goal.bound == "at least" else "≤"
        rows.append(
            [
                goal.title,
                "" if result is None else f"{show(goal.value_of(result))} {unit}{_WORST[goal.judged]}",
                "" if result is None else _range(result.q1, result.q3),
                f"{sign} {show(goal.target)}",
                f"{sign} {show(goal.stretch)}",
                SIGNS[report.mark_of(goal)],
            ]
        )
    return align(rows)


def align(rows: Sequence[Sequence[str]]) -> str:
    """Rows under a heading; the first column to the left, all others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def show(number: float) -> str:
    """A number with three significant digits, or whole if it is large."""
    if abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.3g}"


def _range(low: float, high: float) -> str:
    return f"{show(low)} to {show(high)}"
