"""The page of all results, as Markdown, and its plots; ``report.py`` writes them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Final

from bench._published import OURS, Bound, Contest, Entrant, GoalOf, Published, Result, Spread
from bench._report import Mark, show
from bench._svg import TIMES, Bar, Dot, Line, Panel, bars, dots, lines, picture

PICTURES: Final = "pictures/benchmarks"
"""Where the plots are, beside the page."""
BOUNDS: Final = "bounds"
FEWEST: Final = 3
"""At how many sizes a value has to be there for a line."""
HEADINGS: Final = (
    "benchmark",
    "what",
    "compared with",
    "ours",
    "theirs",
    "ratio",
    "spread",
    "rounds",
    "bound",
    "result",
    "date",
)
INTRODUCTION: Final = """# Benchmark results

What the benchmarks gave on the machine below. `python -m bench.report` makes this page from `docs/benchmarks.json`.
[Benchmarks](explanation/benchmarks.md) lists what each of them asks, [Measure the speed](how-to/benchmark.md) describes how.

A *ratio* is our value over theirs, the median of the ratios within rounds. *Spread* is the middle half of the ratios, or of our
values where there is no peer; *rounds* is how many of them there are. A *bound* is the target of a benchmark. Times differ from
machine to machine by far more than ratios: measure yours.
"""
AGAIN: Final = """## Run it again

On an idle machine, in a checkout:

| command | what it does |
|---|---|
| `make bench` | measures everything, and keeps the results in `bench/results/` |
| `python -m bench.journal` | measures one benchmark again, and replaces its result only |
| `python -m bench.report` | puts the results into `docs/benchmarks.json`, and writes this page and its plots |
| `python -m bench.report --reason KEY=TEXT` | also explains a missed bound; the command prints the keys |

