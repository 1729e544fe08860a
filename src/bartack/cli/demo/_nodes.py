"""The demo of nodes: two nodes of one database, the death of one of them in the middle of a run, and the proof.

All of them are ordinary commands in processes of their own. The steps of the program write to a file outside of every node, with
their keys, so that the proof need not ask a node what happened. ``_ground.py`` shows the demo.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from bartack.cli.demo._proof import Check, Event
from bartack.core.watch import open_watch
from bartack.pipeline.report.wording import number_of
from bartack.runtime.state.entries import StepFinished

if TYPE_CHECKING:
    from bartack.depot.team import ListedNode, Team

NODES: Final = ("alpha", "beta")
STEPS: Final = 12
KILLED_AFTER: Final = 4
"""After how many effects the node is killed: while the next step is being executed."""
LEASE_S: Final = 3.0
LIMIT_S: Final = 90.0
_LOOK_S: Final = 0.05
_OPENED: Final = "journal.opened"
PROGRAM: Final = '''"""Each step writes its number, its key and the node's machine to a file that all nodes see."""

from bartack import Context, worker

SCRIPT = 'echo "$1 $BARTACK_STEP" >> "$2"; sleep 0.25'


@worker
async def main(ctx: Context, effects: str, steps: int) -> str:
    for number in range(1, steps + 1):
        await ctx.shell("sh", "-c", SCRIPT, "step", str(number), effects)
    return f"{steps} steps"
