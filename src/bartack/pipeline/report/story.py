"""What happened in a run of the pipeline, task by task: calls of agents, tests, verdicts, questions. Pure: entries in, scenes out.

What the pipeline does for itself is left out: snapshots, the time, checks of answers, log lines. ``bartack show`` prints the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, cast

import msgspec

from bartack.agents import AgentResult
from bartack.agents.replies import findings_of
from bartack.journal import Entry
from bartack.pipeline.records._transcript import finding_line
from bartack.pipeline.records.facts import Fact, make_facts
from bartack.pipeline.records.records import Accepted, Decision, Delivered, Gate, Merged, TaskRecord
from bartack.pipeline.records.task_state import make_progress
from bartack.runtime.protocol.steps import AskArgs, ThinkArgs
from bartack.runtime.state.timeline import StepRecord, Timeline

SceneStatus = Literal["open", "finished", "failed", "undone"]


class Scene(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Something that happened for a task.

    Attributes:
        p: The path of the worker or branch whose step it is.
        n: The number of that step.
        action: What an agent was asked for, ``tests``, ``question``, ``decide``, ``merge`` or ``deliver``.
        at: When it began, or when it was recorded: microseconds since 1970, UTC.
        round: The round of the loop that it belongs to; 0: it belongs to none.
        agent: Who did it: an agent, or the person who answered.
        status: Whether it is open, has an outcome, failed, or was undone by a rewind.
        took_s: How long it took, if that is known.
        verdict: Its outcome in a word.
        text: Why, or what is wanted.
        usd: What it cost.
        usd_estimated: That was computed from a table of prices, or in part.
    """

    p: str
    n: int
    action: str
    at: int
    round: int = 0
    agent: str = ""
    status: SceneStatus = "finished"
    took_s: float | None = None
    verdict: str = ""
    text: str = ""
    usd: float = 0.0
    usd_estimated: bool = False


