"""How long a run stands still when its node is killed: until another machine continues it, or the same one.

Run with ``python -m bench.takeover [--json] [--quick] [--rounds N] [--check]``. All nodes are processes of this machine; each has a
directory of its own for its runs, so that another node has to bring program, journal and workspace from the database.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import median
from threading import Event
from typing import Final, NamedTuple
from uuid import uuid4

from bench._depot import NEEDS, PREPARE, PROGRAMS
from bench._depot_runs import Host, a_host, name_of
from bench._harness import OURS, Bench, Contestant, Race, main
from bench._report import Goal, Judged
from bench._runner import Measure, Sample

STEPS: Final = 1_000
FILES: Final = 5_000
EDITS: Final = 10
"""How many of the steps edit a file, and so are finished together with a copy; all others change nothing."""
STEADY_S: Final = 7.0
"""After this time a new node may bury others: it has been steady for a lease."""
KILLS: Final = 5


class _Moment(NamedTuple):
    """The end of a step: by which process, when, and in which workspace."""

    process: int
    at: float
    workspace: Path


class _Run:
    """A run that never ends, the moments it leaves, and what has to be true of it whenever a node continues it.

    Args:
        host: Where it is made, with a workspace of many files that travels with it.
    """

    def __init__(self, host: Host) -> None:
        self._files = host.fill(FILES)
        self._moments = host.room / f"moments-{uuid4()}"
        self._counts = host.room / f"counts-{uuid4()}"
        for file in (self._moments, self._counts):
            file.touch()
        edits = [*self._files][:EDITS]
        self._files |= {name: b"EDITED = %d\n" % (each * (STEPS // EDITS)) for each, name in enumerate(edits)}
        given = {"edits": edits, "before": STEPS, "counts": str(self._counts), "file": str(self._moments)}
        host.enqueue(host.make("long_lived", given, is_carried=True))

    def moments(self) -> list[_Moment]:
        """What it has left."""
        lines = self._moments.read_text(encoding="utf-8").splitlines()
        words = (line.split(" ", 2) for line in lines)
        return [_Moment(int(process), float(at), Path(place)) for process, at, place in words]

    def first_by_another(self, than: set[int]) -> float | None:
        """When a process first left a moment that is none of these."""
        return next((one.at for one in self.moments() if one.process not in than), None)

    def check(self) -> None:
        """Raise unless each step was executed once, and the newest workspace has every file as the finished steps left it."""
        counted = Counter(self._counts.read_text(encoding="utf-8").split())
        if counted != Counter(map(str, range(STEPS))):
            again = sum(counted.values()) - len(counted)
            raise RuntimeError(f"{len(counted)} of {STEPS} steps were executed, {again} times again")
        workspace = self.moments()[-1].workspace
        wrong = [name for name, content in self._files.items() if not _has(workspace / name, content)]
        if wrong:
            raise RuntimeError(f"{len(wrong)} of {FILES} files are not as they were left: {wrong[0]}, …")


def _has(file: Path, content: bytes) -> bool:
    return file.exists() and file.read_bytes() == content


@contextmanager
def _a_run(directory: str) -> Generator[tuple[Host, _Run]]:
    with a_host(directory) as host:
        yield host, _Run(host)


def another_host(directory: str, size: int, *, of: Callable[[list[float]], float]) -> Sample:
    """Seconds from the death of a node and of all its processes until a node of another machine has finished a step."""
    times: list[float] = []
    with _a_run(directory) as (host, run), ExitStack() as nodes:
        seats = [f"seat-{number}" for number in range(size + 1)]
        living = {name_of(seat): nodes.enter_context(host.node(1, seat)) for seat in seats}
        _wait_until_it_runs(host, run, *living.values())
        Event().wait(STEADY_S)
        for number in range(size):
            Event().wait(0.37 * (number + 1))  # beats come at even intervals
            owner = living.pop(host.owner())
            times.append(_kill(host, run, owner, *living.values()))
            _wait_until_it_runs(host, run, *living.values())
            run.check()
    return Sample(value=of(times), facts={"steps": f"{STEPS:,}", "files": f"{FILES:,}"})


def same_host(directory: str, size: int) -> Sample:
    """Seconds from the start of a node in place of one that was killed until it has finished a step; the median of some."""
    times: list[float] = []
    with _a_run(directory) as (host, run), ExitStack() as nodes:
        node = nodes.enter_context(host.node(1))
        for _ in range(size):
            _wait_until_it_runs(host, run, node)
            before = {one.process for one in run.moments()}
            _end(node)
            began = time.time()
            node = nodes.enter_context(host.node(1))
            times.append(_first_by_another(host, run, before, node) - began)
            run.check()
    return Sample(value=median(times))


def _wait_until_it_runs(host: Host, run: _Run, *nodes: BaseProcess) -> None:
    """Wait for a finished step, and until the database knows of it: nodes do not take a run that is killed again and again."""
    host.wait_for(run.moments, lambda: _code_of(nodes))
    host.wait_for(lambda: not host.count("bartack.owner", "strikes > 0"), lambda: _code_of(nodes))


def _code_of(nodes: Iterable[BaseProcess]) -> int | None:
    """With which code a node has ended; none if all are alive."""
    return next((node.exitcode for node in nodes if node.exitcode is not None), None)


def _kill(host: Host, run: _Run, owner: BaseProcess, *others: BaseProcess) -> float:
    """Kill the owner; returns how long the run stood still."""
    before = {one.process for one in run.moments()}
    _end(owner)
    began = time.time()
    return _first_by_another(host, run, before, *others) - began


def _end(node: BaseProcess) -> None:
    node.kill()
    node.join()


def _first_by_another(host: Host, run: _Run, than: set[int], *nodes: BaseProcess) -> float:
    host.wait_for(lambda: run.first_by_another(than), lambda: _code_of(nodes))
    found = run.first_by_another(than)
    assert found is not None
    return found


def _contestants(measure: Measure) -> tuple[Contestant, ...]:
    return (
        Contestant(
            key=OURS,
            label="bartack",
            measure=measure,
            size=KILLS,
            prepare=PREPARE,
            needs=NEEDS,
            programs=(*PROGRAMS, "git"),
            every=6,
        ),
    )


RACES: Final = (
    Race(
        key="middle",
        title=f"death of a node until the next step elsewhere, {STEPS:,} steps and {FILES:,} files",
        unit="s",
        better="lower",
        contestants=_contestants(partial(another_host, of=median)),
    ),
    Race(
        key="worst",
        title=f"the same, the longest of {KILLS}",
        unit="s",
        better="lower",
        contestants=_contestants(partial(another_host, of=max)),
    ),
    Race(
        key="restart",
        title="start of the node in its place until the next step",
        unit="s",
        better="lower",
        contestants=_contestants(same_host),
    ),
)


def _at_most(race: str, title: str, target: float, stretch: float, judged: Judged = "median") -> Goal:
    return Goal(race=race, title=title, bound="at most", target=target, stretch=stretch, judged=judged)


BENCH: Final = Bench(
    name="takeover",
    title="Death of a node",
    races=RACES,
    goals=(
        _at_most("middle", "a run is continued elsewhere", 7.0, 6.0),
        _at_most("worst", "the longest of all", 10.0, 8.0, "worst"),
        _at_most("restart", "a run is continued by the node that is started again", 1.5, 1.0),
    ),
    notes=(
        "The node is killed with SIGKILL, and has been the owner of the run for some seconds.",
        f"The finished steps count their executions, and {EDITS} of them edit a file. After each death it fails unless each "
        f"was executed once and all {FILES:,} files are as they were left.",
    ),
)

if __name__ == "__main__":
    sys.exit(main(BENCH))
