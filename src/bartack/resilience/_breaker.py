"""The circuit breaker: calls to a service that keeps failing are not made for a while.

Decisions are those of ``_circuit.py``. Here they meet a clock, the place where the state is kept (this object, or a row that all
processes share) and the call itself. A state database that cannot be used makes the breaker private to this object; it never
makes a call fail.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from threading import Lock
from typing import Final, Protocol, TypeVar, cast, overload

from bartack.core.boot import boot_id
from bartack.core.clock import Clock, SystemClock
from bartack.errors import ResilienceError
from bartack.resilience import _circuit
from bartack.resilience._circuit import (
    Circuit,
    CircuitState,
    ClockReading,
    Lease,
    Record,
    Refused,
    Rules,
    Ticket,
)
from bartack.resilience._outcome import CallFailed, CallIgnored, CallRejected, CallSucceeded, Outcome
from bartack.resilience._store import INGEST_BUSY_S, StateStore
from bartack.resilience.mirror import iso
from bartack.resilience.settings import BREAKER_TIMEOUT, FAILURE_THRESHOLD, given, load_settings
from bartack.telemetry import NO_TELEMETRY, Telemetry
from bartack.telemetry.catalogue import (
    BreakerClosed,
    BreakerHalfOpen,
    BreakerOpened,
    BreakerRejected,
)

_log = logging.getLogger("bartack.resilience")
T = TypeVar("T")
R = TypeVar("R")

_COUNTED_4XX: Final = {401, 403, 408, 425, 429}
_SHORTEST_LEASE_S: Final = 10.0
_PRIVATE: Final = "breaker"


class _CircuitStore(Protocol):
    """Where the state is kept. ``change`` is atomic."""

    def change(self, work: Callable[[Circuit], tuple[Circuit, R]]) -> tuple[Circuit, Circuit, R]: ...

    def look(self) -> Circuit: ...

    def moment(self) -> ClockReading: ...


class CircuitBreaker:
    """Stops calling a service after some failures in a row, and tries it again one call at a time.

    Args:
        failure_threshold: Failures in a row that open it.
        timeout: Seconds it stays open before it tries one call.
        half_open_max_calls: How many such calls may be under way at once, in all processes together.
        name: What the state is shared under; needs ``store``.
        store: Where it is shared. Without, the state is private to this object.
        max_in_flight: Calls of this object that may be under way at once; 0 for any number.
        ignore: Exceptions that say nothing about the service.
        clock: What time it is, for a private state.
        telemetry: Receives changes.
    """

    def __init__(
        self,
        failure_threshold: int = FAILURE_THRESHOLD,
        timeout: float = BREAKER_TIMEOUT,
        half_open_max_calls: int = 1,
        *,
        name: str | None = None,
        store: StateStore | None = None,
        max_in_flight: int = 0,
        ignore: tuple[type[Exception], ...] = (),
        clock: Clock | None = None,
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        settings = load_settings()
        self.failure_threshold = given(failure_threshold, settings.failure_threshold)
        self.timeout = given(timeout, settings.breaker_timeout)
        self.half_open_max_calls = half_open_max_calls
        self.name = name or _PRIVATE
        self.max_in_flight = max_in_flight
        self.ignore = ignore
        self._telemetry = telemetry
        self._in_flight = 0
        self._private = _PrivateCircuit(clock or SystemClock())
        self._shared = _SharedCircuit(store, name) if store is not None and name else None
        self._warned = False

    def share(self, store: StateStore, name: str) -> None:
        """Share the state with all processes, as a row of this database."""
        self.name = name
        self._shared = _SharedCircuit(store, name)

    @overload
    async def execute(self, func: Callable[[], Awaitable[T]], *, call_timeout: float = 2.0) -> Outcome[T]: ...

    @overload
    async def execute(self, func: Callable[[], T], *, call_timeout: float = 2.0) -> Outcome[T]: ...

    async def execute(self, func: Callable[[], T | Awaitable[T]], *, call_timeout: float = 2.0) -> Outcome[T]:
        """Make a call if the breaker allows it, and say what became of it.

        Args:
            func: The call; returns a value or an awaitable. It fails by raising.
            call_timeout: How long the call may take; a probe that is not back after twice that time is given up.
        """
        return await self._execute(func, call_timeout)

    async def _execute(self, func: Callable[[], T | Awaitable[T]], call_timeout: float) -> Outcome[T]:
        if self.max_in_flight and self._in_flight >= self.max_in_flight:
            return self._reject(0.0, self._look().record.state, "busy")
        ticket = self._admit(call_timeout)
        if isinstance(ticket, Refused):
            return self._reject(ticket.retry_after, ticket.state, ticket.state.value)
        self._in_flight += 1
        try:
            return await self._run(func, ticket)
        finally:
            self._in_flight -= 1

    @overload
    async def call(self, func: Callable[[], Awaitable[T]]) -> T | None: ...

    @overload
    async def call(self, func: Callable[[], T]) -> T | None: ...

    async def call(self, func: Callable[[], T | Awaitable[T]]) -> T | None:
        """The value of a call, or ``None`` if it failed or was not made. ``execute`` distinguishes these."""
        outcome: Outcome[T] = await self._execute(func, 2.0)
        return outcome.value if isinstance(outcome, CallSucceeded) else None

    def get_state(self) -> dict[str, object]:
        """The state, for people and programs; times are ISO 8601 in UTC."""
        circuit = self._look()
        record = circuit.record
        return {
            "state": record.state.value,
            "failure_count": record.failures,
            "last_failure_time": iso(record.last_failure),
            "last_success_time": iso(record.last_success),
            "consecutive_successes": record.successes,
            "is_available": _circuit.available(circuit, self._rules(), self._moment()),
        }

    def details(self) -> dict[str, object]:
        """``get_state`` and what an operator wants to know: why, until when, and who probes."""
        circuit, moment = self._look(), self._moment()
        record = circuit.record
        wait = _circuit.wait_s(record, self._rules(), moment) if record.state is CircuitState.OPEN else 0.0
        return {
            "name": self.name,
            **self.get_state(),
            "reason": record.reason,
            "next_probe_s": round(wait, 3),
            "probed_by": [lease.holder for lease in circuit.leases if lease.alive(moment)],
            "generation": record.generation,
            "stale_results": record.stale_results,
        }

    def reset(self) -> None:
        """Close the breaker and forget every failure."""
        self._change(lambda circuit: (_circuit.closed(circuit), None), "reset")

    def trip(self, reason: str, wait_s: float) -> None:
        """Open the breaker at once, for at least ``wait_s`` seconds."""
        moment = self._moment()
        self._change(lambda circuit: (_circuit.trip(circuit, moment, reason, wait_s), None), reason)

    def note_failure(self) -> None:
        """Count a failure that was learned without a call, by a health check."""
        moment, rules = self._moment(), self._rules()

        def work(circuit: Circuit) -> tuple[Circuit, None]:
            if circuit.record.state is not CircuitState.CLOSED:
                return circuit, None
            ticket = Ticket(circuit.record.generation, "", probe=False)
            return _circuit.fail(circuit, rules, moment, ticket), None

        self._change(work, _circuit.FAILURES)

    def note_healthy(self) -> None:
        """The service was found healthy: what failures have opened may be tried at once."""
        moment = self._moment()
        self._change(lambda circuit: (_circuit.turn_healthy(circuit, moment), None), "health")

    async def _run(self, func: Callable[[], T | Awaitable[T]], ticket: Ticket) -> Outcome[T]:
        try:
            result = func()
            value = await cast("Awaitable[T]", result) if isawaitable(result) else result
        except Exception as error:  # noqa: BLE001 - whatever the call raises is its outcome
            return self._count(error, ticket)
        except BaseException:
            self._change(lambda circuit: (_circuit.give_back(circuit, ticket), None), "cancelled")
            raise
        moment = self._moment()
        self._change(lambda circuit: (_circuit.succeed(circuit, moment, ticket), None), "success")
        return CallSucceeded(value)

    def _count(self, error: Exception, ticket: Ticket) -> CallFailed | CallIgnored:
        moment, rules, status = self._moment(), self._rules(), status_of(error)
        if isinstance(error, self.ignore) or (400 <= status < 500 and status not in _COUNTED_4XX):
            self._change(lambda circuit: (_circuit.give_back(circuit, ticket), None), "ignored")
            return CallIgnored(error)
        wait: float | None = getattr(error, "retry_after", None)
        reason = fault_of(status) or ("retry_after" if wait else "")
        if reason:
            self._change(
                lambda circuit: (_circuit.trip(circuit, moment, reason, wait or 0.0, ticket), None), reason
            )
        else:
            self._change(
                lambda circuit: (_circuit.fail(circuit, rules, moment, ticket), None), _circuit.FAILURES
            )
        return CallFailed(error)

    def _admit(self, call_timeout: float) -> Ticket | Refused:
        moment, rules = self._moment(), self._rules(max(_SHORTEST_LEASE_S, 2 * call_timeout))
        holder = f"{os.getpid()}-{os.urandom(4).hex()}"
        return self._change(lambda circuit: _circuit.admit(circuit, rules, moment, holder), "call")

    def _rules(self, lease_s: float = _SHORTEST_LEASE_S) -> Rules:
        return Rules(self.failure_threshold, self.timeout, self.half_open_max_calls, lease_s)

    def _change(self, work: Callable[[Circuit], tuple[Circuit, R]], cause: str) -> R:
        before, after, result = self._kept(lambda keeper: keeper.change(work))
        if before.record.state is not after.record.state:
            self._report(before.record, after.record, cause)
        return result

    def _look(self) -> Circuit:
        return self._kept(lambda keeper: keeper.look())

    def _moment(self) -> ClockReading:
        return (self._shared or self._private).moment()

    def _kept(self, use: Callable[[_CircuitStore], R]) -> R:
        if self._shared is None:
            return use(self._private)
        try:
            return use(self._shared)
        except ResilienceError as error:
            if not self._warned:
                self._warned = True
                _log.warning("breaker %s is not shared with other processes now: %s", self.name, error)
            return use(self._private)

    def _report(self, before: Record, after: Record, cause: str) -> None:
        level = logging.WARNING if after.state is CircuitState.OPEN else logging.INFO
        _log.log(
            level, "breaker %s: %s, was %s (%s)", self.name, after.state.value, before.state.value, cause
        )
        if after.state is CircuitState.OPEN:
            if self._telemetry.wanted(BreakerOpened):
                open_for_s = _circuit.wait_s(after, self._rules(), self._moment())
                self._telemetry.emit(
                    BreakerOpened(
                        failures=after.failures,
                        open_for_ns=round(open_for_s * 1e9),
                        breaker=self.name,
                        before=before.state.value,
                        reason=cause,
                    )
                )
            return
        event = BreakerHalfOpen if after.state is CircuitState.HALF_OPEN else BreakerClosed
        if self._telemetry.wanted(event):
            self._telemetry.emit(
                event(failures=after.failures, breaker=self.name, before=before.state.value, reason=cause)
            )

    def _reject(self, retry_after: float, state: CircuitState, reason: str) -> CallRejected:
        if self._telemetry.wanted(BreakerRejected):
            self._telemetry.emit(
                BreakerRejected(retry_after_ns=round(retry_after * 1e9), breaker=self.name, reason=reason)
            )
        return CallRejected(retry_after, state.value, self.name)


def status_of(error: BaseException) -> int:
    """The HTTP status an exception stands for, 0 if none."""
    status = getattr(error, "status", None)
    if status is None:
        status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else 0


def fault_of(status: int) -> str:
    """What is wrong with the endpoint itself, by its answer; empty if nothing is."""
    if status in {401, 403}:
        return "auth"
    return "redirect" if 300 <= status < 400 else ""


class _PrivateCircuit:
    """State of one object."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._circuit = Circuit()
        self._lock = Lock()

    def change(self, work: Callable[[Circuit], tuple[Circuit, R]]) -> tuple[Circuit, Circuit, R]:
        with self._lock:
            before = self._circuit
            self._circuit, result = work(before)
            return before, self._circuit, result

    def look(self) -> Circuit:
        return self._circuit

    def moment(self) -> ClockReading:
        return ClockReading(self._clock.monotonic_ns() / 1e9, self._clock.now_us() / 1e6, boot_id())


