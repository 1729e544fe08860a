"""Runs are in the order in which they were created, whatever their names say."""

from __future__ import annotations

from pathlib import Path

import pytest

from bartack.depot import FileRuns
from bartack.depot._order import NAME, newest_first

CLONED = "run-20990101-000000-00000000"
OLD = "run-20200101-000000-00000000"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


def claim(runs: Path) -> str:
    return FileRuns(runs).new_run().id


def names(runs: Path) -> list[str]:
    return newest_first(runs, [path.name for path in runs.iterdir() if path.is_dir()])


@pytest.mark.requirement("latest-goes-by-creation")
def test_a_name_that_a_clock_or_a_clone_made_up_does_not_make_a_run_the_newest(runs: Path) -> None:
    for name in (OLD, CLONED):
        (runs / name).mkdir()
    first = claim(runs)
    second = claim(runs)
    path = runs / second
    path.rename(runs / "away")
    third = claim(runs)
    (runs / "away").rename(path)

    assert names(runs) == [third, second, first, CLONED, OLD]


def test_runs_that_arrive_later_by_other_ways_count_as_older(runs: Path) -> None:
    made = claim(runs)
    (runs / CLONED).mkdir()

    assert names(runs) == [made, CLONED]


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe\n", b"run-2020", b"run-2020\n\n\n"])
def test_a_missing_or_damaged_file_only_costs_the_order_of_before(runs: Path, content: bytes | None) -> None:
    first = claim(runs)
    (runs.parent / NAME).unlink()
    if content is not None:
        (runs.parent / NAME).write_bytes(content)
    second = claim(runs)

    assert names(runs) == [second, first]


def test_a_link_in_the_place_of_the_file_is_not_followed(runs: Path) -> None:
    (runs.parent / NAME).symlink_to(runs.parent / "precious")
    made = claim(runs)

    assert not (runs.parent / "precious").exists()
    assert names(runs) == [made]
