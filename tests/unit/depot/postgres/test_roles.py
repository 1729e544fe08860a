"""The roles of a database on real connections: what each of them sees and does, and what it cannot whatever it sends."""

# ruff: noqa: S608 - statements are put together from names in this file

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest
from tests.history import check_history, rows_of
from tests.postgres import new_database
from tests.unit.depot.postgres.history import append, claim, commit_after

from bartack.depot.elsewhere import Elsewhere
from bartack.depot.fleet import Fleet
from bartack.depot.placed import PlacedRun
from bartack.depot.postgres import _schema
from bartack.depot.postgres._content import upload
from bartack.depot.postgres._database import Database, Session
from bartack.depot.postgres._run import PostgresRun
from bartack.depot.postgres._schema import has_roles, migrate
from bartack.depot.taken import FleetFacts
from bartack.depot.team import Team
from bartack.depot.upkeep import Upkeep
from bartack.errors import DepotError, DepotRefusedError, JournalOwnershipLostError, NoNodeError
from bartack.journal import BlobRef, Draft
from bartack.supervision.process.lease import LeasePage

INTERNAL = {
    "count_running",
    "drop_content",
    "drop_partitions",
    "restored",
    "set_team",
    "stamp_owner",
    "bury",
    "bury_late",
    "guard_node",
    "guard_of_run",
    "guard_owner",
    "guard_run",
    "guard_team",
    "has_requests",
    "make_partition",
    "note_owner",
    "owns",
    "refuse",
    "team_to_keep_for",
}
"""Functions that only other functions call, or the owner."""
LOGINS = {
    "red_user": "bartack_user, red",
    "blue_user": "bartack_user, blue",
    "red_node": "bartack_node, red",
    "other_red_node": "bartack_node, red",
    "blue_node": "bartack_node, blue",
    "red_reader": "bartack_reader, red",
}


class Place(NamedTuple):
    """A database with roles, and a session of each login."""

    database: Database
    logins: dict[str, Database]

    def __call__(self, login: str) -> Session:
        return self.logins[login].shared

    @property
    def admin(self) -> Session:
        return self.database.shared

    def submit(self, login: str, team: str, run_id: str = "", text: str = "first") -> int:
        first = commit_after(0, 0, 1, text)
        run_id = run_id or f"run-20260101-000000-{uuid4().hex[:8]}"
        statement = "SELECT bartack.submit(%s, %s, %s, %s, %s, NULL)"
        ((run,),) = self(login).rows(statement, run_id, team, first.last, first.crc, first.lines)
        return int(run)

    def join(self, login: str, seat: str = "", boot: str = "boot", lease_s: float = 600.0) -> int:
        """Join as a node of one run."""
        statement = "SELECT bartack.join_node('node', %s, %s, 'test', 0, %s)"
        ((node,),) = self(login).rows(statement, seat or str(uuid4()), boot, lease_s)
        return int(node)

    def join_fleet(self, login: str, pool: str) -> int:
        """Join as a node that takes runs of a pool."""
        statement = "SELECT bartack.join_fleet('node', %s, 'boot', 'test', 1, 600, %s, '{}')"
        ((node,),) = self(login).rows(statement, uuid4(), [pool])
        return int(node)

    def owned(self, login: str, team: str) -> tuple[int, int]:
        """A run of a team that a login owns: its number and its fence."""
        run = self.submit(f"{team}_user", team)
        outcome, fence = claim(self(login), self.join(login), run)
        assert outcome == "claimed"
        return run, fence


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    url = new_database()
    with ExitStack() as stack:
        database = stack.enter_context(Database(url))
        migrate(database, roles=True)
        for team in ("red", "blue"):
            database.shared.rows(f"CREATE ROLE {team} NOLOGIN")
            database.shared.rows(f"INSERT INTO bartack.team (name) VALUES ('{team}')")
        logins: dict[str, Database] = {}
        for name, groups in LOGINS.items():
            database.shared.rows(f"CREATE ROLE {name} LOGIN")
            database.shared.rows(f"GRANT {groups} TO {name}")
            logins[name] = stack.enter_context(Database(url.replace("bartack@", f"{name}@")))
        yield Place(database, logins)


