"""``FleetFunctions`` in memory: the same decisions as in ``depot/postgres/schema/0002.sql``, each in a few lines.

The decisions that a correct fleet stands on are methods of their own (``_is_owner``, ``_fits``, ``_is_steady``, …), so that a test
can plant a mistake in one of them and see that it is found. A million beats have to be fast: nodes that are late, runs that wait
and runs that are due are at the tops of heaps, whose entries are checked when they are met.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from bartack.depot.taken import POOL, NodeState, OwnerState, Taken
from bartack.journal.shared import Commit
from bartack.testing._clock import START_US
from bartack.testing.fleet._functions import Beat, KeptPlace, NodeForm, RunStanding

SECOND_US: Final = 1_000_000
GRACE_US: Final = 30 * SECOND_US
"""Nodes of one run have no slots: their process may be a person's, and gets more time."""
GAP: Final = 35
"""A node is steady as long as its beats come without a gap of this part of a lease, in percent."""
SLACK: Final = 15
"""A node is declared dead so long after its lease, in percent: a step of the clock that is too short for a gap hurts nothing."""
STRIKES: Final = 3
MOST_WOKEN: Final = 100
RESTORED: Final = 1000
"""Fences that may have been given away after the backup was made."""


@dataclass(slots=True)
class MemoryNode:
    """A row of the table of nodes."""

    id: int
    form: NodeForm
    lease_us: int
    until_us: int
    steady_us: int
    state: NodeState = "live"
    runs: set[int] = field(default_factory=set[int])


@dataclass(slots=True)
class MemoryRun:
    """A row of the table of runs, with its owner and its journal."""

    no: int
    id: str
    state: OwnerState = "resting"
    fence: int = 1
    node: int = 0
    is_alive: bool = False
    reason: str = ""
    pool: str | None = None
    priority: int = 0
    needs: frozenset[str] = frozenset()
    refused: frozenset[int] = frozenset()
    due_us: int = 0
    strikes: int = 0
    deaths: int = 0
    begun: int = 0
    before: OwnerState = "resting"
    commits: dict[int, Commit] = field(default_factory=dict[int, Commit])
    ends: int = 0
    seen_us: int | None = None

    @property
    def taken(self) -> Taken:
        """As its owner sees it."""
        return Taken(self.no, self.id, "default", self.fence, self.strikes, self.seen_us)

    def count(self, strikes: int) -> None:
        """What clears the strikes clears the deaths of nodes, which are among them."""
        self.strikes = strikes
        self.deaths = min(self.deaths, strikes)


