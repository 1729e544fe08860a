"""The state machine of a circuit breaker: values in, values out, no clock and no database.

==========  =======================================  ==========  ===================================================
from        event                                    to          effect
==========  =======================================  ==========  ===================================================
closed      success                                  closed      failures 0, successes + 1
closed      failure below the threshold              closed      failures + 1, successes 0
closed      failure at the threshold                 open        generation + 1
closed      trip                                     open        generation + 1, not before a given time
open        call before its time                     open        rejected
open        health turned good                       half_open   generation + 1; only if failures opened it
open        call after its time                      half_open   generation + 1; this call is the first probe
half_open   call, a probe is free                    half_open   this call is a probe, with a lease
half_open   call, no probe is free                   half_open   rejected
half_open   probe succeeded                          closed      leases dropped, failures 0, generation + 1
half_open   probe failed                             open        leases dropped, generation + 1
half_open   probe ignored or cancelled               half_open   its lease is given back
half_open   a lease ran out                          half_open   the probe is free for the next caller
any         result of an older generation            same        ignored, counted
==========  =======================================  ==========  ===================================================
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

FAILURES: Final = "failures"


class CircuitState(StrEnum):
    """Whether calls are made (closed), rejected (open) or tried one by one (half open)."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class ClockReading(NamedTuple):
    """A reading of both clocks."""

    now: float
    wall: float
    boot: str


class Rules(NamedTuple):
    """What the owner of a breaker has set."""

    threshold: int
    timeout_s: float
    probes: int
    lease_s: float


class Lease(NamedTuple):
    """The right of one call to be a probe."""

    holder: str
    until: float
    generation: int
    boot: str

    def alive(self, moment: ClockReading) -> bool:
        """Whether the holder may still be at work."""
        return self.boot == moment.boot and self.until > moment.now


class Record(NamedTuple):
    """The state of a breaker. ``opened_at`` and ``not_before`` are monotonic within ``boot``, and wall time outside of it."""

    state: CircuitState = CircuitState.CLOSED
    failures: int = 0
    successes: int = 0
    generation: int = 0
    opened_at: float = 0.0
    opened_wall: float = 0.0
    boot: str = ""
    last_failure: float | None = None
    last_success: float | None = None
    not_before: float = 0.0
    not_before_wall: float = 0.0
    reason: str | None = None
    stale_results: int = 0


class Circuit(NamedTuple):
    """A breaker with its probes."""

    record: Record = Record()
    leases: tuple[Lease, ...] = ()


class Ticket(NamedTuple):
    """A call that is let through. Its result counts only in the generation it was let through in."""

    generation: int
    holder: str
    probe: bool


class Refused(NamedTuple):
    """A call that is not let through."""

    retry_after: float
    state: CircuitState


def admit(
    circuit: Circuit, rules: Rules, moment: ClockReading, holder: str
) -> tuple[Circuit, Ticket | Refused]:
    """Decide on one call."""
    record = circuit.record
    if record.state is CircuitState.CLOSED:
        return circuit, Ticket(record.generation, holder, probe=False)
    if record.state is CircuitState.OPEN:
        wait = wait_s(record, rules, moment)
        if wait > 0:
            return circuit, Refused(wait, CircuitState.OPEN)
        circuit = _half_opened(record)
    return _admit_probe(circuit, rules, moment, holder)


def _half_opened(record: Record) -> Circuit:
    return Circuit(record._replace(state=CircuitState.HALF_OPEN, generation=record.generation + 1))


def _admit_probe(
    circuit: Circuit, rules: Rules, moment: ClockReading, holder: str
) -> tuple[Circuit, Ticket | Refused]:
    alive = tuple(lease for lease in circuit.leases if lease.alive(moment))
    if len(alive) >= rules.probes:
        soonest = min((lease.until - moment.now for lease in alive), default=rules.timeout_s)
        return circuit._replace(leases=alive), Refused(soonest, CircuitState.HALF_OPEN)
    generation = circuit.record.generation
    lease = Lease(holder, moment.now + rules.lease_s, generation, moment.boot)
    return circuit._replace(leases=(*alive, lease)), Ticket(generation, holder, probe=True)


def wait_s(record: Record, rules: Rules, moment: ClockReading) -> float:
    """How long an open breaker stays so; 0 when a probe may be made."""
    if record.boot == moment.boot:
        return max(record.opened_at + rules.timeout_s - moment.now, record.not_before - moment.now, 0.0)
    # From before a restart of the machine: only the wall clock is left, and it may have been set.
    left = max(record.opened_wall + rules.timeout_s, record.not_before_wall) - moment.wall
    return min(max(left, 0.0), rules.timeout_s)


def succeed(circuit: Circuit, moment: ClockReading, ticket: Ticket) -> Circuit:
    """A call has returned."""
    record = circuit.record
    if ticket.generation != record.generation:
        return _stale(circuit)
    record = record._replace(failures=0, successes=record.successes + 1, last_success=moment.wall)
    if record.state is CircuitState.CLOSED:
        return circuit._replace(record=record)
    return Circuit(record._replace(state=CircuitState.CLOSED, generation=record.generation + 1, reason=None))


def fail(circuit: Circuit, rules: Rules, moment: ClockReading, ticket: Ticket) -> Circuit:
    """A call has raised."""
    record = circuit.record
    if ticket.generation != record.generation:
        return _stale(circuit)
    record = record._replace(failures=record.failures + 1, successes=0, last_failure=moment.wall)
    if record.state is CircuitState.CLOSED and record.failures < rules.threshold:
        return circuit._replace(record=record)
    return _opened(record, moment, FAILURES)


def give_back(circuit: Circuit, ticket: Ticket) -> Circuit:
    """A call has ended in a way that says nothing: its probe is free again."""
    return circuit._replace(leases=tuple(one for one in circuit.leases if one.holder != ticket.holder))


def trip(
    circuit: Circuit, moment: ClockReading, reason: str, wait: float, ticket: Ticket | None = None
) -> Circuit:
    """Open at once, for at least ``wait`` seconds. With a ticket, only if its result still counts."""
    record = circuit.record
    if ticket is not None and ticket.generation != record.generation:
        return _stale(circuit)
    later = record._replace(
        failures=record.failures + 1,
        successes=0,
        last_failure=moment.wall,
        not_before=moment.now + wait,
        not_before_wall=moment.wall + wait,
    )
    return _opened(later, moment, reason)


def turn_healthy(circuit: Circuit, moment: ClockReading) -> Circuit:
    """The service was found healthy: what failures opened may be tried before its time."""
    record = circuit.record
    over = record.boot != moment.boot or record.not_before <= moment.now
    if record.state is CircuitState.OPEN and record.reason == FAILURES and over:
        return _half_opened(record)
    return circuit


def closed(circuit: Circuit) -> Circuit:
    """As if nothing had ever failed."""
    return Circuit(Record(generation=circuit.record.generation + 1))


def available(circuit: Circuit, rules: Rules, moment: ClockReading) -> bool:
    """Whether a call would be let through now."""
    return isinstance(admit(circuit, rules, moment, "")[1], Ticket)


def _opened(record: Record, moment: ClockReading, reason: str) -> Circuit:
    return Circuit(
        record._replace(
            state=CircuitState.OPEN,
            generation=record.generation + 1,
            opened_at=moment.now,
            opened_wall=moment.wall,
            boot=moment.boot,
            reason=reason,
        )
    )


def _stale(circuit: Circuit) -> Circuit:
    record = circuit.record
    return circuit._replace(record=record._replace(stale_results=record.stale_results + 1))