def tables(place: Place) -> list[tuple[str, str]]:
    """The tables, each with its first column."""
    statement = (
        "SELECT 'bartack.' || c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = 1 "
        "WHERE c.relnamespace = 'bartack'::regnamespace AND c.relkind IN ('r', 'p')"
    )
    return [(table, column) for table, column in place.admin.rows(statement)]


# What is there.


def test_every_function_is_for_a_role_or_only_for_other_functions(place: Place) -> None:
    statement = "SELECT proname, prosecdef, proacl::text, proconfig FROM pg_proc WHERE pronamespace = 'bartack'::regnamespace"
    for name, is_definer, rights, settings in place.admin.rows(statement):
        granted = re.findall(r"(\w*)=X", rights)

        assert is_definer, name
        assert "" not in granted, f"everybody may call {name}"
        assert (granted == ["bartack_owner"]) == (name in INTERNAL), (
            f"say in rights.sql who may call {name}, or here that it is internal"
        )
        assert settings == ["search_path=pg_catalog, pg_temp"] or name == "append"


def test_every_table_with_a_team_or_a_run_shows_each_role_its_own(place: Place) -> None:
    statement = (
        "SELECT c.relname, c.relrowsecurity, EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = c.oid "
        "AND a.attname IN ('run', 'team')) FROM pg_class c WHERE c.relnamespace = 'bartack'::regnamespace "
        "AND c.relkind IN ('r', 'p') AND NOT c.relispartition"
    )
    found = {name: (has_policy, needs_one) for name, has_policy, needs_one in place.admin.rows(statement)}

    assert all(has_policy for has_policy, needs_one in found.values() if needs_one)
    assert found["team"][0]


def test_the_roles_are_made_once_and_kept_by_later_migrations(monkeypatch: pytest.MonkeyPatch) -> None:
    with Database(new_database()) as made:
        assert not has_roles(made.shared), "a database of one user has none"
        migrate(made)
        assert not has_roles(made.shared)
        migrate(made, roles=True)
        migrate(made, roles=True)
        more = "CREATE TABLE bartack.more (run bigint); CREATE FUNCTION bartack.more() RETURNS int LANGUAGE sql AS 'SELECT 1';"

        def read_more(number: int) -> str:
            return more

        monkeypatch.setattr(_schema, "MIGRATIONS", (*_schema.MIGRATIONS, "more"))
        monkeypatch.setattr(_schema, "VERSION", _schema.VERSION + 1)
        monkeypatch.setattr(_schema, "WORKS_FROM", {**_schema.WORKS_FROM, _schema.VERSION: 1})
        monkeypatch.setattr(_schema, "read_migration", read_more)

        migrate(made)

        assert made.shared.rows(
            "SELECT relrowsecurity, pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'bartack.more'::regclass"
        ) == [(True, "bartack_owner")]
        assert made.shared.rows("SELECT prosecdef FROM pg_proc WHERE proname = 'more'") == [(True,)]


# Tables.


@pytest.mark.requirement("database-roles")
@pytest.mark.parametrize("login", ["red_reader", "red_node", "red_user"])
def test_no_role_writes_a_table(place: Place, login: str) -> None:
    place.owned("red_node", "red")
    for table, column in tables(place):
        for statement in (
            f"INSERT INTO {table} ({column}) VALUES (DEFAULT)",
            f"UPDATE {table} SET {column} = DEFAULT",
            f"DELETE FROM {table}",
            f"TRUNCATE {table}",
            f"DO 'BEGIN LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE; END'",
            f"SELECT 1 FROM {table} FOR UPDATE",
            f"DROP TABLE {table}",
            f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY",
        ):
            with pytest.raises(DepotRefusedError):
                place(login).rows(statement)
    with pytest.raises(DepotRefusedError):
        place(login).rows("CREATE TABLE bartack.mine (x int)")


def test_a_reader_calls_nothing_that_changes_anything(place: Place) -> None:
    run, fence = place.owned("red_node", "red")
    reader = place("red_reader")
    for call in (
        "bartack.submit('run-20260101-000000-0000beef', 'red', 1, 1, 'x', NULL)",
        "bartack.join_node('n', gen_random_uuid(), 'b', 'v', 0, 5)",
        "bartack.join_fleet('n', gen_random_uuid(), 'b', 'v', 1, 5, '{}', '{}')",
        f"bartack.enqueue({run}, 'default', 0, NULL)",
        f"bartack.remove({run})",
        f"bartack.release({run}, {fence}, 'resting', '')",
        f"bartack.keep_content({run}, {fence}, '', 0)",
        "bartack.drain('node')",
        "bartack.bury('{1}', '')",
        "bartack.make_partition(0)",
    ):
        with pytest.raises(DepotRefusedError):
            reader.rows(f"SELECT {call}")


