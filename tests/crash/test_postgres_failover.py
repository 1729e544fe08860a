"""A standby takes over from a primary that was killed: with synchronous replication nothing is lost, without it owners heal it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

import pytest
from tests.history import check_history, rows_of
from tests.postgres import Cluster, own_cluster, standby_of
from tests.waiting import until

from bartack.depot.postgres._database import Database
from bartack.depot.postgres._run import PostgresRun
from bartack.journal import Draft
from bartack.telemetry import Telemetry
from bartack.testing import Cable

APPENDS = 60
KILLED_AT = 40
HELD_BACK = 12


class Pair:
    """A primary, a standby, and the way of the write-ahead log between them."""

    def __init__(self, stack: ExitStack) -> None:
        self.primary = stack.enter_context(own_cluster(synced=False))
        socket = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bartack-wal-")))
        os.chmod(socket, 0o755)  # noqa: S103 - the servers run as another user
        self.cable = stack.enter_context(
            Cable(str(self.primary.place / ".s.PGSQL.5432"), str(socket / ".s.PGSQL.5432"))
        )
        os.chmod(socket / ".s.PGSQL.5432", 0o777)  # noqa: S103 - likewise
        self.standby: Cluster = stack.enter_context(standby_of(socket))
        hosts = f"{self.primary.place},{self.standby.place}"
        self.url = f"postgresql://bartack@/postgres?host={hosts}"
        self.lead = stack.enter_context(Database(self.primary.url()))

    def make_synchronous(self) -> None:
        self.lead.shared.rows("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.lead.shared.rows("SELECT pg_reload_conf()")
        until(lambda: self._replication("SELECT sync_state = 'sync'"), "the synchronous standby")

    def catch_up(self) -> None:
        """Wait until the standby has everything."""
        until(
            lambda: self._replication("SELECT replay_lsn = pg_current_wal_lsn()"), "the standby to catch up"
        )

    def hold_back(self) -> None:
        """From now on the standby gets nothing."""
        self.catch_up()
        self.cable.go_silent()

    def _replication(self, what: str) -> bool:
        return self.lead.shared.rows(f"{what} FROM pg_stat_replication") == [(True,)]

    def kill_primary(self) -> None:
        self.primary.kill()
        self.cable.cut()

    def fail_over(self) -> None:
        self.kill_primary()
        self.standby.promote()


@pytest.fixture
def pair() -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(stack)


def append_through(pair: Pair, run: PostgresRun, at: Mapping[int, Callable[[], None]]) -> list[int]:
    """Append entries, and do something at some of them; returns how many entries were sent again each time."""
    again: list[int] = []

    def note(name: str, counts: Mapping[str, int], facts: Mapping[str, object], config: object) -> None:
        again.append(counts["entries"])

    telemetry = Telemetry()
    telemetry.attach("again", "depot.rewound", note)
    at_work: list[Thread] = []
    with run.open_journal(telemetry=telemetry) as journal:
        for number in range(APPENDS):
            if number == KILLED_AT:
                pair.kill_primary()  # before the next append: only who has to connect again finds out what is missing
                at_work.append(Thread(target=pair.standby.promote))
                at_work[0].start()
            at.get(number, lambda: None)()
            journal.stage(Draft("test", {"text": str(number)}))
            journal.commit()
        at_work[0].join()
    return again


def check_kept(pair: Pair, run: PostgresRun) -> None:
    """The server that took over has what was acknowledged, in order and once, byte for byte as its owner."""
    with Database(pair.standby.url()) as database:
        kept = rows_of(database.shared, 1)
        check_history(kept)
        assert b"".join(row.lines for row in kept) == (run.path / "journal.ndjson").read_bytes()
        with PostgresRun(run.path, database).open_reader() as reader:
            texts = [entry.data["text"] for entry in reader.read() if entry.kind == "test"]
    assert texts == [str(number) for number in range(APPENDS)]


@pytest.mark.requirement("db-failover")
def test_nothing_is_lost_when_a_synchronous_standby_takes_over(
    pair: Pair, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    pair.make_synchronous()
    with Database(pair.url) as database:
        run = PostgresRun(tmp_path / "run-20260101-000000-00000001", database, lease_s=60.0)
        run.create(())
        again = append_through(pair, run, {})

    assert again == [], "the standby had everything that was acknowledged"
    check_kept(pair, run)
    record_property("database_faults", 1)


@pytest.mark.requirement("db-rewound")
def test_what_an_asynchronous_standby_lacks_is_sent_again_by_the_owner(
    pair: Pair, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with Database(pair.url) as database:
        run = PostgresRun(tmp_path / "run-20260101-000000-00000001", database, lease_s=60.0)
        run.create(())
        again = append_through(pair, run, {KILLED_AT - HELD_BACK: pair.hold_back})

    assert sum(again) >= HELD_BACK, "the standby lacked these"
    check_kept(pair, run)
    record_property("database_faults", 1)