Results of quick runs are not published. A result of another day stays until its benchmark is run again.
"""
MARKS: Final[Mapping[Mark, str]] = {
    "stretch": "met, stretch too",
    "met": "met",
    "missed": "**missed**",
    "not measured": "not measured",
}


def as_page(published: Published) -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    if published.results:
        parts += [_summary(published), _plots(published), _table(published), *_facts(published)]
    else:
        parts.append("No results have been published yet.\n")
    return "\n".join([*parts, AGAIN])


# What came of the bounds


def _summary(published: Published) -> str:
    marks = [goal.mark for _, goal, _ in published.goals()]
    met, missed = sum(mark in {"met", "stretch"} for mark in marks), marks.count("missed")
    unknown = f", {marks.count('not measured')} were not measured" if "not measured" in marks else ""
    text = f"Of {len(marks)} bounds, {met} are met and {missed} are missed{unknown}.\n"
    rows = [
        f"- {one.result.bench}: {_cell(one.goal.title)}: {_value(one.goal.result, one.goal.unit)}, bound "
        f"{_bound(one.goal)}. {_reason(published, one)}\n"
        for one in published.goals()
        if one.goal.mark == "missed"
    ]
    return text + ("\nMissed:\n\n" + "".join(rows) if rows else "")


def _reason(published: Published, one: GoalOf) -> str:
    return _cell(published.reasons.get(one.key, "The reason is not known yet."))


# One table of all results


def _table(published: Published) -> str:
    rows = [HEADINGS, *(row for result in published.results for row in _rows(published, result))]
    lines_ = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(["## All results\n", lines_[0], "|---" * len(HEADINGS) + "|", *lines_[1:], ""])


def _rows(published: Published, result: Result) -> Iterator[tuple[str, ...]]:
    for key, race in result.races.items():
        goals = {goal.against: goal for goal in result.goals if goal.race == key}
        ours = race.contestants[OURS]
        others = {name: one for name, one in race.contestants.items() if name != OURS}
        begin = (f"`{result.bench}`", _cell(race.title))
        if None in goals or not others:
            verdict = _verdict(published, result, goals.get(None), ours)
            spread = (_range(ours.spread), str(ours.rounds or ""))
            yield (*begin, "", _alone(ours, race, goals.get(None)), "", "", *spread, *verdict, result.date)
        for name, other in others.items():
            verdict = _verdict(published, result, goals.get(name), ours, other)
            ratio = "" if other.ratio is None else f"{show(other.ratio.median)} {TIMES}"
            theirs = _value(other.spread, race.unit)
            spread = (_range(other.ratio), str(min(ours.rounds, other.rounds) or ""))
            compared = (_cell(other.label), _ours(ours, race), theirs, ratio, *spread)
            yield (*begin, *compared, *verdict, result.date)


def _verdict(published: Published, result: Result, goal: Bound | None, *entrants: Entrant) -> tuple[str, str]:
    """The bound, and whether it is met; if not, why."""
    absent = next((one.why_absent for one in entrants if one.absent), "")
    if goal is None:
        return "", _cell(absent)
    if goal.mark == "missed":
        reason = _reason(published, GoalOf(result, goal, result.reason_key(goal)))
        return _bound(goal), f"{MARKS['missed']}: {reason}"
    return _bound(goal), _cell(absent) if goal.mark == "not measured" and absent else MARKS[goal.mark]


def _ours(ours: Entrant, race: Contest) -> str:
    return _value(ours.spread, race.unit)


def _alone(ours: Entrant, race: Contest, goal: Bound | None) -> str:
    """Our value; the worst one if that is what has to keep the bound."""
    if goal is None or goal.judged == "median" or goal.value is None:
        return _ours(ours, race)
    return f"{show(goal.value)} {_unit(race.unit)}, the worst"


def _bound(goal: Bound) -> str:
    sign = "≥" if goal.bound == "at least" else "≤"
    return f"{sign} {show(goal.target)} {_unit(goal.unit)}".rstrip()


def _value(found: Spread | None, unit: str) -> str:
    return "" if found is None else f"{show(found.median)} {_unit(unit)}".rstrip()


def _unit(unit: str) -> str:
    return TIMES if unit == "x" else _cell(unit)


def _range(found: Spread | None) -> str:
    return "" if found is None else f"{show(found.q1)} to {show(found.q3)}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


# Where, when and with what


def _facts(published: Published) -> Iterator[str]:
    yield "## The machine\n"
    for machine, found in itertools.groupby(
        sorted(published.results, key=lambda one: sorted(map(str, one.machine.items()))),
        key=lambda one: one.machine,
    ):
        yield f"{_machine(machine)}: {', '.join(f'`{one.bench}`' for one in found)}.\n"
    yield "| benchmark | date | rounds | load before | load after | append and sync of the disk | remarks |"
    yield "|---|---|---|---|---|---|---|"
    for result in published.results:
        sync = f"{show(result.sync_s.median * 1e3)} ms ({_range(_in_ms(result.sync_s))})"
        load = f"{result.load.before[0]:.2f} | {result.load.after[0]:.2f}"
        remarks = _cell("; ".join(result.warnings))
        yield f"| `{result.bench}` | {result.date} | {result.rounds} | {load} | {sync} | {remarks} |"
    yield "\nContestants that take long to begin take part in some of the rounds only.\n"
    versions = _versions(published)
    if versions:
        yield "## The peers\n"
        yield "| benchmark | contestant | with |"
        yield "|---|---|---|"
        yield from versions
        yield ""


def _machine(machine: Mapping[str, str | int]) -> str:
    known = {**dict.fromkeys(("kernel", "memory_gb"), "unknown"), **machine}
    return (
        f"{known['system']} {known['kernel']} on {known['architecture']}, {known['cores']} cores, "
        f"{known['memory_gb']} GB of memory, file system {known['file_system']}, Python {known['python']}"
    )


def _in_ms(found: Spread) -> Spread:
    return Spread(*(value * 1e3 for value in (found.median, found.q1, found.q3, found.low, found.high)))


def _versions(published: Published) -> list[str]:
    """A row for each contestant that has facts, or that is not there."""
    rows: dict[str, None] = {}
    for result in published.results:
        for race in result.races.values():
            for key, one in race.contestants.items():
                facts = one.why_absent or ", ".join(f"{name} {value}" for name, value in one.facts.items())
                if facts and (key != OURS or race.series):
                    rows[f"| `{result.bench}` | {_cell(one.label)} | {_cell(facts)} |"] = None
    return list(rows)


# Plots


def as_pictures(published: Published) -> dict[str, str]:
    """The plots, by the name of their file."""
    found: dict[str, str] = {}
    reached = [dot for one in published.goals() if (dot := _dot(one)) is not None]
    if reached:
        panel = dots("Results as multiples of their bounds: to the right is better", reached)
        found[BOUNDS] = picture("Every measured result as a multiple of its bound", [panel])
    for result in published.results:
        panels = [*_bar_panels(result), *_line_panels(result)]
        if panels:
            found[result.bench] = picture(f"{result.title}, measured by bench.{result.bench}", panels)
    return {f"{name}.svg": text for name, text in found.items()}


def _dot(one: GoalOf) -> Dot | None:
    goal = one.goal
    if goal.result is None or goal.value is None or min(goal.result.median, goal.result.q1) <= 0:
        return None
    counts = () if goal.judged == "median" else (goal.value,)
    ends = [_multiple(goal, value) for value in (goal.result.q1, goal.result.q3, *counts)]
    middle = _multiple(goal, goal.value)
    return Dot(f"{one.result.bench}: {goal.title}", middle, min(ends), max(ends), f"{show(middle)} {TIMES}")


def _multiple(goal: Bound, value: float) -> float:
    return value / goal.target if goal.bound == "at least" else goal.target / value


def _bar_panels(result: Result) -> Iterator[Panel]:
    for race in result.races.values():
        rows = [
            Bar(one.label, one.spread.median, one.spread.q1, one.spread.q3, key == OURS)
            for key, one in race.contestants.items()
            if one.spread is not None
        ]
        if len(rows) > 1:
            yield bars(race.title, race.unit, rows, more_is_better=race.better == "higher")


def _line_panels(result: Result) -> Iterator[Panel]:
    """A panel for each table, with a chart for each value that was measured at enough sizes."""
    series: dict[str, dict[str, list[tuple[float, float]]]] = {}
    heads: dict[str, str] = {}
    for race in result.races.values():
        spread = race.contestants[OURS].spread
        if race.series and spread is not None and spread.median > 0:
            table, _, what = race.series.partition(": ")
            series.setdefault(table, {}).setdefault(what, []).append((race.size, spread.median))
            heads[table] = race.title.rpartition(" ")[2]
    for table, values in series.items():
        found = [Line(what, points) for what, points in values.items() if len(points) >= FEWEST]
        if found:
            yield lines(table, heads[table], found)


def _plots(published: Published) -> str:
    titles = {result.bench: result.title for result in published.results}
    parts: list[str] = []
    for file in as_pictures(published):
        name = file.removesuffix(".svg")
        if name == BOUNDS:
            parts += [
                f"![Every measured result as a multiple of its bound]({PICTURES}/{file})\n",
                "## Plots\n",
            ]
        else:
            text = titles[name]
            parts.append(f"![{text}, measured by bench.{name}]({PICTURES}/{file})\n")
    return "\n".join(parts)