# Teams.


@pytest.mark.requirement("database-teams")
def test_a_user_sees_nothing_of_another_team(place: Place) -> None:
    run, fence = place.owned("red_node", "red")
    place("red_node").rows("SELECT bartack.keep_content(%s, %s, sha256('x'), 1)", run, fence)
    place("red_node").rows("SELECT bartack.keep_part(%s, %s, sha256('x'), 0, 'x')", run, fence)
    for table, column in (
        ("run", "no"),
        ("owner", "run"),
        ("journal", "run"),
        ("blob", "run"),
    ):
        statement = f"SELECT count(*) > 0 FROM bartack.{table} WHERE {column} = %s"
        assert place("red_user").rows(statement, run) == [(True,)], table
        assert place("red_reader").rows(statement, run) == [(True,)], table
        assert place("blue_user").rows(statement, run) == [(False,)], table
    for table in ("content", "part"):
        assert place("red_reader").rows(f"SELECT count(*) FROM bartack.{table}") == [(1,)]
        assert place("blue_user").rows(f"SELECT count(*) FROM bartack.{table}") == [(0,)]
    assert place("blue_user").rows("SELECT name FROM bartack.team ORDER BY 1") == [("blue",), ("default",)]
    with pytest.raises(DepotRefusedError):
        place("blue_user").rows("SELECT count(*) FROM bartack.journal_0")
    assert place("blue_user").rows(
        "SELECT owner_fence, fence, last, ends FROM bartack.look(%s, '{1}')", [run]
    ) == [(-1, None, None, 0)]


@pytest.mark.requirement("database-teams")
def test_a_user_changes_and_asks_nothing_of_another_team(place: Place) -> None:
    run = place.submit("red_user", "red")
    blue = place("blue_user")
    before = place.admin.rows("SELECT * FROM bartack.owner WHERE run = %s", run)

    for statement in (
        "SELECT bartack.enqueue(%s, 'default', 0, NULL)",
        "SELECT bartack.remove(%s)",
        f"SELECT bartack.claim_run({place.join('blue_user')}, %s, 0)",
    ):
        with pytest.raises(DepotRefusedError):
            blue.rows(statement, run)
    with pytest.raises(DepotRefusedError):
        place.submit("blue_user", "red")
    assert blue.rows("SELECT bartack.keep_content(%s, 1, sha256('y'), 1)", run) == [("lost",)]
    assert blue.rows("SELECT bartack.keep_part(%s, 1, sha256('y'), 0, 'y')", run) == [(False,)]
    assert blue.rows("SELECT bartack.keep_program(%s, 1, sha256('y'), 1)", run) == [(False,)]
    assert blue.rows("SELECT bartack.adopt(%s, 1, 9, 1, 2, 3, 'line', NULL)", run) == [(None,)]
    assert place.admin.rows("SELECT * FROM bartack.owner WHERE run = %s", run) == before
    assert len(rows_of(place.admin, run)) == 1


def test_the_team_of_everybody_is_shared_and_who_has_submitted_is_not_a_matter_of_words(place: Place) -> None:
    run = place.submit("red_user", "default")

    assert place("blue_user").rows("SELECT submitted_by FROM bartack.run WHERE no = %s", run) == [
        ("red_user",)
    ]


