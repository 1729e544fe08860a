"""A database that takes connections and says nothing: every wait for it ends."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.postgres import cluster, new_database
from tests.waiting import until

from bartack.depot.postgres import _carrier
from bartack.depot.postgres._database import Database
from bartack.depot.postgres._lease import Node
from bartack.depot.postgres._owner import seat_of
from bartack.depot.postgres._run import PostgresRun
from bartack.errors import DepotUnavailableError
from bartack.journal import Draft
from bartack.supervision.process.lease import LeasePage
from bartack.testing import Cable

RUN = "run-20260101-000000-00000001"


@pytest.fixture
def cable() -> Iterator[Cable]:
    with Cable(str(cluster().place / ".s.PGSQL.5432")) as made:
        yield made


@pytest.fixture
def database(cable: Cable) -> Iterator[Database]:
    name = new_database().partition("@/")[2].partition("?")[0]
    with Database(f"postgresql://bartack@127.0.0.1:{cable.port}/{name}") as made:
        yield made


def test_a_statement_that_is_not_answered_ends(cable: Cable, database: Database) -> None:
    with database.session(answer_s=0.3) as session:
        assert session.rows("SELECT 1") == [(1,)]
        cable.go_silent()
        with pytest.raises(DepotUnavailableError, match="no answer within"):
            session._rows("SELECT 2", ())
        cable.come_back()

        assert session.rows("SELECT 3") == [(3,)]


def test_a_lease_is_renewed_when_the_database_answers_on_a_new_connection_only(
    cable: Cable, database: Database, tmp_path: Path
) -> None:
    page, fd = LeasePage.create()
    node = Node(database, seat_of(tmp_path), "boot", page, lease_s=1.5)
    assert page.left_s() > 0
    cable.strand()
    before = page.now_ns()

    until(lambda: page.until_ns > before + int(2 * 1.5e9), "the lease is renewed")
    assert not node.is_dead
    node.close()
    assert page.is_over
    LeasePage.open(fd).close()


def test_an_owner_ends_although_the_database_is_silent(
    cable: Cable, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_carrier, "CLOSE_S", 0.2)
    run = PostgresRun(tmp_path / RUN, database, lease_s=1.5)
    run.create(())
    journal = run.open_journal()
    journal.append("test")
    cable.go_silent()
    journal.stage(Draft("test", {}))
    journal.start_commit()

    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(journal.close)
        try:
            ending.result(10)
        finally:
            cable.come_back()
