"""The matrix: which stories a run of agents can have, which faults an agent can show, and where everything can be killed.

One *case* is a story with one fault in one action. ``Case.run`` plays it, killed at a place or not, and says what became of it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, NamedTuple

from tests.pipeline.players import Cast
from tests.pipeline.team import APPROVED, GREEN, RED, Reply, edits, faults, order, receipts, settings, wrote

from bartack.agents.protocol.ids import correlation_id
from bartack.config.sections import PipelineConfig, SnapshotConfig, TestsConfig
from bartack.pipeline import main
from bartack.pipeline.records.records import PipelineOrder
from bartack.runtime import Context, ShellResult, worker
from bartack.runtime.context.definitions import WorkerCall
from bartack.runtime.memory.hub import KilledError
from bartack.runtime.memory.run import RUN_ID
from bartack.runtime.state.entries import StepFinished, decode_entry
from bartack.testing import TestRun
from bartack.testing.runs._crashes import _finished, _step_of

SPEC: Final = "# Spec\n\n## Status\n\n{}\n"
PLAN: Final = {"events": [{"type": "orchestration.plan_conflict", "payload": {
    "conflicts": [{"paths": ["plan.md", "plan-b.md"], "reason": "two dates"}]}}]}  # fmt: skip
TASKS: Final = {"events": [{"type": "orchestration.proposed_tasks", "payload": {
    "plan_candidates": [{"path": "plan.md"}], "derived_tasks": [{"id": "one", "title": "the one"}]}}]}  # fmt: skip
SAID: Final = {"events": [{"type": "prompt.completed", "payload": {"result": "fine", "text": "fine"}}]}


@worker
async def ask_twice(ctx: Context) -> str:
    """A program that is no pipeline: agents are asked by prompts, too."""
    first = await ctx.think("What is it?", agent="general")
    await ctx.shell("make", "test")
    second = await ctx.think("Are you sure?", agent="general")
    return f"{first} {second}"


def _tests(argv: list[str]) -> ShellResult:
    """Tests that pass when the builder has mended what it built."""
    return RED if Path("src/a.py").exists() and Path("src/a.py").read_text() == "A = 1\n" else GREEN


@dataclass(frozen=True)
class Story:
    """A run: what is to be done, what is there, and what the agents do."""

    call: Callable[[], WorkerCall[object]]
    replies: Mapping[str, Reply]
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    answers: Mapping[str, object] = field(default_factory=dict[str, object])


def _pipeline(what: Callable[[], PipelineOrder]) -> Callable[[], WorkerCall[object]]:
    return lambda: main(what())


def _intake() -> PipelineOrder:
    using = settings(
        pipeline=PipelineConfig(on_limit="fail", review=False, spec=False),
        tests=TestsConfig(command=["make", "test"]),
        snapshot=SnapshotConfig(source="roots"),
    )
    return order(using=using, instruction="ship it")


STORIES: Final[dict[str, Story]] = {
    "task": Story(
        call=_pipeline(lambda: order("T-1")),
        files={"SPEC.md": SPEC.format("old")},
        replies={
            "implement": wrote("src/a.py", "A = 1\n"),
            "implement_changes": wrote("src/a.py", "A = 2\n"),
            "review": APPROVED,
            "update_spec": edits(SPEC.format("new")),
        },
    ),
    "intake": Story(
        call=_pipeline(_intake),
        files={"plan.md": "# Plan\n", "plan-b.md": "# Plan\n"},
        answers={"*contradict*": "more", "Which plan*": "1", "Which tasks*": "all"},
        replies={"intake": PLAN, "task_discovery": TASKS, "implement": wrote("src/b.py", "B = 1\n")},
    ),
    "prompt": Story(call=ask_twice, replies={"prompt": SAID}),
}
ACTIONS: Final[dict[str, str]] = {
    "implement": "task",
    "implement_changes": "task",
    "review": "task",
    "update_spec": "task",
    "intake": "intake",
    "task_discovery": "intake",
    "prompt": "prompt",
}
"""Every action, and the story in which it fails."""


class Fault(NamedTuple):
    """What an agent does wrong, and how a run fails in which it does it always, or only once; empty: it is completed."""

    inject: dict[str, object]
    always: str = ""
    once: str = ""
    echoes: bool = False


FAULTS: Final[dict[str, Fault]] = {
    "crash before the work": Fault({"do": "crash", "at": "start"}, "AgentExitedError"),
    "crash during the work": Fault({"do": "crash", "at": "before"}, "AgentExitedError"),
    "crash before the answer": Fault({"do": "crash"}, "AgentExitedError"),
    "crash after the answer": Fault({"do": "crash", "at": "after_terminal"}),
    "hang": Fault({"do": "hang"}, "AgentStalledError"),
    "hang and live": Fault(
        {"do": "hang", "heartbeats": True}, always="AgentDeadlineError", once="AgentDeadlineError"
    ),
    "oversize line": Fault({"do": "oversize", "instead": True}, "AgentProtocolError"),
    "malformed line": Fault({"do": "malformed", "instead": True}, "AgentProtocolError"),
    "torn line, then the end": Fault({"do": "torn", "then": "exit"}, "AgentExitedError"),
    "torn line": Fault({"do": "torn", "then": "newline"}, "AgentProtocolError"),
    "null line": Fault({"do": "null"}),
    "wrong sender": Fault({"do": "wrong_sender", "instead": True}, "AgentProtocolError"),
    "late answer after a restart": Fault({"do": "crash", "at": "after_terminal"}, echoes=True),
    "answer twice": Fault({"do": "duplicate", "count": 2}),
    "10,000 log lines": Fault({"do": "log_flood", "count": 10_000}),
    "stderr flood": Fault({"do": "stderr_flood", "bytes": 100_000_000}),
}


def smaller(fault: Fault) -> Fault:
    """The same, with less of it: for the many runs that need not show that a flood is borne."""
    inject = dict(fault.inject)
    for name in ("bytes", "count"):
        size = inject.get(name)
        if isinstance(size, int) and size > 1000:
            inject[name] = size // 100
    return fault._replace(inject=inject)


Way = Literal["line", "late", "wire"]


class Cut(NamedTuple):
    """Where everything is killed: when so many lines are durable, just before there are more, or at a line of the wire."""

    way: Way
    place: int


class Sizes(NamedTuple):
    """How long a run is that nobody kills."""

    lines: int
    wire: int

    def cuts(self) -> Iterator[Cut]:
        yield from (Cut("line", place) for place in range(2, self.lines))
        yield from (Cut("late", place) for place in range(2, self.lines - 1))
        yield from (Cut("wire", place) for place in range(1, self.wire + 1))


class Facts(NamedTuple):
    """What has to be the same, whatever went wrong."""

    result: object
    receipts: list[tuple[object, ...]]
    artifacts: list[tuple[object, ...]]
    files: dict[str, str]


class Case:
    """One story with one fault, in a workspace of its own."""

    def __init__(
        self,
        workspace: Path,
        action: str,
        fault: Fault | None = None,
        *,
        always: bool = False,
        dedupe: bool = True,
        delay_s: float = 0.0,
    ) -> None:
        self.story = STORIES[ACTIONS[action]]
        self._workspace = workspace
        self._dedupe = dedupe
        self._echoes = fault is not None and fault.echoes
        self._broken = {**self.story.replies, action: {**self.story.replies[action], "delay_s": delay_s}}
        if fault is not None:
            inject = {**fault.inject, "times": 0} if always else fault.inject
            self._broken[action] = {**self._broken[action], "inject": [inject]}

    @property
    def sound(self) -> dict[str, object]:
        """The script without the fault."""
        return {"version": 1, "dedupe": self._dedupe, "responses": self.story.replies}

    @contextmanager
    def started(self) -> Generator[Played]:
        """A run that has not begun yet."""
        for child in self._workspace.iterdir():
            shutil.rmtree(child) if child.is_dir() else child.unlink()
        for path, content in self.story.files.items():
            (self._workspace / path).write_text(content)
        before = os.getcwd()
        os.chdir(self._workspace)
        script = {"version": 1, "dedupe": self._dedupe, "responses": self._broken}
        played = Played(self.story, script, self._workspace, echoes=self._echoes)
        try:
            yield played
            assert faults(played.run) == []
        finally:
            played.close()
            os.chdir(before)


class Played:
    """A run of a case."""

    def __init__(self, story: Story, script: Mapping[str, object], workspace: Path, *, echoes: bool) -> None:
        self.run = TestRun(story.call(), shell=_tests, answers=story.answers)
        self.folder = Path(self.run._scratch.name)
        self.cast = Cast(self.folder, script, self.run.clock)
        self.cast.echoes = echoes
        self.run._run.programs = self.cast.make_programs
        self._workspace = workspace

    def begin(self, cut: Cut | None = None) -> None:
        """Run it to its end, or until it is killed."""
        memory = self.run._run
        self.run._started = True
        if cut is not None and cut.way == "wire":
            self.cast.dies_at = cut.place
        try:
            if cut is None or cut.way == "wire":
                memory.start()
            else:
                memory.start(cut.place, late=cut.way == "late")
            self.run.finish()
        except KilledError:
            self.cast.dies_at = None

    def resume(self) -> list[str]:
        """Go on to the end; what was finished and is done again all the same is returned, and has to be nothing."""
        steps, answered = self._finished()
        said, told = len(self.run.outside.frames), len(self.cast.commands)
        self.run.resume()
        self.run.finish()
        frames = self.run.outside.frames[said:]
        again = [f"step {step}" for frame in frames if (step := _step_of(frame)) in steps]
        sent = {command.correlation_id for command in self.cast.commands[told:]}
        return [*again, *(f"command {correlation}" for correlation in sorted(sent & answered))]

    def _finished(self) -> tuple[set[tuple[str, int]], set[str]]:
        """The steps that have outcomes, and the correlation ids of the commands among them. Failed ones are done again."""
        entries = [entry for entry in self.run.journal if entry.kind != "step.failed"]
        thoughts = {
            (data.p, data.n)
            for entry in entries
            if isinstance(data := decode_entry(entry.kind, entry.raw), StepFinished) and data.step == "think"
        }
        sent = {(command.task_id, command.action, command.correlation_id) for command in self.cast.commands}
        answered = {
            id_
            for task, action, id_ in sent
            if any(correlation_id(RUN_ID, task, action, p, 0, n) == id_ for p, n in thoughts)
        }
        return _finished(entries), answered

    @property
    def sizes(self) -> Sizes:
        return Sizes(len(self.run.lines), self.cast.wire)

    def facts(self) -> Facts:
        """What the run has to show."""
        shown = receipts(self.run)
        result = self.run.result
        tasks = getattr(result, "tasks", None)
        return Facts(
            result if tasks is None else [(task.id, task.status, task.receipts) for task in tasks],
            [(r.task_id, r.action, r.round, r.step, r.cause, r.event, r.status) for r in shown],
            [(a.path, a.sha256, a.size) for r in shown for a in r.artifacts],
            {
                str(path.relative_to(self._workspace)): path.read_text()
                for path in sorted(self._workspace.rglob("*"))
                if path.is_file()
            },
        )

    def close(self) -> None:
        self.cast.kill()
        self.run.close()