@pytest.mark.requirement("database-teams")
def test_an_object_is_kept_for_a_team_by_its_members_and_deleted_by_nodes(place: Place) -> None:
    key, other = "0" * 32, "1" * 32
    begin, keep = (
        "SELECT bartack.begin_object(%s, sha256('object'), %s)",
        "SELECT bartack.keep_object(%s, sha256('object'), 1, %s)",
    )
    for statement in (begin, keep):
        for login in ("blue_user", "blue_node", "red_reader"):
            with pytest.raises(DepotRefusedError):
                place(login).rows(statement, "red", key)
    with pytest.raises(DepotRefusedError):
        place("red_node").rows(begin, "red", "../secrets")
    assert place("red_node").rows(begin, "red", key) == [("send",)]
    assert place("red_user").rows(begin, "red", other) == [("send",)]
    assert place("blue_user").rows("SELECT count(*) FROM bartack.orphan") == [(0,)]
    assert place("red_node").rows(keep, "red", key) == [("kept",)]
    assert place("red_user").rows(begin, "red", other) == [("kept",)]

    place.admin.rows("UPDATE bartack.orphan SET since = since - interval '25 hours'")
    for statement in ("SELECT bartack.take_orphans(1, 9)", "SELECT bartack.drop_orphans('{}')"):
        with pytest.raises(DepotRefusedError):
            place("red_user").rows(statement)
    mine, others = place.join_fleet("blue_node", "blue"), place.join_fleet("red_node", "red")
    assert place("blue_node").rows("SELECT bartack.take_orphans(%s, 9)", others) == []
    place("blue_node").rows("SELECT bartack.drop_orphans(%s)", [other])
    assert place.admin.rows("SELECT key FROM bartack.orphan") == [(other,)], "it was not taken"
    assert place("blue_node").rows("SELECT bartack.take_orphans(%s, 9)", mine) == [(other,)]
    place("blue_node").rows("SELECT bartack.drop_orphans(%s)", [other])
    assert place.admin.rows("SELECT key FROM bartack.orphan") == []


@pytest.mark.requirement("database-teams")
def test_the_same_content_is_kept_once_for_each_team(place: Place) -> None:
    digest = BlobRef("5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5", 5)
    for team in ("red", "blue"):
        run, fence = place.owned(f"{team}_node", team)
        with place(f"{team}_node").use() as connection:
            upload(connection, "run", run, fence, [digest], lambda _: b"12345")

    count = "SELECT team FROM bartack.content WHERE size = 5 ORDER BY 1"
    assert place.admin.rows(count) == [("blue",), ("red",)]


@pytest.mark.requirement("database-teams")
def test_a_schedule_is_changed_and_started_by_its_team_only(place: Place) -> None:
    add = "SELECT bartack.add_schedule(%s, %s, '', '', '{}', 'default', 0, '{}', true, '', '', NULL, clock_timestamp())"
    with pytest.raises(DepotRefusedError):
        place("blue_user").rows(add, "nightly", "red")
    assert place("red_user").rows(add, "nightly", "red") == [(True,)]

    assert place("blue_user").rows("SELECT name FROM bartack.schedule") == []
    assert place("blue_user").rows("SELECT bartack.remove_schedule('nightly')") == [(False,)]
    assert place("blue_node").rows("SELECT name FROM bartack.take_schedule('{}')") == []
    place("blue_node").rows("SELECT bartack.note_schedule('nightly', NULL, 'stolen', '')")
    assert place("red_node").rows("SELECT name, problem FROM bartack.take_schedule('{}')") == [
        ("nightly", "")
    ]
    assert place("red_user").rows("SELECT bartack.remove_schedule('nightly')") == [(True,)]


@pytest.mark.requirement("database-teams")
def test_what_a_schedule_keeps_is_kept_for_its_team_only(place: Place) -> None:
    for call in ("keep_value('red', sha256('mine'), 4)", "keep_value_part('red', sha256('mine'), 0, 'mine')"):
        with pytest.raises(DepotRefusedError):
            place("blue_user").rows(f"SELECT bartack.{call}")
        place("red_user").rows(f"SELECT bartack.{call}")

    assert place.admin.rows("SELECT team FROM bartack.part WHERE bytes = 'mine'") == [("red",)]


@pytest.mark.requirement("database-teams")
def test_a_request_comes_from_the_team_and_is_settled_by_the_owner_only(place: Place) -> None:
    run, fence = place.owned("red_node", "red")
    request = uuid4()
    ask = "SELECT state FROM bartack.ask(%s, %s, 'answer', '', NULL, '', 0, NULL)"
    with pytest.raises(DepotRefusedError):
        place("blue_user").rows(ask, request, run)
    assert place("red_user").rows(ask, request, run) == [("open",)]

    settle = "SELECT bartack.settle(%s, %s, %s, 'done', 'forged')"
    assert place("blue_user").rows("SELECT 1 FROM bartack.request") == []
    for login in ("blue_user", "red_user", "other_red_node"):
        assert place(login).rows(settle, request, run, fence) == [(False,)], login
    place("blue_user").rows("SELECT bartack.withdraw(%s)", request)
    assert place("red_node").rows(settle, request, run, fence) == [(True,)]
    assert place("red_user").rows("SELECT state, asked_by FROM bartack.request WHERE id = %s", request) == [
        ("done", "red_user")
    ]


