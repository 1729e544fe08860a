"""That the deaths which the benchmark of takeovers brings about are measured, and its functions can be sent to a process."""

from __future__ import annotations

import pickle
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
from bench import _depot, takeover
from tests.postgres import new_database


def test_each_race_has_a_goal() -> None:
    assert {goal.race for goal in takeover.BENCH.goals} == {race.key for race in takeover.RACES}


def test_each_measurement_can_be_sent_to_a_process() -> None:
    for race in takeover.RACES:
        for one in race.contestants:
            pickle.dumps(one.measure)


@pytest.mark.soak
@pytest.mark.parametrize("race", ["middle", "restart"])
def test_a_takeover_can_be_measured(race: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def serve(directory: str) -> AbstractContextManager[str]:
        return nullcontext(new_database())

    monkeypatch.setattr(_depot, "serve_postgres", serve)
    monkeypatch.setattr(_depot, "url_of", str)
    monkeypatch.setattr(takeover, "STEPS", 20)
    monkeypatch.setattr(takeover, "FILES", 10)
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):  # the measurement sets them itself
        monkeypatch.setenv(name, str(tmp_path))
    measure = next(one.contestants[0].measure for one in takeover.RACES if one.key == race)

    assert measure(str(tmp_path), 1).value > 0
