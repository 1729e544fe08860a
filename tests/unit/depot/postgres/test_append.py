"""Appends in the binary form of the server: nothing is changed on the way, and what the server refuses is raised."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import psycopg
import pytest
from tests.history import rows_of
from tests.postgres import new_database
from tests.unit.depot.postgres.history import claim, join, submit

from bartack.depot.postgres._append import Append
from bartack.depot.postgres._database import Database, Session
from bartack.journal.shared import Commit

if TYPE_CHECKING:
    from bartack.depot.postgres._database import Connection

LARGEST_CRC = (1 << 32) - 1


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with Database(new_database()) as opened:
        yield opened


@pytest.fixture
def session(database: Database) -> Iterator[Session]:
    with database.session() as opened:
        yield opened


@pytest.fixture
def connection(database: Database) -> Iterator[Connection]:
    with database.connect() as opened:
        yield opened


def owned(session: Session) -> tuple[int, int]:
    run = submit(session)
    return run, claim(session, join(session), run)[1]


@pytest.mark.parametrize(
    "size", [0, 1, 100, 20_000_000], ids=["empty", "a-byte", "a-line", "more-than-a-socket"]
)
def test_lines_arrive_byte_for_byte(session: Session, connection: Connection, size: int) -> None:
    run, fence = owned(session)
    lines = bytes(range(256)) * (size // 256) + bytes(size % 256)

    outcomes = Append(psycopg).send(connection, [run], [Commit(2, 7, fence, LARGEST_CRC, lines)])

    assert outcomes == {run: "written"}
    row = rows_of(session, run)[-1]
    assert (row.seq, row.last, row.fence, row.crc, row.lines) == (2, 7, fence, LARGEST_CRC, lines)


def test_each_run_of_a_batch_has_its_outcome(session: Session, connection: Connection) -> None:
    (first, fence), (lost, old), (gap, other) = (owned(session) for _ in range(3))
    commits = [
        Commit(2, 2, fence, 1, b"first"),
        Commit(2, 2, old - 1, 1, b"lost"),
        Commit(9, 9, other, 1, b"gap"),
    ]

    outcomes = Append(psycopg).send(connection, [first, lost, gap], commits)

    assert outcomes == {first: "written", lost: "lost", gap: "look"}
    assert [rows_of(session, run)[-1].seq for run in (first, lost, gap)] == [2, 1, 1]


def test_a_new_connection_prepares_the_statement_anew(session: Session, database: Database) -> None:
    run, fence = owned(session)
    append = Append(psycopg)

    for seq in (2, 3):
        with database.connect() as connection:
            assert append.send(connection, [run], [Commit(seq, seq, fence, 1, b"x")]) == {run: "written"}


def test_what_the_server_refuses_is_raised_and_the_connection_stays(
    session: Session, connection: Connection
) -> None:
    run, fence = owned(session)
    append = Append(psycopg)

    with pytest.raises(psycopg.errors.CheckViolation):
        append.send(connection, [run], [Commit(2, 1, fence, 1, b"it ends before it begins")])

    assert append.send(connection, [run], [Commit(2, 2, fence, 1, b"x")]) == {run: "written"}


def test_a_connection_that_the_server_ends_is_an_operational_error(
    session: Session, connection: Connection
) -> None:
    run, fence = owned(session)
    append = Append(psycopg)
    append.send(connection, [run], [Commit(2, 2, fence, 1, b"x")])
    session.rows("SELECT pg_terminate_backend(%s, 5000)", connection.info.backend_pid)

    with pytest.raises(psycopg.OperationalError):
        append.send(connection, [run], [Commit(3, 3, fence, 1, b"x")])

    assert connection.closed
