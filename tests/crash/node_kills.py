"""Many short runs of one node, and a hunter that kills the node and the hubs of the runs at random places of their journals.

A kill counts if it has hit a live process: the victim is stopped first, which only a live process can be, and then killed.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from bartack.config.load import load_config
from bartack.core.clock import SystemClock
from bartack.depot import FileDepot, Job
from bartack.journal import open_reader
from bartack.runtime.hub.create import RunRequest, create_run
from bartack.runtime.protocol.step_key import step_key
from bartack.runtime.protocol.steps import CallArgs
from bartack.runtime.rundir.layout import RunDir
from bartack.supervision.process.system import read_command, read_facts
from bartack.supervision.process.tree import find_by_environment

NODE: Final = Path(__file__).with_name("quick_node.py")
PATIENCE_S: Final = 300.0
"""The longest time in which nothing happens: no kill, and no journal grows. A busy machine may need longer for all kills."""
LOOK_S: Final = 0.02
STEPS: Final = 12
AT_ONCE: Final = 5
"""Runs that are open at a time: while some are being resumed, others can be killed."""
NEXT_KILL: Final = (0, 0, 0, 0, 200, 800, 1600, 2400)
"""Bytes that the journal of a run may grow by before its hub is killed again. 0: killed while it opens the run."""
VICTIMS: Final = ("hub",) * 10 + ("node", "both")
# Steps that take a while cost nothing, and the hunter keeps up with them: a run that ends before it was killed was for nothing.
PROGRAM: Final = """
from bartack import Context, worker

@worker
async def main(ctx: Context, steps: int) -> int:
    for number in range(steps):
        await ctx.shell("sh", "-c", 'echo "$BARTACK_STEP $(date +%s%N)" >> "$BARTACK_RUN.effects"; sleep 0.2')
    return steps
