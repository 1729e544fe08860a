"""The page of all results: what it shows of a fixed result, how results of several days come together, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from bench import __main__ as all_benches
from bench import report
from bench._page import as_page, as_pictures
from bench._published import Published, Result, ResultError, merge
from bench._report import Goal, RaceResult, Report, as_json
from bench._svg import Bar, Dot, Line, bars, dots, lines, picture

ROUNDS = [1.0, 2.0, 3.0, 4.0]
MACHINE: dict[str, str | int] = {
    "system": "Linux",
    "kernel": "6.1",
    "architecture": "x86_64",
    "cores": 2,
    "memory_gb": 8,
    "python": "3.11.2",
    "file_system": "ext4",
}


def race(key: str = "race", *, slower: float = 2.0, series: str = "", size: int = 0) -> RaceResult:
    """A race of which one peer is not installed, and one was not found."""
    values = {
        "bartack": dict(enumerate(ROUNDS, 1)),
        "floor": {number: value / slower for number, value in enumerate(ROUNDS, 1)},
    }
    return RaceResult(
        key=key,
        title=f"a {key} | of some",
        unit="ms",
        better="lower",
        ours="bartack",
        labels={"bartack": "ours", "floor": "the floor", "peer": "a peer", "server": "a server"},
        values=values,
        absent={"peer": "not installed (peer)", "server": "not on this machine (redis-server)"},
        facts={"floor": {"sqlite": "3.40"}},
        sync_s=[0.001, 0.002],
        series=series,
        size=size,
    )


def result(name: str = "example", date: str = "2026-01-02", **changed: Any) -> dict[str, Any]:
    """A result as a benchmark saves it."""
    whole = Report(
        name=name,
        title="Example",
        date=date,
        rounds=4,
        quick=False,
        machine=MACHINE,
        load=((0.1, 0.0, 0.0), (1.2, 0.0, 0.0)),
        races=[race()],
        goals=[
            Goal(race="race", title="ours", bound="at most", target=5.0, stretch=1.0),
            Goal(race="race", title="to floor", bound="at most", target=1.5, stretch=1.0, against="floor"),
            Goal(race="race", title="to server", bound="at most", target=1.0, stretch=1.0, against="server"),
        ],
        notes=["a note"],
    )
    return {**json.loads(json.dumps(as_json(whole))), **changed}


def published(*results: dict[str, Any], reasons: dict[str, str] | None = None) -> Published:
    return merge(Published(), [msgspec.convert(one, Result) for one in results], reasons or {})


def rows(page: str) -> list[list[str]]:
    found = page.split("## All results\n\n")[1].split("\n\n", maxsplit=1)[0].splitlines()
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in found]


def test_the_table_has_a_row_for_each_peer_and_bound_with_what_came_of_it() -> None:
    found = rows(as_page(published(result(), reasons={"example.race.floor": "A floor of its own."})))

    assert found[0] == [
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
    ]
    begin = ["`example`", "a race \\| of some"]
    assert found[2:] == [
        [*begin, "", "2.5 ms", "", "", "1.75 to 3.25", "4", "≤ 5 ms", "met", "2026-01-02"],
        [
            *begin,
            "the floor",
            "2.5 ms",
            "1.25 ms",
            "2 \u00d7",
            "2 to 2",
            "4",
            "≤ 1.5 \u00d7",
            "**missed**: A floor of its own.",
            "2026-01-02",
        ],
        [*begin, "a peer", "2.5 ms", "", "", "", "", "", "not on this machine (peer)", "2026-01-02"],
        [
            *begin,
            "a server",
            "2.5 ms",
            "",
            "",
            "",
            "",
            "≤ 1 \u00d7",
            "not on this machine (redis-server)",
            "2026-01-02",
        ],
    ]


def test_the_page_names_machine_date_load_rounds_versions_and_how_to_repeat_it() -> None:
    page = as_page(published(result()))

    assert "Of 3 bounds, 1 are met and 1 are missed, 1 were not measured." in page
    assert "Linux 6.1 on x86_64, 2 cores, 8 GB of memory, file system ext4, Python 3.11.2: `example`." in page
    assert "| `example` | 2026-01-02 | 4 | 0.10 | 1.20 | 1.5 ms (1.25 to 1.75) |  |" in page
    assert "| `example` | the floor | sqlite 3.40 |" in page
    assert "| `example` | a server | not on this machine (redis-server) |" in page
    assert "`python -m bench.report`" in page.split("## Run it again")[1]


def test_a_missed_bound_without_a_reason_says_so() -> None:
    whole = published(result())

    assert whole.unexplained() == ["example.race.floor"]
    assert "The reason is not known yet." in as_page(whole)


def test_a_page_without_results_says_so() -> None:
    assert "No results have been published yet." in as_page(Published())
    assert as_pictures(Published()) == {}


def test_results_of_several_days_are_merged_and_each_row_has_its_date() -> None:
    old = published(result("first"), result("second"), reasons={"first.race.floor": "Known."})

    new = merge(old, [msgspec.convert(result("second", "2026-03-04"), Result)], {})

    assert {(row[0], row[-1]) for row in rows(as_page(new))[2:]} == {
        ("`first`", "2026-01-02"),
        ("`second`", "2026-03-04"),
    }
    assert new.reasons == {"first.race.floor": "Known."}


def test_a_reason_ends_with_its_miss() -> None:
    old = published(result(), reasons={"example.race.floor": "Known."})
    met = result()
    for goal in met["goals"]:
        goal["mark"] = "met"

    assert merge(old, [msgspec.convert(met, Result)], {}).reasons == {}
    with pytest.raises(
        ResultError, match=r"example\.race is not a missed bound; missed are: example\.race\.floor"
    ):
        merge(old, [], {"example.race": "No."})


def write(directory: Path, *results: dict[str, Any]) -> list[str]:
    """Save results; the options to make a page of them."""
    (directory / "results").mkdir(exist_ok=True)
    (directory / "docs").mkdir(exist_ok=True)
    for one in results:
        (directory / "results" / f"{one['bench']}.json").write_text(json.dumps(one))
    return ["--results", str(directory / "results"), "--docs", str(directory / "docs")]


def test_the_page_is_made_of_the_kept_file_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = write(tmp_path, result(), result("other", quick=True))
    stale = tmp_path / "docs/pictures/benchmarks/gone.svg"
    stale.parent.mkdir(parents=True)
    stale.touch()

    assert report.main([*options, "--reason", "example.race.floor=It is = so."]) == 0
    written = {path: path.read_bytes() for path in (tmp_path / "docs").rglob("*") if path.is_file()}
    for file in (tmp_path / "results").iterdir():
        file.unlink()
    assert report.main(options) == 0

    assert {path: path.read_bytes() for path in written} == written
    assert sorted(path.name for path in written) == [
        "benchmarks.json",
        "benchmarks.md",
        "bounds.svg",
        "example.svg",
    ]
    assert b"It is = so." in (tmp_path / "docs/benchmarks.md").read_bytes()
    assert "other.json: left out, a quick run is not a result" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "{", '{"name": "web", "tables": {}}', "[]"])
def test_a_file_without_a_result_is_refused_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    options = write(tmp_path)
    (tmp_path / "results/web.json").write_text(text)

    assert report.main(options) == 2

    assert "bench.report: web.json: not the result of a benchmark" in capsys.readouterr().err
    assert list((tmp_path / "docs").iterdir()) == []


@pytest.mark.parametrize("reason", ["example.race.floor", "example.race.floor=", "nothing=Text."])
def test_a_reason_that_belongs_to_nothing_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], reason: str
) -> None:
    assert report.main([*write(tmp_path, result()), "--reason", reason]) == 2

    assert capsys.readouterr().err.startswith("bench.report: ")


def test_the_report_is_not_run_as_a_benchmark() -> None:
    assert "report" not in all_benches.names()
    assert {"journal", "web", "growth"} <= set(all_benches.names())


# Plots


def shapes(svg: str, name: str) -> list[dict[str, str]]:
    root = ElementTree.fromstring(svg)  # noqa: S314 - our own text
    return [dict(found.attrib) for found in root.iter(f"{{http://www.w3.org/2000/svg}}{name}")]


def test_plots_stand_alone_in_light_and_dark() -> None:
    found = as_pictures(published(result()))

    assert list(found) == ["bounds.svg", "example.svg"]
    for svg in found.values():
        assert "prefers-color-scheme:dark" in svg
        assert not re.search(r"<script|<image|@import|url\(|href=|https?://(?!www\.w3\.org/2000/svg)", svg)
        assert "<title>" in svg


def test_bars_are_as_long_as_their_values_and_ours_stands_out() -> None:
    panel = bars(
        "Race <of some>",
        "ms",
        [Bar("ours", 5.0, 4.0, 6.0, True), Bar("theirs", 10.0, 9.0, 12.0, False)],
        more_is_better=False,
    )

    svg = picture("Title & more", [panel])

    drawn = [shape for shape in shapes(svg, "rect") if shape["class"] != "page"]
    assert [shape["class"] for shape in drawn] == ["ours", "other"]
    assert float(drawn[1]["width"]) == pytest.approx(2 * float(drawn[0]["width"]), abs=0.2)
    assert "Race &lt;of some&gt;" in svg
    assert "shorter is better" in svg


def test_a_result_is_left_of_its_bound_when_it_is_missed() -> None:
    svg = picture("", [dots("", [Dot("met", 4.0, 2.0, 8.0, "4"), Dot("missed", 0.5, 0.4, 0.6, "0.5")])])

    [bound] = [float(shape["x1"]) for shape in shapes(svg, "line") if shape.get("class") == "b"]
    met, missed = shapes(svg, "circle")
    assert float(missed["cx"]) < bound < float(met["cx"])
    assert (met["class"], missed["class"]) == ("ours", "bad")


def test_lines_rise_with_their_values() -> None:
    svg = picture("", [lines("Growth", "steps", [Line("time (s)", [(10, 1.0), (100, 2.0), (1000, 40.0)])])])

    [line] = shapes(svg, "polyline")
    points = [tuple(map(float, point.split(","))) for point in line["points"].split()]
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert [y for _, y in points] == sorted((y for _, y in points), reverse=True)


def test_a_value_at_three_sizes_is_a_line() -> None:
    whole = result()
    for number in (10, 100, 1000):
        one = race(series="Steps: cost (µs)", size=number)
        one.title = f"cost, {number} steps"
        encoded = as_json(
            Report(
                name="x",
                title="",
                date="",
                rounds=1,
                quick=False,
                machine=MACHINE,
                load=((0, 0, 0), (0, 0, 0)),
                races=[one],
                goals=[],
                notes=[],
            )
        )
        races = msgspec.convert(encoded["races"], dict[str, Any])
        whole["races"][f"cost-{number}"] = races["race"]

    svg = as_pictures(published(whole))["example.svg"]

    assert len(shapes(svg, "polyline")) == 1
    assert "by steps" in svg
