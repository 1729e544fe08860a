"""Benchmarks that are tables: what is printed and kept, what is missed, and what a machine does not have."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from bench import _tables
from bench._report import Report, as_json
from bench._tables import (
    Limit,
    NotHereError,
    Row,
    Table,
    TableBench,
    as_report,
    as_text,
    main,
    measure,
    missed,
)


def seconds(_directory: str, size: int) -> Row:
    return {"it takes (s)": size / 1000, "count": 1.0}


def nothing(_directory: str, _size: int) -> Row:
    raise NotHereError("chromium")


def bench_of(**measures: Callable[[str, int], Row]) -> TableBench:
    tables = {name: Table(name.title(), "things", (100, 900), (10,), one) for name, one in measures.items()}
    limits = [Limit(name, size, "it takes (s)", 0.5, 0.1) for name in measures for size in (100, 900)]
    return TableBench(name="example", title="Example", tables=tables, limits=limits)


def report_of(bench: TableBench, directory: Path, *, quick: bool = False) -> tuple[str, Report]:
    values = measure(bench, list(bench.tables), str(directory), 2, quick=quick)
    report = as_report(bench, values, str(directory), rounds=2, quick=quick, load=(0.0, 0.0, 0.0))
    return as_text(bench, values, report), report


def test_a_table_has_a_column_for_each_size_and_says_what_was_missed(tmp_path: Path) -> None:
    text, _ = report_of(bench_of(table=seconds), tmp_path)

    lines = text.splitlines()
    assert lines[0] == "table: Table"
    assert lines[1].split() == ["things", "100", "900"]
    assert lines[3].split()[-2:] == ["0.1", "0.9"]
    assert lines[-1] == "missed: it takes, 900 things: 0.9 s, at most 0.5"


def test_versions_of_what_a_table_uses_are_kept_with_it(tmp_path: Path) -> None:
    bench = dataclasses.replace(
        bench_of(first=nothing, second=seconds),
        versions={"first": lambda: {"chromium": "1"}, "second": lambda: {"chromium": "2"}},
    )

    _, report = report_of(bench, tmp_path)

    assert {race.key[:5]: race.facts for race in report.races} == {
        "first": {"bartack": {}},
        "secon": {"bartack": {"chromium": "2"}},
    }


def test_a_size_that_was_not_measured_is_not_missed(tmp_path: Path) -> None:
    _, report = report_of(bench_of(table=seconds), tmp_path, quick=True)

    assert (missed(report), report.goals) == ([], [])


def test_every_value_is_a_race_of_one_with_its_rounds(tmp_path: Path) -> None:
    _, report = report_of(bench_of(table=seconds), tmp_path)

    result = json.loads(json.dumps(as_json(report)))
    race = result["races"]["table-900-it-takes-s"]
    assert (race["title"], race["unit"], race["series"], race["size"]) == (
        "it takes, 900 things",
        "s",
        "Table: it takes (s)",
        900,
    )
    assert race["contestants"]["bartack"]["values"] == [0.9, 0.9]
    assert [(goal["race"], goal["mark"]) for goal in result["goals"]] == [
        ("table-100-it-takes-s", "stretch"),
        ("table-900-it-takes-s", "missed"),
    ]
    assert result["races"]["table-100-count"]["unit"] == ""


def test_what_the_machine_does_not_have_is_named_and_the_other_tables_are_measured(tmp_path: Path) -> None:
    text, report = report_of(bench_of(first=nothing, second=seconds), tmp_path)

    assert "first: First: not on this machine (chromium)" in text
    assert "second: Second" in text
    assert [race.absent for race in report.races if race.key.startswith("first")] == [
        {"bartack": "not on this machine (chromium)"}
    ] * 2
    assert [report.mark_of(goal) for goal in report.goals] == [
        "not measured",
        "not measured",
        "stretch",
        "missed",
    ]


@pytest.mark.parametrize(("words", "code"), [(("--check",), 1), ((), 0), (("--check", "--quick"), 0)])
def test_a_missed_limit_is_an_exit_code_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: int
) -> None:
    monkeypatch.setattr(_tables, "RESULTS", str(tmp_path))
    monkeypatch.setenv("BARTACK_BENCH_DIR", str(tmp_path))

    assert main(bench_of(table=seconds), words) == code

    assert json.loads((tmp_path / "example.json").read_text())["quick"] is ("--quick" in words)


def test_without_time_every_size_is_measured_once(tmp_path: Path) -> None:
    found = measure(bench_of(table=seconds), ["table"], str(tmp_path), 5, limit_s=0.0)

    assert {size: len(rows) for size, rows in found.rows["table"].items()} == {100: 1, 900: 1}
