"""The tables of the state database, as numbered migrations. The number of the last one is the schema's version.

Readings of the monotonic clock stand beside the id of the boot they belong to; ``created_at``, ``finished_at`` and ``expires``
are wall time, because they are measured in days.
"""

from __future__ import annotations

from typing import Final

_FIRST: Final = """
CREATE TABLE outbox(
  seq INTEGER PRIMARY KEY AUTOINCREMENT, event_id TEXT UNIQUE NOT NULL, kind TEXT NOT NULL, recipient TEXT NOT NULL,
  payload BLOB, size INTEGER NOT NULL,
  state TEXT NOT NULL CHECK(state IN ('pending', 'leased', 'delivered', 'dead')),
  attempts INTEGER NOT NULL DEFAULT 0, next_attempt_at REAL NOT NULL,
  lease_owner TEXT, lease_until REAL, lease_token INTEGER NOT NULL DEFAULT 0,
  created_at REAL NOT NULL, finished_at REAL, reason TEXT, last_error TEXT, boot TEXT NOT NULL);
CREATE INDEX outbox_due ON outbox(state, next_attempt_at);
CREATE INDEX outbox_kind ON outbox(kind, state);
CREATE INDEX outbox_created ON outbox(created_at);
CREATE TABLE counters(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE breaker(
  name TEXT PRIMARY KEY, state TEXT NOT NULL, failures INTEGER NOT NULL, successes INTEGER NOT NULL,
  generation INTEGER NOT NULL, opened_at REAL, opened_wall REAL, boot TEXT NOT NULL, last_failure REAL, last_success REAL,
  not_before REAL, not_before_wall REAL, reason TEXT, stale_results INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE TABLE leases(
  scope TEXT NOT NULL, holder TEXT NOT NULL, until REAL NOT NULL, generation INTEGER NOT NULL, boot TEXT NOT NULL,
  PRIMARY KEY(scope, holder)) WITHOUT ROWID;
CREATE TABLE health(
  origin TEXT PRIMARY KEY, level TEXT NOT NULL, checked_at REAL NOT NULL, checked_wall REAL NOT NULL, boot TEXT NOT NULL,
  failures INTEGER NOT NULL, successes INTEGER NOT NULL, data TEXT) WITHOUT ROWID;
CREATE TABLE seen(
  kind TEXT NOT NULL, key TEXT NOT NULL, expires REAL NOT NULL, event_id TEXT NOT NULL, PRIMARY KEY(kind, key)) WITHOUT ROWID;
CREATE INDEX seen_event ON seen(event_id);
"""

# Sums over a whole table would make every insert slower than the one before: the size is kept as a counter, by triggers, so
# that no statement can change one without the other.
_SECOND: Final = """
ALTER TABLE outbox ADD COLUMN codec INTEGER NOT NULL DEFAULT 0;
CREATE TABLE health_log(origin TEXT NOT NULL, at REAL NOT NULL, level TEXT NOT NULL);
CREATE INDEX health_log_at ON health_log(origin, at);
CREATE TABLE files(path TEXT PRIMARY KEY, pattern_id TEXT NOT NULL, version TEXT NOT NULL, at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE patterns(
  pattern_id TEXT PRIMARY KEY, version TEXT NOT NULL, normal TEXT, at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE outboxes(path TEXT PRIMARY KEY, last_seen REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE offsets(transcript TEXT PRIMARY KEY, offset INTEGER NOT NULL, at REAL NOT NULL) WITHOUT ROWID;
INSERT OR REPLACE INTO counters SELECT 'bytes', coalesce(sum(size), 0) FROM outbox;
CREATE TRIGGER outbox_grows AFTER INSERT ON outbox BEGIN
  UPDATE counters SET value = value + new.size WHERE name = 'bytes'; END;
CREATE TRIGGER outbox_shrinks AFTER DELETE ON outbox BEGIN
  UPDATE counters SET value = value - old.size WHERE name = 'bytes'; END;
CREATE TRIGGER outbox_changes AFTER UPDATE OF size ON outbox WHEN new.size <> old.size BEGIN
  UPDATE counters SET value = value + new.size - old.size WHERE name = 'bytes'; END;
"""

MIGRATIONS: Final = (_FIRST, _SECOND)
VERSION: Final = len(MIGRATIONS)

SAVED_TABLES: Final = ("breaker", "health", "health_log", "seen", "files", "patterns", "outboxes", "offsets")
"""What is copied besides the outbox and its counters when a damaged database is replaced. Leases are not worth saving."""