class TaskStory(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A task and what happened for it, in order; without an id: what happened for the run as a whole."""

    id: str = ""
    title: str = ""
    status: str = ""
    path: str = ""
    """The path of the last worker that worked on it."""
    scenes: list[Scene] = []


def make_story(entries: Sequence[Entry], load: Callable[[Entry], bytes | None]) -> list[TaskStory]:
    """The story of the entries of a journal.

    Args:
        entries: All entries of the journal.
        load: Returns the value of an entry.
    """
    return story_of(make_facts(entries, load), Timeline.of(entries))


def story_of(facts: Sequence[Fact], timeline: Timeline) -> list[TaskStory]:
    """The story of a run.

    Args:
        facts: Its facts.
        timeline: Its timeline, with all steps.
    """
    making = _Story(timeline)
    for fact in facts:
        making.take(fact)
    making.add_running()
    for task in make_progress(facts).tasks:
        story = making.of_task(task.id)
        story.title, story.status = task.title, task.status
    return [story for story in making.tasks.values() if story.id or story.scenes]


class _Story:
    def __init__(self, timeline: Timeline) -> None:
        self.tasks: dict[str, TaskStory] = {"": TaskStory(scenes=[])}
        self._timeline = timeline
        self._by_seq = {step.seq: step for step in timeline.steps if step.seq}
        self._paths: dict[str, str] = {}
        """The task of each worker that works on one."""
        self._open: dict[tuple[str, int], Scene] = {}
        self._last: dict[str, Scene] = {}
        """Of each path: the last call of an agent."""

    def of_task(self, task: str) -> TaskStory:
        return self.tasks.setdefault(task, TaskStory(id=task, scenes=[]))

    def take(self, fact: Fact) -> None:
        match fact.value:
            case (str() as path, TaskRecord() as record):
                self._paths[path] = record.id
                self.of_task(record.id).path = path
            case ThinkArgs() as asked:
                self._command(fact, asked)
            case AgentResult() as answer:
                self._answer(fact, answer)
            case Accepted() as accepted:
                self._accept(fact, accepted)
            case Gate() as gate:
                self._tests(fact, gate)
            case (str() as number, AskArgs() as question):
                self._open[fact.p, fact.n] = self._add(
                    fact, "question", status="open", text=f"{number}: {question.question}"
                )
            case Decision(status=status, reason=reason):
                self._add(fact, "decide", verdict=status, text=reason)
            case Merged() as merged:
                verdict = "merged" if merged.commit else "conflict"
                self._add(fact, "merge", merged.task_id, verdict=verdict, text=", ".join(merged.conflicts))
            case Delivered() as delivered:
                self._add(fact, "deliver", verdict=delivered.branch, text=delivered.problem)
            case _:
                self._end(fact)

    def add_running(self) -> None:
        """Add the commands that have no outcome: the tests of tasks that run, or were running when the run stopped."""
        for step in self._timeline.steps:
            if step.kind == "shell" and step.status == "open":
                owner = self._timeline.state.worker_of(step.p)
                task = self._paths.get(step.p if owner is None else owner.path, "")
                scene = Scene(
                    p=step.p, n=step.n, action="tests", at=step.started_at, status="open", text=step.about
                )
                self.of_task(task).scenes.append(scene)
        for story in self.tasks.values():
            story.scenes.sort(key=lambda scene: scene.at)

    def _end(self, fact: Fact) -> None:
        """A question was answered, or a call of an agent failed."""
        scene = self._open.get((fact.p, fact.n))
        if scene is None or fact.kind not in {"answered", "attempt_failed"}:
            return
        scene.status = "finished"
        if isinstance(fact.value, tuple):
            answer, scene.agent = cast("tuple[object, str]", fact.value)
            scene.verdict = answer if isinstance(answer, str) else msgspec.json.encode(answer).decode()
        elif fact.error is not None:
            scene.status, scene.verdict, scene.text = "failed", "failed", fact.error.message
        self._measure(fact, scene)

    def _command(self, fact: Fact, asked: ThinkArgs) -> None:
        known = self._open.get((fact.p, fact.n))
        command = asked.command
        if command is None or (known is not None and known.status == "open"):
            return
        round_ = cast("dict[str, object]", command.inputs.get("iteration", {})).get("round")
        scene = self._add(
            fact,
            command.action,
            command.task_id,
            status="open",
            agent=asked.agent,
            round=round_ if isinstance(round_, int) else 0,
        )
        self._open[fact.p, fact.n] = self._last[fact.p] = scene

    def _answer(self, fact: Fact, answer: AgentResult) -> None:
        scene = self._open.get((fact.p, fact.n))
        if scene is not None:
            scene.status, scene.verdict = "finished", answer.event.event.partition(".")[2]
            scene.usd, scene.usd_estimated = answer.usage.cost_usd or 0.0, answer.usd_estimated
            scene.text = _wanted(answer)
            self._measure(fact, scene)

    def _accept(self, fact: Fact, accepted: Accepted) -> None:
        scene = self._last.get(fact.p)
        if scene is None:
            return
        receipt = accepted.receipt
        if receipt is None:
            scene.verdict, scene.text = "refused", f"{accepted.code}: {accepted.problem}"
            return
        scene.agent, scene.round = receipt.agent.agent_id, receipt.round
        scene.verdict = receipt.status or receipt.event.partition(".")[2]
        if receipt.tests is not None and not scene.text:
            scene.text = f"reports tests: {receipt.tests.get('status', 'not run')}"

    def _tests(self, fact: Fact, gate: Gate) -> None:
        parts = [] if gate.exit_code is None else [f"exit {gate.exit_code}"]
        parts += ["as the builder reports"] if gate.mode == "report" else []
        parts += ["unchecked"] if gate.unchecked else []
        parts += [f"the builder reported {gate.reported}"] if gate.disagreement else []
        parts += [gate.stuck] if gate.stuck else []
        scene = self._add(
            fact, "tests", gate.task_id, verdict=gate.verdict, text=", ".join(parts), round=gate.round
        )
        scene.took_s = gate.duration_s if gate.mode == "command" else None
        command = self._command_before(fact)
        if command is not None and gate.mode == "command":
            scene.n = command.n

    def _command_before(self, fact: Fact) -> StepRecord | None:
        """The command that a verdict on the tests is about: its step has the output."""
        steps = (step for step in self._timeline.steps if step.p == fact.p and 0 < step.seq < fact.seq)
        return max((step for step in steps if step.kind == "shell"), key=lambda step: step.seq, default=None)

    def _measure(self, fact: Fact, scene: Scene) -> None:
        step = self._by_seq.get(fact.seq)
        if step is not None:
            scene.took_s = step.duration_s
            scene.status = "undone" if step.status == "undone" else scene.status

    def _add(
        self,
        fact: Fact,
        action: str,
        task: str = "",
        *,
        status: SceneStatus = "finished",
        agent: str = "",
        verdict: str = "",
        text: str = "",
        round: int = 0,  # noqa: A002 - the member is called so
    ) -> Scene:
        owner = self._timeline.state.worker_of(fact.p)
        known = task or self._paths.get(fact.p if owner is None else owner.path, "")
        step = self._by_seq.get(fact.seq)
        if step is not None and step.status == "undone":
            status = "undone"
        scene = Scene(
            p=fact.p,
            n=fact.n,
            action=action,
            at=fact.at,
            round=round,
            agent=agent,
            status=status,
            verdict=verdict,
            text=text,
        )
        self.of_task(known if known in self.tasks else "").scenes.append(scene)
        return scene


def _wanted(answer: AgentResult) -> str:
    """What an answer wants changed, in one line."""
    try:
        found = findings_of(answer.event) if "findings" in answer.payload else []
    except msgspec.ValidationError:
        found = []
    return "; ".join(map(finding_line, found))
