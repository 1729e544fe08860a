"""Putting a damaged state database aside, and saving the rows that can still be read.

The damaged file is kept, never repaired in place. Rows are read from both ends, then one by one between the places where reading
failed: damage in the middle costs the rows on the damaged pages and no others.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bartack.core.trust import make_private
from bartack.resilience._schema import SAVED_TABLES
from bartack.resilience.home import DATABASE

_MOST: Final = 1_000_000
Row = tuple[object, ...]


def put_aside(directory: Path) -> Path:
    """Move the database with its companions into a new directory below ``quarantine`` and return that."""
    name = f"outbox-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{os.urandom(4).hex()}"
    aside = directory / "quarantine" / name
    make_private(aside)
    # The log first: a database without its log is older, a log without its database would be played into a fresh one.
    for suffix in ("-wal", "-shm", "-journal", ""):
        with contextlib.suppress(FileNotFoundError):
            os.rename(directory / f"{DATABASE}{suffix}", aside / f"{DATABASE}{suffix}")
    return aside


def save_rows(damaged: Path, fresh: sqlite3.Connection) -> int:
    """Copy what can be read from ``damaged`` into ``fresh``; return how many events that were."""
    source = sqlite3.connect(damaged, isolation_level=None)
    try:
        fresh.execute("BEGIN IMMEDIATE")
        saved = _save_outbox(source, fresh)
        for table in SAVED_TABLES:
            _save_table(source, fresh, table)
        _save_counters(source, fresh)
        fresh.execute("COMMIT")
    finally:
        source.close()
    return saved


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    with contextlib.suppress(sqlite3.DatabaseError):
        return [str(row[1]) for row in connection.execute(f"PRAGMA table_info({table})")]
    return []


def _save_outbox(source: sqlite3.Connection, fresh: sqlite3.Connection) -> int:
    columns = [name for name in _columns(source, "outbox") if name != "seq"]
    if not columns:
        return 0
    saved = 0
    insert = f"INSERT OR IGNORE INTO outbox({','.join(columns)}) VALUES({','.join('?' * len(columns))})"
    for row in _readable(source, columns):
        with contextlib.suppress(sqlite3.Error):
            saved += fresh.execute(insert, row[1:]).rowcount
    return saved


def _readable(source: sqlite3.Connection, columns: list[str]) -> Iterator[Row]:
    chosen = f"SELECT seq,{','.join(columns)} FROM outbox"
    first = last = None
    for row in _until_damage(source, f"{chosen} ORDER BY seq"):
        first = row[0]
        yield row
    for row in _until_damage(source, f"{chosen} ORDER BY seq DESC"):
        if row[0] == first:
            return
        last = row[0]
        yield row
    start = first if isinstance(first, int) else 0
    end = last if isinstance(last, int) else _highest(source)
    for seq in range(start + 1, min(end, start + _MOST)):
        yield from _until_damage(source, f"{chosen} WHERE seq={seq}")


def _until_damage(source: sqlite3.Connection, query: str) -> Iterator[Row]:
    with contextlib.suppress(sqlite3.DatabaseError):
        yield from source.execute(query)


def _highest(source: sqlite3.Connection) -> int:
    """Where the search for single rows ends when the far end cannot be read."""
    for query in ("SELECT seq FROM sqlite_sequence WHERE name='outbox'", "SELECT max(rowid) FROM outbox"):
        for row in _until_damage(source, query):
            if isinstance(row[0], int):
                return row[0] + 1
    return 0


def _save_table(source: sqlite3.Connection, fresh: sqlite3.Connection, table: str) -> None:
    known = set(_columns(fresh, table))
    columns = [name for name in _columns(source, table) if name in known]
    if not columns:
        return
    names, marks = ",".join(columns), ",".join("?" * len(columns))
    for row in _until_damage(source, f"SELECT {names} FROM {table}"):
        with contextlib.suppress(sqlite3.Error):
            fresh.execute(f"INSERT OR IGNORE INTO {table}({names}) VALUES({marks})", row)


def _save_counters(source: sqlite3.Connection, fresh: sqlite3.Connection) -> None:
    # The size is a sum over rows, so the fresh database counts its own.
    for row in _until_damage(source, "SELECT name,value FROM counters WHERE name<>'bytes'"):
        with contextlib.suppress(sqlite3.Error):
            fresh.execute("INSERT OR REPLACE INTO counters VALUES(?,?)", row)
