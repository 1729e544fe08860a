"""The statements that decide who writes: ``append``, ``claim_run``, ``bury`` and ``release``, on real connections."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from tests.history import check_history, rows_of
from tests.postgres import new_database
from tests.unit.depot.postgres.history import (
    append,
    claim,
    commit_after,
    join,
    let_leases_end,
    other_bytes,
    sessions,
    submit,
    texts_of,
)
from tests.waiting import until

from bartack.depot.postgres._database import Database, Session
from bartack.errors import DepotUnavailableError

RACES = 200


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with Database(new_database()) as opened:
        yield opened


@pytest.fixture
def session(database: Database) -> Iterator[Session]:
    with database.session() as opened:
        yield opened


def owned(session: Session) -> tuple[int, int, int]:
    """A run with its owner: its number, the fence, and the CRC of its one entry."""
    run = submit(session)
    outcome, fence = claim(session, join(session), run)
    assert outcome == "claimed"
    return run, fence, rows_of(session, run)[-1].crc


def test_a_lost_owner_writes_nothing(session: Session) -> None:
    run, old, crc = owned(session)
    let_leases_end(session)
    outcome, new = claim(session, join(session), run)
    before = rows_of(session, run)

    assert (outcome, new) == ("claimed", old + 2), "burying and claiming raise the fence"
    assert append(session, run, commit_after(1, crc, old, "late")) == ["lost"]
    assert rows_of(session, run) == before
    assert append(session, run, commit_after(1, crc, new, "mine")) == ["written"]


@pytest.mark.parametrize("fence", [-1, 0, 1, 3, 2**31 - 1])
def test_a_fence_that_is_not_the_owners_writes_nothing(session: Session, fence: int) -> None:
    run, own, crc = owned(session)
    assert own == 2

    assert append(session, run, commit_after(1, crc, fence, "guessed")) == ["lost"]
    assert len(rows_of(session, run)) == 1


def test_a_released_run_takes_nothing(session: Session) -> None:
    run, fence, crc = owned(session)
    session.rows("SELECT bartack.release(%s, %s, 'resting', '')", run, fence)

    for late in (fence, fence + 1):
        assert append(session, run, commit_after(1, crc, late, "late")) == ["lost"]
    assert len(rows_of(session, run)) == 1


def test_a_lost_owner_neither_releases_nor_marks_the_run(session: Session) -> None:
    run, old, _ = owned(session)
    let_leases_end(session)
    _, new = claim(session, join(session), run)

    assert session.rows("SELECT bartack.release(%s, %s, 'resting', '')", run, old) in ([], [(None,)])
    assert session.rows("SELECT bartack.mark(%s, %s, 'x', 9)", run, old) == [(False,)]
    assert session.rows("SELECT bartack.alive(%s, %s)", run, old) in ([], [(None,)])
    assert session.rows("SELECT fence, state, alive FROM bartack.owner WHERE run = %s", run) == [
        (new, "owned", False)
    ]
    assert session.rows("SELECT at_least FROM bartack.run WHERE no = %s", run) == [(0,)]


def test_a_commit_after_a_gap_writes_nothing(session: Session) -> None:
    run, fence, crc = owned(session)
    after_next = commit_after(2, crc, fence, "too early")

    assert append(session, run, after_next) == ["look"]
    assert len(rows_of(session, run)) == 1


def test_the_same_bytes_twice_are_there_once(session: Session) -> None:
    run, fence, crc = owned(session)
    commit = commit_after(1, crc, fence, "a", "b")
    later = commit_after(commit.last, commit.crc, fence, "c")

    assert append(session, run, commit, commit, later, commit) == ["written", "look", "written", "look"]
    check_history(rows_of(session, run))
    assert [*texts_of(rows_of(session, run))] == ["first", "a", "b", "c"]
    outcome = session.rows("SELECT owner_fence, fence, last, crc, ends FROM bartack.look(%s, %s)", [run], [2])
    assert outcome == [(fence, fence, commit.last, commit.crc, later.last)]


def test_other_bytes_at_a_place_change_nothing(session: Session) -> None:
    run, fence, crc = owned(session)
    commit = commit_after(1, crc, fence, "a", "b")
    append(session, run, commit)
    before = rows_of(session, run)

    inside = commit_after(2, before[0].crc, fence, "inside")
    assert append(session, run, other_bytes(commit), inside) == ["look", "look"]
    assert rows_of(session, run) == before


def test_one_statement_judges_each_run_by_itself(database: Database, session: Session) -> None:
    good, lost, early = (owned(session) for _ in range(3))
    commits = [
        (good[0], commit_after(1, good[2], good[1], "good")),
        (lost[0], commit_after(1, lost[2], lost[1] - 1, "lost")),
        (early[0], commit_after(5, early[2], early[1], "early")),
        (0, commit_after(1, 0, 1, "no run")),
    ]
    with session.use() as connection:
        outcome = connection.execute(
            "SELECT run, outcome FROM bartack.append(%s, %s, %s, %s, %s, %s)",
            (
                [run for run, _ in commits],
                [one.fence for _, one in commits],
                [one.seq for _, one in commits],
                [one.last for _, one in commits],
                [one.crc for _, one in commits],
                [one.lines for _, one in commits],
            ),
            binary=True,
        ).fetchall()

    assert dict(outcome) == {good[0]: "written", lost[0]: "lost", early[0]: "look", 0: "lost"}


@pytest.mark.parametrize("number", range(5))
def test_one_of_eight_that_claim_at_once_owns_the_run(
    database: Database, session: Session, number: int
) -> None:
    run = submit(session)
    if number % 2:
        claim(session, join(session), run)
        let_leases_end(session)
    together = Barrier(8)

    def try_one(own: Session) -> tuple[str, int]:
        with own:
            node = join(own)
            together.wait(30)
            return claim(own, node, run)

    with ThreadPoolExecutor(8) as pool:
        outcome = [*pool.map(try_one, sessions(database, 8))]

    assert sorted(word for word, _ in outcome) == ["claimed", *["owned"] * 7]
    (fence,) = [fence for word, fence in outcome if word == "claimed"]
    assert session.rows("SELECT fence FROM bartack.owner WHERE run = %s", run) == [(fence,)]


def test_a_claim_whose_answer_was_lost_is_made_once(session: Session) -> None:
    run, node = submit(session), join(session)

    first = claim(session, node, run)
    assert first[0] == "claimed"
    assert claim(session, node, run) == first


def test_a_dead_node_claims_nothing(session: Session) -> None:
    run, node = submit(session), join(session)
    session.rows("SELECT bartack.bury(%s, 'test')", [node])

    assert claim(session, node, run)[0] == "dead"
    assert session.rows("SELECT state FROM bartack.beat(%s)", node) == [("dead",)]


def test_a_beat_does_not_bring_a_dead_node_back(session: Session) -> None:
    node = join(session)
    session.rows("SELECT bartack.bury(%s, 'test')", [node])
    before = session.rows("SELECT until, state FROM bartack.node WHERE id = %s", node)

    session.rows("SELECT bartack.beat(%s)", node)
    assert session.rows("SELECT until, state FROM bartack.node WHERE id = %s", node) == before


def test_a_takeover_waits_for_an_append_that_has_not_ended(database: Database, session: Session) -> None:
    run, fence, crc = owned(session)
    let_leases_end(session)
    commit = commit_after(1, crc, fence, "in time")
    with database.session() as own, own.use() as connection:
        with connection.transaction():
            assert append(own, run, commit) == ["written"]
            session.rows("SET lock_timeout = '50ms'")
            with pytest.raises(DepotUnavailableError):
                claim(session, join(session), run)
        assert claim(own, join(own), run) == ("claimed", fence + 2)

    assert [*texts_of(rows_of(session, run))] == ["first", "in time"]


def test_an_append_waits_for_a_takeover_that_has_not_ended_and_is_lost(
    database: Database, session: Session
) -> None:
    run, fence, crc = owned(session)
    thief, writer = sessions(database, 2)
    with thief, writer, ThreadPoolExecutor(1) as pool:
        with thief.use() as connection, connection.transaction():
            let_leases_end(thief)
            assert claim(thief, join(thief), run)[0] == "claimed"
            late = pool.submit(append, writer, run, commit_after(1, crc, fence, "late"))
            waiting = (
                "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%%append%%'"
            )
            until(lambda: session.rows(waiting), "the append waits")
        assert late.result(30) == ["lost"]

    assert [*texts_of(rows_of(session, run))] == ["first"]


def test_a_second_attempt_waits_for_the_first_and_nothing_is_doubled(
    database: Database, session: Session
) -> None:
    run, fence, crc = owned(session)
    commit = commit_after(1, crc, fence, "once")
    first, second = sessions(database, 2)
    with first, second, ThreadPoolExecutor(1) as pool:
        with first.use() as connection, connection.transaction():
            assert append(first, run, commit) == ["written"]
            again = pool.submit(append, second, run, commit)
            waiting = (
                "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%%append%%'"
            )
            until(lambda: session.rows(waiting), "the second attempt waits")
        assert again.result(30) == ["look"]

    assert [*texts_of(rows_of(session, run))] == ["first", "once"]


def test_appends_race_with_takeovers_and_no_row_is_anothers(
    database: Database, session: Session, record_property: Callable[[str, object], None]
) -> None:
    run = submit(session)
    acknowledged: dict[str, None] = {}
    races = 0

    def write(own: Session, fence: int, last: int, crc: int, ready: Barrier) -> None:
        """An owner that writes until it has lost the run, and once more after that."""
        ready.wait(30)
        for number in range(1000):
            commit = commit_after(last, crc, fence, *(f"{fence}:{number}:{part}" for part in range(2)))
            match append(own, run, commit):
                case ["written"]:
                    acknowledged.update(dict.fromkeys(f"{fence}:{number}:{part}" for part in range(2)))
                    last, crc = commit.last, commit.crc
                case outcome:
                    assert outcome == ["lost"]
                    assert append(own, run, commit) == ["lost"]
                    return

    def take_over(own: Session, dice: random.Random, ready: Barrier) -> int:
        ready.wait(30)
        for _ in range(dice.randrange(6)):
            own.rows("SELECT 1")
        let_leases_end(own)
        outcome, fence = claim(own, join(own), run)
        assert outcome == "claimed"
        return fence

    _, fence = claim(session, join(session), run)
    writer, thief = sessions(database, 2)
    with writer, thief, ThreadPoolExecutor(2) as pool:
        while races < RACES:
            end = rows_of(session, run)[-1]
            together = Barrier(2)
            writing = pool.submit(write, writer, fence, end.last, end.crc, together)
            fence = pool.submit(take_over, thief, random.Random(races), together).result(60)
            writing.result(60)
            races += 1

    rows = rows_of(session, run)
    check_history(rows)
    assert [*texts_of(rows)] == ["first", *acknowledged], "what was acknowledged is there once, in order"
    record_property("append_races", races)


def test_nodes_leave_while_their_runs_are_taken_and_none_waits_for_ever(
    database: Database, session: Session
) -> None:
    """The order of locks: a node that leaves and a process that declares it dead take the same two rows."""
    failures: list[DepotUnavailableError] = []

    def together(barrier: Barrier, own: Session, statement: str, *values: object) -> None:
        barrier.wait(30)
        try:
            own._rows(statement, values)
        except DepotUnavailableError as error:
            failures.append(error)

    one, two = sessions(database, 2)
    with one, two, ThreadPoolExecutor(2) as pool:
        for _ in range(60):
            run, node = submit(session), join(session)
            claim(session, node, run)
            thief = join(session)
            session.rows("UPDATE bartack.node SET until = until - interval '1 day' WHERE id = %s", node)
            both = Barrier(2)
            leaving = pool.submit(together, both, one, "SELECT bartack.leave(%s)", node)
            taking = pool.submit(together, both, two, "SELECT bartack.claim_run(%s, %s, 0)", thief, run)
            leaving.result(30)
            taking.result(30)

    assert failures == []
