"""The tables of a lineage database, and the ids of what is in them.

Nodes and edges are only ever added, never taken away, so ``seq`` says what was there at a moment: a cursor carries it and the
pages after the first show the graph as the first one saw it. LineageNode and edge ids are made from what is unique about them: a
replay on another machine gives the same ids.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from bartack.core.canonical_json import canonical
from bartack.core.files import make_file
from bartack.errors import StoreTooNewError, StoreUnavailableError

APPLICATION = 0x62744C4E
"""Marks the file as a lineage database."""

SCHEMA_VERSION = 1

BUSY_MS = 5000

_SMALLEST = 512
"""The size in bytes of the smallest page that a database can have."""

CACHE_KIB = {"rw": 32 * 1024, "ro": 8 * 1024}
"""What a connection keeps of the file in memory. There is one that writes; there may be many that read."""

_SCHEMA = """
CREATE TABLE nodes(
  seq INTEGER PRIMARY KEY,
  node_id TEXT NOT NULL UNIQUE,
  pattern_id TEXT NOT NULL,
  pattern_name TEXT NOT NULL DEFAULT '',
  pattern_type TEXT NOT NULL DEFAULT 'code',
  language TEXT NOT NULL DEFAULT 'unknown',
  pattern_version TEXT NOT NULL,
  version_order INTEGER NOT NULL,
  pattern_data TEXT NOT NULL DEFAULT '{}',
  generation INTEGER NOT NULL DEFAULT 0,
  stub INTEGER NOT NULL DEFAULT 1,
  deprecated INTEGER NOT NULL DEFAULT 0,
  metadata TEXT NOT NULL DEFAULT '{}',
  created_at TEXT NOT NULL,
  told_by TEXT NOT NULL DEFAULT '',
  UNIQUE(pattern_id, pattern_version));
CREATE INDEX nodes_newest ON nodes(pattern_id, version_order);
CREATE INDEX nodes_stubs ON nodes(seq) WHERE stub;
CREATE TABLE edges(
  seq INTEGER PRIMARY KEY,
  edge_id TEXT NOT NULL UNIQUE,
  source_node_id TEXT NOT NULL REFERENCES nodes(node_id),
  target_node_id TEXT NOT NULL REFERENCES nodes(node_id),
  edge_type TEXT NOT NULL,
  transformation_type TEXT,
  edge_weight REAL NOT NULL DEFAULT 1.0,
  metadata TEXT NOT NULL DEFAULT '{}',
  created_at TEXT NOT NULL,
  told_by TEXT NOT NULL DEFAULT '',
  UNIQUE(source_node_id, target_node_id, edge_type));
CREATE INDEX edges_up ON edges(target_node_id, source_node_id, edge_type);
CREATE TABLE events(
  seq INTEGER PRIMARY KEY,
  event_id TEXT NOT NULL UNIQUE,
  node_id TEXT NOT NULL REFERENCES nodes(node_id),
  event_type TEXT NOT NULL,
  event_data TEXT NOT NULL,
  triggered_by TEXT NOT NULL,
  occurred_at TEXT,
  received_at TEXT NOT NULL,
  generation INTEGER NOT NULL,
  body_sha256 TEXT NOT NULL);
CREATE INDEX events_of_node ON events(node_id);
CREATE TABLE stale(node_id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE VIRTUAL TABLE search USING fts5(pattern_name, language, pattern_type, code);
"""


def open_for_writing(path: Path) -> sqlite3.Connection:
    """Open a lineage database, and make it if there is none; only its owner may read the file.

    Raises:
        StoreTooNewError: A newer version of Bartack wrote it.
        StoreUnavailableError: It cannot be opened, or is not a lineage database.
    """
    try:
        os.makedirs(path.parent, mode=0o700, exist_ok=True)
        make_file(path)
        _refuse_foreign(path)
        connection = _connect(path, "rw")
    except (OSError, sqlite3.Error) as error:
        raise StoreUnavailableError(str(path), _reason(error)) from error
    with _closed_on_error(connection, path):
        # Each commit is on the disk before it is acknowledged; readers are never in its way.
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")
        _create(connection, path)
    return connection


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open a lineage database that exists; nothing is ever written through this connection.

    Raises:
        StoreTooNewError: A newer version of Bartack wrote it.
        StoreUnavailableError: It cannot be opened, or is not a lineage database.
    """
    try:
        connection = _connect(path, "ro")
    except sqlite3.Error as error:
        raise StoreUnavailableError(str(path), _reason(error)) from error
    with _closed_on_error(connection, path):
        _check(connection, path)
    return connection


@contextmanager
def _closed_on_error(connection: sqlite3.Connection, path: Path) -> Generator[None]:
    try:
        yield
    except sqlite3.Error as error:
        connection.close()
        raise StoreUnavailableError(str(path), _reason(error)) from error
    except BaseException:
        connection.close()
        raise


def _refuse_foreign(path: Path) -> None:
    """SQLite takes a file of a few bytes for an empty database and would overwrite it; longer ones it refuses itself.

    The size is enough to see that, and the file must not be opened here (see ``make_file``).
    """
    if 0 < path.stat().st_size < _SMALLEST:
        raise StoreUnavailableError(str(path), "it is not a database")


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    # Transactions are begun by hand; connections are handed from thread to thread, one user at a time.
    connection = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode={mode}",
        timeout=BUSY_MS / 1000,
        isolation_level=None,
        check_same_thread=False,
        uri=True,
    )
    try:
        connection.execute(f"PRAGMA cache_size=-{CACHE_KIB[mode]}")
    except BaseException:
        connection.close()
        raise
    return connection


def _create(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables, unless another process was faster."""
    if _is_empty(connection):
        connection.execute("BEGIN IMMEDIATE")
        try:
            if _is_empty(connection):
                for statement in _SCHEMA.split(";\n"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id={APPLICATION}")
                connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise
    _check(connection, path)


def _is_empty(connection: sqlite3.Connection) -> bool:
    return not connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()


def _check(connection: sqlite3.Connection, path: Path) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise StoreUnavailableError(str(path), "it is not a lineage database")
    if version > SCHEMA_VERSION:
        raise StoreTooNewError(str(path), version, SCHEMA_VERSION)


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def node_id_of(pattern_id: str, version: str) -> str:
    """The id of a version of a pattern, the same on every machine."""
    return f"n_{_digest(pattern_id, version)}"


def edge_id_of(source: str, target: str, edge_type: str) -> str:
    """The id of an edge, the same on every machine."""
    return f"e_{_digest(source, target, edge_type)}"


def _digest(*key: str) -> str:
    return hashlib.sha256(canonical(list(key))).hexdigest()[:24]


def version_order(version: str) -> int:
    """A number that is greater for a later version."""
    major, minor, patch = map(int, version.split("."))
    return (major * 1_000_000 + minor) * 1_000_000 + patch
