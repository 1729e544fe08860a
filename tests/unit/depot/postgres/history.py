"""Runs in a database by hand: commits as an owner sends them. ``tests/history.py`` has what has to hold of the rows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from uuid import uuid4
from zlib import crc32

from bartack.depot.postgres._database import Database, Session
from bartack.journal._format import encode_line
from bartack.journal.shared import Commit

_numbers = count(1)


def commit_after(last: int, crc: int, fence: int, *texts: str) -> Commit:
    """The next commit of a history, a line for each text."""
    lines: list[bytes] = []
    for place, text in enumerate(texts, last + 1):
        body = b'"kind":"test","data":{"text":"%b"}' % text.encode()
        line, crc = encode_line([body], place, last + 1, 1_000_000 + place, crc)
        lines.append(line)
    return Commit(last + 1, last + len(texts), fence, crc, b"".join(lines))


def submit(session: Session, run_id: str = "") -> int:
    """Make a run with one entry; returns its number."""
    first = commit_after(0, 0, 1, "first")
    run_id = run_id or f"run-20260101-000000-{next(_numbers):08x}"
    statement = "SELECT bartack.submit(%s, 'default', %s, %s, %s, NULL)"
    ((run,),) = session.rows(statement, run_id, first.last, first.crc, first.lines)
    return int(run)


def join(session: Session, lease_s: float = 60.0) -> int:
    """Join as a node on a machine of its own."""
    statement = "SELECT bartack.join_node('node', %s, 'boot', 'test', 0, %s)"
    ((node,),) = session.rows(statement, uuid4(), lease_s)
    return int(node)


def claim(session: Session, node: int, run: int) -> tuple[str, int]:
    """Own a run; returns what was outcome, and the fence."""
    ((outcome, fence),) = session.rows("SELECT outcome, fence FROM bartack.claim_run(%s, %s, 0)", node, run)
    return outcome, fence


def let_leases_end(session: Session) -> None:
    """Every node is late."""
    session.rows("UPDATE bartack.node SET until = clock_timestamp() - interval '1 hour'")


def append(session: Session, run: int, *commits: Commit) -> list[str]:
    """Append commits one after the other; returns what was outcome."""
    return [_append(session, run, commit) for commit in commits]


def _append(session: Session, run: int, commit: Commit) -> str:
    statement = "SELECT outcome FROM bartack.append(%s::bigint[], %s::int[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bytea[])"
    columns = ([run], [commit.fence], [commit.seq], [commit.last], [commit.crc], [commit.lines])
    with session.use() as connection:
        rows = connection.execute(statement, columns, binary=True).fetchall()
    ((outcome,),) = rows
    return str(outcome)


def texts_of(rows: list[Commit]) -> Iterator[str]:
    """The texts of the entries, in order."""
    for row in rows:
        for line in row.lines.splitlines():
            yield line.partition(b'"text":"')[2].partition(b'"')[0].decode()


def other_bytes(commit: Commit) -> Commit:
    """Another commit for the same place."""
    lines = commit.lines.replace(b"text", b"tame")
    return commit._replace(lines=lines, crc=crc32(lines))


def sessions(database: Database, number: int) -> list[Session]:
    """Connections of their own."""
    return [database.session() for _ in range(number)]
