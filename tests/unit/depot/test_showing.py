"""The list of a database that is shown all the time, and the copies of the journals that are looked at."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.postgres import own_cluster
from tests.unit.depot.yard import Yard
from tests.waiting import PATIENCE_S, until

from bartack.depot.elsewhere import Elsewhere
from bartack.depot.postgres._database import Database
from bartack.depot.postgres._run import PostgresRun
from bartack.depot.showing import ShownDatabase
from bartack.errors import DepotUnavailableError
from bartack.journal.file import JOURNAL_FILE


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def shown(yard: Yard) -> Iterator[ShownDatabase]:
    with ShownDatabase(yard.team.where) as made:
        yield made


def test_the_list_says_where_each_run_is_in_the_queue_and_why(yard: Yard, shown: ShownDatabase) -> None:
    waiting, held = yard.submit(needs=("gpu",)), yard.submit()
    yard.rows("UPDATE bartack.owner SET state = 'held', reason = 'a test' WHERE run = 2")
    yard.node("alpha")
    taken = yard.submit()
    ((number,),) = yard.rows("SELECT no FROM bartack.run WHERE id = %s", taken)
    yard.rows("SELECT * FROM bartack.claim((SELECT min(id) FROM bartack.node), 5)")

    found = {facts.id: facts for facts in shown.runs()}
    assert [facts.id for facts in shown.runs()] == [taken, held, waiting], "the newest first"
    assert found[waiting].reason == "queued: no node of pool 'default' has the label 'gpu'"
    assert (found[held].state, found[held].reason, found[held].is_stuck) == ("held", "held: a test", True)
    assert (found[taken].number, found[taken].state, found[taken].node) == (number, "owned", "alpha")
    assert [facts.id for facts in shown.match(waiting.removeprefix("run-"))] == [waiting]
    assert [facts.id for facts in shown.match("latest")] == [taken]


def test_a_change_is_reported_without_asking_and_beats_are_not(yard: Yard) -> None:
    node = yard.node("alpha")
    changed = threading.Semaphore(0)
    with ShownDatabase(yard.team.where, changed.release) as shown:
        run = yard.submit(pool="other")
        shown.runs()
        shown.open()
        assert changed.acquire(timeout=PATIENCE_S)
        while changed.acquire(blocking=False):
            pass

        yard.beat(node)
        shown.look()
        assert not changed.acquire(blocking=False)

        yard.rows("UPDATE bartack.owner SET state = 'held', reason = 'a test'")
        assert changed.acquire(timeout=PATIENCE_S)
        facts = shown.find(run)
        assert facts is not None
        assert facts.state == "held"


def test_a_run_that_was_deleted_leaves_the_list_with_its_directory(yard: Yard, shown: ShownDatabase) -> None:
    run = yard.submit()
    shown.runs()
    assert shown.path_of(run).is_dir()
    yard.rows("SELECT bartack.remove(1)")

    shown.look()
    assert shown.find(run) is None
    assert not shown.path_of(run).exists()


def test_the_copy_of_a_run_that_is_watched_grows_with_its_journal(yard: Yard, tmp_path: Path) -> None:
    run = yard.submit()
    with ShownDatabase(yard.team.where) as shown:
        shown.open()
        shown.runs()
        shown.copy(run)
        shown.watch(run)
        copy = shown.path_of(run) / JOURNAL_FILE
        before = copy.stat().st_size

        with PostgresRun(yard.folder / run, yard.database).own() as journal:
            journal.append("test.noted")
        until(lambda: copy.stat().st_size > before, "the entry")

        shown.leave(run)


def test_what_was_found_stays_while_the_database_is_away(tmp_path: Path) -> None:
    with own_cluster(synced=False) as cluster:
        database = Database(cluster.url())
        run = PostgresRun(tmp_path / "run-20260101-000000-0000000a", database)
        run.path.mkdir()
        run.create((), program=bytes(10_240))  # an empty archive
        with ShownDatabase(Elsewhere(cluster.url())) as shown:
            shown.runs()
            shown.copy(run.id)
            facts = shown.find(run.id)
            assert facts is not None
            database.close()
            cluster.stop()

            shown.look()
            assert isinstance(shown.problem, DepotUnavailableError)
            assert shown.find(run.id) == facts
            shown.copy(run.id)  # there is a copy
            with pytest.raises(DepotUnavailableError):
                shown.source(facts).end()

            cluster.start()
            shown.look()
            assert shown.problem is None
