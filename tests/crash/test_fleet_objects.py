"""Nodes of a database with an object store that is away: real commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crash.test_fleet import LIMIT_S, STEPS, Fleet
from tests.history import check_history, rows_of
from tests.s3 import S3, s3
from tests.waiting import until


@pytest.fixture
def server() -> Iterator[S3]:
    with s3() as made:
        yield made


@pytest.fixture
def fleet(tmp_path: Path, server: S3) -> Iterator[Fleet]:
    settings = {"BARTACK_DEPOT_BLOBS": "s3://team/runs", "BARTACK_DEPOT_HOLD_S": "1"}
    made = Fleet(tmp_path, server.environ | settings)
    yield made
    made.close()


@pytest.mark.requirement("objects-away")
def test_a_run_goes_back_to_the_queue_while_its_object_store_is_away(
    fleet: Fleet, server: S3, tmp_path: Path
) -> None:
    server.refusal = 503
    one = fleet.node("one")
    follower = fleet.submit_large()
    reasons = "SELECT 1 FROM bartack.owner WHERE state = 'queued' AND starts_with(reason, 'its object store did not answer')"
    until(lambda: fleet.rows(reasons), "the run to be given back")
    assert fleet.rows("SELECT strikes FROM bartack.owner") == [(0,)]
    assert "waits for its object store: s3://team/runs: " in fleet.output()
    assert fleet.done() == []

    one.kill()
    one.wait(LIMIT_S)
    server.refusal = 0
    fleet.node("two")

    assert follower.wait(LIMIT_S) == 0, fleet.output()
    assert fleet.output().splitlines().count("3000000") == 1
    made = (tmp_path / "effects.large").read_text(encoding="ascii").split()
    assert len(made) >= 2, "a step whose value was not kept is executed again"
    assert len(fleet.done()) == STEPS
    assert [len(content) for content in server.objects.values()] == [3_000_002]
    ((number,),) = fleet.rows("SELECT no FROM bartack.run")
    check_history(rows_of(fleet.database.shared, int(str(number))))
