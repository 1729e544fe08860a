"""That the benchmark of copies looks at a tree that has changed, and its functions can be sent to a process."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from bench import copies, snapshot
from bench._harness import OURS

FILES = 1_000


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> copies._Tree:
    monkeypatch.setattr(snapshot, "GRAIN_S", 0.0)
    place = tmp_path / "tree"
    place.mkdir()
    snapshot.make_tree(str(place), FILES)
    return copies._Tree(str(place))


def test_each_goal_is_against_git() -> None:
    keys = {race.key: {one.key for one in race.contestants} for race in copies.RACES}

    assert [(goal.race, goal.against) for goal in copies.BENCH.goals] == [
        ("unchanged", "git"),
        ("changed", "git"),
    ]
    assert all(found == {OURS, "git"} for found in keys.values())


def test_each_measurement_can_be_sent_to_a_process() -> None:
    for race in copies.RACES:
        for one in race.contestants:
            pickle.dumps(one.measure)


def test_a_copy_after_changes_is_a_new_one_and_else_there_is_none(tree: copies._Tree) -> None:
    first = tree.latest
    tree.copy()
    unchanged = tree.latest
    tree.change(copies.CHANGED)
    tree.copy()

    assert unchanged == first
    assert tree.latest != first
