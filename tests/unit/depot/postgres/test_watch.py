"""Readers of a run in a database: notified at once, and after a second if the notification is lost."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from tests.descriptors import high_descriptors
from tests.unit.depot.yard import Yard, append
from tests.waiting import until

from bartack.depot.postgres._database import Database
from bartack.depot.postgres._listen import Announcer, Listener
from bartack.depot.postgres._run import PostgresRun
from bartack.depot.postgres._watch import LOOK_S


def change(yard: Yard) -> None:
    yard.rows("UPDATE bartack.run SET marked = marked + 1")


def number(yard: Yard) -> int:
    ((found,),) = yard.rows("SELECT no FROM bartack.run")
    assert isinstance(found, int)
    return found


@pytest.mark.requirement("fleet-following")
def test_a_lost_notification_costs_a_reader_a_second_at_most(yard: Yard) -> None:
    run = PostgresRun(yard.folder / yard.submit(), yard.database)
    with run.watch() as watch:
        change(yard)  # nothing notifies of it

        began = time.monotonic()
        assert watch.wait(5)
        assert time.monotonic() - began < LOOK_S + 0.5


@pytest.mark.requirement("fleet-following")
def test_a_reader_is_notified_between_two_looks(yard: Yard) -> None:
    run = PostgresRun(yard.folder / yard.submit(), yard.database)
    with run.watch() as watch:
        assert not watch.wait(0)
        change(yard)
        assert not watch.wait(0), "it does not look yet"
        yard.rows("SELECT pg_notify('bartack_run_' || %s::bigint, '')", number(yard))

        began = time.monotonic()
        assert watch.wait(5)
        assert time.monotonic() - began < LOOK_S / 2


def test_a_watch_continues_on_a_new_connection(yard: Yard) -> None:
    run = PostgresRun(yard.folder / yard.submit(), yard.database)
    with run.watch() as watch:
        yard.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        change(yard)

        until(lambda: watch.wait(1), "the change")


def test_readers_are_notified_of_watched_runs_only_and_not_of_each_change(yard: Yard) -> None:
    heard: list[str] = []
    listens = threading.Event()

    def hear(channel: str, text: str) -> None:
        heard.append(channel)
        listens.set()

    with (
        Listener(yard.database, ["bartack_run_1", "bartack_run_2"], hear),
        Announcer(yard.database) as announcer,
    ):
        assert listens.wait(5)
        heard.clear()
        announcer.watch(1)
        began = time.monotonic()
        changes = 0
        while time.monotonic() - began < 0.5:
            announcer.changed(1)
            announcer.changed(2)
            changes += 1
        until(lambda: len(heard) >= 3, "the notifications")

        assert set(heard) == {"bartack_run_1"}
        assert len(heard) <= 10 * (time.monotonic() - began) + 2 < changes


@pytest.mark.requirement("node-many-runs")
def test_notifications_come_in_a_process_with_many_descriptors(yard: Yard) -> None:
    heard: list[str] = []
    run = PostgresRun(yard.folder / yard.submit(), yard.database)
    with (
        high_descriptors(),
        Database(yard.team.where.on) as database,
        Listener(database, ["bartack_many"], lambda channel, text: heard.append(channel)),
        PostgresRun(run.path, database).watch() as watch,
    ):
        until(lambda: heard == [""], "the listener")
        yard.rows("SELECT pg_notify('bartack_many', '')")
        until(lambda: heard == ["", "bartack_many"], "the notification")
        change(yard)
        until(lambda: watch.wait(1), "the change")


def test_a_node_notifies_readers_of_the_commits_of_its_runs(yard: Yard, tmp_path: Path) -> None:
    run_id = yard.submit()
    fleet = yard.node()
    (taken,) = fleet.claim(1)
    with PostgresRun(yard.folder / run_id, yard.database).watch() as watch:
        until(lambda: bool(fleet._announcer._watched), "the node to know of the reader")
        while watch.wait(0.2):
            pass  # what has come before
        assert append(fleet, taken, tmp_path / run_id) is None

        began = time.monotonic()
        assert watch.wait(5)
        assert time.monotonic() - began < LOOK_S / 2


def test_an_idle_node_is_woken_by_a_run_that_is_submitted(yard: Yard) -> None:
    woken = threading.Event()
    fleet = yard.node()
    fleet._wake = woken.set
    listens = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%%'"
    until(lambda: bool(yard.rows(listens)), "the node to listen")
    woken.clear()

    yard.submit()

    assert woken.wait(5)
