"""A witness outside of all nodes, to which effects report, and what has to hold of what it and the journals say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple
from zlib import crc32

from tests.crash.fleet_simulation.nodes import Host
from tests.crash.fleet_simulation.world import Tables, World

from bartack.depot.taken import Taken
from bartack.journal.shared import Commit


class Span(NamedTuple):
    """A time in which a step of a run was executed under a fence."""

    begin: float
    end: float
    fence: int


class Witness:
    """What effects have reported.

    Attributes:
        problems: What was found to be wrong, when it happened.
        lost: What the database has lost though it was acknowledged.
        take_down: Called with the host of a step that takes its host down.
        taken_over: How long each expected takeover has taken.
    """

    def __init__(self, world: World, tables: Tables, take_down: Callable[[Host], object]) -> None:
        self.problems: list[str] = []
        self.lost: set[tuple[int, int]] = set()
        self.take_down = take_down
        self.taken_over: list[float] = []
        self._world = world
        self._tables = tables
        self._spans: defaultdict[int, list[Span]] = defaultdict(list)
        self._open: dict[tuple[int, int], float] = {}
        self._acknowledged: list[tuple[int, Commit]] = []
        self._died: dict[int, float] = {}

    def begin(self, run: Taken, step: int) -> None:
        """The effect of a step begins, or continues."""
        if self._tables.finished[run.no] > step:
            self.problems.append(f"H3: step {step} of run {run.no} begins again, and was finished")
        self._open[run.no, run.fence] = self._world.now
        if run.no in self._died:
            self.taken_over.append(self._world.now - self._died.pop(run.no))

    def end(self, run: Taken) -> None:
        """It has ended, or stands still."""
        span = Span(self._open.pop((run.no, run.fence)), self._world.now, run.fence)
        self._spans[run.no].append(span)

    def expect_takeover(self, run: int) -> None:
        """The host of a run has died now."""
        if self._tables.standing(run).state == "owned":
            self._died[run] = self._world.now

    def acknowledge(self, run: Taken, commit: Commit) -> None:
        """A hub knows that its commit is kept."""
        self._acknowledged.append((run.no, commit))

    def check(self, runs: int) -> list[str]:
        """Everything that is wrong."""
        found = [*self.problems, *self._tables.problems, *self._check_acknowledged()]
        for run in range(1, runs + 1):
            found += [*self._check_journal(run), *self._check_spans(run), *self._check_end(run)]
        return [*found, *self._check_requests()]

    def _check_acknowledged(self) -> Iterator[str]:
        for run, commit in self._acknowledged:
            if (run, commit.seq) not in self.lost and self._tables.look(run, commit.seq).found != commit:
                yield f"H1: entry {commit.seq} of run {run} was acknowledged, and is not there"

    def _check_journal(self, run: int) -> Iterator[str]:
        seq = crc = fence = 0
        for commit in self._tables.commits(run):
            if commit.seq != seq + 1:
                yield f"H2: run {run} has a gap before entry {commit.seq}"
            if commit.crc != crc32(commit.lines, crc):
                yield f"H2: the chain of run {run} breaks at entry {commit.seq}"
            if commit.fence < fence:
                yield f"H2: the fence of run {run} falls at entry {commit.seq}"
            seq, crc, fence = commit.last, commit.crc, commit.fence

    def _check_spans(self, run: int) -> Iterator[str]:
        last = Span(0.0, 0.0, 0)
        for span in sorted(self._spans[run]):
            if span.begin < last.end and span.fence != last.fence:
                yield f"H4: two owners of run {run} work at {span.begin:.2f}, until {last.end:.2f}"
            last = max(last, span, key=lambda one: one.end)

    def _check_end(self, run: int) -> Iterator[str]:
        standing = self._tables.standing(run)
        if standing.state not in {"over", "held"}:
            yield f"H7: run {run} is {standing.state} at the end: {standing.reason}"
        if standing.state == "held" and "in a row" not in standing.reason and "third" not in standing.reason:
            yield f"H7: run {run} is held: {standing.reason}"

    def _check_requests(self) -> Iterator[str]:
        for number, (run, settled) in self._tables.requests.items():
            entry = f"taken {number}".encode()
            texts = [line for commit in self._tables.commits(run) for line in commit.lines.splitlines()]
            lines = [b" ".join(text.split()[:2]) for text in texts]
            is_lost = any(of == run for of, _ in self.lost)
            if settled and lines.count(entry) != 1 and not is_lost:
                yield f"H5: request {number} was settled, and run {run} has taken it {lines.count(entry)} times"
