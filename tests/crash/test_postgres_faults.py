"""Appends to a run in a database whose connection is cut, whose backends are killed, and whose server loses its power."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import pytest
from tests.history import check_history, rows_of
from tests.postgres import Cluster, own_cluster

from bartack.depot.postgres._database import Database
from bartack.depot.postgres._run import PostgresRun
from bartack.errors import DepotUnavailableError
from bartack.journal import Draft
from bartack.testing import Cable

LARGE = 100 * 1024
APPENDS = 120
KILLS = 9
POWER_CUTS = 3


class Place(NamedTuple):
    """A server of its own, and the way to it."""

    cluster: Cluster
    cable: Cable
    direct: Database
    through: Database


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with own_cluster() as cluster, Cable(str(cluster.place / ".s.PGSQL.5432")) as cable:
        url = f"postgresql://bartack@127.0.0.1:{cable.port}/postgres"
        with Database(cluster.url()) as direct, Database(url) as through:
            yield Place(cluster, cable, direct, through)


def make_run(place: Place, folder: Path, name: str) -> PostgresRun:
    run = PostgresRun(folder / f"run-20260101-000000-{name:0>8}", place.through, lease_s=60.0)
    PostgresRun(run.path, place.direct).create(())
    return run


def append_through(run: PostgresRun, dice: random.Random, fault: Callable[[int], None]) -> list[str]:
    """Append entries, some with large values, while things fail; returns what was acknowledged."""
    acknowledged: list[str] = []
    with run.open_journal() as journal:
        for number in range(APPENDS):
            fault(number)
            texts = [f"{number}.{part}" for part in range(dice.choice((1, 1, 3)))]
            value = b'"%b"' % (b"%d " % number * LARGE)[:LARGE] if dice.random() < 0.1 else None
            for text in texts:
                journal.stage(Draft("test", {"text": text}, value))
            journal.commit()
            acknowledged += texts
    return acknowledged


def check_kept(place: Place, run: PostgresRun, acknowledged: list[str], folder: Path) -> None:
    """What is in the database is what was acknowledged, in order and once; and so is what another machine reads."""
    ((number,),) = place.direct.shared.rows("SELECT no FROM bartack.run WHERE id = %s", run.id)
    check_history(rows_of(place.direct.shared, number))
    (folder / "other").mkdir()
    with PostgresRun(folder / "other" / run.id, place.direct).open_reader() as reader:
        entries = [entry for entry in reader.read() if entry.kind == "test"]
        assert [entry.data["text"] for entry in entries] == acknowledged
        for entry in entries:
            value = reader.load_value(entry)
            assert value is None or len(value) == LARGE + 2
    mirrored = (run.path / "journal.ndjson").read_bytes()
    assert mirrored == b"".join(row.lines for row in rows_of(place.direct.shared, number))


@pytest.mark.parametrize("seed", range(2))
def test_nothing_acknowledged_is_lost_or_doubled_when_connections_are_cut(
    place: Place, tmp_path: Path, seed: int, record_property: Callable[[str, object], None]
) -> None:
    dice = random.Random(seed)
    run = make_run(place, tmp_path, f"c{seed}")
    before = place.cable.cuts
    others: list[str] = []

    def fault(number: int) -> None:
        match dice.choice(("before", "after", "now", "end", "fine")):
            case "before":
                place.cable.cut_next("before")
            case "after":
                place.cable.cut_next("after")
            case "now":
                others.append("cut")
                place.cable.cut()
            case "end":
                others.append("ended")
                place.direct.shared.rows(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND usename = 'bartack'"
                )
            case _:
                pass

    acknowledged = append_through(run, dice, fault)

    check_kept(place, run, acknowledged, tmp_path)
    assert place.cable.cuts - before >= 40
    record_property("database_faults", place.cable.cuts - before + len(others))


def test_nothing_acknowledged_is_lost_or_doubled_when_the_server_is_killed(
    place: Place, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    dice = random.Random(7)
    run = make_run(place, tmp_path, "d")
    faults = dict.fromkeys(dice.sample(range(APPENDS), KILLS + POWER_CUTS), "kill")
    faults.update(dict.fromkeys([*faults][:POWER_CUTS], "power"))
    at_work: list[Thread] = []

    def fault(number: int) -> None:
        kind = faults.get(number)
        if kind == "kill":
            kill_backend(place.direct, dice)
        elif kind == "power":
            for thread in at_work:
                thread.join()
            at_work[:] = [Thread(target=restart, args=(place.cluster,))]
            at_work[0].start()

    acknowledged = append_through(run, dice, fault)
    for thread in at_work:
        thread.join()

    check_kept(place, run, acknowledged, tmp_path)
    record_property("database_faults", len(faults))


def kill_backend(database: Database, dice: random.Random) -> None:
    """``kill -9`` of a process of the server; the server then ends all others and recovers."""
    with suppress(DepotUnavailableError):
        found = database.shared.rows(
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' ORDER BY pid"
        )
        os.kill(dice.choice(found)[0], signal.SIGKILL)


def restart(cluster: Cluster) -> None:
    cluster.stop("immediate")
    cluster.start()
