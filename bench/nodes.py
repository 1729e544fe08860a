"""What it costs to run without a terminal: the start of a detached run, its steps, and a node that waits.

Run with ``python -m bench.nodes [--json] [--quick] [--rounds N] [--check]``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final

from bartack.config.load import load_config
from bartack.core.clock import SystemClock
from bartack.core.watch import open_watch
from bartack.depot import FileDepot, Job
from bartack.runtime.hub.create import RunRequest, create_run
from bartack.supervision.process.tree import descendants
from bench._harness import OURS, Bench, Contestant, Race, main
from bench._report import Goal
from bench._runner import Sample

FIRST: Final = """
import time
from bartack import Context, step, worker

@step
def now() -> float:
    return time.time()

@worker
async def main(ctx: Context, steps: int = 1) -> list[float]:
    return [await now() for _ in range(steps)]
"""
SLEEPING: Final = """
from bartack import Context, worker

@worker
async def main(ctx: Context) -> None:
    await ctx.sleep(24 * 3600)
"""
PLAIN: Final = "plain"


def cost_of_detaching(directory: str, size: int) -> Sample:
    """Milliseconds from the command to the first step that a detached run takes longer than a plain one; the node is there."""
    place, environ = _workspace(directory), _environ(directory)
    _call(place, environ, "node", "start")
    pairs = [[_start(place, environ, 1, detached=one) for one in (True, False)] for _ in range(size)]
    _call(place, environ, "node", "stop")
    detached, plain = ([pair[which][1] - pair[which][0] for pair in pairs] for which in (0, 1))
    more = [one - other for one, other in zip(detached, plain, strict=True)]
    facts = {"detached": f"{median(detached) * 1e3:.0f} ms", "plain": f"{median(plain) * 1e3:.0f} ms"}
    return Sample(value=median(more) * 1e3, facts=facts)


def steps_per_second(directory: str, size: int, *, detached: bool) -> Sample:
    """Steps of a second, between the first and the last one."""
    place = _workspace(directory)
    environ = _environ(directory)
    if detached:
        _call(place, environ, "node", "start")
    _, first, last = _start(place, environ, size, detached=detached)
    if detached:
        _call(place, environ, "node", "stop")
    return Sample(value=(size - 1) / (last - first))


def put_to_rest(directory: str, size: int) -> None:
    """Make runs that sleep for a day, and let a node run each until it rests."""
    place = _workspace(directory)
    (place / "sleeping.py").write_text(SLEEPING, encoding="utf-8")
    environ = _environ(directory)
    os.environ.update(environ)
    depot = _depot(directory)
    for _ in range(size):
        run = create_run(RunRequest(program="sleeping.py"), place, load_config(place))
        depot.submit(Job(run=run.id, path=str(run.path), workspace=str(place)), SystemClock().now_us())
    with _node(environ, "--rest-after", "0.2"), depot.watch() as watch:
        while any(one.state != "resting" for one in depot.standings()):
            watch.wait(1.0)


def waiting_node(directory: str, size: int, *, what: str) -> Sample:
    """Megabytes, or percent of a processor, of a node and all that it has started, over ten seconds, while its runs rest."""
    depot = _depot(directory)
    with _node(_environ(directory)) as node:
        with depot.watch() as watch:
            while depot.seated() is None:
                watch.wait(0.05)
        began_s, cpu_s = perf_counter(), _cpu_s(node.pid)
        with open_watch(directory) as watch:
            watch.wait(10.0)
        share = (_cpu_s(node.pid) - cpu_s) / (perf_counter() - began_s)
        pids = [node.pid, *(facts.pid for facts in descendants(node.pid))]
        size_mb = sum(map(_private_mb, pids))
    assert sum(one.state == "resting" for one in depot.standings()) == size
    facts = {"processes": str(len(pids))}
    return Sample(value=size_mb if what == "memory" else max(share * 100, 0.001), facts=facts)


def _depot(directory: str) -> FileDepot:
    return FileDepot(Path(directory) / "state" / "bartack" / "depot")


@contextmanager
def _node(environ: dict[str, str], *options: str) -> Generator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-P", "-s", "-m", "bartack", "node", "run", *options]
    with subprocess.Popen(argv, env=environ, stderr=subprocess.DEVNULL) as node:
        try:
            yield node
        finally:
            node.terminate()


def _workspace(directory: str) -> Path:
    place = Path(directory) / "work"
    place.mkdir(exist_ok=True)
    (place / "first.py").write_text(FIRST, encoding="utf-8")
    return place


def _environ(directory: str) -> dict[str, str]:
    return {**os.environ, "XDG_STATE_HOME": str(Path(directory) / "state")}


def _call(place: Path, environ: dict[str, str], *words: str) -> str:
    argv = [sys.executable, "-m", "bartack", *words]
    return subprocess.run(argv, cwd=place, env=environ, capture_output=True, text=True, check=True).stdout


def _start(place: Path, environ: dict[str, str], steps: int, *, detached: bool) -> tuple[float, float, float]:
    """When the command began, and when the first and the last step were executed."""
    began = time.time()
    words = ("run", "first.py", "--json", "--", str(steps))
    if not detached:
        result = json.loads(_call(place, environ, *words).splitlines()[-1])["value"]
        return began, result[0], result[-1]
    made = json.loads(_call(place, environ, "run", "--detach", *words[1:]))
    shown = _call(place, environ, "attach", made["run"], "--json")
    result = json.loads(shown.splitlines()[-1])["value"]
    return began, result[0], result[-1]


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _private_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _waiting(what: str) -> tuple[Contestant, ...]:
    measure = partial(waiting_node, what=what)
    return (Contestant(key=OURS, label="node", measure=measure, size=100, prepare=put_to_rest, every=2),)


BENCH: Final = Bench(
    name="nodes",
    title="Runs without a terminal",
    races=(
        Race(
            key="start",
            title="from the command to the first step: a detached run over a plain one",
            unit="ms",
            better="lower",
            contestants=(Contestant(key=OURS, label="detached", measure=cost_of_detaching, size=5, every=2),),
        ),
        Race(
            key="steps",
            title="steps per second",
            unit="/s",
            better="higher",
            contestants=(
                Contestant(
                    key=OURS,
                    label="detached",
                    measure=partial(steps_per_second, detached=True),
                    size=2000,
                    every=2,
                ),
                Contestant(
                    key=PLAIN,
                    label="in the terminal",
                    measure=partial(steps_per_second, detached=False),
                    size=2000,
                    every=2,
                ),
            ),
        ),
        Race(
            key="memory",
            title="a node with 100 runs that sleep",
            unit="MB",
            better="lower",
            contestants=_waiting("memory"),
        ),
        Race(
            key="processor",
            title="the same, of a processor",
            unit="%",
            better="lower",
            contestants=_waiting("cpu"),
        ),
    ),
    goals=(
        Goal(
            race="start",
            title="start of a detached run, over a plain one",
            bound="at most",
            target=100.0,
            stretch=50.0,
        ),
        Goal(
            race="steps",
            title="steps of a detached run",
            bound="at least",
            target=0.97,
            stretch=1.0,
            against=PLAIN,
        ),
        Goal(race="memory", title="memory of a node", bound="at most", target=60.0, stretch=30.0),
        Goal(race="processor", title="processor of a node", bound="at most", target=1.0, stretch=0.1),
    ),
)

if __name__ == "__main__":
    sys.exit(main(BENCH))
