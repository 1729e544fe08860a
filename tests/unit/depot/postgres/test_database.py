"""How a database is named, which connections are refused, and what its refusals are called."""

from __future__ import annotations

import gc
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.postgres import cluster, new_database

from bartack.depot.postgres import _schema
from bartack.depot.postgres._database import Database, Session
from bartack.depot.postgres._schema import VERSION, check_version, migrate, version_of
from bartack.errors import (
    BartackError,
    DepotInsecureError,
    DepotRefusedError,
    DepotSchemaError,
    DepotUnavailableError,
    UsageError,
)

SECRET = "pa55word"  # noqa: S105 - it is not one


@pytest.fixture(autouse=True)
def no_settings_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGHOST", "PGHOSTADDR", "PGSSLMODE", "PGSERVICE", "PGPASSWORD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PGSERVICEFILE", "/nowhere")


def empty_database(name: str) -> str:
    with Database(cluster().url()) as made:
        made.shared.rows(f"CREATE DATABASE {name}")
    return cluster().url(name)


@pytest.mark.parametrize(
    "where",
    [
        "",
        "nonsense",
        "team",
        "host=x dbname=y",
        "service:",
        "service:a b",
        "service:../x",
        "mysql://x/y",
        f"postgersql://user:{SECRET}@host/x",
        f"postgresql://user:{SECRET}%@host/x",
        f"postgresql://user:{SECRET}@host:port/x",
        f"postgresql://user:{SECRET}@[host/x",
        f"postgresql://user:{SECRET}@localhost/x",
        f"postgresql://localhost/x?password={SECRET}",
        f"postgresql://localhost/x?sslpassword={SECRET}",
        f"postgresql://localhost/x?p%61ssword={SECRET}",
        f"postgresql://:{SECRET}@localhost/x",
        f"postgresql://localhost/x?{SECRET}=1",
        f"postgresql://localhost/x?host=\ud800{SECRET}",
    ],
    ids=range(19),
)
def test_a_name_that_is_none_or_has_a_password_is_refused_and_not_repeated(where: str) -> None:
    with pytest.raises(UsageError) as refused:
        Database(where)

    assert SECRET not in str(refused.value) + repr(refused.value)


def test_a_refused_password_is_told_where_it_belongs() -> None:
    with pytest.raises(UsageError, match=r"PGPASSFILE.*service:NAME"):
        Database(f"postgresql://user:{SECRET}@localhost/x")


@pytest.mark.parametrize(
    "where",
    [
        "postgresql:///x",
        "postgresql://localhost/x",
        "postgresql://127.0.0.1:5433/x",
        "postgresql://127.8.9.10/x",
        "postgresql://[::1]/x",
        "postgresql://user@/x?host=/run/postgresql",
        "postgresql://%2Frun%2Fpostgresql/x",
        "postgresql://a.example,b.example/x?sslmode=verify-full",
        "postgresql://a.example/x?hostaddr=127.0.0.1",
        "service:team",
    ],
)
def test_a_connection_that_is_local_or_checked_is_allowed(where: str) -> None:
    Database(where)


@pytest.mark.parametrize(
    "where",
    [
        "postgresql://db.example/x",
        "postgresql://db.example/x?sslmode=require",
        "postgresql://db.example/x?sslmode=verify-ca",
        "postgresql://10.0.0.1/x",
        "postgresql://localhost,db.example/x",
        "postgresql://localhost/x?hostaddr=10.0.0.1",
        "postgresql://localhost/x?host=db.example",
        "postgresql://localhost.evil.example/x",
        "postgresql://db.example/x?service=team",
        "postgresql://[fe80::1]/x",
        "postgresql://localhost,db.example/x?hostaddr=127.0.0.1,",
        "postgresql://db.example,localhost/x?hostaddr=,127.0.0.1",
        "postgresql://127.0.0.1.evil.example/x",
        "postgresql://2130706433/x",
        "postgresql://db.example/x?sslmode=verify-full&sslmode=prefer",
    ],
)
def test_another_connection_is_refused_unless_that_is_said(where: str) -> None:
    with pytest.raises(DepotInsecureError):
        Database(where)
    Database(where, insecure=True)


SECTIONS = """\
# comment
[plain]
host=db.example
[checked]
host=db.example
sslmode=verify-full
[here]
host=/run/postgresql
[twice]
sslmode=prefer
sslmode=verify-full
hostaddr=10.0.0.1
[spaced]  x
  host=db.example
[ldap]
ldap://localhost/x
"""


@pytest.mark.parametrize(
    ("where", "allowed"),
    [
        ("service:plain", False),
        ("service:checked", True),
        ("service:here", True),
        ("service:twice", False),
        ("service:spaced", False),
        ("service:ldap", False),
        ("service:elsewhere", True),
        ("postgresql://localhost/x?service=plain", True),
        ("postgresql:///x?service=plain", False),
        ("postgresql:///x?service=plain&sslmode=verify-full", True),
        ("postgresql://db.example/x?service=checked", True),
        ("postgresql://localhost/x?service=twice", False),
    ],
)
@pytest.mark.requirement("database-connections-are-checked")
def test_a_service_is_held_to_the_same_rules(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str, allowed: bool
) -> None:
    (tmp_path / "services").write_text(SECTIONS, encoding="utf-8")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))

    if allowed:
        Database(where)
        return
    with pytest.raises(DepotInsecureError):
        Database(where)
    Database(where, insecure=True)


