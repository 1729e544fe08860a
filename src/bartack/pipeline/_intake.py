"""From an instruction to tasks: the agent proposes, a person decides. Every question outlives every process.

Nothing is chosen without the person: what the agent does not know is asked, contradictions are shown, and the plan and the tasks
are approved one by one unless ``--yes`` takes them all.
"""

from __future__ import annotations

from typing import Final

import msgspec

from bartack.agents.protocol.messages import Event
from bartack.core import typed
from bartack.errors import NoCandidatesError
from bartack.pipeline._agent_calls import AgentCalls, Answer, Cause
from bartack.pipeline._proposal import read_proposal
from bartack.pipeline._steps import snapshots_of
from bartack.pipeline.records.records import (
    Decision,
    DerivedTask,
    Place,
    Proposal,
    Settings,
    Spent,
    TaskRecord,
)
from bartack.pipeline.snapshot._discovery import STRATEGY, Candidate, discover
from bartack.runtime import Context, step
from bartack.runtime.rundir.receipts import Answered
from bartack.runtime.rundir.snapshots import manifest_path, read_manifest

ID: Final = "intake"


async def negotiate(
    ctx: Context, place: Place, settings: Settings, instruction: str, *, yes: bool
) -> tuple[list[TaskRecord], Spent]:
    """The tasks that a person has approved, and what it took to find them."""
    intake = _Intake(ctx, place, settings, instruction, yes=yes)
    return await intake.run(), intake.spent


