"""``bartack doctor --on``: what it says of databases that are good, that lack something, and that are away."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest
from tests.postgres import cluster, empty_database, new_database, own_cluster, standby_of

from bartack.config.load import own_settings_file
from bartack.depot.postgres._database import Database
from bartack.depot.postgres._examine import Remark, _check_transactions, examine_database

Call = Callable[..., "subprocess.CompletedProcess[str]"]

CHECKS = [
    "server",
    "schema",
    "rights",
    "latency",
    "clock",
    "notifications",
    "durability",
    "transactions",
    "large values",
]


def remarks_of(url: str) -> dict[str, Remark]:
    """What is said of a database, by the name of the check."""
    with Database(url) as database:
        return {remark.check: remark for remark in examine_database(database)}


@pytest.mark.requirement("doctor-database")
def test_each_check_of_a_database_is_a_line(call: Call) -> None:
    shown = call("doctor", "--on", new_database(), "--json")

    assert shown.returncode == 0, shown.stdout
    findings = json.loads(shown.stdout)["findings"]
    assert [finding["check"] for finding in findings] == [*CHECKS, "node user"]
    judged = [finding for finding in findings if finding["check"] not in {"latency", "node user"}]
    assert {finding["level"] for finding in judged} == {"ok"}


def test_a_database_without_tables_and_one_that_is_away_fail(call: Call) -> None:
    empty = call("doctor", "--on", cluster().url(empty_database()))
    away = call("doctor", "--on", cluster().url("not_there"))

    assert (empty.returncode, away.returncode) == (1, 1)
    assert "bartack db init" in empty.stdout
    assert "not_there" in away.stdout


def test_a_user_without_rights_is_named_with_what_it_lacks() -> None:
    url = new_database()
    role = f"guest_{uuid4().hex}"
    with Database(url) as database:
        database.shared.rows(f"CREATE ROLE {role} LOGIN")
        database.shared.rows(f"GRANT USAGE ON SCHEMA bartack TO {role}")
        database.shared.rows(f"GRANT SELECT ON bartack.level TO {role}")
        database.shared.rows("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA bartack FROM PUBLIC")

    rights = remarks_of(url.replace("bartack@", f"{role}@"))["rights"]

    assert rights.level == "fail"
    assert role in rights.sentence
    assert "bartack.append" in rights.sentence


@pytest.mark.requirement("doctor-database")
def test_standbys_that_may_lack_entries_are_a_warning() -> None:
    with ExitStack() as stack:
        primary = stack.enter_context(own_cluster(synced=False))
        assert remarks_of(primary.url())["durability"].level == "ok"
        standby = stack.enter_context(standby_of(primary.place))
        durability = remarks_of(primary.url())["durability"]

        assert durability.level == "warn"
        assert "1 standby" in durability.sentence
        assert "synchronous_standby_names" in durability.remedy
        alone = remarks_of(f"{standby.url()}&target_session_attrs=any")
        assert alone["server"].level == "fail"
        assert "standby" in alone["server"].sentence


def test_the_clock_of_the_machine_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    url = new_database()
    monkeypatch.setattr("bartack.depot.postgres._examine.time.time", lambda: 0.0)

    assert remarks_of(url)["clock"].level == "warn"


def test_nothing_is_left_in_the_database() -> None:
    url = new_database()
    before = _counts(url)

    remarks_of(url)

    assert _counts(url) == before


def _counts(url: str) -> list[tuple[object, ...]]:
    with Database(url) as database:
        return database.shared.rows(
            "SELECT (SELECT count(*) FROM bartack.node), (SELECT count(*) FROM bartack.run), "
            "(SELECT count(*) FROM pg_class WHERE relnamespace = 'bartack'::regnamespace)"
        )


@pytest.mark.requirement("doctor-warns-of-node-credentials")
def test_a_node_that_shares_its_user_with_its_runs_is_a_warning(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passwords = tmp_path / "passwords"
    passwords.touch(0o600)
    monkeypatch.setenv("PGPASSFILE", str(passwords))

    without = _node_user(call)
    monkeypatch.setenv("BARTACK_ON", "service:team")
    by_default = _node_user(call)
    own_settings_file().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    own_settings_file().write_text("[node]\nrun_as = 'no-such-user'\n", encoding="utf-8")
    wrong = _node_user(call)

    assert without is None
    assert by_default is not None
    assert wrong is not None
    assert (by_default["level"], wrong["level"]) == ("warn", "fail")
    assert str(passwords) in by_default["sentence"]
    assert "--run-as" in by_default["remedy"]


@pytest.mark.requirement("doctor-warns-of-node-credentials")
@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can give runs another user: that it is enough was NOT tried"
)
def test_a_node_that_gives_its_runs_another_user_is_fine(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARTACK_ON", "service:team")
    own_settings_file().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    own_settings_file().write_text("[node]\nrun_as = 'nobody'\n", encoding="utf-8")

    found = _node_user(call)

    assert found is not None
    assert (found["level"], "nobody" in found["sentence"]) == ("ok", True)


def _node_user(call: Call) -> dict[str, str] | None:
    """What the doctor says of nodes, without a database to check."""
    findings = json.loads(call("doctor", "--json").stdout)["findings"]
    return next((finding for finding in findings if finding["check"] == "node user"), None)


@pytest.mark.requirement("hidden-transactions-are-named")
def test_a_transaction_that_this_role_does_not_see_is_not_called_fine(call: Call) -> None:
    url = new_database()
    with Database(url) as owner:
        role = f"guest_{uuid4().hex}"
        owner.shared.rows(f"CREATE ROLE {role} LOGIN")
        owner.shared.rows(f"GRANT USAGE ON SCHEMA bartack TO {role}")
        owner.shared.rows(f"GRANT SELECT ON ALL TABLES IN SCHEMA bartack TO {role}")
        seen_by = url.replace("bartack@", f"{role}@")
        with Database(seen_by) as restricted:
            owner.shared.drop()
            assert "not visible for this role" in _check_transactions(restricted.shared).sentence
        with owner.session() as session, session.use() as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.execute("SELECT count(*) FROM bartack.run")

            with Database(seen_by) as restricted:
                remark = _check_transactions(restricted.shared)
            stats = json.loads(call("db", "stats", "--on", seen_by, "--json").stdout)
            shown = call("db", "stats", "--on", seen_by).stdout
            own = json.loads(call("db", "stats", "--on", url, "--json").stdout)

    assert remark.level == "warn"
    assert "1 of other roles are open" in remark.sentence
    assert "pg_read_all_stats" in remark.remedy
    assert (stats["sees_all_transactions"], stats["hidden_transactions"]) == (False, 1)
    assert "1 of other roles are open, for how long is not visible for this role" in shown
    assert (own["sees_all_transactions"], own["hidden_transactions"]) == (True, 0)
    assert own["oldest_transaction_s"] > 0