_COLUMNS: Final = (
    "state,failures,successes,generation,opened_at,opened_wall,boot,last_failure,last_success,"
    "not_before,not_before_wall,reason,stale_results"
)


class _SharedCircuit:
    """State of one row of the database, with its leases."""

    def __init__(self, store: StateStore, name: str) -> None:
        self._store = store
        self._name = name

    def change(self, work: Callable[[Circuit], tuple[Circuit, R]]) -> tuple[Circuit, Circuit, R]:
        def transaction(connection: sqlite3.Connection) -> tuple[Circuit, Circuit, R]:
            before = self._load(connection)
            after, result = work(before)
            if after.record != before.record:
                self._save(connection, after.record)
            if after.leases != before.leases:
                self._save_leases(connection, after.leases)
            return before, after, result

        # A breaker that a power cut sets back by a moment does no harm.
        return self._store.write(transaction, busy_s=INGEST_BUSY_S, durable=False)

    def look(self) -> Circuit:
        return self._store.read(self._load)

    def moment(self) -> ClockReading:
        return ClockReading(self._store.now(), self._store.wall(), self._store.boot)

    def _load(self, connection: sqlite3.Connection) -> Circuit:
        row = connection.execute(f"SELECT {_COLUMNS} FROM breaker WHERE name=?", (self._name,)).fetchone()
        if row is None:
            return Circuit()
        found = connection.execute(
            "SELECT holder,until,generation,boot FROM leases WHERE scope=?", (f"probe:{self._name}",)
        )
        record = Record(CircuitState(row[0]), *row[1:])
        return Circuit(record, tuple(Lease(*lease) for lease in found))

    def _save(self, connection: sqlite3.Connection, record: Record) -> None:
        marks = ",".join("?" * (len(record) + 1))
        connection.execute(
            f"INSERT OR REPLACE INTO breaker(name,{_COLUMNS}) VALUES({marks})",
            (self._name, record.state.value, *record[1:]),
        )

    def _save_leases(self, connection: sqlite3.Connection, leases: tuple[Lease, ...]) -> None:
        scope = f"probe:{self._name}"
        connection.execute("DELETE FROM leases WHERE scope=?", (scope,))
        connection.executemany("INSERT INTO leases VALUES(?,?,?,?,?)", [(scope, *lease) for lease in leases])


def breaker_names(store: StateStore) -> list[str]:
    """Every breaker whose state is in this database."""
    found = store.read(
        lambda connection: connection.execute("SELECT name FROM breaker ORDER BY name").fetchall()
    )
    return [str(name) for (name,) in found]