# Nodes.


@pytest.mark.requirement("database-roles")
def test_a_node_does_nothing_as_the_node_of_another_role(place: Place) -> None:
    run, fence = place.owned("red_node", "red")
    ((node,),) = place.admin.rows("SELECT node FROM bartack.owner WHERE run = %s", run)
    crc = rows_of(place.admin, run)[-1].crc
    free = place.submit("red_user", "red")
    thief = place("other_red_node")
    commit = commit_after(1, crc, fence, "stolen")

    assert append(thief, run, commit) == ["lost"]
    assert thief.rows("SELECT bartack.keep_content(%s, %s, sha256('z'), 1)", run, fence) == [("lost",)]
    for call in (
        f"bartack.beat({node})",
        f"bartack.beat_fleet({node})",
        f"bartack.leave({node})",
        f"bartack.claim_run({node}, {free}, 0)",
        f"bartack.release({run}, {fence}, 'resting', '')",
        f"bartack.give_back({run}, {fence}, 'held', 0, 'because', 3, false)",
        f"bartack.alive({run}, {fence})",
        f"bartack.mark({run}, {fence}, 'x', 9)",
        f"bartack.accept_loss({run}, {fence}, 0)",
        f"bartack.keep_program({run}, {fence}, sha256('z'), 1)",
    ):
        outcome: object = None
        try:
            outcome = thief.rows(f"SELECT {call}")
        except DepotRefusedError:
            continue
        assert outcome == [(False,)], call
    assert place.admin.rows("SELECT state FROM bartack.node WHERE id = %s", node) == [("live",)]
    assert place.admin.rows("SELECT state, fence, alive FROM bartack.owner WHERE run = %s", run) == [
        ("owned", fence, False)
    ]
    owner = place("red_node")
    assert append(owner, run, commit_after(1, crc, fence, "mine")) == ["written"]
    assert owner.rows("SELECT bartack.mark(%s, %s, 'x', 2)", run, fence) == [(True,)]
    assert owner.rows("SELECT bartack.accept_loss(%s, %s, 1)", run, fence) == [(True,)]
    assert owner.rows("SELECT at_least FROM bartack.run WHERE no = %s", run) == [(1,)]


def test_whoever_knows_the_seat_of_a_node_does_not_end_it(place: Place) -> None:
    seat = str(uuid4())
    first = place.join("red_node", seat)
    place.join("other_red_node", seat)

    assert place.admin.rows("SELECT state FROM bartack.node WHERE id = %s", first) == [("live",)]
    place.join("red_node", seat)
    assert place.admin.rows("SELECT state FROM bartack.node WHERE id = %s", first) == [("dead",)]


def test_any_node_buries_one_that_is_late_and_a_team_of_others_is_no_obstacle(place: Place) -> None:
    run, fence = place.owned("red_node", "red")
    ((node,),) = place.admin.rows("SELECT node FROM bartack.owner WHERE run = %s", run)
    with pytest.raises(DepotRefusedError):
        place("red_node").rows("SELECT bartack.bury(%s, 'because')", [node])
    witness = place.join_fleet("blue_node", "blue")
    place.admin.rows("UPDATE bartack.node SET until = until - interval '1 hour' WHERE id = %s", node)
    place.admin.rows("UPDATE bartack.node SET steady = steady - interval '1 hour' WHERE id = %s", witness)
    place.admin.rows("INSERT INTO bartack.awake VALUES (clock_timestamp() - interval '1 hour')")

    place("blue_node").rows("SELECT bartack.beat_fleet(%s)", witness)

    assert place.admin.rows("SELECT state, fence FROM bartack.owner WHERE run = %s", run) == [
        ("resting", fence + 1)
    ]


