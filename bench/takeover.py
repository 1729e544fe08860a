"""How long a run stands still when its node is killed: until another machine continues it, or the same one.

Run with ``python -m bench.takeover [--json] [--quick] [--rounds N] [--check]``. All nodes are processes of this machine; each has a
directory of its own for its runs, so that another node has to bring program, journal and workspace from the database.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import median
from threading import Event
from typing import Final, NamedTuple
from uuid import uuid4

from bench._depot import NEEDS, PREPARE, PROGRAMS
from bench._depot_runs import Host, a_host
from bench._harness import OURS, Bench, Contestant, Race, main
from bench._report import Goal
from bench._runner import Measure, Sample

STEPS: Final = 1_000
FILES: Final = 5_000
IN_A_FOLDER: Final = 50
STEADY_S: Final = 7.0
"""After this time a new node may bury others: it has been steady for a lease."""
KILLS: Final = 5


class _Moment(NamedTuple):
    """The end of a step: by which process, and when."""

    process: int
    at: float


class _Run:
    """A run that never ends, and the moments it leaves.

    Args:
        host: Where it is made, with a workspace of many files that travels with it.
    """

    def __init__(self, host: Host) -> None:
        _fill(host.workspace)
        self._file = host.room / f"moments-{uuid4()}"
        self._file.touch()
        host.enqueue(host.make("long_lived", {"before": STEPS, "file": str(self._file)}, is_carried=True))

    def moments(self) -> list[_Moment]:
        """What it has left."""
        lines = self._file.read_text(encoding="utf-8").splitlines()
        return [_Moment(int(process), float(at)) for process, at in map(str.split, lines)]

    def first_by_another(self, than: set[int]) -> float | None:
        """When a process first left a moment that is none of these."""
        return next((one.at for one in self.moments() if one.process not in than), None)


def _fill(workspace: Path) -> None:
    """Make a repository of the workspace, with files that nothing changes."""
    for number in range(FILES):
        folder = workspace / f"package{number // IN_A_FOLDER}"
        folder.mkdir(exist_ok=True)
        (folder / f"module{number % IN_A_FOLDER}.py").write_bytes(b"VALUE = %d\n" % number * 20)
    (workspace / ".gitignore").write_text("/room/\n/seat*/\n/log\n/bartack/\n", encoding="utf-8")
    for words in (["init", "--quiet"], ["add", "-A"], ["commit", "--quiet", "--message", "Begin"]):
        subprocess.run(
            ["git", "-c", "user.name=bench", "-c", "user.email=bench@localhost", *words],
            cwd=workspace,
            check=True,
        )


@contextmanager
def _a_run(directory: str) -> Generator[tuple[Host, _Run]]:
    with a_host(directory) as host:
        yield host, _Run(host)


def another_host(directory: str, size: int, *, of: Callable[[list[float]], float]) -> Sample:
    """Seconds from the death of a node and of all its processes until a node of another machine has finished a step."""
    times: list[float] = []
    with _a_run(directory) as (host, run), ExitStack() as nodes:
        owner = nodes.enter_context(host.node(1, "seat-0"))
        for number in range(1, size + 1):
            _wait_until_it_runs(host, run, owner)
            other = nodes.enter_context(host.node(1, f"seat-{number}"))
            Event().wait(STEADY_S + 0.37 * number)  # beats come at even intervals
            times.append(_kill(host, run, owner, other))
            owner = other
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
    return Sample(value=median(times))


def _wait_until_it_runs(host: Host, run: _Run, node: BaseProcess) -> None:
    """Wait for a finished step, and until the database knows of it: nodes do not take a run that is killed again and again."""
    host.wait_for(run.moments, lambda: node.exitcode)
    host.wait_for(lambda: not host.count("bartack.owner", "strikes > 0"), lambda: node.exitcode)


def _kill(host: Host, run: _Run, owner: BaseProcess, other: BaseProcess) -> float:
    """Kill the owner; returns how long the run stood still."""
    before = {one.process for one in run.moments()}
    _end(owner)
    began = time.time()
    return _first_by_another(host, run, before, other) - began


def _end(node: BaseProcess) -> None:
    node.kill()
    node.join()


def _first_by_another(host: Host, run: _Run, than: set[int], node: BaseProcess) -> float:
    host.wait_for(lambda: run.first_by_another(than), lambda: node.exitcode)
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


def _at_most(race: str, title: str, target: float, stretch: float) -> Goal:
    return Goal(race=race, title=title, bound="at most", target=target, stretch=stretch)


BENCH: Final = Bench(
    name="takeover",
    title="Death of a node",
    races=RACES,
    goals=(
        _at_most("middle", "a run is continued elsewhere", 7.0, 6.0),
        _at_most("worst", f"the longest of {KILLS}", 10.0, 8.0),
        _at_most("restart", "a run is continued by the node that is started again", 1.5, 1.0),
    ),
    notes=("The node is killed with SIGKILL, and has been the owner of the run for some seconds.",),
)

if __name__ == "__main__":
    sys.exit(main(BENCH))
