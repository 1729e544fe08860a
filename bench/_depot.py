"""A database for one measurement, and the appends to it: those of a node, and plain inserts of rows.

``_depot_runs.py`` has whole runs, ``_depot_peers.py`` other libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

from bartack.core.closing import Closing
from bartack.journal.shared import Commit
from bench._mailbox_peers import prepare_postgres, serve_postgres
from bench._runner import Sample

if TYPE_CHECKING:
    from psycopg import Connection

RUNS: Final = 64
PARTS: Final = 6
"""The first and the last of these parts are compared, where it is asked whether something gets slower."""
LINE: Final = (
    b'{"seq":1,"c":1,"at":1795000000000000,"kind":"step.finished","data":{"p":"main"},"crc":"00000000"}\n'
)
_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS raw (run bigint, seq bigint, lines bytea, PRIMARY KEY (run, seq))",
    "CREATE TABLE IF NOT EXISTS raw_owner (run bigint PRIMARY KEY, fence int, last bigint)",
    "TRUNCATE raw, raw_owner",
)


def url_of(room: str) -> str:
    """The name of the database whose socket is in this directory."""
    return f"postgresql://bench@/postgres?host={room}"


@contextmanager
def database(directory: str) -> Generator[tuple[str, Connection[Any]]]:
    """A new database with the tables of Bartack and two of the benchmark; yields its name and a connection."""
    import psycopg  # noqa: PLC0415 - only the process of a contestant has to have it

    from bartack.depot.postgres._database import Database  # noqa: PLC0415 - likewise
    from bartack.depot.postgres._schema import migrate  # noqa: PLC0415 - likewise

    with serve_postgres(directory) as room, _new_database(url_of(room)) as url:
        with Database(url) as prepared:
            migrate(prepared)
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in _TABLES:
                connection.execute(statement.encode())
            yield url, connection


@contextmanager
def _new_database(server: str) -> Generator[str]:
    """A database of a measurement alone: what an earlier one has left does not begin again. Yields its name."""
    import psycopg  # noqa: PLC0415 - likewise

    name = f"bench_{uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield urlsplit(server)._replace(path=f"/{name}").geturl()
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def value_of(connection: Connection[Any], statement: str, *values: object) -> int:
    """The number that a statement returns."""
    row = connection.execute(statement.encode(), values).fetchone()
    assert row is not None
    return int(row[0])


def owned_runs(connection: Connection[Any], count: int) -> list[tuple[int, int]]:
    """New runs that a node owns: number and fence of each."""
    node = value_of(connection, "SELECT bartack.join_node('bench', %s, 'boot', '0', 0, 3600)", uuid4())
    found: list[tuple[int, int]] = []
    for _ in range(count):
        run = value_of(
            connection, "SELECT bartack.submit(%s, 'default', 1, 0, %s, NULL)", f"run-{uuid4()}", LINE
        )
        fence = value_of(connection, "SELECT fence FROM bartack.claim_run(%s, %s, 0)", node, run)
        found.append((run, fence))
    return found


class _Appends(Closing):
    """What a node appends with, and runs that it owns."""

    def __init__(self, url: str, connection: Connection[Any], count: int) -> None:
        import psycopg  # noqa: PLC0415 - only the process of a contestant has to have it

        from bartack.depot.postgres._append import Append  # noqa: PLC0415 - likewise
        from bartack.depot.postgres._database import Database  # noqa: PLC0415 - likewise

        self._owned = owned_runs(connection, count)
        self._connection = Database(url).connect()
        self._append = Append(psycopg)

    def append(self, seq: int) -> None:
        """Append an entry to each of the runs, all by one statement."""
        commits = [Commit(seq, seq, fence, seq, LINE) for _, fence in self._owned]
        outcomes = self._append.send(self._connection, [run for run, _ in self._owned], commits)
        assert set(outcomes.values()) == {"written"}, outcomes

    def close(self) -> None:
        """Close its connection."""
        self._connection.close()


# One after the other, and many together.


def append_in_turn(directory: str, size: int) -> Sample:
    """Appends per second of one run, each with its answer before the next."""
    with database(directory) as (url, connection), _Appends(url, connection, 1) as appends:
        began = perf_counter()
        for seq in range(2, size + 2):
            appends.append(seq)
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
    with database(directory) as (url, connection), _Appends(url, connection, RUNS) as appends:
        began = perf_counter()
        for seq in range(2, size // RUNS + 2):
            appends.append(seq)
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


# While a transaction is open.


def append_beside_open(directory: str, size: int) -> Sample:
    """The rate of the last appends over that of the first, while another connection has a transaction open."""
    with database(directory) as (url, connection), _Appends(url, connection, 1) as appends, _snapshot(url):
        return _decay(size, lambda number: appends.append(number + 2))


def update_beside_open(directory: str, size: int) -> Sample:
    """The same for appends that note their place in the row of the owner: each leaves a version of it that must be kept."""
    with database(directory) as (url, connection), _snapshot(url):
        connection.execute("INSERT INTO raw_owner VALUES (1, 1, -1)")

        def append(seq: int) -> None:
            connection.execute(
                "WITH held AS (UPDATE raw_owner SET last = %s WHERE run = 1 AND fence = 1 AND last = %s RETURNING run) "
                "INSERT INTO raw SELECT run, %s, %s FROM held",
                (seq, seq - 1, seq, LINE),
            )

        return _decay(size, append)


@contextmanager
def _snapshot(url: str) -> Generator[None]:
    """Another connection that sees the database as of now until the end, as a backup does."""
    import psycopg  # noqa: PLC0415 - likewise

    with psycopg.connect(url, autocommit=True) as other:
        other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT count(*) FROM bartack.owner")
        yield
        other.execute("ROLLBACK")


def _decay(size: int, append: Callable[[int], None]) -> Sample:
    each = size // PARTS
    times: list[float] = []
    for part in range(PARTS):
        began = perf_counter()
        for seq in range(part * each, (part + 1) * each):
            append(seq)
        times.append(perf_counter() - began)
    facts = {"first": f"{each / times[0]:.0f}/s", "last": f"{each / times[-1]:.0f}/s"}
    return Sample(value=times[0] / times[-1], facts=facts)


PREPARE: Final = prepare_postgres
NEEDS: Final = ("psycopg",)
PROGRAMS: Final = ("postgres", "initdb")
"""What each contestant has to have."""
