"""What keeping runs in PostgreSQL costs, against what the database itself needs for a row that is synced.

Run with ``python -m bench.depot [--json] [--quick] [--rounds N] [--check]``. The server is started by the benchmark itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from bench._harness import OURS, Bench, Contestant, Race, main
from bench._mailbox_peers import prepare_postgres, serve_postgres
from bench._report import Goal
from bench._runner import Sample

if TYPE_CHECKING:
    from psycopg import Connection

RUNS: Final = 64
LINE: Final = (
    b'{"seq":1,"c":1,"at":1795000000000000,"kind":"step.finished","data":{"p":"main"},"crc":"00000000"}\n'
)
PROGRAM: Final = """
from time import perf_counter

from bartack import Context, step, worker


@step
def note() -> str:
    return "noted"


@worker
async def main(ctx: Context, count: int) -> float:
    began = perf_counter()
    for _ in range(count):
        await note()
    return count / (perf_counter() - began)
"""


@contextmanager
def database(directory: str) -> Generator[tuple[str, Connection[Any]]]:
    """A database with the tables of Bartack and one of the benchmark; yields its name and a connection."""
    import psycopg  # noqa: PLC0415 - only the process of a contestant has to have it

    from bartack.depot.postgres._database import Database  # noqa: PLC0415 - likewise
    from bartack.depot.postgres._schema import migrate  # noqa: PLC0415 - likewise

    with serve_postgres(directory) as room:
        url = f"postgresql://bench@/postgres?host={room}"
        migrate(Database(url))
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS raw (run bigint, seq bigint, lines bytea, PRIMARY KEY (run, seq))"
            )
            connection.execute("TRUNCATE raw")
            yield url, connection


def owned_runs(connection: Connection[Any], count: int) -> list[tuple[int, int]]:
    """New runs that a node owns: number and fence of each."""
    node = _value(connection, "SELECT bartack.join_node('bench', %s, 'boot', '0', 0, 3600)", (uuid4(),))
    found: list[tuple[int, int]] = []
    for _ in range(count):
        run = _value(
            connection, "SELECT bartack.submit(%s, 'default', 1, 0, %s, NULL)", (f"run-{uuid4()}", LINE)
        )
        fence = _value(connection, "SELECT fence FROM bartack.claim_run(%s, %s, 0)", (node, run))
        found.append((run, fence))
    return found


def _value(connection: Connection[Any], statement: str, values: tuple[object, ...]) -> int:
    row = connection.execute(statement.encode(), values).fetchone()
    assert row is not None
    return int(row[0])


def append_in_turn(directory: str, size: int) -> Sample:
    """Appends per second of one run, each with its answer before the next."""
    with database(directory) as (_, connection):
        ((run, fence),) = owned_runs(connection, 1)
        began = perf_counter()
        for seq in range(2, size + 2):
            connection.execute(
                "SELECT run, outcome FROM bartack.append(%s, %s, %s, %s, %s, %s)",
                ([run], [fence], [seq], [seq], [seq], [LINE]),
                binary=True,
            ).fetchall()
        return Sample(value=size / (perf_counter() - began))


def insert_in_turn(directory: str, size: int) -> Sample:
    """Rows per second of plain inserts, each committed before the next."""
    with database(directory) as (_, connection):
        began = perf_counter()
        for seq in range(size):
            connection.execute("INSERT INTO raw VALUES (1, %s, %s)", (seq, LINE))
        return Sample(value=size / (perf_counter() - began))


def append_together(directory: str, size: int) -> Sample:
    """Appends per second of many runs by one statement."""
    with database(directory) as (_, connection):
        runs = owned_runs(connection, RUNS)
        numbers, fences = [run for run, _ in runs], [fence for _, fence in runs]
        began = perf_counter()
        for seq in range(2, size // RUNS + 2):
            places = [seq] * RUNS
            connection.execute(
                "SELECT run, outcome FROM bartack.append(%s, %s, %s, %s, %s, %s)",
                (numbers, fences, places, places, places, [LINE] * RUNS),
                binary=True,
            ).fetchall()
        return Sample(value=(size // RUNS) * RUNS / (perf_counter() - began))


def insert_together(directory: str, size: int) -> Sample:
    """Rows per second of plain inserts, pipelined, many in a transaction."""
    with database(directory) as (_, connection):
        began = perf_counter()
        for seq in range(size // RUNS):
            with connection.pipeline(), connection.transaction():
                for run in range(RUNS):
                    connection.execute("INSERT INTO raw VALUES (%s, %s, %s)", (run, seq, LINE))
        return Sample(value=(size // RUNS) * RUNS / (perf_counter() - began))


def steps(directory: str, size: int) -> Sample:
    """Steps per second of a worker whose run is kept in the database."""
    with database(directory) as (url, _):
        place = os.path.join(directory, f"work-{uuid4()}")
        os.mkdir(place)
        with open(os.path.join(place, "steps.py"), "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        words = [
            "run",
            "--on",
            url,
            "--here",
            "--view",
            "quiet",
            "steps.py",
            "--input",
            json.dumps({"count": size}),
        ]
        done = subprocess.run(
            [sys.executable, "-m", "bartack", *words],
            cwd=place,
            env={**os.environ, "XDG_STATE_HOME": place, "XDG_CONFIG_HOME": place},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        return Sample(value=float(done.stdout))


def _ours(measure: Any, size: int) -> Contestant:
    return Contestant(
        key=OURS,
        label="bartack",
        measure=measure,
        size=size,
        prepare=prepare_postgres,
        needs=("psycopg",),
        programs=("postgres", "initdb"),
    )


def _raw(measure: Any, size: int, label: str) -> Contestant:
    return Contestant(
        key="raw",
        label=label,
        measure=measure,
        size=size,
        prepare=prepare_postgres,
        needs=("psycopg",),
        programs=("postgres", "initdb"),
    )


BENCH: Final = Bench(
    name="depot",
    title="Runs in PostgreSQL",
    races=(
        Race(
            key="append",
            title="one append after the other, synced",
            unit="appends/s",
            better="higher",
            contestants=(_ours(append_in_turn, 1000), _raw(insert_in_turn, 1000, "INSERT and commit")),
        ),
        Race(
            key="together",
            title=f"{RUNS} runs by one statement, synced",
            unit="appends/s",
            better="higher",
            contestants=(
                _ours(append_together, 100 * RUNS),
                _raw(insert_together, 100 * RUNS, f"{RUNS} INSERTs, pipelined, in a transaction"),
            ),
        ),
        Race(
            key="steps",
            title="steps of a worker, one after the other, synced",
            unit="steps/s",
            better="higher",
            contestants=(_ours(steps, 500), _raw(insert_in_turn, 1000, "INSERT and commit")),
        ),
    ),
    goals=(
        Goal(
            race="append",
            title="fenced append to INSERT",
            bound="at least",
            target=0.6,
            stretch=0.8,
            against="raw",
        ),
        Goal(
            race="together",
            title=f"{RUNS} appends to {RUNS} INSERTs",
            bound="at least",
            target=0.9,
            stretch=1.2,
            against="raw",
        ),
        Goal(
            race="steps",
            title="durable step to INSERT",
            bound="at least",
            target=0.3,
            stretch=0.5,
            against="raw",
        ),
    ),
    notes=("The server is started by the benchmark itself, with a unix socket and every commit synced.",),
)

if __name__ == "__main__":
    sys.exit(main(BENCH))
