"""A disk that fills up at any write of the pipeline: the run is interrupted, and goes on when there is room again."""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from tests.pipeline.full_disk import FullDisk
from tests.pipeline.matrix import Case, Facts, Played

from bartack.core.disk import is_disk_trouble

SOAK: Final = "BARTACK_CHAOS_SOAK" in os.environ
STORIES: Final = ("review", "intake", "prompt") if SOAK else ("review",)
NUMBERS: Final = {"full": errno.ENOSPC, "broken": errno.EIO} if SOAK else {"full": errno.ENOSPC}


@contextmanager
def on_disk(played: Played, fills_at: int | None = None, number: int = errno.ENOSPC) -> Generator[FullDisk]:
    """The files of a run are on a disk that fills up."""
    with pytest.MonkeyPatch.context() as patch:
        disk = FullDisk(played.folder, patch)
        disk.fills_at, disk.number = fills_at, number
        yield disk


def write_all(case: Case) -> tuple[list[str], Facts]:
    """What a run writes, one operation after the other, and what becomes of it."""
    with case.started() as played:
        with on_disk(played) as disk:
            played.begin()
        return disk.operations, played.facts()


def begin_on(played: Played, disk: FullDisk) -> str:
    """Run it until the disk is full; how it ended."""
    try:
        played.begin()
    except OSError as error:
        if is_disk_trouble(error):
            return "disk"  # the loop of a hub makes the same of it
        raise
    finally:
        disk.mend()
    return played.run.status


@pytest.mark.requirement("full-disk-interrupts-a-pipeline")
@pytest.mark.parametrize("action", STORIES)
@pytest.mark.parametrize("kind", NUMBERS)
def test_a_disk_that_fills_up_at_any_write_interrupts_the_run_and_loses_nothing(
    action: str, kind: str, tmp_path: Path
) -> None:
    case = Case(tmp_path, action)
    operations, facts = write_all(case)
    ends: list[str] = []

    for place in range(1, len(operations) + 1, 1 if SOAK else 11):
        with case.started() as played:
            with on_disk(played, place, NUMBERS[kind]) as disk:
                ends.append(begin_on(played, disk))
            told = f"full at {place}: {operations[place - 1]}"
            if ends[-1] == "disk":
                assert played.resume() == [], told

            assert played.run.status == "completed", told
            assert played.facts() == facts, told
    # Who has nothing left to write but copies for people comes to the end.
    copies = ends.count("completed")
    assert ends == ["disk"] * (len(ends) - copies) + ["completed"] * copies
    assert copies <= 4


def test_a_full_disk_is_told_by_the_step_that_met_it(tmp_path: Path) -> None:
    case = Case(tmp_path, "review")
    operations, _ = write_all(case)
    place = next(number for number, name in enumerate(operations, 1) if name.startswith("open .step-1.json"))

    with case.started() as played:
        with on_disk(played, place) as disk:
            begin_on(played, disk)

        assert played.run.status == "disk"
        assert [entry.data["reason"] for entry in played.run.journal if entry.kind == "hub.stopped"] == [
            "disk"
        ]
        assert "step.failed" not in {entry.kind for entry in played.run.journal}