"""


@dataclass
class Prey:
    """A run that is hunted.

    Attributes:
        run: It.
        mark: The size of its journal from which on its hub may be killed.
        killed: The hub that was killed last.
        kills: How often its hub was killed.
        is_over: It has ended.
    """

    run: RunDir
    mark: int = 0
    killed: int = 0
    kills: int = 0
    is_over: bool = False

    def hub(self) -> int:
        """The hub that runs it and was not killed yet; 0 if there is none."""
        pid = self.run.owner_pid()
        return pid if pid != self.killed and str(self.run.path) in read_command(pid) else 0

    def is_ripe(self) -> bool:
        """Whether its journal has grown as far as the next kill needs."""
        return self.size() >= self.mark

    def size(self) -> int:
        """The size of its journal."""
        return os.stat(self.run.path / "journal.ndjson").st_size


@dataclass
class Hunt:
    """A node with runs, and the kills.

    Args:
        root: Where everything is.
        random: Decides who is killed, and when.
        kills: How many kills there are to be.
    """

    root: Path
    random: Random
    kills: int
    hits: Counter[str] = field(default_factory=Counter[str])
    prey: list[Prey] = field(default_factory=list[Prey])

    def __post_init__(self) -> None:
        self._work = self.root / "work"
        self._work.mkdir()
        (self._work / "steps.py").write_text(PROGRAM, encoding="utf-8")
        (self._work / "bartack.toml").write_text('durability = "process"\n', encoding="utf-8")
        self._depot = FileDepot(self.root / "state" / "bartack" / "depot")
        self._environ = {**os.environ, "XDG_STATE_HOME": str(self.root / "state")}
        self._log = (self.root / "node.log").open("ab")
        self._node = self._start_node()

    def close(self) -> None:
        """End everything that is left."""
        self._node.kill()
        self._node.wait(PATIENCE_S)
        self._log.close()
        for one in self.prey:
            if pid := one.hub():
                kill_alive(pid)

    def drive(self) -> None:
        """Kill as often as is wanted, and let all runs come to their end."""
        last, limit = 0, 0.0
        victim = self.random.choice(VICTIMS)
        while True:
            if last != (last := self._progress()):
                limit = time.monotonic() + PATIENCE_S
            assert time.monotonic() < limit, f"{self.hits} of {self.kills} kills; {self.story()}"
            wanted = self.hits.total() < self.kills
            going = self._going()
            if wanted and len(going) < AT_ONCE:
                self.prey.append(self._submit())
            elif not going:
                return
            if wanted and self._strike(victim, going):
                victim = self.random.choice(VICTIMS)
            else:
                select.select([], [], [], LOOK_S)

    def _progress(self) -> int:
        """Grows with every kill and every entry of a run."""
        return 1 + self.hits.total() + sum(one.size() for one in self.prey)

    def _going(self) -> list[Prey]:
        for one in self.prey:
            standing = None if one.is_over else self._depot.find(one.run.id)
            one.is_over = one.is_over or (standing is not None and standing.state == "over")
        return [one for one in self.prey if not one.is_over]

    def _submit(self) -> Prey:
        call = CallArgs([msgspec.Raw(str(STEPS).encode())], {})
        run = create_run(RunRequest(program="steps.py", call=call), self._work, load_config(self._work))
        self._depot.submit(
            Job(run=run.id, path=str(run.path), workspace=str(self._work)), SystemClock().now_us()
        )
        made = Prey(run)
        self._set_mark(made)
        return made

    def _set_mark(self, one: Prey) -> None:
        one.mark = one.size() + self.random.choice(NEXT_KILL)

    def _strike(self, victim: str, going: Sequence[Prey]) -> bool:
        """Kill, if there is something to kill now; whether there was."""
        ripe = [(one, pid) for one in going if one.is_ripe() and (pid := one.hub())]
        if victim != "node" and not ripe:
            return False
        if victim != "hub":
            self.hits["node"] += kill_alive(self._node.pid)
            self._node.wait(PATIENCE_S)
        if victim != "node":
            one, pid = self.random.choice(ripe)
            hit = kill_alive(pid)
            one.killed = pid
            one.kills += hit
            self.hits["hub"] += hit
            self._set_mark(one)
        if victim != "hub":
            self._node = self._start_node()
        return True

    def _start_node(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, str(NODE), str(AT_ONCE)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            cwd="/",
            env=self._environ,
            start_new_session=True,
        )

    # What is left.

    def faults(self) -> list[str]:
        """What is wrong with the runs: lost, done twice, done in another order, or not ended."""
        return [fault for one in self.prey for fault in self._faults_of(one)]

    def _faults_of(self, one: Prey) -> list[str]:
        name, standing = one.run.id, self._depot.find(one.run.id)
        found = [] if standing is not None and standing.outcome == "completed" else [f"{name}: {standing}"]
        finished: dict[str, list[int]] = {}
        with open_reader(one.run.path) as reader:
            for entry in reader.read():
                if entry.kind == "step.finished":
                    key = step_key(name, str(entry.data["p"]), int(str(entry.data["n"])), 0)
                    finished.setdefault(key, []).append(entry.at)
        effects = self._effects(one)
        found += [
            f"{name}: {key} finished {len(times)} times" for key, times in finished.items() if len(times) > 1
        ]
        found += [
            f"{name}: {key} began again after it had finished"
            for key, began in effects
            if began > finished[key][0]
        ]
        if list(dict.fromkeys(key for key, _ in effects)) != list(finished) or len(finished) != STEPS:
            found.append(
                f"{name}: {len(finished)} of {STEPS} steps have finished, or in another order than they were done"
            )
        if len(effects) - STEPS > one.kills:
            found.append(f"{name}: {len(effects) - STEPS} repeated effects after {one.kills} kills")
        left = find_by_environment("BARTACK_RUN_DIR", str(one.run.path))
        return found + [f"{name}: {left} are left"] * bool(left)

    def _effects(self, one: Prey) -> list[tuple[str, int]]:
        """The keys of the steps whose effect has begun, and when, in order."""
        lines = (self._work / f"{one.run.id}.effects").read_text(encoding="utf-8").splitlines()
        return [(key, int(time_ns) // 1000) for key, time_ns in (line.split() for line in lines)]

    def story(self) -> str:
        """What the node has written, and where the runs are."""
        return f"{self._depot.standings()}\n{(self.root / 'node.log').read_text(encoding='utf-8')[-4000:]}"


def kill_alive(pid: int) -> bool:
    """Kill a process, and wait until it is gone; whether it was alive."""
    try:
        os.kill(pid, signal.SIGSTOP)
    except ProcessLookupError:
        return False
    while (facts := read_facts(pid)) is not None and facts.state not in "TZX":
        select.select([], [], [], 0)  # it stops when it is scheduled next
    was_alive = facts is not None and facts.state == "T"
    if was_alive:
        os.kill(pid, signal.SIGKILL)
    while (facts := read_facts(pid)) is not None and facts.state not in "ZX":
        select.select([], [], [], 0.001)
    return was_alive
