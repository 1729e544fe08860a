"""By which clock entries in a database are dated, and how a node measures it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.unit.depot.yard import Yard

from bartack.depot.postgres._lease import Sent, measure
from bartack.depot.postgres._run import PostgresRun
from bartack.journal import Draft
from bartack.supervision.process.lease import LeasePage

HOUR_US = 3_600_000_000


class Said(msgspec.Struct):
    """The data of an entry."""

    text: str = "something"


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    made = Yard(tmp_path)
    yield made
    made.close()


@pytest.fixture
def ahead_us(monkeypatch: pytest.MonkeyPatch) -> int:
    """The clock on the wall of this machine is ahead by this."""
    right = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: right() + HOUR_US * 1000)
    return HOUR_US


def test_what_was_measured_changes_no_more_than_an_answer_shows() -> None:
    assert measure(None, 1_000, 90, 110) == 900
    assert measure(905, 1_000, 90, 110) == 905, "it is possible"
    assert measure(905, 1_000, 98, 100) == 902
    assert measure(905, 1_000, 80, 90) == 910
    assert measure(905, 1_000, 80, 2_080) == 905, "an answer that takes long shows nothing"
    assert measure(None, 1_000, 110, 90) == 900, "the clock was set back meanwhile"


@pytest.mark.requirement("fleet-time")
def test_a_node_knows_the_clock_of_the_database_before_its_first_beat(yard: Yard, ahead_us: int) -> None:
    ((now_us,),) = yard.rows("SELECT (extract(epoch FROM clock_timestamp()) * 1e6)::bigint")
    assert isinstance(now_us, int)
    fleet = yard.node()
    _, fd = yard._fleets[-1]
    page = LeasePage.open(os.dup(fd))
    shown_ns = page.owner_ns(page.now_ns())
    page.close()

    assert shown_ns is not None
    assert 0 <= shown_ns // 1000 - now_us < 30_000_000
    assert fleet.node.offset_us == pytest.approx(-ahead_us, abs=30_000_000)


def test_a_beat_that_takes_long_does_not_move_the_clock_of_hubs(yard: Yard) -> None:
    node = yard.node().node
    before, now = node.offset_us, node.sent()

    node.note_time(now.wall_us + before, Sent(now.wall_us - 5_000_000, now.page_us - 5_000_000))

    assert node.offset_us == before


@pytest.mark.requirement("fleet-time")
def test_a_submission_is_dated_by_the_database(yard: Yard, ahead_us: int) -> None:
    run = PostgresRun(yard.folder / yard.submit(), yard.database)
    run.bring_here()
    with run.open_reader() as reader:
        times = [entry.at for entry in reader.read()]

    assert times == pytest.approx([time.time_ns() // 1000 - ahead_us] * len(times), abs=30_000_000)


@pytest.mark.requirement("fleet-time")
def test_a_command_that_owns_a_run_dates_nothing_before_the_last_entry(yard: Yard) -> None:
    run_id = f"run-20260101-000000-{os.getpid():08x}"
    run = PostgresRun(yard.folder / run_id, yard.database)
    run.path.mkdir()
    later_us = time.time_ns() // 1000 + HOUR_US

    class Later:
        def now_us(self) -> int:
            return later_us

        def monotonic_ns(self) -> int:
            return time.monotonic_ns()

    run.create([[Draft("note.made", Said())]], clock=Later(), program=b"")
    with run.own() as journal:
        journal.stage(Draft("note.made", Said()))
        journal.commit()
        times = [entry.at for entry in journal.read()]

    assert len(times) == 4
    assert times == [later_us] * 4
