"""What the journal of a run has for its report: calls of agents, verdicts, answers, ends of tasks. Pure: entries in, values out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from bartack.agents import AgentResult
from bartack.core import typed
from bartack.journal import Entry
from bartack.pipeline.records.facts import Fact, make_facts
from bartack.pipeline.records.records import (
    Accepted,
    Activated,
    Base,
    Delivered,
    Gate,
    Grant,
    Merged,
    PipelineOrder,
    Settings,
    Shot,
    TaskRecord,
    TaskResult,
)
from bartack.pipeline.records.task_state import Progress, make_progress
from bartack.runtime.protocol.steps import ThinkArgs, ThinkOutcome
from bartack.runtime.rundir.receipts import Receipt
from bartack.runtime.state.entries import (
    AttemptFailed,
    HubStarted,
    StepFailed,
    StepFinished,
    StepStarted,
    WorkerEnded,
    decode_entry,
)
from bartack.runtime.state.timeline import Timeline
from bartack.runtime.state.units import NONE, Units

Load = Callable[[Entry], bytes | None]


class AgentCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of an agent that has ended: for which task, and what it used."""

    seq: int
    agent: str
    task: str = ""
    usd: float = 0.0
    used: Units = NONE
    failed: bool = False
    undone: bool = False
    """A person has set its answer aside."""
    harvested: bool = False
    estimated: bool = False


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that was accepted: its receipt, what else was found, and the answer itself if it is there."""

    receipt: Receipt
    accepted: Accepted
    answer: AgentResult | None


class Gathered(msgspec.Struct, kw_only=True):
    """What there is to be reported of one run."""

    timeline: Timeline
    progress: Progress
    calls: list[AgentCall] = []
    hubs: list[int] = []
    """Where in the journal the run was resumed."""
    order: PipelineOrder | None = None
    tasks: dict[str, TaskRecord] = {}
    paths: dict[str, str] = {}
    """The task of each worker that works on one."""
    given: list[Given] = []
    gates: list[tuple[Gate, Settings]] = []
    refused: dict[str, Accepted] = {}
    """Of each task: the last answer, if that was refused."""
    results: dict[str, TaskResult] = {}
    base: Base | None = None
    merged: list[Merged] = []
    delivered: Delivered | None = None

    def task_of(self, p: str) -> str:
        """The task that a path of a worker or branch belongs to; empty if none does."""
        owner = self.timeline.state.worker_of(p)
        return self.paths.get(p if owner is None else owner.path, "")

    def given_for(self, task: str) -> list[Given]:
        """The accepted answers of a task, in order."""
        return [one for one in self.given if one.receipt.task_id == task]


def gather(entries: Sequence[Entry], load: Load) -> Gathered:
    """Gather what a journal has.

    Args:
        entries: All entries of the journal.
        load: Returns the value of an entry.
    """
    timeline = Timeline.of(entries)
    facts = make_facts(entries, load)
    undone = {step.seq for step in timeline.steps if step.status == "undone"}
    gathered = Gathered(timeline=timeline, progress=make_progress(facts))
    _Facts(gathered, undone).take(facts)
    _Entries(gathered, undone, load).take(entries)
    return gathered


class _Facts:
    """Adds the facts of the pipeline."""

    def __init__(self, gathered: Gathered, undone: set[int]) -> None:
        self._to = gathered
        self._undone = undone
        self._settings = Settings()
        self._answers: dict[str, AgentResult] = {}

    def take(self, facts: Iterable[Fact]) -> None:
        for fact in facts:
            self._learn(fact)
            if fact.seq not in self._undone:
                self._add(fact)

    def _learn(self, fact: Fact) -> None:
        """The settings that hold from here on."""
        found: Settings | None = None
        match fact.value:
            case PipelineOrder(settings=settings):
                found = settings
            case Activated(settings=settings) | Shot(settings=settings) | Grant(settings=settings):
                found = settings
            case _:
                pass
        if found is not None and found.hub >= self._settings.hub:
            self._settings = found

    def _add(self, fact: Fact) -> None:
        to = self._to
        match fact.value:
            case PipelineOrder() as order:
                to.order = order
            case Activated(tasks=tasks):
                to.tasks |= {record.id: record for record in tasks}
            case (str() as path, TaskRecord() as record):
                to.paths[path] = record.id
                to.tasks.setdefault(record.id, record)
            case AgentResult() as answer:
                self._answers[answer.event.message_id] = answer
            case Accepted() as accepted:
                self._accept(fact, accepted)
            case Gate() as gate:
                to.gates.append((gate, self._settings))
            case Base() as base:
                to.base = base
            case Merged() as merged:
                to.merged.append(merged)
            case Delivered() as delivered:
                to.delivered = delivered
            case _:
                pass

    def _accept(self, fact: Fact, accepted: Accepted) -> None:
        task = self._to.task_of(fact.p)
        if accepted.receipt is None:
            self._to.refused[task] = accepted
            return
        self._to.refused.pop(task, None)
        answer = self._answers.get(accepted.receipt.event_message_id)
        self._to.given.append(Given(receipt=accepted.receipt, accepted=accepted, answer=answer))


class _Entries:
    """Adds what is in the entries of every run: calls of agents, resumes, and the results of tasks."""

    def __init__(self, gathered: Gathered, undone: set[int], load: Load) -> None:
        self._to = gathered
        self._undone = undone
        self._load = load
        self._asked: dict[tuple[str, int], tuple[str, str]] = {}
        """The agent and the task of each call."""

    def take(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            match decode_entry(entry.kind, entry.raw):
                case StepStarted(step="think") as data:
                    self._ask(data, entry)
                case AttemptFailed(p=p, n=n, agent=agent):
                    self._asked[p, n] = agent, self._asked.get((p, n), ("", ""))[1]
                case StepFinished(step="think") as data:
                    self._finish(data, entry)
                case StepFailed(step="think") as data:
                    self._fail(data, entry)
                case HubStarted(hub=hub) if hub > 1:
                    self._to.hubs.append(entry.seq)
                case WorkerEnded(path=path, error=None) if path in self._to.paths:
                    result = self._decode(entry, TaskResult | None)
                    if isinstance(result, TaskResult):
                        self._to.results[result.id] = result
                case _:
                    pass

    def _decode(self, entry: Entry, type_: object) -> object:
        return typed.decode(self._load(entry) or b"null", type=type_)

    def _ask(self, data: StepStarted, entry: Entry) -> None:
        asked = self._decode(entry, ThinkArgs | None)
        if isinstance(asked, ThinkArgs):
            task = asked.command.task_id if asked.command is not None else ""
            self._asked[data.p, data.n] = asked.agent, task

    def _finish(self, data: StepFinished, entry: Entry) -> None:
        outcome = self._decode(entry, ThinkOutcome | None)
        agent, task = self._asked.get((data.p, data.n), ("", ""))
        result: AgentResult | None = None
        if isinstance(outcome, ThinkOutcome):
            agent = outcome.agent or agent
            if outcome.result:
                result = typed.decode(outcome.result, type=AgentResult)
        call = AgentCall(
            seq=entry.seq,
            agent=agent,
            task=task,
            usd=data.usd,
            used=data.used or NONE,
            undone=entry.seq in self._undone,
            harvested=result is not None and result.harvested,
            estimated=data.usd_estimated or (result is not None and result.usd_estimated),
        )
        self._to.calls.append(call)

    def _fail(self, data: StepFailed, entry: Entry) -> None:
        agent, task = self._asked.get((data.p, data.n), ("", ""))
        used = data.used or NONE
        self._to.calls.append(
            AgentCall(
                seq=entry.seq,
                agent=agent,
                task=task,
                usd=data.usd,
                used=used,
                failed=True,
                estimated=data.usd_estimated,
            )
        )
