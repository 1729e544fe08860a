from __future__ import annotations

import pytest
from bench._report import Goal, RaceResult, Report, align, as_json, as_table, spread

AT_LEAST_HALF = Goal(
    race="race", title="half of the floor", against="floor", bound="at least", target=0.5, stretch=0.9
)
AT_MOST_A_HALF = Goal(race="race", title="half", bound="at most", target=0.5, stretch=0.5)
AT_MOST_TEN = Goal(race="race", title="ten", bound="at most", target=10, stretch=5)


def race(**values: list[float]) -> RaceResult:
    labels = {"bartack": "ours", "floor": "the floor", "peer": "a peer"}
    return RaceResult(
        key="race",
        title="a race",
        unit="µs",
        better="lower",
        ours="bartack",
        labels=labels,
        values={key: dict(enumerate(found, 1)) for key, found in values.items()},
        absent={key: "not installed (peer)" for key in labels if key not in values},
        sync_s=[0.001, 0.002],
    )


def report(result: RaceResult, *goals: Goal, load: tuple[float, float] = (0.0, 0.0)) -> Report:
    return Report(
        name="example",
        title="Example",
        date="2026-01-02",
        rounds=3,
        quick=False,
        machine={"system": "Linux", "architecture": "x", "cores": 2, "python": "3", "file_system": "ext4"},
        load=((load[0], 0.0, 0.0), (load[1], 0.0, 0.0)),
        races=[result],
        goals=goals,
        notes=["a note"],
    )


def test_a_ratio_is_the_median_of_the_ratios_within_rounds() -> None:
    # The disk was ten times slower in the second round, for both: the ratio of the medians would be 2, not 1.
    ratio = race(bartack=[2.0, 10.0, 1.0], floor=[1.0, 10.0, 1.0]).ratio_to("floor")

    assert ratio is not None
    assert (ratio.median, ratio.low, ratio.high) == (1.0, 1.0, 2.0)


def test_a_ratio_counts_only_rounds_that_both_took_part_in() -> None:
    result = race(bartack=[1.0, 50.0, 3.0])
    result.values["peer"] = {1: 2.0, 3: 6.0}

    assert result.ratio_to("peer") == (0.5, 0.5, 0.5, 0.5, 0.5)


def test_a_spread_has_the_quarters_and_the_ends() -> None:
    assert spread([5.0, 1.0, 4.0, 2.0, 3.0]) == (3.0, 2.0, 4.0, 1.0, 5.0)
    assert spread([7.0]) == (7.0, 7.0, 7.0, 7.0, 7.0)


@pytest.mark.parametrize(
    ("goal", "value", "mark"),
    [
        (AT_LEAST_HALF, 0.49, "missed"),
        (AT_LEAST_HALF, 0.5, "met"),
        (AT_LEAST_HALF, 0.9, "stretch"),
        (AT_MOST_TEN, 10.1, "missed"),
        (AT_MOST_TEN, 10.0, "met"),
        (AT_MOST_TEN, 5.0, "stretch"),
        (AT_MOST_TEN, None, "not measured"),
    ],
)
def test_a_goal_marks_a_result(goal: Goal, value: float | None, mark: str) -> None:
    assert goal.mark(value) == mark


def test_a_goal_of_the_worst_is_missed_by_one_round() -> None:
    worst = Goal(race="race", title="ten", bound="at most", target=10, stretch=5, judged="worst")
    once_late = race(bartack=[1.0, 10.1, 1.0])

    assert not report(once_late, worst).passed
    assert report(once_late, AT_MOST_TEN).passed
    assert "10.1 µs, worst" in as_table(report(once_late, worst))
    assert report(race(bartack=[1.0, 9.9, 1.0]), worst).passed


def test_a_goal_of_the_worst_looks_at_the_lowest_ratio_where_more_is_better() -> None:
    worst = Goal(
        race="race", title="half", against="floor", bound="at least", target=0.5, stretch=0.9, judged="worst"
    )

    assert report(race(bartack=[5.0, 6.0], floor=[10.0, 10.0]), worst).passed
    assert not report(race(bartack=[4.9, 6.0], floor=[10.0, 10.0]), worst).passed


def test_a_goal_whose_stretch_is_easier_than_its_target_is_refused() -> None:
    with pytest.raises(ValueError, match="easier"):
        Goal(race="race", title="mixed up", bound="at least", target=0.9, stretch=0.5)


def test_a_contestant_that_is_not_there_is_shown_as_such() -> None:
    shown = report(race(bartack=[1.0], floor=[2.0]))

    assert "a peer" in as_table(shown)
    assert "not installed (peer)" in as_table(shown)
    assert as_json(shown)["ratios"] == {"race_to_floor": 0.5, "race_to_peer": None}


def test_a_goal_that_could_not_be_measured_is_not_passed() -> None:
    unmeasured = report(race(bartack=[1.0]), AT_LEAST_HALF)

    assert not unmeasured.passed
    assert as_json(unmeasured)["passed"] is False
    assert report(race(bartack=[1.0], floor=[2.0]), AT_LEAST_HALF).passed


def test_a_goal_against_a_server_that_is_not_there_does_not_count() -> None:
    result = race(bartack=[1.0])
    result.absent["floor"] = "not on this machine (redis-server)"

    assert report(result, AT_LEAST_HALF).passed
    assert not report(result, AT_LEAST_HALF, AT_MOST_A_HALF).passed


def test_a_missed_goal_stands_out_in_the_table() -> None:
    assert "MISSED" in as_table(report(race(bartack=[11.0]), AT_MOST_TEN))
    assert "MISSED" not in as_table(report(race(bartack=[10.0]), AT_MOST_TEN))


def test_a_busy_machine_is_announced() -> None:
    result = race(bartack=[1.0])

    assert "the machine was busy" in as_table(report(result, load=(1.9, 0.0)))
    assert "the machine was busy" in as_table(report(result, load=(0.0, 2.9)))
    # One of the processes that ran at the end was our own.
    assert "the machine was busy" not in as_table(report(result, load=(0.5, 1.9)))


def test_columns_are_aligned() -> None:
    assert align([["name", "n"], ["a", "100"]]) == "name    n\n---------\na     100"
