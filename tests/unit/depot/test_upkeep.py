"""Operating a database of runs: teams, keys, versions side by side, migrations, restored backups, chores and retention."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import pytest
from tests.postgres import database_of_version
from tests.unit.depot.yard import Yard
from tests.waiting import until

from bartack._version import __version__
from bartack.depot import upkeep as upkeep_module
from bartack.depot.chores import Chore, do_due
from bartack.depot.fleet import Fleet
from bartack.depot.postgres import _schema
from bartack.depot.postgres._carrier import Courier, Parcel
from bartack.depot.postgres._database import Database, Session
from bartack.depot.postgres._rewound import Identity, Kept
from bartack.depot.postgres._run import PostgresRun
from bartack.depot.postgres._schema import MIGRATIONS, migrate
from bartack.depot.taken import KeyKnownError, Queueing, Taken
from bartack.depot.upkeep import Upkeep, Wait
from bartack.errors import (
    BartackError,
    DepotError,
    DepotSchemaError,
    JournalOwnershipLostError,
    NoNodeError,
    RunHeldError,
)
from bartack.journal import BlobRef
from bartack.journal.shared import Commit


@pytest.fixture
def upkeep(yard: Yard) -> Upkeep:
    return Upkeep(yard.team)


def do_chores(yard: Yard, fleet: Fleet) -> list[Chore]:
    return fleet.do_chores(yard.team)


def give_back(fleet: Fleet, run: Taken, state: str = "over") -> None:
    assert fleet.give_back(run, state, 0, "", 0) == state


def wait_of(upkeep: Upkeep, run_id: str) -> Wait:
    found = upkeep.wait_of(run_id)
    assert found is not None
    return found


# Teams.


@pytest.mark.requirement("fleet-teams")
def test_a_team_has_no_more_runs_at_once_than_it_may_on_all_nodes(yard: Yard, upkeep: Upkeep) -> None:
    upkeep.set_team("slow", 2)
    runs = [yard.submit(team="slow") for _ in range(4)]
    free = yard.submit()
    one, two = yard.node("one"), yard.node("two")

    first = one.claim(1)
    others = two.claim(10)

    assert [run.id for run in first] == runs[:1]
    assert [run.id for run in others] == [runs[1], free], "the run of another team is not held up"
    assert one.claim(10) == []
    assert wait_of(upkeep, runs[2]).text == "queued: the team 'slow' has 2 runs at once, and that many now"
    give_back(one, first[0])
    assert [run.id for run in one.claim(10)] == [runs[2]]
    assert {(team.name, team.running, team.queued) for team in upkeep.teams()} == {
        ("default", 1, 0),
        ("slow", 2, 1),
    }


@pytest.mark.requirement("fleet-teams")
def test_the_counter_of_a_team_follows_every_change_of_an_owner(yard: Yard, upkeep: Upkeep) -> None:
    upkeep.set_team("slow", 3)
    for _ in range(3):
        yard.submit(team="slow")
    one, two, watcher = yard.node("one"), yard.node("two"), yard.node("watcher", pools=("none",))

    def running() -> object:
        assert upkeep.problems() == []
        return yard.rows("SELECT running FROM bartack.team WHERE name = 'slow'")[0][0]

    first, second, third = *one.claim(2), *two.claim(5)
    assert running() == 3
    give_back(one, first, "resting")
    assert running() == 2
    with PostgresRun(yard.folder / first.id, yard.database).own():
        assert running() == 3
    assert running() == 2
    yard.make_late(two)
    yard.make_steady(watcher)
    yard.beat(watcher)
    assert running() == 1
    yard.rows("SELECT bartack.leave(%s)", one.node.id)
    assert running() == 0
    assert yard.state(second.id) == yard.state(third.id) == "queued"


@pytest.mark.requirement("fleet-teams")
def test_nodes_that_claim_at_the_same_time_keep_the_limit_of_a_team(yard: Yard, upkeep: Upkeep) -> None:
    upkeep.set_team("slow", 3)
    for _ in range(12):
        yard.submit(team="slow")
    fleets = [yard.node(f"node-{number}") for number in range(4)]
    taken: list[Taken] = []
    begin = threading.Barrier(len(fleets))

    def claim(fleet: Fleet) -> None:
        begin.wait(5)
        for _ in range(3):
            taken.extend(fleet.claim(2))

    threads = [threading.Thread(target=claim, args=(fleet,)) for fleet in fleets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert len({run.id for run in taken}) == len(taken) == 3
    assert upkeep.problems() == []


def test_the_check_finds_a_counter_that_is_wrong_and_a_new_limit_counts_again(
    yard: Yard, upkeep: Upkeep
) -> None:
    upkeep.set_team("slow", 2)
    yard.submit(team="slow")
    yard.node().claim(1)
    yard.rows("UPDATE bartack.team SET running = 7 WHERE name = 'slow'")

    assert upkeep.problems() == ["the team 'slow' counts 7 running runs, and has 1"]
    upkeep.set_team("slow", 5)
    assert upkeep.problems() == []


@pytest.mark.requirement("fleet-keys")
def test_a_key_that_a_team_knows_makes_no_second_run(yard: Yard, upkeep: Upkeep) -> None:
    upkeep.set_team("other", None)
    known = yard.submit(key="nightly")

    with pytest.raises(KeyKnownError) as caught:
        yard.submit(key="nightly")

    assert caught.value.run == known
    assert yard.submit(key="nightly", team="other") != known, "a key belongs to a team"
    assert yard.rows("SELECT count(*) FROM bartack.run") == [(2,)]


@pytest.mark.requirement("fleet-keys")
def test_a_run_for_nodes_is_queued_or_not_made(yard: Yard, upkeep: Upkeep) -> None:
    run = PostgresRun(yard.folder / "run-20260101-000000-0000000a", yard.database)
    run.path.mkdir()
    run.key, run.queueing = "nightly", Queueing("gpu", priority=1000)

    with pytest.raises(DepotError):
        run.create((), program=bytes(10_240))
    assert yard.rows("SELECT count(*) FROM bartack.run") == [(0,)]

    run.queueing = Queueing("gpu", priority=10)
    run.create((), program=bytes(10_240))
    assert yard.state(run.id) == "queued"


@pytest.mark.requirement("fleet-keys")
def test_a_submission_is_finished_once_and_only_where_that_is_missing(yard: Yard, upkeep: Upkeep) -> None:
    run_id = yard.submit(key="nightly")
    assert not yard.team.finish_submission(run_id, Queueing("gpu")), "it is queued"
    unqueued = "UPDATE bartack.owner SET state = 'resting', pool = NULL"
    yard.rows(unqueued)
    assert wait_of(upkeep, run_id).text == (
        f"no node was given it; give it to them: bartack resume {run_id} --on DATABASE"
    )

    with PostgresRun(yard.folder / run_id, yard.database).own():
        assert not yard.team.finish_submission(run_id, Queueing("gpu")), "a process owns it"
    assert yard.team.finish_submission(run_id, Queueing("gpu", 5))

    assert not yard.team.finish_submission(run_id, Queueing("other"))
    assert yard.rows("SELECT state, pool, priority FROM bartack.owner") == [("queued", "gpu", 5)]


# What keeps a run waiting.


@pytest.mark.requirement("fleet-no-node")
def test_what_no_node_has_is_named_after_a_minute(yard: Yard, upkeep: Upkeep) -> None:
    elsewhere, needy = yard.submit(pool="gpu"), yard.submit(needs=("os:linux", "license"))
    split = yard.submit(needs=("os:linux", "os:darwin"))
    yard.node("one", labels=("os:linux",))
    yard.node("two", labels=("os:darwin",))

    assert wait_of(upkeep, elsewhere).problem is None, "a node may be about to start"
    yard.rows("UPDATE bartack.owner SET queued = queued - interval '61 s'")

    problems = [wait_of(upkeep, run_id).problem for run_id in (elsewhere, needy, split)]
    assert [isinstance(one, NoNodeError) for one in problems] == [True] * 3
    assert [one.problem for one in problems if isinstance(one, NoNodeError)] == [
        "no node takes runs of pool 'gpu'",
        "no node of pool 'default' has the label 'license'",
        "no node of pool 'default' has 'os:linux' and 'os:darwin' together",
    ]


def test_a_node_that_has_just_left_is_not_missed_yet(yard: Yard, upkeep: Upkeep) -> None:
    run_id = yard.submit()
    yard.rows("UPDATE bartack.owner SET queued = queued - interval '1 hour'")
    fleet = yard.node()
    yard.rows("SELECT bartack.leave(%s)", fleet.node.id)

    assert wait_of(upkeep, run_id).problem is None
    yard.rows("UPDATE bartack.node SET until = until - interval '3 minutes'")
    assert isinstance(wait_of(upkeep, run_id).problem, NoNodeError)


# Versions side by side.


@pytest.mark.requirement("fleet-upgrade")
def test_runs_go_from_old_nodes_to_new_ones_and_never_back(yard: Yard, upkeep: Upkeep) -> None:
    first, second = yard.submit(), yard.submit()
    old, new = yard.node("old"), yard.node("new", reads=2)
    mine = old.claim(1)

    assert [run.id for run in mine] == [first]
    give_back(old, mine[0], "queued")
    taken = new.claim(1)
    assert [run.id for run in taken] == [first], "a new node continues a run of an old one"
    give_back(new, taken[0], "queued")
    assert [run.id for run in old.claim(10)] == [second], "the other one has been with a new node"
    assert wait_of(upkeep, first).text == "queued: it waits for a free node"
    yard.rows("SELECT bartack.leave(%s)", new.node.id)
    assert "is of the version that has continued it" in wait_of(upkeep, first).text
    with (
        pytest.raises(DepotSchemaError, match="a newer version") as caught,
        PostgresRun(yard.folder / first, yard.database).own(),
    ):
        pass
    assert "or a newer one" in caught.value.remedy


# Migrations.


def no_value(ref: BlobRef) -> bytes:
    """Nothing here has large values."""
    raise AssertionError(ref)


@pytest.mark.requirement("fleet-migration")
def test_a_migration_under_load_loses_nothing(tmp_path: Path) -> None:
    with Database(database_of_version(2)) as database, database.session() as session:
        ((run,),) = session.rows("SELECT bartack.submit('run-1', 'default', 1, 1, '\\x0a', NULL)")
        ((node,),) = session.rows("SELECT bartack.join_node('n', %s, 'boot', '0', 0, 60)", uuid4())
        ((fence,),) = session.rows("SELECT fence FROM bartack.claim_run(%s, %s, 30)", node, run)
        ((joined,),) = session.rows("SELECT joined FROM bartack.node WHERE id = %s", node)
        courier = Courier(database, Identity(node, joined))
        outcomes: list[BartackError | None] = []
        ends = threading.Event()

        def append() -> None:
            while not ends.is_set():
                seq, done = len(outcomes) + 2, threading.Event()

                def note(error: BartackError | None, done: threading.Event = done) -> None:
                    outcomes.append(error)
                    done.set()

                commit = Commit(seq, seq, fence, seq, b"{}\n")
                kept = Kept(run, "run-1", tmp_path, commit, no_value)
                courier.send(Parcel(kept, note))
                assert done.wait(30)

        writer = threading.Thread(target=append)
        writer.start()
        until(lambda: len(outcomes) > 20, "the first appends")
        assert migrate(database) == (2, len(MIGRATIONS))
        before = len(outcomes)
        until(lambda: len(outcomes) > before + 20, "appends after the migration")
        ends.set()
        writer.join(30)
        courier.close()

        assert {*outcomes} == {None}
        assert session.rows("SELECT count(*), max(last) FROM bartack.journal WHERE run = %s", run) == [
            (len(outcomes) + 1, len(outcomes) + 1)
        ]


@pytest.mark.requirement("fleet-migration")
def test_a_migration_that_removes_something_waits_for_older_nodes_and_names_them(
    yard: Yard, upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch
) -> None:
    alpha = yard.node("alpha")
    removing = len(MIGRATIONS) + 1
    monkeypatch.setattr(_schema, "VERSION", removing)
    monkeypatch.setattr(_schema, "WORKS_FROM", {**_schema.WORKS_FROM, removing: removing})
    monkeypatch.setattr(_schema, "read_migration", {removing: "DROP FUNCTION bartack.report"}.get)
    asked: list[Sequence[str]] = []

    def older(names: Sequence[str]) -> None:
        asked.append(names)
        if len(asked) == 2:
            yard.rows("SELECT bartack.leave(%s)", alpha.node.id)

    with pytest.raises(DepotSchemaError, match="alpha"):
        upkeep.migrate()
    assert upkeep.migrate(older) == (removing - 1, removing)

    assert asked == [[f"alpha (version {__version__})"]] * 2


def test_a_node_ends_when_the_tables_become_those_of_a_version_that_it_does_not_know(yard: Yard) -> None:
    fleet = yard.node()
    assert Chore("partition") in do_chores(yard, fleet)

    yard.rows("INSERT INTO bartack.level (version, works_from) VALUES (99, 99)")

    with pytest.raises(DepotSchemaError, match="newer version"):
        do_chores(yard, fleet)


# A restored backup.


@pytest.mark.requirement("fleet-restored")
def test_after_a_restored_backup_nothing_continues_by_itself_and_no_owner_of_before_writes(
    yard: Yard, upkeep: Upkeep, tmp_path: Path
) -> None:
    owned, queued, ended = yard.submit(), yard.submit(), yard.submit()
    fleet = yard.node("before")
    mine, second, third = fleet.claim(3)
    give_back(fleet, second, "queued")
    give_back(fleet, third, "over")
    with pytest.raises(DepotError, match="before"):
        upkeep.restored()
    yard.make_late(fleet)

    assert upkeep.restored() == 2

    assert [yard.state(run_id) for run_id in (owned, queued, ended)] == ["held", "held", "over"]
    held = wait_of(upkeep, owned).problem
    assert isinstance(held, RunHeldError)
    assert held.reason == "the database was restored from a backup"
    assert "bartack resume" in held.remedy
    outcomes: list[BartackError | None] = []
    fleet.take(mine, tmp_path / owned, Commit(2, 2, mine.fence, 1, b"{}\n"), outcomes.append)
    until(lambda: bool(outcomes), "the outcome of the append")
    assert isinstance(outcomes[0], JournalOwnershipLostError)
    assert yard.node("after").claim(10) == []
    yard.team.enqueue(owned)
    (again,) = yard.node("later").claim(10)
    assert again.fence > mine.fence + 1000


# Chores and retention.


@pytest.mark.requirement("fleet-chores")
def test_each_chore_that_is_due_is_done_once_by_one_of_the_nodes(yard: Yard) -> None:
    fleets = [yard.node(f"node-{number}") for number in range(3)]
    done = [chore for fleet in fleets for chore in do_chores(yard, fleet)]

    names = "content", "journals", "nodes", "objects", "partition", "removed", "requests"
    assert sorted(done) == [Chore(name) for name in names]


@pytest.mark.requirement("fleet-chores")
def test_the_next_partition_is_there_before_its_first_run(yard: Yard) -> None:
    yard.submit()
    fleet = yard.node()
    do_chores(yard, fleet)

    assert yard.rows("SELECT to_regclass('bartack.journal_1') IS NOT NULL") == [(True,)]
    yard.rows("SELECT setval(pg_get_serial_sequence('bartack.run', 'no'), 100000)")
    run_id = yard.submit()
    (taken,) = [run for run in fleet.claim(10) if run.id == run_id]
    assert yard.rows("SELECT run FROM bartack.journal_1") == [(taken.no,)]


@pytest.mark.requirement("fleet-chores")
def test_content_that_no_run_holds_is_removed_after_a_day(yard: Yard) -> None:
    run_id = yard.submit()
    for digest in ("11", "22"):
        yard.rows(
            "INSERT INTO bartack.content (team, sha256, size, touched) VALUES ('default', decode(repeat(%s, 32), 'hex'), 1, "
            "clock_timestamp() - make_interval(hours => %s))",
            digest,
            25 if digest == "11" else 1,
        )
    yard.rows(
        "UPDATE bartack.content c SET touched = touched - interval '2 days' FROM bartack.blob b WHERE b.sha256 = c.sha256"
    )

    do_chores(yard, yard.node())

    left = {
        bytes(str(row[0]), "ascii")[:2]
        for row in yard.rows("SELECT encode(sha256, 'hex') FROM bartack.content")
    }
    assert b"11" not in left
    assert b"22" in left
    assert PostgresRun(yard.folder / run_id, yard.database).load_program() is not None, "a run holds it"


@pytest.mark.requirement("fleet-chores")
def test_one_statement_removes_no_more_content_than_it_has_time_for(yard: Yard) -> None:
    for digest, mebibytes in (("11", 200), ("22", 100), ("33", 600), ("44", 1)):
        yard.rows(
            "INSERT INTO bartack.content (team, sha256, size, touched) VALUES ('default', decode(repeat(%s, 32), 'hex'), %s, "
            "clock_timestamp() - interval '25 hours')",
            digest,
            mebibytes * 2**20,
        )
    kept: list[list[str]] = []
    has_more = True

    while has_more:
        ((found,),) = yard.rows("SELECT bartack.drop_content(100)")
        has_more = bool(found)
        rows = yard.rows("SELECT left(encode(sha256, 'hex'), 2) FROM bartack.content ORDER BY sha256")
        kept.append([str(row[0]) for row in rows])

    assert kept == [["33", "44"], ["44"], []]


@pytest.mark.requirement("fleet-chores")
@pytest.mark.parametrize("fault", ["PERFORM pg_sleep(60)", "RAISE EXCEPTION 'it is full'"])
def test_a_chore_that_fails_or_takes_too_long_is_noted_and_the_others_are_done(
    yard: Yard, fault: str
) -> None:
    yard.rows("UPDATE bartack.chore SET due = clock_timestamp() - interval '1 hour' WHERE name = 'content'")
    with yard.database.shared.use() as connection:
        connection.execute(
            "CREATE OR REPLACE FUNCTION bartack.drop_content(most int) RETURNS bool LANGUAGE plpgsql AS "
            f"$$ BEGIN {fault}; RETURN true; END $$".encode()
        )
    fleet = yard.node()

    first, *others = do_due(yard.database.shared, fleet.node.id, limit_ms=500)

    assert first.name == "content"
    assert "statement timeout" in first.problem or first.problem == "it is full"
    assert Chore("partition") in others
    assert Upkeep(yard.team).problems() == [f"the chore 'content' failed: {first.problem}"]
    assert do_chores(yard, fleet) == [], "it is tried again at its next time"


@pytest.mark.requirement("fleet-chores")
def test_nodes_that_ended_long_ago_are_forgotten(yard: Yard) -> None:
    old, late, fleet = yard.node("old"), yard.node("late"), yard.node()
    for one in (old, late):
        yard.rows("SELECT bartack.leave(%s)", one.node.id)
    yard.rows("UPDATE bartack.node SET until = until - interval '8 days' WHERE id = %s", old.node.id)

    do_chores(yard, fleet)

    assert yard.rows("SELECT name FROM bartack.node ORDER BY name") == [("late",), ("one",)]


@pytest.mark.requirement("fleet-retention")
def test_a_partition_whose_runs_are_all_deleted_is_dropped(yard: Yard, upkeep: Upkeep) -> None:
    first = yard.submit()
    yard.rows("SELECT setval(pg_get_serial_sequence('bartack.run', 'no'), 200000)")
    last = yard.submit()
    fleet = yard.node()

    do_chores(yard, fleet)
    assert yard.rows("SELECT to_regclass('bartack.journal_0') IS NOT NULL") == [(True,)], "it has a run"
    assert upkeep.remove([first, "run-of-nobody"]) == {first, "run-of-nobody"}
    yard.rows("UPDATE bartack.chore SET due = clock_timestamp()")
    do_chores(yard, fleet)

    assert yard.rows("SELECT to_regclass('bartack.journal_0') IS NOT NULL") == [(False,)]
    assert [run.id for run in fleet.claim(10)] == [last]
    assert yard.submit() != last


@pytest.mark.requirement("fleet-retention")
def test_a_journal_of_any_length_is_deleted_in_pieces_which_others_continue(
    yard: Yard, upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, other = yard.submit(), yard.submit()
    ((run,),) = yard.rows("SELECT no FROM bartack.run WHERE id = %s", run_id)
    statement = "INSERT INTO bartack.journal SELECT %s, n, n, 1, 0, '\\x0a' FROM generate_series(2, 12000) n"
    with yard.database.shared.use() as connection:
        connection.execute(statement.encode(), (run,))
    kept = "SELECT count(*) FROM bartack.journal WHERE run = %s"
    pieces: list[object] = []

    def drop_one_piece(session: Session) -> None:
        pieces.append(session.rows("SELECT bartack.drop_journal()"))

    monkeypatch.setattr(upkeep_module, "drop_journals", drop_one_piece)

    assert upkeep.remove([run_id]) == {run_id}
    assert yard.rows(kept, run) == [(7_000,)], "one piece is gone"
    assert yard.rows("SELECT id FROM bartack.run") == [(other,)], "the run is gone"
    monkeypatch.undo()
    assert upkeep.remove([run_id]) == {run_id}, "the first answer may have been lost"
    assert yard.rows(kept, run) == [(0,)]
    assert yard.rows("SELECT count(*) FROM bartack.removed") == [(0,)]
    assert yard.rows("SELECT count(*) FROM bartack.journal") == [(1,)], "that of the other run"


@pytest.mark.requirement("fleet-retention")
def test_a_node_deletes_what_an_interrupted_command_has_left_of_a_journal(yard: Yard) -> None:
    run_id = yard.submit()
    yard.rows("SELECT bartack.remove(no) FROM bartack.run WHERE id = %s", run_id)
    fleet = yard.node()
    assert yard.rows("SELECT count(*) FROM bartack.journal") == [(1,)]

    for _ in range(2):
        yard.rows("UPDATE bartack.chore SET due = clock_timestamp() WHERE name = 'removed'")
        assert Chore("removed") in do_chores(yard, fleet)

    assert yard.rows("SELECT count(*) FROM bartack.journal") == [(0,)]
    assert yard.rows("SELECT count(*) FROM bartack.removed") == [(0,)]


@pytest.mark.requirement("fleet-retention")
def test_a_run_that_is_owned_is_not_deleted(yard: Yard, upkeep: Upkeep) -> None:
    run_id = yard.submit()
    yard.node().claim(1)

    assert upkeep.remove([run_id]) == set()
    assert yard.state(run_id) == "owned"


def test_the_activity_of_a_database_is_shown(yard: Yard, upkeep: Upkeep, tmp_path: Path) -> None:
    yard.submit()
    yard.rows("UPDATE bartack.owner SET queued = queued - interval '10 s'")
    fleet = yard.node(pools=("none",))
    do_chores(yard, fleet)
    yard.rows("UPDATE bartack.node SET beat_us = 2500, appends = 30, statements = 10")

    found = upkeep.activity()

    assert (found.queued, found.beat_ms, found.appends_per_statement) == (1, 2.5, 3.0)
    assert found.queue_age_s >= 10