def test_a_service_of_the_environment_does_not_lead_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "pg_service.conf").write_text(SECTIONS, encoding="utf-8")
    monkeypatch.setenv("PGSYSCONFDIR", str(tmp_path))
    monkeypatch.setenv("PGSERVICE", "plain")

    with pytest.raises(DepotInsecureError):
        Database("postgresql:///x")
    Database("postgresql://localhost/x")


def test_the_name_of_a_database_is_no_second_connection_string() -> None:
    where = cluster().url("host%3D10.0.0.1%20user%3Dx")
    with Database(where) as made, pytest.raises(DepotUnavailableError, match=r'"host=10\.0\.0\.1 user=x"'):
        made.shared.rows("SELECT 1")


@pytest.mark.parametrize("name", ["PGHOST", "PGHOSTADDR"])
def test_the_environment_does_not_lead_to_an_unchecked_server(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "10.0.0.1")

    with pytest.raises(DepotInsecureError):
        Database("postgresql:///x")
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    Database("postgresql:///x")


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)

    with pytest.raises(UsageError, match=r"psycopg.*bartack\[postgres\]"):
        Database("postgresql:///x")


def test_a_database_without_tables_names_the_command_that_makes_them() -> None:
    with Database(empty_database("without_tables")) as made:
        with pytest.raises(DepotSchemaError) as refused:
            check_version(made.shared)
        assert "bartack db init" in refused.value.remedy
        assert version_of(made.shared) == 0
        assert migrate(made) == (0, _schema.VERSION)
        assert migrate(made) == (_schema.VERSION, _schema.VERSION)
        check_version(made.shared)


def test_two_that_prepare_a_database_at_once_prepare_it_once() -> None:
    url = empty_database("prepared_twice")

    def prepare(number: int) -> tuple[int, int]:
        with Database(url) as made:
            return migrate(made)

    with ThreadPoolExecutor(4) as pool:
        done = sorted(pool.map(prepare, range(4)))

    assert done == [(0, VERSION), *3 * [(VERSION, VERSION)]]


@pytest.mark.parametrize("version", [0, 99])
def test_tables_of_another_version_are_refused(version: int) -> None:
    with Database(new_database()) as made:
        made.shared.rows("DELETE FROM bartack.level")
        if version:
            made.shared.rows("INSERT INTO bartack.level VALUES (%s, %s)", version, version)
        with pytest.raises(DepotSchemaError):
            check_version(made.shared)


def test_a_server_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_schema, "OLDEST_SERVER", 990000)

    with Database(empty_database("too_old")) as made:
        with pytest.raises(DepotSchemaError, match="too old"):
            migrate(made)
        assert version_of(made.shared) == 0


def test_a_user_without_rights_is_told_so() -> None:
    url = new_database()
    with Database(url) as made:
        made.shared.rows("CREATE ROLE guest LOGIN")
    with Database(url.replace("bartack@", "guest@")) as guest:
        with pytest.raises(DepotRefusedError):
            check_version(guest.shared)
        with pytest.raises(DepotRefusedError):
            migrate(guest)
    with Database(url) as made:
        made.shared.rows("DROP ROLE guest")


@pytest.mark.parametrize("name", ["postgresql:///x?host=/nowhere", "missing", "service:missing"])
def test_a_database_that_cannot_be_reached_has_an_error_with_a_code(name: str) -> None:
    url = cluster().url("missing_database") if name == "missing" else name
    with Database(url) as made, pytest.raises(BartackError) as refused:
        made.shared.rows("SELECT 1")

    assert refused.value.code in {DepotUnavailableError.code, "BT214"}


def test_a_session_that_was_cut_connects_again() -> None:
    with Database(new_database()) as made, made.session() as session:
        ((pid,),) = session.rows("SELECT pg_backend_pid()")
        made.shared.rows("SELECT pg_terminate_backend(%s)", pid)

        assert session.rows("SELECT pg_backend_pid()") != [(pid,)]


def test_a_statement_that_writes_is_not_sent_twice() -> None:
    with Database(new_database()) as made, made.session() as session:
        ((pid,),) = session.rows("SELECT pg_backend_pid()")
        made.shared.rows("SELECT pg_terminate_backend(%s)", pid)

        with pytest.raises(DepotUnavailableError):
            session.rows("INSERT INTO bartack.team VALUES ('two')")
        assert isinstance(session, Session)
        assert session.rows("SELECT count(*) FROM bartack.team") == [(1,)]


def test_a_session_that_is_collected_in_a_cycle_closes_its_connection_first() -> None:
    database = Database(new_database())
    older = [database.connect()]  # what is older is collected first

    def connect(answer_s: float) -> object:
        return older.pop()

    vars(database)["connect"] = connect
    session = database.session()
    with session.use() as connection:
        vars(session)["cycle"] = vars(connection)["cycle"] = {"session": session, "connection": connection}

    with warnings.catch_warnings(record=True) as reported:
        warnings.simplefilter("always")
        del session, connection
        gc.collect()

    assert [str(one.message) for one in reported] == []