'''


class Effect(NamedTuple):
    """One execution of the body of a step: its number in the program, and its key."""

    step: int
    key: str


class NodesFacts(NamedTuple):
    """What the file of effects, the database and the command say at the end.

    Attributes:
        run: The id of the run.
        effects: All executions of steps, in order.
        before: How many of them were seen when the node was killed.
        finished: How many steps were recorded as finished by then.
        killed: The name of the node that was killed.
        nodes: All nodes, as the database lists them.
        fences: The numbers of ownerships under which entries were written, in order.
        pause_s: From the kill to the next effect.
        code: The exit code of ``bartack run``.
        output: What that command printed.
    """

    run: str
    effects: list[Effect]
    before: int
    finished: int
    killed: str
    nodes: list[ListedNode]
    fences: list[int]
    pause_s: float
    code: int
    output: str


class _Opened(msgspec.Struct):
    """What the first entry of an owner says."""

    fence: int


class Ground:
    """Where the demo happens: a database, a workspace, and the processes that it starts.

    Args:
        directory: Of the demo.
        team: The runs of the database.
        environ: The variables of all commands.
    """

    def __init__(self, directory: Path, team: Team, environ: Mapping[str, str]) -> None:
        self.team = team
        self.workspace = directory / "workspace"
        self.effects = directory / "effects.log"
        self._directory = directory
        self._environ = {
            **environ,
            "XDG_STATE_HOME": str(directory / "state"),
            "XDG_CONFIG_HOME": str(directory / "config"),
        }
        self.workspace.mkdir()
        (self.workspace / "steps.py").write_text(PROGRAM, encoding="utf-8")
        self.effects.touch()

    @contextmanager
    def process(self, name: str, *words: str) -> Generator[subprocess.Popen[bytes]]:
        """A Bartack; its output is in files of this name. It is killed at the end of the block."""
        with (
            (self._directory / f"{name}.out").open("wb") as output,
            (self._directory / f"{name}.err").open("wb") as errors,
            subprocess.Popen(  # bartack: allow[unsupervised_process] the block terminates it  # noqa: S603 - Bartack itself
                [sys.executable, "-P", "-m", "bartack", *words],
                cwd=self.workspace,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            ) as child,
        ):
            try:
                yield child
            finally:
                child.kill()

    def node(self, name: str) -> tuple[str, ...]:
        """The words that start a node."""
        seat = str(self._directory / name)
        return (
            "node",
            "run",
            "--on",
            self.team.where.on,
            "--name",
            name,
            "--state-dir",
            seat,
            "--lease",
            f"{LEASE_S:g}",
        )

    def submit(self) -> tuple[str, ...]:
        """The words that submit the run and follow it."""
        insecure = ("--insecure",) if self.team.where.insecure else ()
        return ("run", "--on", self.team.where.on, *insecure, "steps.py", str(self.effects), str(STEPS))

    def output(self, name: str) -> str:
        """What a command has printed."""
        return (self._directory / f"{name}.out").read_text(encoding="utf-8", errors="replace").strip()

    def problem(self, name: str) -> str:
        """The last line of what a command has reported."""
        lines = (self._directory / f"{name}.err").read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1] if lines else "no reason was reported"

    def seen(self) -> list[Effect]:
        """The effects so far."""
        lines = [line.split() for line in self.effects.read_text(encoding="utf-8").splitlines()]
        return [Effect(int(line[0]), line[1]) for line in lines if len(line) == 2]


class NodesError(Exception):
    """A process of the demo has ended too early, or an event has not come; the message says which."""


def perform(ground: Ground, show: Callable[[Event], None]) -> NodesFacts:
    """Start two nodes, submit a run, kill the node that has it, and wait for its end on the other one.

    Raises:
        NodesError: It did not get that far.
    """
    began = time.monotonic()

    def report(what: str, *, killed: bool = False) -> None:
        show(Event(time.monotonic() - began, what, killed))

    with ExitStack() as stack:
        running: dict[str, subprocess.Popen[bytes]] = {}
        for name in NODES:
            report(f"bartack node --on DATABASE --name {name}")
            running[name] = stack.enter_context(ground.process(name, *ground.node(name)))
        _wait(ground, lambda: len(ground.team.nodes()) == len(NODES), running, "the nodes to join")
        report("bartack run --on DATABASE steps.py")
        follower = stack.enter_context(ground.process("run", *ground.submit()))
        watched = {**running, "run": follower}
        _wait(
            ground,
            lambda: len(ground.seen()) > KILLED_AFTER and bool(_owner(ground)),
            watched,
            "the first steps",
        )
        killed, before = _owner(ground), len(ground.seen())
        running[killed].kill()
        when = time.monotonic()
        step = ground.seen()[before - 1].step
        report(f"kill -9 of node {killed}, while step {step} of {STEPS} was being executed", killed=True)
        left = {name: child for name, child in watched.items() if name != killed}
        _wait(ground, lambda: len(ground.seen()) > before, left, "the other node to take over")
        pause_s = time.monotonic() - when
        report(f"node {_owner(ground)} continues with step {ground.seen()[before].step}")
        _wait(ground, lambda: follower.poll() is not None, {}, "the run to end")
        report(f"the run has ended: {ground.output('run')}")
        run = ground.team.ids()[0]
        finished = _finished_by_fence(ground, run)
        return NodesFacts(
            run,
            ground.seen(),
            before,
            sum([*finished.values()][:-1]),
            killed,
            ground.team.nodes(),
            [*finished],
            pause_s,
            follower.returncode,
            ground.output("run"),
        )


def _finished_by_fence(ground: Ground, run: str) -> dict[int, int]:
    """How many steps were recorded as finished under each ownership of the run, in order."""
    found: dict[int, int] = {}
    fence = 0
    for entry in ground.team.read(ground.effects.parent / "proof" / run):
        if entry.kind == _OPENED:
            fence = entry.decode(_Opened).fence
            found[fence] = 0
        elif entry.kind == StepFinished.kind:
            found[fence] += 1
    return found


def _owner(ground: Ground) -> str:
    """The node that has the run now."""
    return next((node.name for node in ground.team.nodes() if node.state == "live" and node.runs), "")


def _wait(
    ground: Ground, is_there: Callable[[], bool], children: Mapping[str, subprocess.Popen[bytes]], what: str
) -> None:
    """Wait for something, as long as these processes run."""
    limit = time.monotonic() + LIMIT_S
    with open_watch(str(ground.effects.parent)) as watch:
        while not is_there():
            for name, child in children.items():
                if child.poll() is not None and not is_there():
                    raise NodesError(f"{name} has ended: {ground.problem(name)}")
            if time.monotonic() > limit:
                raise NodesError(f"waited for {what} for {LIMIT_S:.0f} s")
            watch.wait(_LOOK_S)


def prove(facts: NodesFacts) -> list[Check]:
    """Return the parts of the proof."""
    times = Counter(effect.step for effect in facts.effects)
    keys = {(effect.step, effect.key) for effect in facts.effects}
    cut_off = facts.finished + 1
    again = sorted(step for step, count in times.items() if count > 1)
    states = {node.name: node.state for node in facts.nodes}
    others = [name for name in NODES if name != facts.killed]
    return [
        Check(
            "killed",
            states.get(facts.killed) == "dead",
            f"node {facts.killed}, declared dead by {' and '.join(others)}",
        ),
        Check(
            "complete",
            facts.code == 0 and sorted(times) == list(range(1, STEPS + 1)),
            f"{len(times)} of {number_of(STEPS, 'step')}, exit code {facts.code}",
        ),
        Check(
            "taken over",
            len(facts.effects) > facts.before,
            f"the next step was executed {facts.pause_s:.1f} s after the kill; the lease was {LEASE_S:g} s",
        ),
        Check(
            "nothing twice",
            set(again) <= {cut_off} and max(times.values()) <= 2,
            f"{number_of(facts.finished, 'finished step')} before the kill, executed again: "
            f"{sum(step != cut_off for step in again)}; the step that was cut off: {'once' if again else 'not begun'}",
        ),
        Check("same keys", len(keys) == len(times), f"{len(keys)} keys for {number_of(len(times), 'step')}"),
        Check(
            "one owner",
            facts.fences == sorted(facts.fences) and len(facts.fences) > 2,
            f"entries under ownerships {', '.join(map(str, facts.fences))}; what an earlier one sends is refused",
        ),
    ]
