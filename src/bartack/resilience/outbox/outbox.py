"""The outbox: events for a service that may be unavailable, as rows with leases.

A row is claimed with a lease and a token, and only the holder of the current token can finish it. If that process is killed, others
can claim the row when the lease ends. Which call delivers an event is not decided here (``_delivery.py``, ``cache.py``). The rows
as values are in ``row.py``, telemetry and readable copies in ``_reports.py``.

The states, and what leads from one to another:

=========  ==============================  =========  ==========================================
from       event                           to         note
=========  ==============================  =========  ==========================================
pending    claim                           leased     owner, end of the lease, next token
leased     delivered                       delivered  payload dropped, the row stays as proof
leased     failed for now                  pending    one attempt more, next one after a backoff
leased     failed for the last time        dead       reason ``exhausted``
leased     refused                         dead       reason ``refused:<status>``
leased     given back, or lease over       pending    attempts unchanged
pending    too old                         dead       reason ``expired``
dead       retry                           pending    attempts 0
=========  ==============================  =========  ==========================================
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar, cast

from bartack.core.backoff import Backoff
from bartack.errors import OutboxFullError
from bartack.resilience._store import BUSY_S, StateStore
from bartack.resilience.mirror import Mirror
from bartack.resilience.outbox._reports import OutboxReports
from bartack.resilience.outbox.row import (
    CLAIM_COLUMNS,
    PATTERN,
    Claim,
    ClaimRow,
    Listed,
    NewEvent,
    Verdict,
    claim_of,
    pack,
    unpack,
)
from bartack.resilience.settings import Settings

T = TypeVar("T")

LEASE_S: Final = 30.0
CLAIM_MOST: Final = 32
DELIVERED_DAYS: Final = 7.0
SPREAD_S: Final = 5.0
_DAY_S: Final = 86_400.0
_DROP_BATCH: Final = 64
_RELEASE: Final = "UPDATE outbox SET state='pending',lease_owner=NULL,lease_until=NULL WHERE state='leased' AND lease_owner=?"
_Facts = Sequence[object] | Mapping[str, object]
"""Values that a statement is executed with, by position or by name."""


class Limits(NamedTuple):
    """How much is kept, for how long, and how often it is tried."""

    quota_bytes: int = 50 * 1024 * 1024
    max_age_days: float = 7.0
    dead_days: float = 30.0
    max_attempts: int = 12
    drop_oldest: bool = True
    compress: bool = True
    backoff: Backoff = Backoff()

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """The limits that the settings ask for."""
        return cls(
            quota_bytes=int(settings.max_size_mb * 1024 * 1024),
            max_age_days=settings.max_age_days,
            dead_days=settings.dead_days,
            max_attempts=settings.max_attempts,
            drop_oldest=settings.policy == "drop_oldest",
            compress=settings.compress,
            backoff=Backoff(settings.backoff_base, settings.backoff_cap),
        )


class Outbox:
    """The events of one state home.

    Args:
        store: The database.
        limits: See ``Limits``; may be replaced at any time.
        owner: Whose name is on the leases of this object.
    """

    def __init__(self, store: StateStore, limits: Limits | None = None, *, owner: str | None = None) -> None:
        self.store = store
        self.limits = limits or Limits()
        self.owner = owner or f"{os.getpid()}@{_process_space()}-{os.urandom(4).hex()}"
        self._reports = OutboxReports(store)

    @property
    def mirror(self) -> Mirror:
        """The readable copies of waiting events."""
        return self._reports.mirror

    def _update(self, query: str, facts: _Facts, *, durable: bool = True) -> int:
        """Execute one statement; how many rows it changed."""
        return self.store.write(lambda connection: connection.execute(query, facts).rowcount, durable=durable)

    def _read(self, query: str, facts: _Facts = ()) -> list[Any]:
        """The rows of one query."""
        return self.store.read(lambda connection: connection.execute(query, facts).fetchall())

    def put(
        self,
        events: Sequence[NewEvent],
        *,
        lease: bool = False,
        busy_s: float = BUSY_S,
        beside: Callable[[sqlite3.Connection], None] | None = None,
    ) -> list[bool]:
        """Keep events, all in one transaction; for each, whether it was new.

        A second insert of one event id is a success that changes nothing. With ``lease`` the new rows belong to this process.
        ``beside`` is done in the same transaction.

        Raises:
            OutboxFullError: One does not fit; none was kept.
            StoreUnavailableError: See ``StateStore.write``.
        """
        return [token is not None for token in self.insert(events, lease=lease, busy_s=busy_s, beside=beside)]

    def insert(
        self,
        events: Sequence[NewEvent],
        *,
        lease: bool = False,
        busy_s: float = BUSY_S,
        beside: Callable[[sqlite3.Connection], None] | None = None,
    ) -> list[Claim | None]:
        """Like ``put``, but a claim for each that was new; only with ``lease`` it can be finished."""
        packed = [(event, *pack(event.payload, compress=self.limits.compress)) for event in events]
        dropped: list[str] = []

        def work(connection: sqlite3.Connection) -> list[Claim | None]:
            dropped.clear()
            claims = [self._insert(connection, *one, lease=lease) for one in packed]
            newest = max((len(data) for _, data, _ in packed), default=0)
            dropped.extend(_keep_quota(connection, self.limits, str(self.store.path), newest))
            if beside is not None:
                beside(connection)
            return claims

        claims = self.store.write(work, busy_s=busy_s)
        self._reports.added(claims, [len(data) for _, data, _ in packed])
        self._reports.dropped(dropped)
        for claim, event in zip(claims, events, strict=True):
            if claim is not None and event.state == "pending":
                self._reports.waiting(claim)
        return claims

    def claim(
        self,
        *,
        kind: str = PATTERN,
        recipient: str | None = None,
        limit: int = CLAIM_MOST,
        lease_s: float = LEASE_S,
        ids: Iterable[str] | None = None,
        any_time: bool = False,
    ) -> list[Claim]:
        """Lease the oldest rows that are due, at most ``limit``. ``any_time`` takes also those whose backoff is not over."""
        now, boot = self.store.now(), self.store.boot
        due = "1" if any_time else "(next_attempt_at<=:now OR boot<>:boot)"
        where = "kind=:kind" + ("" if recipient is None else " AND recipient=:to")
        wanted = None if ids is None else list(ids)
        if wanted is not None:
            where += f" AND event_id IN ({','.join(f':i{n}' for n in range(len(wanted)))})"
        facts: dict[str, object] = {
            "kind": kind, "to": recipient, "now": now, "boot": boot, "most": limit, "owner": self.owner,
            "until": now + lease_s, **{f"i{n}": one for n, one in enumerate(wanted or ())},
        }  # fmt: skip
        waiting = (
            f"SELECT seq FROM outbox WHERE {where} AND state='pending' AND {due} ORDER BY seq LIMIT :most"
        )
        left = f"SELECT seq FROM outbox WHERE {where} AND state='leased' AND (lease_until<=:now OR boot<>:boot) LIMIT :most"
        update = (
            "UPDATE outbox SET state='leased',lease_owner=:owner,lease_until=:until,lease_token=lease_token+1,boot=:boot"
            f" WHERE seq IN (SELECT seq FROM ({waiting}) UNION SELECT seq FROM ({left}) ORDER BY seq LIMIT :most)"
            f" RETURNING {CLAIM_COLUMNS}"
        )
        found = self.store.write(
            lambda connection: connection.execute(update, facts).fetchall(), durable=False
        )
        return [claim_of(cast("ClaimRow", row)) for row in sorted(found)]

    def settle(
        self,
        verdicts: Sequence[tuple[Claim, Verdict]],
        *,
        beside: Callable[[sqlite3.Connection], None] | None = None,
    ) -> list[str | None]:
        """Finish claims, all in one transaction; the state each row has now, ``None`` where the lease was lost meanwhile."""

        def work(connection: sqlite3.Connection) -> list[str | None]:
            if beside is not None:
                beside(connection)
            return [self._settle(connection, claim, verdict) for claim, verdict in verdicts]

        states = self.store.write(work)
        for (claim, verdict), state in zip(verdicts, states, strict=True):
            if state is not None:
                self._reports.settled(claim, verdict, state)
        return states

    def replace(
        self, claim: Claim, event: NewEvent, *, beside: Callable[[sqlite3.Connection], None] | None = None
    ) -> bool:
        """Turn a claimed row into another event, under its own id; ``False`` if the lease was lost meanwhile."""
        data, codec = pack(event.payload, compress=self.limits.compress)

        def work(connection: sqlite3.Connection) -> bool:
            changed = connection.execute(
                "UPDATE outbox SET kind=?,recipient=?,payload=?,codec=?,size=?,state='pending',attempts=0,next_attempt_at=0,"
                "lease_owner=NULL,lease_until=NULL WHERE seq=? AND state='leased' AND lease_token=?",
                (event.kind, event.recipient, data, codec, len(data), claim.seq, claim.token),
            )
            if changed.rowcount:
                bump(connection, "total_cached", 1)
                if beside is not None:
                    beside(connection)
            return bool(changed.rowcount)

        done = self.store.write(work)
        if done:
            self._reports.waiting(claim._replace(kind=event.kind, payload=event.payload))
        return done

    def keep_as_record(self, claim: Claim) -> bool:
        """Finish a claimed row that has no recipient, with its payload."""
        query = (
            "UPDATE outbox SET state='delivered',finished_at=?,lease_owner=NULL WHERE seq=? AND lease_token=?"
        )
        return bool(self._update(query, (self.store.wall(), claim.seq, claim.token)))

    def wake(self, recipient: str, *, uniform: Callable[[float, float], float] | None = None) -> int:
        """Make every waiting row for ``recipient`` due: some now, the rest spread over a few seconds."""
        now, boot = self.store.now(), self.store.boot
        spread = uniform or self.limits.backoff.uniform

        def work(connection: sqlite3.Connection) -> int:
            found = connection.execute(
                "SELECT seq FROM outbox WHERE kind=? AND state='pending' AND recipient=? AND next_attempt_at>? AND boot=?"
                " ORDER BY seq",
                (PATTERN, recipient, now + SPREAD_S, boot),
            ).fetchall()
            due = [
                (now + (0.0 if n < CLAIM_MOST else spread(0.0, SPREAD_S)), seq)
                for n, (seq,) in enumerate(found)
            ]
            connection.executemany("UPDATE outbox SET next_attempt_at=? WHERE seq=?", due)
            return len(due)

        return self.store.write(work, durable=False)

    def hasten(self, recipient: str | None = None) -> int:
        """Make every waiting row due now, whatever its backoff says."""
        now = self.store.now()
        query = (
            "UPDATE outbox SET next_attempt_at=:now WHERE state='pending' AND next_attempt_at>:now"
            " AND (:to IS NULL OR recipient=:to)"
        )
        return self._update(query, {"now": now, "to": recipient}, durable=False)

    def release_own(self) -> int:
        """Give back every lease of this object."""
        return self._update(_RELEASE, (self.owner,))

    def release_dead(self) -> int:
        """Give back the leases of processes that are gone, without waiting for the end of the leases."""
        query = "SELECT DISTINCT lease_owner FROM outbox WHERE state='leased' AND boot=?"
        gone = [owner for (owner,) in self._read(query, (self.store.boot,)) if _is_gone(str(owner))]
        if not gone:
            return 0
        return self.store.write(
            lambda connection: connection.executemany(_RELEASE, [(owner,) for owner in gone]).rowcount
        )

    def expire(self, *, also_older: dict[str, float] | None = None) -> int:
        """Dead-letter pending rows that are too old, and delete finished ones after their time; how many died.

        ``also_older`` gives events another time of birth, by id.
        """
        wall = self.store.wall()
        oldest = wall - self.limits.max_age_days * _DAY_S
        early = [event_id for event_id, born in (also_older or {}).items() if born < oldest]

        def work(connection: sqlite3.Connection) -> list[str]:
            died = connection.execute(
                "UPDATE outbox SET state='dead',reason='expired',finished_at=? WHERE state='pending' AND"
                f" (created_at<? OR event_id IN ({','.join('?' * len(early))})) RETURNING event_id,kind",
                (wall, oldest, *early),
            ).fetchall()
            _forget_seen(connection, [event_id for event_id, _ in died])
            bump(connection, "died", len(died))
            self._forget_finished(connection, wall)
            return [event_id for event_id, kind in died if kind == PATTERN]

        died = self.store.write(work)
        self._reports.removed(died)
        return len(died)

    def retry(self, ids: Sequence[str] = (), *, reason: str | None = None) -> list[str]:
        """Retry dead rows: those named, or all whose reason begins with ``reason``; the ids of those that are pending again."""
        where, facts = _chosen(ids, "reason LIKE ? || '%'", reason or "")
        query = (
            "UPDATE outbox SET state='pending',attempts=0,next_attempt_at=0,reason=NULL,finished_at=NULL,created_at=?"
            f" WHERE state='dead' AND {where} RETURNING {CLAIM_COLUMNS}"
        )

        def work(connection: sqlite3.Connection) -> list[object]:
            found = connection.execute(query, (self.store.wall(), *facts)).fetchall()
            bump(connection, "retried", len(found))
            return found

        claims = [claim_of(cast("ClaimRow", row)) for row in self.store.write(work)]
        for claim in claims:
            self._reports.waiting(claim)
        return [claim.event_id for claim in claims]

    def purge(self, ids: Sequence[str] = (), *, state: str = "dead", older_than_s: float = 0.0) -> list[str]:
        """Remove rows: those named, or all of a state that are older; the ids of the removed rows."""
        where, facts = _chosen(ids, "state=? AND created_at<=?", state, self.store.wall() - older_than_s)

        def work(connection: sqlite3.Connection) -> list[str]:
            found = connection.execute(
                f"DELETE FROM outbox WHERE {where} RETURNING event_id", facts
            ).fetchall()
            gone = [str(event_id) for (event_id,) in found]
            bump(connection, "purged", len(gone))
            _forget_seen(connection, gone)
            return gone

        gone = self.store.write(work)
        self._reports.removed(gone)
        return gone

    def readdress(self, old: str, new: str) -> int:
        """Change the recipient of all waiting rows."""
        query = "UPDATE outbox SET recipient=?,next_attempt_at=0 WHERE state='pending' AND recipient=?"
        return self._update(query, (new, old))

    def count(self, kind: str | None = None, recipient: str | None = None) -> dict[str, int]:
        """How many rows each state has."""
        where = "(:kind IS NULL OR kind=:kind) AND (:to IS NULL OR recipient=:to)"
        query = f"SELECT state,count(*) FROM outbox WHERE {where} GROUP BY state"
        found = dict(self._read(query, {"kind": kind, "to": recipient}))
        return {state: int(found.get(state, 0)) for state in ("pending", "leased", "delivered", "dead")}

    def waiting(self) -> dict[str, int]:
        """How many rows wait for each recipient, leased ones included."""
        query = "SELECT recipient,count(*) FROM outbox WHERE kind=? AND state IN ('pending','leased') GROUP BY recipient"
        return dict(self._read(query, (PATTERN,)))

    def next_due_s(self, *, besides: Sequence[str] = ()) -> float | None:
        """In how many seconds the next row is due or its lease is over; ``None`` if nothing waits. ``besides``: kinds left out."""
        now, boot = self.store.now(), self.store.boot
        query = (
            "SELECT min(CASE WHEN boot<>? THEN 0 WHEN state='leased' THEN lease_until ELSE next_attempt_at END)"
            f" FROM outbox WHERE state IN ('pending','leased') AND kind NOT IN ({','.join('?' * len(besides))})"
        )
        due: float | None = self._read(query, (boot, *besides))[0][0]
        return None if due is None else max(0.0, due - now)

    def counters(self) -> dict[str, int]:
        """All counters."""
        return dict(self._read("SELECT name,value FROM counters"))

    def rows(
        self, *, state: str | None = None, kind: str | None = None, limit: int = 100, ids: Sequence[str] = ()
    ) -> list[Listed]:
        """Rows for people, newest last."""
        chosen = f" AND event_id IN ({','.join(f':i{n}' for n in range(len(ids)))})" if ids else ""
        query = (
            "SELECT seq,event_id,kind,recipient,state,attempts,size,created_at,finished_at,reason,last_error,"
            "CASE WHEN boot=:boot AND state='pending' THEN max(0,next_attempt_at-:now) ELSE 0 END,payload,codec FROM outbox"
            f" WHERE (:state IS NULL OR state=:state) AND (:kind IS NULL OR kind=:kind){chosen}"
            f" ORDER BY seq DESC LIMIT {int(limit)}"
        )
        facts: dict[str, object] = {
            "state": state, "kind": kind, "boot": self.store.boot, "now": self.store.now(),
            **{f"i{n}": one for n, one in enumerate(ids)},
        }  # fmt: skip
        found = self._read(query, facts)
        return [Listed._make([*row[:12], unpack(row[12], row[13])]) for row in reversed(found)]

    def known(self, ids: Sequence[str]) -> set[str]:
        """Which of these events have a row."""

        def work(connection: sqlite3.Connection) -> set[str]:
            return {
                str(found)
                for some in _portions(ids, 500)
                for (found,) in connection.execute(
                    f"SELECT event_id FROM outbox WHERE event_id IN ({','.join('?' * len(some))})", some
                )
            }

        return self.store.read(work)

    def _insert(
        self, connection: sqlite3.Connection, event: NewEvent, data: bytes, codec: int, *, lease: bool
    ) -> Claim | None:
        if len(data) > self.limits.quota_bytes:
            raise OutboxFullError(str(self.store.path), len(data), self.limits.quota_bytes)
        now, wall = self.store.now(), self.store.wall()
        leased = lease and event.state == "pending"
        born = wall if event.created_at is None else event.created_at
        found = connection.execute(
            "INSERT INTO outbox(event_id,kind,recipient,payload,codec,size,state,attempts,next_attempt_at,lease_owner,"
            "lease_until,lease_token,created_at,finished_at,reason,boot) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
            " ON CONFLICT(event_id) DO NOTHING RETURNING seq",
            (
                event.event_id, event.kind, event.recipient, data, codec, len(data),
                "leased" if leased else event.state, event.attempts, now,
                self.owner if leased else None, now + LEASE_S if leased else None, int(leased),
                born, None if event.state == "pending" else wall, event.reason, self.store.boot,
            ),
        ).fetchone()  # fmt: skip
        if found is None:
            return None
        if event.kind == PATTERN:
            bump(connection, "total_cached", 1)
        known = (event.event_id, event.kind, event.recipient, event.payload, event.attempts)
        return Claim(found[0], *known, born, int(leased))

    def _settle(self, connection: sqlite3.Connection, claim: Claim, verdict: Verdict) -> str | None:
        state, changes = self._outcome(claim, verdict)
        columns = ",".join(f"{name}=?" for name in changes)
        changed = connection.execute(
            f"UPDATE outbox SET state=?,lease_owner=NULL,lease_until=NULL,{columns}"
            " WHERE seq=? AND state='leased' AND lease_token=?",
            (state, *changes.values(), claim.seq, claim.token),
        )
        if not changed.rowcount:
            bump(connection, "stale_results", 1)
            return None
        if state == "delivered" and claim.kind == PATTERN:
            bump(connection, "total_synced", 1)
        if state == "dead":
            bump(connection, "died", 1)
            _forget_seen(connection, [claim.event_id])
        return state

    def _outcome(self, claim: Claim, verdict: Verdict) -> tuple[str, dict[str, object]]:
        finished = {"finished_at": self.store.wall()}
        if verdict.kind == "delivered":
            return "delivered", {**finished, "payload": None, "codec": 0, "size": 0, "last_error": None}
        if verdict.kind == "dead":
            return "dead", {**finished, "reason": verdict.error, "last_error": verdict.error}
        now, boot = self.store.now(), self.store.boot
        if verdict.kind == "released":
            return "pending", {"next_attempt_at": now + verdict.wait_s, "boot": boot}
        attempts = claim.attempts + 1
        if attempts >= self.limits.max_attempts:
            return "dead", {
                **finished, "attempts": attempts, "reason": "exhausted", "last_error": verdict.error,
            }  # fmt: skip
        due = now + max(verdict.wait_s, self.limits.backoff.wait_s(attempts))
        return "pending", {
            "attempts": attempts, "next_attempt_at": due, "boot": boot, "last_error": verdict.error,
        }  # fmt: skip

    def _forget_finished(self, connection: sqlite3.Connection, wall: float) -> None:
        for state, days in (("delivered", DELIVERED_DAYS), ("dead", self.limits.dead_days)):
            connection.execute(
                "DELETE FROM outbox WHERE state=? AND finished_at<?", (state, wall - days * _DAY_S)
            )
        connection.execute("DELETE FROM seen WHERE expires<?", (wall,))


def _process_space() -> str:
    """Which processes this one can see; numbers of processes compare within one space only."""
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return "0"


def _is_gone(owner: str) -> bool:
    number, _, rest = owner.partition("@")
    if not number.isdigit() or rest.partition("-")[0] != _process_space():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def bump(connection: sqlite3.Connection, name: str, by: int) -> None:
    """Add to a counter, in the transaction of what is counted."""
    connection.execute(
        "INSERT INTO counters VALUES(?,?) ON CONFLICT(name) DO UPDATE SET value=value+excluded.value",
        (name, by),
    )


def _forget_seen(connection: sqlite3.Connection, ids: Iterable[str]) -> None:
    connection.executemany("DELETE FROM seen WHERE event_id=?", [(one,) for one in ids])


def _keep_quota(connection: sqlite3.Connection, limits: Limits, path: str, newest: int) -> list[str]:
    """Drop rows until the quota holds: finished ones first, then the oldest that wait; the ids of dropped ones."""
    dropped: list[str] = []
    while (over := _size(connection) - limits.quota_bytes) > 0:
        if not limits.drop_oldest:
            raise OutboxFullError(path, newest, limits.quota_bytes)
        found = connection.execute(
            "SELECT seq,event_id,size FROM outbox WHERE size>0 ORDER BY"
            " CASE state WHEN 'delivered' THEN 0 WHEN 'dead' THEN 1 ELSE 2 END,seq LIMIT ?",
            (_DROP_BATCH,),
        ).fetchall()
        for seq, event_id, size in found:
            connection.execute("DELETE FROM outbox WHERE seq=?", (seq,))
            dropped.append(event_id)
            over -= size
            if over <= 0:
                break
    if dropped:
        bump(connection, "dropped", len(dropped))
        _forget_seen(connection, dropped)
    return dropped


def _size(connection: sqlite3.Connection) -> int:
    size: int = connection.execute("SELECT value FROM counters WHERE name='bytes'").fetchone()[0]
    return size


def _chosen(ids: Sequence[str], otherwise: str, *facts: object) -> tuple[str, tuple[object, ...]]:
    if ids:
        return f"event_id IN ({','.join('?' * len(ids))})", tuple(ids)
    return otherwise, facts


def _portions(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