@pytest.mark.requirement("database-teams")
def test_a_node_takes_only_runs_of_its_teams_and_others_do_not_keep_them_from_it(place: Place) -> None:
    blue = [place.submit("blue_user", "blue") for _ in range(3)]
    red = place.submit("red_user", "red")
    for run in (*blue, red):
        login = "red_user" if run == red else "blue_user"
        place(login).rows("SELECT bartack.enqueue(%s, 'shared', 0, NULL)", run)
    node = place.join_fleet("red_node", "shared")

    claimed = place("red_node").rows("SELECT run FROM bartack.claim(%s, 1)", node)

    assert claimed == [(red,)]
    assert place("red_node").rows("SELECT run FROM bartack.claim(%s, 9)", node) == []
    with pytest.raises(DepotRefusedError):
        place("red_node").rows("SELECT outcome FROM bartack.claim_run(%s, %s, 0)", node, blue[0])


@pytest.mark.requirement("fleet-no-node")
@pytest.mark.parametrize("has_role", [True, False])
def test_a_run_whose_team_no_node_serves_names_the_team_and_what_to_grant(
    place: Place, monkeypatch: pytest.MonkeyPatch, has_role: bool
) -> None:
    pool, team = ("of-red", "blue") if has_role else ("of-red-alone", "green")
    run_id = f"run-20260101-000000-{uuid4().hex[:8]}"
    if not has_role:
        place.admin.rows("INSERT INTO bartack.team (name) VALUES ('green')")
        monkeypatch.setitem(place.logins, "green_user", place.database)
    run = place.submit(f"{team}_user", team, run_id)
    place(f"{team}_user").rows("SELECT bartack.enqueue(%s, %s, 0, NULL)", run, pool)
    place.join_fleet("red_node", pool)
    place.admin.rows("UPDATE bartack.owner SET queued = queued - interval '61 s' WHERE run = %s", run)
    seen = Team(Elsewhere(url_of(place, "bartack")))

    wait = Upkeep(seen).wait_of(run_id)

    assert wait is not None
    assert wait.text == f"queued: no role of a node of pool '{pool}' is a member of the team '{team}'"
    assert isinstance(wait.problem, NoNodeError)
    assert f"GRANT {team} TO red_node" in wait.problem.remedy
    assert ("CREATE ROLE green; " in wait.problem.remedy) is not has_role
    found = seen.queue_place(run_id)
    assert found is not None
    assert not found.has_nodes
    if has_role:
        place.join_fleet("blue_node", pool)
        served = Upkeep(Team(Elsewhere(url_of(place, "blue_user")))).wait_of(run_id)
        assert served is not None
        assert served.text == "queued: it waits for a free node"
    place.admin.rows("DELETE FROM bartack.run WHERE no = %s", run)
    place.admin.rows("DELETE FROM bartack.team WHERE name = 'green'")


def test_a_node_is_drained_by_members_of_its_role_only(place: Place) -> None:
    statement = "SELECT bartack.join_fleet('drained', gen_random_uuid(), 'b', 'v', 1, 600, '{}', '{}')"
    place("red_node").rows(statement)

    with pytest.raises(DepotRefusedError):
        place("red_user").rows("SELECT bartack.drain('drained')")
    assert place("red_node").rows("SELECT bartack.drain('drained')") == [(1,)]


# Values and programs.


@pytest.mark.requirement("database-values-are-fenced")
def test_a_lost_owner_keeps_no_large_value_and_no_program(place: Place) -> None:
    run, fence = place.owned("red_node", "red")
    place("red_node").rows("SELECT bartack.release(%s, %s, 'resting', '')", run, fence)
    ref = BlobRef("ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb", 1)

    with place("red_node").use() as connection, pytest.raises(JournalOwnershipLostError):
        upload(connection, "run", run, fence, [ref], lambda _: b"a")
    assert place("red_node").rows(
        "SELECT bartack.keep_program(%s, %s, %s, 1)", run, fence, bytes.fromhex(ref.sha256)
    ) == [(False,)]
    assert place.admin.rows("SELECT 1 FROM bartack.blob WHERE run = %s", run) == []


