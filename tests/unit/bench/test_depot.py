"""That what the benchmark of runs in a database asks for is measured, and by functions that a process of their own can find."""

from __future__ import annotations

import pickle
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
from bench import _depot, depot
from bench._harness import OURS
from tests.postgres import new_database


def measured(race: str, size: int, place: Path, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What our contestants of a race give on the server of the tests."""

    def serve(directory: str) -> AbstractContextManager[str]:
        return nullcontext(new_database())

    monkeypatch.setattr(_depot, "serve_postgres", serve)
    monkeypatch.setattr(_depot, "url_of", str)
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):  # the measurement sets them itself
        monkeypatch.setenv(name, str(place))
    contestants = next(one.contestants for one in depot.RACES if one.key == race)
    return [one.measure(str(place), size).value for one in contestants if one.key in {OURS, "raw", "update"}]


def test_each_goal_is_against_a_contestant_of_its_race() -> None:
    keys = {race.key: {one.key for one in race.contestants} for race in depot.RACES}

    assert [goal for goal in depot.BENCH.goals if goal.against not in {None, *keys[goal.race]}] == []


def test_each_race_has_a_goal() -> None:
    assert {goal.race for goal in depot.BENCH.goals} == {race.key for race in depot.RACES}


def test_each_measurement_can_be_sent_to_a_process() -> None:
    for race in depot.RACES:
        for one in race.contestants:
            pickle.dumps(one.measure)


@pytest.mark.parametrize(
    ("race", "size"),
    [
        ("append", 10),
        ("together", 2 * _depot.RUNS),
        ("link", 10),
        ("links", 2 * _depot.RUNS),
        ("open", 2 * _depot.PARTS),
    ],
)
def test_appends_can_be_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, race: str, size: int
) -> None:
    assert all(value > 0 for value in measured(race, size, tmp_path, monkeypatch))


@pytest.mark.soak
@pytest.mark.parametrize(
    ("race", "size"),
    [
        ("here", 20),
        ("steps", 20),
        ("first", 1),
        ("claimed", 1),
        ("copied", 2),
        ("edited", 2),
        ("follower", 5),
    ],
)
def test_runs_can_be_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, race: str, size: int) -> None:
    assert all(value > 0 for value in measured(race, size, tmp_path, monkeypatch))
