"""Makes the report of a run. Pure: what was gathered from its journal and what was found of its work, in; the report, out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from posixpath import basename
from typing import Final

import msgspec

from bartack.agents.protocol.ids import moment
from bartack.agents.protocol.messages import Finding
from bartack.agents.replies import findings_of
from bartack.pipeline.records.records import Gate, Settings
from bartack.pipeline.report._gathered import AgentCall, Gathered, Given
from bartack.pipeline.report._work import TaskWork, Work
from bartack.pipeline.report.report import (
    SCHEMA,
    AgentUse,
    OpenPoint,
    PointKind,
    ReportedFinding,
    Resumed,
    ReviewRound,
    RunReport,
    StepCounts,
    Takeover,
    TaskReport,
    TestsReport,
    WaitsFor,
)
from bartack.pipeline.worktree._worktrees import RESULT

UNCLEAR: Final = "the agent did not report it"
"""What notes about changes say that an agent may have made."""
UNFINISHED: Final = "The run is not completed: this is the work so far."
_STAGES: Final = {"review": "review", "update_spec": "spec"}
_ACCEPTED: Final = {"review": "the reviewer wants changes", "spec": "the spec maintainer wants changes"}


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """An open question: its number, the worker that waits for the answer, and its text."""

    id: str
    worker: str
    text: str


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """What the journal alone does not have.

    Attributes:
        run: The id of the run.
        status: The status of the run, with whether a process runs it.
        is_pipeline: Whether it is a run of the pipeline.
        questions: Its open questions.
        result: What a program returned, as JSON.
    """

    run: str
    status: str
    is_pipeline: bool
    questions: list[Asked] = []
    result: str = ""


def make_report(gathered: Gathered, situation: Situation, work: Work) -> RunReport:
    """The report of a run."""
    state = gathered.timeline.state
    assert state.run is not None
    # A conflict that the builder resolved left the receipts of both attempts under the same task.
    tasks = [
        _Task(gathered, situation, id_, work.tasks.get(id_, TaskWork())).report() for id_ in gathered.tasks
    ]
    reported = {question.id for id_ in gathered.tasks for question in _questions(gathered, situation, id_)}
    others = [_ask(one) for one in situation.questions if one.id not in reported]
    return RunReport(
        schema=SCHEMA,
        run=situation.run,
        kind="pipeline" if situation.is_pipeline else "program",
        status=situation.status,
        program="pipeline" if situation.is_pipeline else f"{basename(state.run.program)}:{state.run.name}",
        goal=gathered.progress.goal if situation.is_pipeline else "",
        created_at=moment(state.created_at),
        updated_at=moment(state.last_at),
        took_s=round((state.last_at - state.created_at) / 1e6, 3),
        tasks=tasks if situation.is_pipeline else [],
        tests=_tests(gathered, RESULT),
        open=[*others, *_points_of_run(gathered, work)],
        agents=_uses(gathered.calls),
        total=_total(gathered.calls),
        resumed=_resumed(gathered),
        steps=_count_steps(gathered),
        waits_for=list(_waits(gathered, situation)),
        problem=_problem(gathered, situation.status),
        result=situation.result,
        takeover=_takeover(gathered, situation, work.takeover),
    )


# The run.


def _points_of_run(gathered: Gathered, work: Work) -> Iterator[OpenPoint]:
    refused = gathered.refused.get("")
    if refused is not None:
        yield OpenPoint(kind="refused", text=f"an answer was refused ({refused.code}): {refused.problem}")
    delivered = gathered.delivered
    if delivered is not None and delivered.problem:
        what = (
            "the work is not in the workspace of the run"
            if delivered.carried
            else "your branch was not moved"
        )
        yield OpenPoint(kind="left_out", text=f"{what}: {delivered.problem}")
    gate = next((gate for gate, _ in reversed(gathered.gates) if gate.task_id == RESULT), None)
    if gate is not None:
        yield from _gate_points(gate)
    if work.problem:
        yield OpenPoint(kind="unchecked", text=f"the work could not be looked at: {work.problem}")


def _takeover(gathered: Gathered, situation: Situation, found: Takeover | None) -> Takeover | None:
    """How the work is taken over; of a run that is not completed, with what it has so far."""
    if found is None or situation.status == "completed" or not found.command:
        return found
    parts = [UNFINISHED, found.advice]
    if found.branch:
        merged = [one.task_id for one in gathered.merged if one.commit]
        missing = [id_ for id_ in gathered.tasks if id_ not in merged]
        so_far = [f"the branch has the work of {', '.join(merged)}"]
        so_far += [f"not of {', '.join(missing)}"] if missing else []
        found = msgspec.structs.replace(
            found, remark="; ".join([", ".join(so_far), *filter(None, [found.remark])])
        )
    return msgspec.structs.replace(found, advice=" ".join(filter(None, parts)))


def _problem(gathered: Gathered, status: str) -> str:
    state = gathered.timeline.state
    if status == "failed" and state.failure is not None:
        error = state.failure.error
        name, first = error.type.rpartition(":")[2], error.message.partition("\n")[0]
        return f"{name} [{error.code}]: {first}" if error.code else f"{name}: {first}"
    return state.ended.reason if state.ended is not None else ""


def _waits(gathered: Gathered, situation: Situation) -> Iterator[WaitsFor]:
    for question in situation.questions:
        yield WaitsFor(text=question.text, command=f"bartack answer {situation.run} {question.id} VALUE")
    status = situation.status
    if status in {"interrupted", "failed"} or (status == "waiting" and gathered.timeline.state.stopped):
        text = "fix the cause, then resume the run" if status == "failed" else "resume the run"
        yield WaitsFor(text=text, command=f"bartack resume {situation.run}")
    if status in {"running", "waiting"}:
        for step in gathered.timeline.steps:
            if step.status == "open" and step.kind in {"think", "shell"}:
                task = gathered.task_of(step.p)
                yield WaitsFor(text=f"{task or step.p}: {step.kind} {step.about}".rstrip())


def _count_steps(gathered: Gathered) -> StepCounts:
    states = [step.status for step in gathered.timeline.steps]
    return StepCounts(
        finished=states.count("finished"),
        failed=states.count("failed"),
        open=states.count("open"),
        undone=states.count("undone"),
    )


# What agents have used.


def _uses(calls: Iterable[AgentCall]) -> list[AgentUse]:
    names: dict[str, list[AgentCall]] = {}
    for call in calls:
        names.setdefault(call.agent, []).append(call)
    return [msgspec.structs.replace(_total(of), agent=name) for name, of in sorted(names.items())]


def _total(calls: list[AgentCall]) -> AgentUse:
    return AgentUse(
        agent="",
        calls=len(calls),
        failed=sum(call.failed for call in calls),
        usd=round(sum(call.usd for call in calls), 6),
        tokens=sum(call.used.tokens for call in calls),
        turns=sum(call.used.turns for call in calls),
        wall_s=round(sum(call.used.wall_s for call in calls), 3),
        estimated=any(call.estimated for call in calls),
    )


def _resumed(gathered: Gathered) -> Resumed:
    """What was recorded before the last resume and still counts, and answers that were recovered after a kill."""
    last = max(gathered.hubs, default=0)
    kept = [
        call
        for call in gathered.calls
        if not call.failed and not call.undone and (call.seq < last or call.harvested)
    ]
    total = _total(kept)
    return Resumed(times=len(gathered.hubs), answers=total.calls, usd=total.usd, tokens=total.tokens)


# Tests.


def _tests(gathered: Gathered, task: str) -> TestsReport | None:
    found = [(gate, settings) for gate, settings in gathered.gates if gate.task_id == task]
    if not found:
        return None
    gate, settings = found[-1]
    return TestsReport(
        mode=gate.mode,
        command=_command(settings) if gate.mode == "command" else "",
        verdict=gate.verdict,
        exit_code=gate.exit_code,
        duration_s=gate.duration_s,
        runs=len(found),
        failed=sum(gate.verdict != "pass" for gate, _ in found),
        disagreement=gate.disagreement,
    )


def _command(settings: Settings) -> str:
    command = settings.tests.command
    return command if isinstance(command, str) else " ".join(command)


def _gate_points(gate: Gate) -> Iterator[OpenPoint]:
    if gate.stuck:
        yield OpenPoint(kind="tests", text=f"the tests cannot be run: {gate.stuck}")
    elif gate.verdict == "fail":
        for finding in gate.findings or [Finding("the tests fail")]:
            yield OpenPoint(kind="tests", text=_shortened(finding.message))
    elif gate.verdict == "waived":
        yield OpenPoint(kind="tests", text="the tests fail, and the builder declares that allowed")
    elif gate.mode == "report":
        yield OpenPoint(
            kind="unchecked", text="Bartack did not run the tests: the builder reports that they pass"
        )
    elif gate.unchecked:
        yield OpenPoint(kind="unchecked", text="the tests are off")


def _shortened(message: str) -> str:
    """The first line of what the tests report, and the last one, where most programs sum up."""
    first, *rest = [line.strip() for line in message.splitlines() if line.strip()] or [""]
    return f"{first}: {rest[-1]}" if rest else first


# Tasks.


class _Task:
    def __init__(self, gathered: Gathered, situation: Situation, id_: str, work: TaskWork) -> None:
        self._gathered = gathered
        self._situation = situation
        self._id = id_
        self._record = gathered.tasks[id_]
        self._given = gathered.given_for(id_)
        self._result = gathered.results.get(id_)
        self._work = work
        self._reviews = [_review(one) for one in self._given if one.receipt.action in _STAGES]

    def report(self) -> TaskReport:
        files = self._work.files
        known = next((task for task in self._gathered.progress.tasks if task.id == self._id), None)
        return TaskReport(
            id=self._id,
            title=self._record.title,
            goal=self._record.goal,
            status="waiting" if known is None else self._status(known.status),
            files=files,
            added=sum(file.added or 0 for file in files),
            removed=sum(file.removed or 0 for file in files),
            uncounted=sum(file.added is None for file in files),
            branch=self._work.branch,
            commits=self._work.commits,
            tests=_tests(self._gathered, self._id),
            reviews=self._reviews,
            open=self._points(),
            agents=_uses(call for call in self._gathered.calls if call.task == self._id),
        )

    def _points(self) -> list[OpenPoint]:
        found = [*self._failure(), *self._verdicts(), *self._answers(), *self._rest()]
        return found or list(self._error())

    def _error(self) -> Iterator[OpenPoint]:
        """Why the last worker of the task failed: of interest where no verdict explains it."""
        timeline = self._gathered.timeline
        own = [timeline.workers[path] for path, id_ in self._gathered.paths.items() if id_ == self._id]
        if own and own[-1].status == "failed" and (error := own[-1].error) is not None:
            yield OpenPoint(kind="failed", text=f"{error.type.rpartition(':')[2]}: {error.message}")

    def _status(self, status: str) -> str:
        """Its status; a task of a run that is not active does not run."""
        over = self._situation.status not in {"running", "waiting"}
        return "interrupted" if status == "running" and over else status

    def _failure(self) -> Iterator[OpenPoint]:
        if self._result is not None and self._result.status != "done":
            yield OpenPoint(kind="failed", text=self._result.problem)
        refused = self._gathered.refused.get(self._id)
        if refused is not None:
            kind: PointKind = "unclear" if refused.code.startswith("unclear") else "refused"
            text = f"an answer was refused ({refused.code}): {refused.problem}"
            if kind == "unclear":
                text = f"it is unclear which program changed {refused.problem}"
            yield OpenPoint(kind=kind, text=text)

    def _verdicts(self) -> Iterator[OpenPoint]:
        gate = next((gate for gate, _ in reversed(self._gathered.gates) if gate.task_id == self._id), None)
        if gate is not None:
            yield from _gate_points(gate)
        for stage in ("review", "spec"):
            last = next((one for one in reversed(self._reviews) if one.stage == stage), None)
            if last is not None:
                yield from _findings_left(last)
        for loop in [] if self._result is None else self._result.accepted:
            wanted = _ACCEPTED.get(loop, loop)
            yield OpenPoint(kind="accepted", text=f"a person accepted the work although {wanted}")

    def _answers(self) -> Iterator[OpenPoint]:
        for one in self._given:
            for note in one.accepted.notes:
                yield OpenPoint(kind="unclear" if UNCLEAR in note else "remark", text=note)
            for path in one.accepted.protected:
                yield OpenPoint(kind="protected", text="a protected file was changed", path=path)
            for denial in one.answer.denials if one.answer is not None else []:
                yield OpenPoint(kind="denied", text=f"{one.receipt.agent.agent_id} was not allowed: {denial}")
        secret = {a.path for one in self._given for a in one.receipt.artifacts if a.contains_secret}
        for path in sorted(secret):
            yield OpenPoint(kind="secret", text="this file contains a secret", path=path)

    def _rest(self) -> Iterator[OpenPoint]:
        for note in [] if self._result is None else self._result.left:
            yield OpenPoint(kind="left_out", text=note)
        yield from map(_ask, _questions(self._gathered, self._situation, self._id))


def _questions(gathered: Gathered, situation: Situation, task: str) -> list[Asked]:
    return [one for one in situation.questions if gathered.task_of(one.worker) == task]


def _ask(question: Asked) -> OpenPoint:
    return OpenPoint(kind="question", text=f"{question.id}: {question.text}")


def _review(given: Given) -> ReviewRound:
    receipt = given.receipt
    try:
        findings = findings_of(given.answer.event) if given.answer is not None else []
    except msgspec.ValidationError:
        findings = []
    return ReviewRound(
        stage="review" if receipt.action == "review" else "spec",
        round=receipt.round,
        agent=receipt.agent.agent_id,
        verdict=receipt.status or receipt.event.partition(".")[2],
        findings=[
            ReportedFinding(
                message=one.message, severity=one.severity or "", path=one.path or "", line=one.line
            )
            for one in findings
        ],
    )


def _findings_left(last: ReviewRound) -> Iterator[OpenPoint]:
    """What the last answer of a stage wants: open if it wants changes, else a remark."""
    kind: PointKind = "finding" if last.verdict == "changes_requested" else "remark"
    for one in last.findings:
        yield OpenPoint(kind=kind, text=one.message, path=one.path, line=one.line)
    if kind == "finding" and not last.findings:
        yield OpenPoint(kind=kind, text=f"the {last.stage} wants changes and names none")