def test_nothing_is_added_to_a_value_that_is_complete(place: Place) -> None:
    run, fence = place.owned("red_node", "red")
    ref = BlobRef("ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb", 1)
    with place("red_node").use() as connection:
        upload(connection, "run", run, fence, [ref], lambda _: b"a")

    part = partial(
        place("red_node").rows,
        "SELECT bartack.keep_part(%s, %s, %s, %s, %s)",
        run,
        fence,
        bytes.fromhex(ref.sha256),
    )
    assert part(1, b"b") == [(False,)]
    assert part(-1, b"b") == [(False,)]
    with pytest.raises(DepotError, match="duplicate"):
        part(0, b"b")


# What callers put in the way of functions.


@pytest.mark.requirement("database-names-are-names")
def test_tables_types_and_operators_of_a_caller_change_nothing(place: Place) -> None:
    run, fence = place.owned("red_node", "red")
    crc = rows_of(place.admin, run)[-1].crc
    place.admin.rows("CREATE SCHEMA trap")
    place.admin.rows("GRANT ALL ON SCHEMA trap TO PUBLIC")
    with place.logins["other_red_node"].session() as thief:
        for statement in (
            "CREATE TEMP TABLE pg_roles AS SELECT 'blue'::name AS rolname, oid FROM pg_roles WHERE rolname = 'red'",
            "CREATE FUNCTION trap.always(int, int) RETURNS bool LANGUAGE sql AS 'SELECT true'",
            "CREATE FUNCTION trap.always(text, name) RETURNS bool LANGUAGE sql AS 'SELECT true'",
            "CREATE FUNCTION trap.unnest(anyarray) RETURNS SETOF anyelement LANGUAGE sql AS 'SELECT pg_catalog.unnest($1)'",
            "CREATE OPERATOR trap.= (LEFTARG = int, RIGHTARG = int, FUNCTION = trap.always)",
            "CREATE OPERATOR trap.= (LEFTARG = text, RIGHTARG = name, FUNCTION = trap.always)",
            "SET search_path = trap, pg_temp, pg_catalog",
        ):
            thief.rows(statement)
        assert thief.rows("SELECT 1 = 2, 'a'::text = 'b'::name") == [(True, True)], "the trap is set"

        assert thief.rows("SELECT bartack.my_teams()") in (
            [(["default", "red"],)],
            [(["red", "default"],)],
        )
        assert append(thief, run, commit_after(1, crc, fence, "stolen")) == ["lost"]
    with place.logins["red_node"].session() as lost:
        lost.rows("SET search_path = trap, pg_catalog")
        assert append(lost, run, commit_after(1, crc, 77, "guessed")) == ["lost"], "also for its own role"
    check_history(rows_of(place.admin, run))
    place.admin.rows("DROP SCHEMA trap CASCADE")


NAMES = ["'; DROP TABLE bartack.run; --", '"quoted"', "new\nline", "%s %(x)s", "\\", "a,b}{", "ⓝ", "$$", "*"]


@pytest.mark.requirement("database-names-are-names")
@pytest.mark.parametrize("name", NAMES)
def test_names_are_only_names(place: Place, name: str) -> None:
    red = place("red_node")
    user = place("red_user")
    run = place.submit("red_user", "red")
    user.rows("SELECT bartack.enqueue(%s, %s, 0, %s)", run, name, [name])
    statement = "SELECT bartack.join_fleet(%s, gen_random_uuid(), %s, %s, 1, 600, %s, %s)"
    ((node,),) = red.rows(statement, name, name, name, [name], [name])

    assert red.rows("SELECT run, team FROM bartack.claim(%s, 1)", node) == [(run, "red")]
    for team, run_id in ((name, ""), ("red", name)):
        with pytest.raises(DepotError):
            place.submit("red_user", team, run_id)
    assert red.rows("SELECT bartack.drain(%s)", name) == [(1,)]
    assert place.admin.rows("SELECT bartack.remove(%s)", run) == [(False,)], "it is owned"


def test_a_name_with_a_nul_is_an_error_with_a_code(place: Place) -> None:
    with pytest.raises(DepotError):
        place.submit("red_user", "red", "a\0b")


