"""Virtual time, and a database behind a network that loses requests and answers."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from typing import Final, TypeVar
from uuid import UUID

from tests.history import RunRow, Seen

from bartack.depot.taken import OwnerState, Taken
from bartack.journal.shared import Commit
from bartack.testing.fleet import Beat, MemoryFleet, NodeForm
from bartack.testing.fleet._memory import MemoryNode, MemoryRun

Value = TypeVar("Value")
START_US: Final = 1_767_225_600_000_000
FLUSH_S: Final = 0.6
"""Commits that are not synced are on the disk after this time at the latest."""


class World:
    """Time, chance, and what is going to happen.

    Attributes:
        now: Seconds since the beginning.
        random: The same for the same seed.
    """

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.random = Random(seed)
        self.events = 0
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()

    def after(self, delay: float, call: Callable[[], object]) -> None:
        """Call this later."""
        heapq.heappush(self._due, (self.now + delay, next(self._order), call))

    def run(self, limit: float, is_over: Callable[[], bool]) -> None:
        """Let everything happen until a time, or until it is over."""
        due = self._due
        while due and not is_over():
            moment, _, call = heapq.heappop(due)
            if moment > limit:
                self.now = limit
                return
            self.now = moment
            self.events += 1
            call()

    def id(self) -> UUID:
        """An id that no other has."""
        return UUID(int=self.random.getrandbits(128))


class Tables(MemoryFleet):
    """The tables of the database, and what a checker has to know of each change.

    Attributes:
        flaws: Mistakes that were planted.
        problems: What was found to be wrong, when it happened.
        requests: For each request its run, and how often it was settled.
        seen: What effects have reported, and when the steps were finished whose effects they are.
        lost: The commits that the database has lost though they were acknowledged: their runs, and their first entries.
    """

    def __init__(self, world: World, flaws: frozenset[str]) -> None:
        self.flaws = flaws
        self.problems: list[str] = []
        self.offset_s = 0.0
        self.up_s = 0.0
        self.up_since: float | None = 0.0
        self.seen: list[Seen] = []
        self.lost: set[tuple[int, int]] = set()
        self._finished: defaultdict[int, int] = defaultdict(int)
        self.deaths: defaultdict[int, int] = defaultdict(int)
        self.requests: dict[int, list[int]] = {}
        self.buried_at: dict[int, float] = {}
        self._world = world
        self._beat_at: dict[int, float] = {}
        self._unsynced: list[tuple[float, MemoryNode, int, int]] = []
        self._over: set[tuple[int, int]] = set()
        self._was_late = False
        self._ended = 0
        super().__init__(lambda: START_US + int((world.now + self.offset_s) * 1e6))

    # How long the database was there, on the clock of the world.

    def up_until_now(self) -> float:
        """For how long the database was there so far."""
        return self.up_s + (0.0 if self.up_since is None else self._world.now - self.up_since)

    def crash(self) -> None:
        """The database dies. Beats of the last moment, and nothing else, were not synced."""
        self.up_s, self.up_since = self.up_until_now(), None
        lost_since = self._world.now - self._world.random.uniform(0, FLUSH_S)
        for moment, node, until_us, steady_us in reversed(self._unsynced):
            if moment > lost_since:
                node.until_us, node.steady_us = until_us, steady_us
                self._watch(node)
        self._unsynced.clear()
        super().crash()

    def start(self) -> None:
        """The database is there again."""
        self.up_since = self._world.now

    # What is checked.

    def beat(self, node: int) -> Beat:
        row = self._nodes[node]
        before = row.until_us, row.steady_us
        self._was_late = row.until_us < self.now_us()
        buries = len(self.buried_at)
        found = super().beat(node)
        self._beat_at[node] = self.up_until_now()
        if len(self.buried_at) != buries:
            self.synced()
        else:
            self._unsynced = [one for one in self._unsynced if one[0] > self._world.now - FLUSH_S]
            self._unsynced.append((self._world.now, row, *before))
        return found

    def synced(self) -> None:
        """A statement was synced, and all before it."""
        self._unsynced.clear()

    def claim(self, node: int, most: int) -> list[Taken]:
        found = super().claim(node, most)
        if found:
            self.synced()
        return found

    def append(self, commits: list[tuple[int, Commit]]) -> dict[int, str]:  # type: ignore[override]  # - a list is what nodes have
        outcomes = super().append(commits)
        self.synced()
        for run, commit in commits:
            # The commit of a hub that is gone may wait with one of the next hub of the run; nothing waits for its outcome.
            if outcomes[run] == "written" and self._runs[run].commits.get(commit.seq) is commit:
                if (run, commit.fence) in self._over:
                    self.problems.append(
                        f"H2: run {run} took a commit with fence {commit.fence}, which was over"
                    )
                if b"finished" in commit.lines:
                    self.seen.append(
                        Seen(self._runs[run].id, commit.fence, str(self._finished[run]), "finished")
                    )
                    self._finished[run] += 1
                    self.deaths[run] = 0
        return outcomes

    def settle(self, request: int, run: int, fence: int) -> None:
        """The owner of a run has answered a request."""
        if self._owner(run, fence) is not None:
            self.requests[request][1] = 1

    def is_over_for(self, runs: int) -> bool:
        """Whether as many runs have ended."""
        return self._ended == runs

    def give_back(
        self, run: int, fence: int, state: OwnerState, due_us: int, why: str, strikes: int, *, refuses: bool
    ) -> str | None:
        found = super().give_back(run, fence, state, due_us, why, strikes, refuses=refuses)
        self._ended += found == "over"
        return found

    def rows(self) -> Iterator[RunRow]:
        """All runs, as a checker reads them."""
        for row in self._runs.values():
            facts = row.state, row.fence, row.node, row.reason
            yield RunRow(row.no, row.id, "default", *facts, [*row.commits.values()])

    def live(self) -> frozenset[int]:
        """The nodes that may own runs."""
        return frozenset(node.id for node in self._nodes.values() if node.state in {"live", "draining"})

    def asked(self, run: int) -> list[int]:
        """The open requests of a run."""
        return [number for number, (of, settled) in self.requests.items() if of == run and not settled]

    def forget_last(self, run: int) -> None:
        """Lose the last commit of a journal, as a standby does that takes over and was late."""
        row = self._runs[run]
        if len(row.commits) < 2:
            return
        _, commit = row.commits.popitem()
        row.ends = commit.seq - 1
        self._finished[run] -= b"finished" in commit.lines
        self.seen.append(Seen(row.id, commit.fence, str(self._finished[run]), "lost"))
        self.lost.add((run, commit.seq))

    def _bury_late(self, now: int) -> tuple[int, ...]:
        found = super()._bury_late(now)
        for node in found:
            alone_s = self.up_until_now() - self._beat_at.get(node, 0.0)
            if alone_s < self._nodes[node].form.lease_s * 0.3:
                self.problems.append(
                    f"H7: node {node} was declared dead after {alone_s:.1f} s without a beat"
                )
        return found

    def _free(self, row: MemoryRun, why: str) -> None:
        self._over.add((row.no, row.fence))
        self.buried_at[row.no] = self._world.now
        if row.is_alive:
            self.deaths[row.no] += 1
            if self.deaths[row.no] > 3:
                self.problems.append(f"H7: run {row.no} has taken {self.deaths[row.no]} nodes down in a row")
        super()._free(row, why)

    # Planted mistakes.

    def _may_append(self, row: MemoryRun, commit: Commit) -> bool:
        if "append without fence" in self.flaws:
            return row.state == "owned"
        if "fence raised at claim only" in self.flaws:
            return row.fence == commit.fence
        return super()._may_append(row, commit)

    def _fits(self, row: MemoryRun, commit: Commit) -> bool:
        return "no gap check" in self.flaws or super()._fits(row, commit)

    def _fence_after_burial(self, row: MemoryRun) -> int:
        return row.fence if "fence raised at claim only" in self.flaws else super()._fence_after_burial(row)

    def _strikes_after_burial(self, row: MemoryRun) -> int:
        return 0 if "burial resets strikes" in self.flaws else super()._strikes_after_burial(row)

    def _late_us(self, node: MemoryNode) -> int:
        if self.flaws & {"steps of the clock", "lost beats"}:
            return node.until_us
        return super()._late_us(node)

    def _keeps_steady(self, node: MemoryNode, now: int) -> bool:
        if "steps of the clock" in self.flaws:
            return node.until_us - node.lease_us >= now - node.lease_us // 2
        return super()._keeps_steady(node, now)

    def _is_earlier_life(self, one: NodeForm, other: NodeForm) -> bool:
        if "late joins" in self.flaws:
            return (one.seat, one.boot.partition("/")[0]) == (other.seat, other.boot.partition("/")[0])
        return super()._is_earlier_life(one, other)

    def _is_steady(self, node: MemoryNode, now: int) -> bool:
        if "lost beats" in self.flaws:
            return node.steady_us < now - node.lease_us
        if "anybody buries" in self.flaws:
            return True
        if "steady by lateness" in self.flaws:
            return not self._was_late
        return super()._is_steady(node, now)


class Link:
    """The way from a node to the database.

    Attributes:
        is_cut: Nothing passes.
        is_silent: What does not pass is noticed late.
        losing: How often an answer is lost.
        dropping: How often a request is lost.
        late: How often a request that the node has given up arrives after all.
    """

    def __init__(self) -> None:
        self.is_cut = False
        self.is_silent = False
        self.losing = 0.0
        self.dropping = 0.0
        self.late = 0.0


class Network:
    """Statements on their way to the database, and their answers."""

    def __init__(self, world: World, tables: Tables) -> None:
        self.world = world
        self.tables = tables
        self.is_up = True

    def call(
        self,
        link: Link,
        function: Callable[[], Value],
        done: Callable[[Value], object],
        failed: Callable[[], object],
        timeout_s: float,
    ) -> None:
        """Have a statement carried out; one of the two others is called."""
        world, chance = self.world, self.world.random.random
        if link.is_cut or not self.is_up:
            world.after(timeout_s if link.is_silent else 0.01 + 0.1 * chance(), failed)
            return
        if link.late and chance() < link.late:
            world.after(4 * chance(), lambda: self.is_up and function())
            world.after(0.05 * chance(), failed)
            return

        def arrive() -> None:
            if link.is_cut or not self.is_up or (link.dropping and chance() < link.dropping):
                world.after(timeout_s if link.is_silent else 0.01, failed)
                return
            found = function()
            if link.losing and chance() < link.losing:
                world.after(timeout_s if link.is_silent else 0.01, failed)
            else:
                world.after(0.001 + 0.004 * chance(), lambda: answer(found))

        def answer(found: Value) -> None:
            if link.is_cut or not self.is_up:
                world.after(timeout_s if link.is_silent else 0.01, failed)
            else:
                done(found)

        world.after(0.001 + 0.004 * chance(), arrive)
