"""What a node is to the database of its runs, and what it gets from there: values, and the states in which runs and nodes can be.

``postgres/schema/0002.sql`` makes every change of these states. The tables here name all that are allowed, and why each happens:
``docs/explanation/leases.md`` draws them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, Literal, NamedTuple

POOL: Final = "default"
TEAM: Final = "default"
"""Whose run one is where no team was named."""
LEASE_S: Final = 5.0
"""How long the right to own runs lasts after a beat."""
HOLD_S: Final = 300.0
"""How long a run waits for a database or an object store that does not answer, before it is stopped."""
READS: Final = 1
"""The level of what the journal of a run may have in it. It is raised when earlier versions would misread what this one writes.
A run that was owned at a level goes to no process of a lower one."""

NodeState = Literal["live", "draining", "left", "dead"]
OwnerState = Literal["queued", "owned", "resting", "held", "over"]


class Change(NamedTuple):
    """One row of a table of states.

    Attributes:
        start: The state before.
        event: What happens.
        end: The state after.
    """

    start: str
    event: str
    end: str


NODE_CHANGES: Final = (
    Change("live", "a person drains it", "draining"),
    Change("live", "its process ends in order", "left"),
    Change("draining", "its runs are gone", "left"),
    Change("live", "its lease is over", "dead"),
    Change("draining", "its lease is over", "dead"),
)
"""A node in the database."""

OWNER_CHANGES: Final = (
    Change("queued", "a node claims it", "owned"),
    Change("owned", "it has ended", "over"),
    Change("owned", "it has nothing to do", "resting"),
    Change("owned", "its node stops or refuses it", "queued"),
    Change("owned", "all nodes refuse it", "held"),
    Change("owned", "its node is declared dead", "queued"),
    Change("owned", "its node is declared dead for the third time", "held"),
    Change("owned", "its process dies again and again", "held"),
    Change("owned", "its journal is damaged, or has lost entries", "held"),
    Change("resting", "its time has come", "queued"),
    Change("resting", "a person gives it to the nodes", "queued"),
    Change("queued", "the database was restored from a backup", "held"),
    Change("owned", "the database was restored from a backup", "held"),
    Change("resting", "the database was restored from a backup", "held"),
    Change("held", "a person gives it to the nodes", "queued"),
    Change("over", "a person gives it to the nodes", "queued"),
)
"""A run of a pool in the database. A process that owns one run for a moment leaves it in the state in which it was."""


class KeyKnownError(Exception):
    """A run was not created because there is one of its key; ``run`` is its id."""

    def __init__(self, run: str) -> None:
        self.run = run
        super().__init__(run)


class Queueing(NamedTuple):
    """How a run is queued for the nodes of its database.

    Attributes:
        pool: Which nodes take it; ``None``: those that it was for before.
        priority: Runs with a higher one are taken first; ``None``: as before.
        needs: The labels that a node must have; ``None``: as before.
        begins: No node takes it before this time; ``None``: at once.
    """

    pool: str | None = None
    priority: int | None = None
    needs: Sequence[str] | None = None
    begins: datetime | None = None


class FleetFacts(NamedTuple):
    """What a node says of itself.

    Attributes:
        name: What people call it.
        seat: Its directory, the same for all its lives; only one process at a time uses it.
        boot: This start of the machine.
        slots: How many runs it runs at a time.
        pools: The queues that it takes runs from.
        labels: What runs may need.
        lease_s: How long its right to own runs lasts after a beat.
        reads: The level of journals that it reads.
    """

    name: str
    seat: Path
    boot: str
    slots: int
    pools: Sequence[str] = (POOL,)
    labels: Sequence[str] = ()
    lease_s: float = LEASE_S
    reads: int = READS


class Taken(NamedTuple):
    """A run that the node owns.

    Attributes:
        no: Its number in the database.
        id: Its id.
        team: Its team.
        fence: The number of the ownership.
        strikes: How often in a row its process has died, alone or with its node, and no step was finished.
        seen_us: When a hub of an earlier owner was last seen alive, by the clock of the database; ``None`` if none ever was.
    """

    no: int
    id: str
    team: str
    fence: int
    strikes: int
    seen_us: int | None = None