class _Intake:
    def __init__(
        self, ctx: Context, place: Place, settings: Settings, instruction: str, *, yes: bool
    ) -> None:
        self._ctx = ctx
        self._place = place
        self._instruction = instruction
        self._yes = yes
        record = TaskRecord(id=ID, goal=instruction, instruction=instruction)
        self._calls = AgentCalls(ctx, settings, record, Spent())
        self._clarifications: list[Answered] = []
        self._resolutions: list[str] = []

    @property
    def spent(self) -> Spent:
        return self._calls.spent

    async def run(self) -> list[TaskRecord]:
        shot = await self._calls.snapshot()
        candidates = await find_candidates(self._place, self._calls.settings, shot.snapshot_id)
        if not candidates and self._calls.settings.intake.require_plan:
            raise NoCandidatesError
        action, rounds = "intake", 0
        cause: Cause = "start"
        while True:
            if rounds >= self._calls.settings.intake.max_rounds:
                problem = f"the agent was asked {rounds} times and there is no agreement"
                await self._calls.stop("intake", "intake", rounds, problem)
                rounds = 0
            rounds += 1
            answer = await self._ask_agent(action, cause, candidates)
            event = answer.result.event
            match event.event:
                case "orchestration.needs_clarification":
                    await self._clarify(event)
                    action, cause = "intake", "clarification"
                case "orchestration.plan_conflict":
                    more = await self._resolve(event)
                    action, cause = ("task_discovery", "more") if more else ("intake", "conflict")
                case _:
                    decision = await self._decide(read_proposal(event.payload or {}))
                    if decision is not None:
                        return await self._settle(decision)
                    action, cause = "task_discovery", "more"

    async def _ask_agent(self, action: str, cause: Cause, candidates: list[Candidate]) -> Answer:
        inputs: dict[str, object] = {
            "user_instruction": self._instruction,
            "discovery": {"strategy": STRATEGY, "candidates": msgspec.to_builtins(candidates)},
            "clarifications": msgspec.to_builtins(self._clarifications),
            "conflict_resolutions": list(self._resolutions),
        }
        if action == "task_discovery":
            inputs["request_more_candidates"] = True
        return await self._calls.act(action, cause, [], await self._calls.snapshot(), inputs)

    async def _ask(self, question: str, options: list[str] | None = None) -> str:
        asked = self._calls.settings.questions
        default = options[0] if options and asked.on_timeout == "default" else None
        return await self._ctx.ask(question, options=options, default=default, timeout_s=asked.timeout_s)

    async def _clarify(self, event: Event) -> None:
        questions = typed.convert((event.payload or {}).get("questions"), type=list[str])
        answers = await self._ctx.gather(*[self._ask(question) for question in questions])
        pairs = zip(questions, answers, strict=True)
        self._clarifications += [Answered(question=question, answer=answer) for question, answer in pairs]

    async def _resolve(self, event: Event) -> bool:
        """Ask how contradicting plans are to be read; ``True`` if other plans are wanted instead."""
        payload = event.payload or {}
        conflicts = typed.convert(payload.get("conflicts"), type=list[_Conflict])
        listed = "\n".join(f"- {', '.join(conflict.paths)}: {conflict.reason}" for conflict in conflicts)
        suggested = payload.get("suggested_resolution")
        hint = f"\nThe agent suggests: {suggested}" if suggested else ""
        answer = await self._ask(
            f"The plans contradict each other:\n{listed}{hint}\nHow is it to be? ('more' for other plans, 'abort')"
        )
        if answer.strip() == "abort":
            await self._ctx.abort("aborted by a person: the plans contradict each other")
        if answer.strip() == "more":
            return True
        self._resolutions.append(answer)
        return False

    async def _decide(self, proposal: Proposal) -> Decision | None:
        """What a person wants of a proposal; ``None`` if it is another one."""
        plans, tasks = proposal.plan_candidates, proposal.derived_tasks
        if self._yes:
            return Decision(status="approved", plan=plans[0].path, tasks=tasks, reason="--yes")
        listed = "\n".join(f"{n}. {plan.path}  {plan.reason}" for n, plan in enumerate(plans, 1))
        numbers = [str(n) for n in range(1, len(plans) + 1)]
        chosen = await self._ask(f"Which plan?\n{listed}", [*numbers, "more", "none"])
        if chosen == "more":
            return None
        if chosen == "none":
            return Decision(status="denied", reason="no plan was approved")
        picked = await self._choose_tasks(tasks)
        if not picked:
            return Decision(status="denied", reason="no task was approved")
        return Decision(status="approved", plan=plans[int(chosen) - 1].path, tasks=picked)

    async def _choose_tasks(self, tasks: list[DerivedTask]) -> list[DerivedTask]:
        listed = "\n".join(f"{n}. {task.id}  {task.title}" for n, task in enumerate(tasks, 1))
        question = f"Which tasks? (numbers, all, none)\n{listed}"
        while True:
            answer = (await self._ask(question)).strip().lower()
            if answer in {"all", "none"}:
                return tasks if answer == "all" else []
            numbers = answer.replace(",", " ").split()
            if numbers and all(n.isdecimal() and 1 <= int(n) <= len(tasks) for n in numbers):
                return [tasks[int(n) - 1] for n in dict.fromkeys(numbers)]
            question = f"{answer!r} is none of them. Which tasks? (numbers, all, none)\n{listed}"

    async def _settle(self, decision: Decision) -> list[TaskRecord]:
        decided = await decide(decision)
        if decided.status == "denied":
            await self._ctx.abort(f"denied: {decided.reason}")
        return [
            TaskRecord(
                id=task.id,
                title=task.title,
                goal=task.goal or task.title,
                task_files=task.files,
                depends_on=[name for name in task.depends_on if any(t.id == name for t in decided.tasks)],
                instruction=self._instruction,
                approved_plan=decided.plan,
                clarifications=self._clarifications,
                conflict_resolutions=self._resolutions,
            )
            for task in decided.tasks
        ]


class _Conflict(msgspec.Struct):
    paths: list[str]
    reason: str


@step(name="discovery")
def find_candidates(place: Place, settings: Settings, snapshot: str) -> list[Candidate]:
    """The files of a snapshot that may hold the plan."""
    files = read_manifest(manifest_path(snapshots_of(place), snapshot))[1]
    intake = settings.intake
    return discover(
        place.workspace, [entry.path for entry in files], prefer=intake.prefer, most=intake.max_candidates
    )


@step(name="decide")
def decide(decision: Decision) -> Decision:
    """What was decided, as one fact of the journal."""
    return decision
