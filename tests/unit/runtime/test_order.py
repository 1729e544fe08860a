"""Runs are in the order in which they were created, whatever their names say."""

from __future__ import annotations

from pathlib import Path

import pytest

from bartack.runtime._order import NAME, claim_run, newest_first

CLONED = "run-20990101-000000-00000000"
OLD = "run-20200101-000000-00000000"


def names(runs: Path) -> list[str]:
    return newest_first(runs, [path.name for path in runs.iterdir() if path.is_dir()])


@pytest.mark.requirement("latest-goes-by-creation")
def test_a_name_that_a_clock_or_a_clone_made_up_does_not_make_a_run_the_newest(tmp_path: Path) -> None:
    for name in (OLD, CLONED):
        (tmp_path / name).mkdir()
    first, _ = claim_run(tmp_path)
    second, path = claim_run(tmp_path)
    path.rename(tmp_path / "away")
    third, _ = claim_run(tmp_path)
    (tmp_path / "away").rename(path)

    assert names(tmp_path) == [third, second, first, CLONED, OLD]


def test_runs_that_arrive_later_by_other_ways_count_as_older(tmp_path: Path) -> None:
    made, _ = claim_run(tmp_path)
    (tmp_path / CLONED).mkdir()

    assert names(tmp_path) == [made, CLONED]


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe\n", b"run-2020", b"run-2020\n\n\n"])
def test_a_missing_or_damaged_file_only_costs_the_order_of_before(
    tmp_path: Path, content: bytes | None
) -> None:
    first, _ = claim_run(tmp_path)
    (tmp_path / NAME).unlink()
    if content is not None:
        (tmp_path / NAME).write_bytes(content)
    second, _ = claim_run(tmp_path)

    assert names(tmp_path) == [second, first]


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / NAME).symlink_to(tmp_path / "precious")
    made, _ = claim_run(runs)

    assert not (tmp_path / "precious").exists()
    assert names(runs) == [made]
