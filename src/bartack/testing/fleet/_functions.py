"""The functions of a database that decide who owns a run: what ``depot/postgres/schema`` has in SQL, as a protocol.

Each function is carried out whole or not at all, and one after the other. Its answer can be lost on the way to the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from bartack.depot.taken import LEASE_S, POOL, NodeState, OwnerState, Taken
from bartack.journal.shared import Commit


class NodeForm(NamedTuple):
    """What a node says of itself when it joins.

    Attributes:
        name: What people call it.
        seat: The same for all its lives.
        boot: This start of its machine, and after a slash a number that grows with each life of the seat.
        slots: How many runs it runs at a time; 0: it is a process that owns one run.
        pools: The queues that it takes runs from.
        labels: What runs may need.
        lease_s: How long its right to own runs lasts after a beat.
    """

    name: str
    seat: UUID
    boot: str = "boot"
    slots: int = 4
    pools: tuple[str, ...] = (POOL,)
    labels: tuple[str, ...] = ()
    lease_s: float = LEASE_S


class Beat(NamedTuple):
    """The answer to a beat.

    Attributes:
        state: The state of the node.
        buried: The nodes that it has declared dead.
        is_queued: Whether a run waits in its pools.
    """

    state: NodeState
    buried: tuple[int, ...] = ()
    is_queued: bool = False


class KeptPlace(NamedTuple):
    """What is kept at a place of a journal.

    Attributes:
        owner_fence: The fence of the owner of the run; -1: nothing owns it.
        found: The commit that begins there.
        ends: The last entry of the journal.
    """

    owner_fence: int
    found: Commit | None
    ends: int


class RunStanding(NamedTuple):
    """A run, as the database has it.

    Attributes:
        state: Who has to take care of it.
        fence: The number of the last ownership, raised by every change of it.
        node: The node that owns it; 0: none.
        strikes: How often in a row its process has died, alone or with its node, and no step was finished.
        reason: Why it is in that state, in words.
    """

    state: OwnerState
    fence: int
    node: int
    strikes: int
    reason: str


class FleetFunctions(Protocol):
    """See the module."""

    # Runs.

    def submit(self, run_id: str, first: Commit) -> int:
        """Keep a run with its first commit; returns its number. Nodes do not take it yet."""
        ...

    def enqueue(
        self,
        run: int,
        pool: str | None = None,
        priority: int | None = None,
        needs: Sequence[str] | None = None,
    ) -> str:
        """Give a run to the nodes of a pool, or back to them; returns ``queued``, or ``owned`` if it has an owner."""
        ...

    def standing(self, run: int) -> RunStanding:
        """Who has to take care of a run."""
        ...

    def commits(self, run: int) -> list[Commit]:
        """The journal of a run."""
        ...

    # Nodes.

    def join(self, form: NodeForm) -> int:
        """Become a node; returns its number. Earlier nodes of the same seat and the same boot are declared dead."""
        ...

    def beat(self, node: int) -> Beat:
        """Renew the lease of a node, and do what is due for all: a steady node declares late ones dead."""
        ...

    def drain(self, name: str) -> int:
        """Let the nodes of a name take no more runs; returns how many there are."""
        ...

    def leave(self, node: int) -> None:
        """End a node in order. What it still owns is free."""
        ...

    def node_state(self, node: int) -> NodeState:
        """The state of a node."""
        ...

    # Owning.

    def claim(self, node: int, most: int) -> list[Taken]:
        """Own at most ``most`` of the runs that wait for such a node, and of a short queue no more than an equal share."""
        ...

    def claim_run(self, node: int, run: int, grace_s: float) -> tuple[str, int]:
        """Own one run for a process; returns ``claimed``, ``owned``, ``held`` or ``dead``, and the fence."""
        ...

    def owned(self, node: int) -> list[Taken]:
        """All runs that a node owns."""
        ...

    def alive(self, run: int, fence: int) -> bool:
        """A hub runs the run."""
        ...

    def begun(self, run: int, fence: int) -> bool:
        """Something of the run is executed, though no hub runs it yet."""
        ...

    def progressed(self, run: int, fence: int) -> None:
        """A step was finished: what has happened to nodes before is not the fault of the run."""
        ...

    def give_back(
        self, run: int, fence: int, state: OwnerState, due_us: int, why: str, strikes: int, *, refuses: bool
    ) -> str | None:
        """End the ownership of a node; returns the state of the run then, or ``None`` if it had ended already."""
        ...

    def release(self, run: int, fence: int, state: OwnerState, why: str) -> bool:
        """End the ownership of a process; whether it had not ended already."""
        ...

    def restored(self) -> int:
        """The database was restored from a backup: nothing that owned a run before owns it now. Returns how many runs are held."""
        ...

    # Writing.

    def append(self, commits: Sequence[tuple[int, Commit]]) -> dict[int, str]:
        """Keep commits, one of each run; ``written``, ``lost`` or ``look`` for each run."""
        ...

    def look(self, run: int, seq: int) -> KeptPlace:
        """What is kept at a place."""
        ...

    # For tests.

    def now_us(self) -> int:
        """What the clock of the database shows, in microseconds since 1970."""
        ...

    def pass_time(self, seconds: float) -> None:
        """Let time pass in which nothing happens."""
        ...

    def crash(self) -> None:
        """The database has crashed, and has lost beats that were not synced. Nothing of that is visible in its tables."""
        ...

    def changes(self) -> set[tuple[str, str]]:
        """Every change of the state of a run of a pool so far."""
        ...