def test_the_name_of_a_team_is_the_whole_name_of_a_role(place: Place) -> None:
    for name in ("red" + " ", "RED", "pg_read_all_data", "x" * 64, 'red"'):
        place.admin.rows("INSERT INTO bartack.team (name) VALUES (%s)", name)
        with pytest.raises(DepotRefusedError):
            place.submit("red_user", name)
    place.admin.rows("CREATE ROLE " + "x" * 63)
    place.admin.rows("GRANT " + "x" * 63 + " TO red_user")
    with pytest.raises(DepotRefusedError):
        place.submit("red_user", "x" * 64)
    place.admin.rows("DROP ROLE " + "x" * 63)
    place.admin.rows("DELETE FROM bartack.team WHERE name NOT IN ('default', 'red', 'blue')")


@pytest.mark.requirement("database-names-are-names")
def test_channels_of_notifications_are_made_of_numbers_only(place: Place) -> None:
    rows = place.admin.rows("SELECT prosrc FROM pg_proc WHERE pronamespace = 'bartack'::regnamespace")
    channels = [found for row in rows for found in re.findall(r"pg_notify\(([^;]*?),[^,;]*\)", row[0])]

    assert channels
    for channel in channels:
        assert re.fullmatch(r"'bartack_[a-z]+'|'bartack_[a-z]+_' \|\| [A-Za-z_.]+(::text)?", channel), channel


# Whole runs.


def url_of(place: Place, login: str) -> str:
    ((name, folder),) = place.admin.rows(
        "SELECT current_database(), current_setting('unix_socket_directories')"
    )
    return f"postgresql://{login}@/{name}?host={folder}"


def test_a_user_submits_moves_and_removes_runs_and_a_node_runs_them(place: Place, tmp_path: Path) -> None:
    user = Team(Elsewhere(url_of(place, "red_user")))
    directory = tmp_path / "run-20260101-000000-000000aa"
    (directory / "program").mkdir(parents=True)
    (directory / "program" / "main.py").write_bytes(b"pass\n")
    files = PlacedRun(directory)
    files.create([[Draft("test", {"text": "first"}, value=b'"%b"' % (b"x" * 100_000))]])
    user.move_in(files)
    user.enqueue(directory.name, "whole")
    page, lease = LeasePage.create()
    seat = tmp_path / "seat"
    seat.mkdir()
    facts = FleetFacts("node", seat, "boot", 1, ("whole",), (), 60.0)
    with Database(url_of(place, "red_node")) as database, Fleet(database, facts, page, lambda: None) as fleet:
        (taken,) = fleet.claim(1)
        path = fleet.prepare(taken, tmp_path / "runs")
        assert (path / "program" / "main.py").read_bytes() == b"pass\n"
        assert fleet.call(taken, "program", [PlacedRun(path).pack()]) is True
        fleet.call(taken, "alive", [])
        assert fleet.give_back(taken, "resting", 0, "", 0) == "resting"
    os.close(lease)
    reader = Team(Elsewhere(url_of(place, "red_reader")))
    assert directory.name in reader.ids()
    assert reader.verify(directory.name).ok
    assert reader.stats().runs >= 1
    with pytest.raises(DepotRefusedError):
        PostgresRun(tmp_path / "seen" / directory.name, reader.database).forget()

    home = user.move_out(directory.name, tmp_path / "home")

    assert PlacedRun(home).exists()
    assert directory.name not in reader.ids()


# Requests.


@pytest.mark.requirement("people-answer-permissions")
def test_no_role_of_a_node_asks_anything_of_a_run(place: Place) -> None:
    run, _ = place.owned("red_node", "red")
    statement = "SELECT state FROM bartack.ask(%s, %s, %s, '{\"question\":\"q1\"}', '\"allow\"', '', 1, 60)"
    for login in ("red_node", "other_red_node", "red_reader"):
        for asks in ("answer", "cancel", "fail", "send"):
            with pytest.raises(DepotRefusedError):
                place(login).rows(statement, uuid4(), run, asks)
        with pytest.raises(DepotRefusedError):
            place(login).rows(
                "INSERT INTO bartack.request (id, run, asks, args, asked_by) VALUES (%s, %s, 'answer', '{}', 'red_user')",
                uuid4(),
                run,
            )
    assert place.admin.rows("SELECT count(*) FROM bartack.request WHERE run = %s", run) == [(0,)]

    assert place("red_user").rows(statement, uuid4(), run, "answer") == [("open",)]
    assert place.admin.rows("SELECT asked_by FROM bartack.request WHERE run = %s", run) == [("red_user",)]