# Long because it has all functions of the database, each in a few lines.
class MemoryFleet:
    """See the module.

    Args:
        now_us: The clock of the database. It may be set.
    """

    def __init__(self, now_us: Callable[[], int] | None = None) -> None:
        self._clock = now_us or (lambda: START_US)
        self._passed_us = 0
        self._nodes: dict[int, MemoryNode] = {}
        self._runs: dict[int, MemoryRun] = {}
        self._late: list[tuple[int, int]] = []
        self._waiting: dict[str, list[tuple[int, int]]] = {}
        self._delayed: list[tuple[int, int]] = []
        self._resting: list[tuple[int, int]] = []
        self._queued: Counter[str] = Counter()
        self._live: set[int] = set()
        self._changes: set[tuple[str, str]] = set()
        self._awake_us: int | None = None

    def now_us(self) -> int:
        """See ``FleetFunctions.now_us``."""
        return self._clock() + self._passed_us

    # Runs.

    def submit(self, run_id: str, first: Commit) -> int:
        """See ``FleetFunctions.submit``."""
        number = len(self._runs) + 1
        row = MemoryRun(number, run_id, commits={first.seq: first}, ends=first.last, seen_us=self.now_us())
        self._runs[number] = row
        return number

    def enqueue(
        self,
        run: int,
        pool: str | None = None,
        priority: int | None = None,
        needs: Sequence[str] | None = None,
    ) -> str:
        """See ``FleetFunctions.enqueue``."""
        row = self._runs[run]
        if row.state == "queued" and row.pool is not None:
            self._queued[row.pool] -= 1  # it may wait in another pool from now on
        row.pool = pool or row.pool or POOL
        row.priority = row.priority if priority is None else priority
        row.needs = row.needs if needs is None else frozenset(needs)
        row.count(0 if row.state == "held" else row.strikes)
        row.refused, row.due_us, row.reason = frozenset(), 0, ""
        if row.state == "queued":
            self._queued[row.pool] += 1
            self._line_up(row)
        elif row.state != "owned":
            self._move(row, "queued")
        return row.state

    def standing(self, run: int) -> RunStanding:
        """See ``FleetFunctions.standing``."""
        row = self._runs[run]
        return RunStanding(row.state, row.fence, row.node, row.strikes, row.reason)

    def commits(self, run: int) -> list[Commit]:
        """See ``FleetFunctions.commits``."""
        return [*self._runs[run].commits.values()]

    # Nodes.

    def join(self, form: NodeForm) -> int:
        """See ``FleetFunctions.join``."""
        nodes = [self._nodes[number] for number in sorted(self._live)]
        gone = [node for node in nodes if self._is_earlier_life(node.form, form)]
        if gone:
            self._bury(gone, "its process died")
        number, now = len(self._nodes) + 1, self.now_us()
        lease_us = int(form.lease_s * SECOND_US)
        node = MemoryNode(number, form, lease_us, now + lease_us, now)
        self._nodes[number] = node
        self._live.add(number)
        self._watch(node)
        return number

    def beat(self, node: int) -> Beat:
        """See ``FleetFunctions.beat``."""
        mine, now = self._nodes[node], self.now_us()
        if node not in self._live:
            return Beat(mine.state)
        if not self._keeps_steady(mine, now):
            mine.steady_us = now
        mine.until_us = now + mine.lease_us
        self._watch(mine)
        buried = self._bury_late(now) if self._is_steady(mine, now) else ()
        self._wake_resting(now)
        pools = mine.form.pools
        return Beat(mine.state, buried, is_queued=any(self._queued[pool] for pool in pools))

    def drain(self, name: str) -> int:
        """See ``FleetFunctions.drain``."""
        found = [
            node
            for node in self._nodes.values()
            if (node.form.name, node.state) == (name, "live") and node.form.slots
        ]
        for node in found:
            node.state = "draining"
        return len(found)

    def leave(self, node: int) -> None:
        """See ``FleetFunctions.leave``."""
        self._bury([self._nodes[node]], "its process ended")
        self._nodes[node].state = "left"

    def node_state(self, node: int) -> NodeState:
        """See ``FleetFunctions.node_state``."""
        return self._nodes[node].state

    def _bury_late(self, now: int) -> tuple[int, ...]:
        late = dict[int, MemoryNode]()
        while self._late and self._late[0][0] < now:
            until, number = heapq.heappop(self._late)
            node = self._nodes[number]
            if number in self._live and self._late_us(node) == until:
                late[number] = node
        if late:
            self._bury(late.values(), "its node died")
        return tuple(late)

    def _bury(self, nodes: Iterable[MemoryNode], why: str) -> None:
        """Declare nodes dead, and free their runs under higher fences."""
        for node in nodes:
            if node.id in self._live:
                self._live.discard(node.id)
                node.state = "dead"
            for number in sorted(node.runs):
                self._free(self._runs[number], why)

    def _free(self, row: MemoryRun, why: str) -> None:
        counts = row.pool is not None and (row.is_alive or row.begun == row.fence)
        state: OwnerState = "queued" if row.deaths < STRIKES - 1 else "held"
        if row.pool is None:
            state = "resting"
        elif not counts:
            state = row.before
        if counts:
            if state == "held":
                why = "its node died for the third time, and no step was finished in between"
            row.deaths += 1
            row.count(self._strikes_after_burial(row))
        row.reason = why
        row.fence = self._fence_after_burial(row)
        self._note_last_beat(row)
        self._move(row, state)

    def _wake_resting(self, now: int) -> None:
        for _ in range(MOST_WOKEN):
            if not self._resting or self._resting[0][0] > now:
                return
            due, number = heapq.heappop(self._resting)
            row = self._runs[number]
            if (row.state, row.due_us) == ("resting", due):
                row.due_us = 0
                self._move(row, "queued")

    # Owning.

    def claim(self, node: int, most: int) -> list[Taken]:
        """See ``FleetFunctions.claim``."""
        mine, now = self._nodes[node], self.now_us()
        self._wake_delayed(now)
        if mine.state != "live" or not any(self._queued[pool] for pool in mine.form.pools):
            return []
        found, others = list[Taken](), list[tuple[str, tuple[int, int]]]()
        share = self._share(mine, most, now)
        while len(found) < share and (top := self._pop(mine.form.pools)) is not None:
            row = self._runs[top[1][1]]
            if row.needs <= set(mine.form.labels) and node not in row.refused:
                self._own(row, mine, "queued")
                found.append(row.taken)
            else:
                others.append(top)
        for pool, entry in others:
            heapq.heappush(self._waiting[pool], entry)
        return found

    def _share(self, mine: MemoryNode, most: int, now: int) -> int:
        waiting = sum(self._queued[pool] for pool in set(mine.form.pools))
        if waiting >= most * len(self._live):
            return most
        pools = set(mine.form.pools)
        nodes = [self._nodes[number] for number in self._live]
        live = sum(
            node.state == "live"
            and node.form.slots > 0
            and node.until_us > now
            and not pools.isdisjoint(node.form.pools)
            for node in nodes
        )
        return min(most, max(1, ceil(waiting / max(live, 1))))

    def _pop(self, pools: Sequence[str]) -> tuple[str, tuple[int, int]] | None:
        """Take the first run that waits in these pools."""
        tops = [(heap[0], pool) for pool in pools if (heap := self._cleaned(pool))]
        if not tops:
            return None
        entry, pool = min(tops)
        heapq.heappop(self._waiting[pool])
        return pool, entry

    def _cleaned(self, pool: str) -> list[tuple[int, int]]:
        """The heap of a pool, whose first entry is one that can be claimed."""
        heap = self._waiting.get(pool, [])
        while heap:
            priority, number = heap[0]
            row = self._runs[number]
            if (row.state, row.pool, -row.priority, row.due_us) == ("queued", pool, priority, 0):
                break
            heapq.heappop(heap)
        return heap

    def _own(self, row: MemoryRun, node: MemoryNode, before: OwnerState) -> None:
        row.before, row.fence, row.is_alive, row.due_us, row.reason = before, row.fence + 1, False, 0, ""
        self._move(row, "owned", node)

    def claim_run(self, node: int, run: int, grace_s: float) -> tuple[str, int]:
        """See ``FleetFunctions.claim_run``."""
        row, mine = self._runs[run], self._nodes[node]
        if mine.state != "live":
            return "dead", 0
        if row.node == node:
            return "claimed", row.fence
        if row.state == "owned":
            other = self._nodes[row.node]
            if other.until_us + int(grace_s * SECOND_US) >= self.now_us():
                return "owned", row.fence
            self._bury([other], "its node died")
        self._own(row, mine, row.state)
        return "claimed", row.fence

    def owned(self, node: int) -> list[Taken]:
        """See ``FleetFunctions.owned``."""
        return [self._runs[number].taken for number in sorted(self._nodes[node].runs)]

    def alive(self, run: int, fence: int) -> bool:
        """See ``FleetFunctions.alive``."""
        row = self._owner(run, fence)
        if row is not None:
            row.is_alive = True
        return row is not None

    def begun(self, run: int, fence: int) -> bool:
        """See ``FleetFunctions.begun``."""
        row = self._owner(run, fence)
        if row is not None:
            row.begun = fence
        return row is not None

    def progressed(self, run: int, fence: int) -> None:
        """See ``FleetFunctions.progressed``."""
        row = self._owner(run, fence)
        if row is not None:
            row.count(0)

    def give_back(
        self, run: int, fence: int, state: OwnerState, due_us: int, why: str, strikes: int, *, refuses: bool
    ) -> str | None:
        """See ``FleetFunctions.give_back``."""
        row = self._owner(run, fence)
        if row is None:
            return None
        if refuses:
            row.refused |= {row.node}
            if not self._has_taker(row):
                state = "held"
        row.fence, row.reason, row.due_us = row.fence + 1, why, max(due_us, 0)
        row.count(strikes)
        row.seen_us = self.now_us() if row.is_alive else row.seen_us
        self._move(row, state)
        return state

    def _has_taker(self, row: MemoryRun) -> bool:
        now = self.now_us()
        nodes = [self._nodes[number] for number in self._live if number not in row.refused]
        return any(
            node.state == "live"
            and node.form.slots > 0
            and node.until_us > now
            and row.pool in node.form.pools
            and row.needs <= set(node.form.labels)
            for node in nodes
        )

    def release(self, run: int, fence: int, state: OwnerState, why: str) -> bool:
        """See ``FleetFunctions.release``."""
        row = self._owner(run, fence)
        if row is None:
            return False
        row.fence, row.reason = row.fence + 1, why
        self._note_last_beat(row)
        leaves_as_was = state == "resting" and row.pool is not None and not row.is_alive
        self._move(row, row.before if leaves_as_was else state)
        return True

    def restored(self) -> int:
        """See ``FleetFunctions.restored``."""
        for number in self._live:
            self._nodes[number].state = "dead"
        self._live.clear()
        held = 0
        for row in self._runs.values():
            row.fence += RESTORED
            row.count(0)
            row.due_us, row.refused = 0, frozenset()
            if row.state not in {"over", "held"}:
                held += row.pool is not None
                row.reason = "the database was restored from a backup" if row.pool else row.reason
                self._move(row, "held" if row.pool else "resting")
        return held

    # Writing.

    def append(self, commits: Sequence[tuple[int, Commit]]) -> dict[int, str]:
        """See ``FleetFunctions.append``."""
        return {run: self._append(self._runs[run], commit) for run, commit in commits}

    def _append(self, row: MemoryRun, commit: Commit) -> str:
        if not self._may_append(row, commit):
            return "lost"
        if commit.seq in row.commits or not self._fits(row, commit):
            return "look"
        row.commits[commit.seq] = commit
        row.ends = commit.last
        return "written"

    def look(self, run: int, seq: int) -> KeptPlace:
        """See ``FleetFunctions.look``."""
        row = self._runs[run]
        return KeptPlace(row.fence if row.state == "owned" else -1, row.commits.get(seq), row.ends)

    # What a correct fleet stands on.

    def _is_owner(self, row: MemoryRun, fence: int) -> bool:
        return row.fence == fence and row.state == "owned"

    def _may_append(self, row: MemoryRun, commit: Commit) -> bool:
        return self._is_owner(row, commit.fence)

    def _fits(self, row: MemoryRun, commit: Commit) -> bool:
        return commit.seq == row.ends + 1

    def _keeps_steady(self, node: MemoryNode, now: int) -> bool:
        """Whether this beat comes in time after the one before."""
        return node.until_us - node.lease_us >= now - node.lease_us * GAP // 100

    def _late_us(self, node: MemoryNode) -> int:
        """Until when a node is not declared dead."""
        return node.until_us + (node.lease_us * SLACK // 100 if node.form.slots else GRACE_US)

    def _is_steady(self, node: MemoryNode, now: int) -> bool:
        """Whether the node may declare others dead."""
        since = max(node.steady_us, now if self._awake_us is None else self._awake_us)
        self._awake_us = now if self._awake_us is None else self._awake_us
        return since < now - node.lease_us

    def _is_earlier_life(self, one: NodeForm, other: NodeForm) -> bool:
        """Whether a node joined before another one of the same seat and start of the machine. Requests to join can arrive late."""
        boot, _, life = one.boot.partition("/")
        other_boot, _, other_life = other.boot.partition("/")
        is_earlier = not other_life or int(life or 0) < int(other_life)
        return (one.seat, boot) == (other.seat, other_boot) and is_earlier

    def _fence_after_burial(self, row: MemoryRun) -> int:
        return row.fence + 1

    def _strikes_after_burial(self, row: MemoryRun) -> int:
        return row.strikes + 1

    # Inside.

    def _owner(self, run: int, fence: int) -> MemoryRun | None:
        row = self._runs[run]
        return row if self._is_owner(row, fence) else None

    def _note_last_beat(self, row: MemoryRun) -> None:
        """The ownership of a node ends: a hub that it had was last seen alive with the last beat."""
        if row.is_alive:
            node = self._nodes[row.node]
            row.seen_us = node.until_us - node.lease_us

    def _move(self, row: MemoryRun, state: OwnerState, node: MemoryNode | None = None) -> None:
        """Put a run into a state; it is found there from now on."""
        if row.pool is not None and row.state != state:
            self._changes.add((row.state, state))
        if row.node:
            self._nodes[row.node].runs.discard(row.no)
        if row.state == "queued" and row.pool is not None:
            self._queued[row.pool] -= 1
        row.state, row.node = state, 0 if node is None else node.id
        if node is not None:
            node.runs.add(row.no)
        else:
            row.is_alive = False
        if state == "queued" and row.pool is not None:
            self._queued[row.pool] += 1
            self._line_up(row)
        elif state == "resting" and row.due_us:
            heapq.heappush(self._resting, (row.due_us, row.no))

    def _line_up(self, row: MemoryRun) -> None:
        assert row.pool is not None
        if row.due_us:
            heapq.heappush(self._delayed, (row.due_us, row.no))
        else:
            heapq.heappush(self._waiting.setdefault(row.pool, []), (-row.priority, row.no))

    def _wake_delayed(self, now: int) -> None:
        while self._delayed and self._delayed[0][0] <= now:
            due, number = heapq.heappop(self._delayed)
            row = self._runs[number]
            if (row.state, row.due_us) == ("queued", due):
                row.due_us = 0
                self._line_up(row)

    def _watch(self, node: MemoryNode) -> None:
        heapq.heappush(self._late, (self._late_us(node), node.id))

    # For tests.

    def crash(self) -> None:
        """See ``FleetFunctions.crash``."""
        self._awake_us = None

    def pass_time(self, seconds: float) -> None:
        """See ``FleetFunctions.pass_time``."""
        self._passed_us += int(seconds * SECOND_US)

    def changes(self) -> set[tuple[str, str]]:
        """See ``FleetFunctions.changes``."""
        return set(self._changes)
