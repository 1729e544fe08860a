"""The first worker of the pipeline: from tasks or an instruction to the queue of tasks, and through it.

The queue is the outcome of one step, so no crash can lose a part of it.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from bartack.agents.artifacts import open_artifact
from bartack.errors import ActivationError, PlanPathError, UnsafePathError
from bartack.pipeline._intake import negotiate
from bartack.pipeline._parallel import SideBySide, result_of
from bartack.pipeline._proposal import is_reserved, sort_tasks
from bartack.pipeline._steps import count_receipts, count_rewinds, stop_here
from bartack.pipeline._task import task
from bartack.pipeline.records.records import (
    Activated,
    PipelineOrder,
    Place,
    Settings,
    Spent,
    Stop,
    Summary,
    TaskRecord,
    TaskResult,
    plain_result,
)
from bartack.pipeline.settings import newer_settings
from bartack.runtime import Context, step, worker


@worker
async def main(ctx: Context, order: PipelineOrder) -> Summary:
    """Take tasks through the pipeline, one after the other, or several at a time in worktrees of their own."""
    place = Place(run_dir=str(ctx.session.dir.parent))
    tasks, spent = order.tasks, Spent()
    if order.instruction:
        tasks, spent = await negotiate(ctx, place, order.settings, order.instruction, yes=order.yes)
    queue = await activate(place, tasks)
    return await _Queue(ctx, place, queue.settings or order.settings, queue, spent).run()


class _Queue:
    """The tasks of a run, in their order."""

    def __init__(
        self, ctx: Context, place: Place, settings: Settings, queue: Activated, spent: Spent
    ) -> None:
        self._ctx = ctx
        self._place = place
        self._settings = settings
        self._parallel = settings.parallel.tasks > 1
        self._queue = queue
        self._plan = queue.plan_sha256
        self._spent = spent
        self._results: dict[str, TaskResult] = {}

    async def run(self) -> Summary:
        # A run stays as it began, side by side or not: only the number of tasks at a time can change.
        lanes = SideBySide(self._ctx, self._place, self._settings, self._spent)
        if self._parallel:
            await lanes.begin()
        while True:
            if self._parallel:
                await self._do_waves(lanes)
            else:
                await self._do_all()
            left = [result for result in self._results.values() if result.status != "done"]
            if not left:
                results = [plain_result(self._results[record.id]) for record in self._queue.tasks]
                lanes.settings = self._settings
                return await lanes.end(results) if self._parallel else Summary(tasks=results)
            await self._stop(left)

    async def _do_all(self) -> None:
        for record in self._queue.tasks:
            if self._is_open(record):
                await self._check_plan()
                self._results[record.id] = await self._do(record)

    async def _do_waves(self, lanes: SideBySide) -> None:
        """Do tasks side by side, those that wait for nothing first; what waits for a failed one is skipped."""
        left = [record for record in self._queue.tasks if self._is_open(record)]
        while wave := [record for record in left if all(map(self._is_done, record.depends_on))]:
            await self._check_plan()
            lanes.settings = self._settings
            for result in await lanes.do(wave):
                self._results[result.id] = _with_past(result, self._results.get(result.id))
                self._renew(result)
            left = [record for record in left if record not in wave]
        for record in left:
            missing = next(name for name in record.depends_on if not self._is_done(name))
            self._results[record.id] = TaskResult(
                id=record.id, status="skipped", problem=f"{missing} is not done"
            )

    def _is_open(self, record: TaskRecord) -> bool:
        known = self._results.get(record.id)
        return known is None or known.status != "done"

    async def _do(self, record: TaskRecord) -> TaskResult:
        missing = [name for name in record.depends_on if not self._is_done(name)]
        if missing:
            return TaskResult(id=record.id, status="skipped", problem=f"{missing[0]} is not done")
        known = self._results.get(record.id)
        done = 0 if known is None else await count_receipts(self._place, record.id)
        past = [] if known is None else known.notes
        call = task(self._settings, record, self._spent, None, done, past)
        if self._settings.pipeline.on_task_failure == "stop":
            result = await call
        else:
            [outcome] = await self._ctx.delegate([call], on_failure="collect")
            result = await result_of(self._place, outcome, record, past, self._spent)
        self._spent = result.spent if result.before is None else result.before + result.spent
        self._renew(result)
        return _with_past(result, known)

    def _renew(self, result: TaskResult) -> None:
        """What a task has learned of the settings since a resume holds for the tasks after it."""
        if result.settings is not None and result.settings.hub > self._settings.hub:
            self._settings = result.settings

    def _is_done(self, name: str) -> bool:
        known = self._results.get(name)
        return known is not None and known.status == "done"

    async def _stop(self, left: list[TaskResult]) -> None:
        """Some tasks are not done: fail, and begin them again when a person resumes the run."""
        problem = "; ".join(f"{result.id} {result.status}: {result.problem}" for result in left)
        stop = Stop(kind="tasks", task_id="", loop="tasks", count=len(left), problem=problem)
        grant = await stop_here(self._place, self._settings, stop, await count_rewinds())
        if grant.settings is not None:
            self._settings = grant.settings

    async def _check_plan(self) -> None:
        """Ask before the next task if the plan is not the one that was approved."""
        if not self._queue.plan:
            return
        now = await sum_of_plan(self._place, self._queue.plan)
        if now == self._plan:
            return
        # The text of a question is part of journaled arguments and stays as it is.
        answer = await self._ctx.ask(
            f"{self._queue.plan} has changed since it was approved; go on with the tasks as they are?",
            options=["keep", "abort"],
            timeout_s=self._settings.questions.timeout_s,
        )
        if answer == "abort":
            await self._ctx.abort(f"aborted by a person: {self._queue.plan} has changed")
        self._plan = now


def _with_past(result: TaskResult, known: TaskResult | None) -> TaskResult:
    """The result of a task that failed before, and has used what it used then, too."""
    if known is None or result.before is None:
        return result
    return msgspec.structs.replace(result, spent=known.spent + result.spent)


@step(name="activate")
def activate(place: Place, tasks: list[TaskRecord]) -> Activated:
    """The queue of a run: its tasks, each after those it depends on."""
    plans = [record.approved_plan for record in tasks if record.approved_plan]
    plan = plans[0] if plans else ""
    return Activated(
        tasks=sort_tasks(tasks),
        plan=plan,
        plan_sha256=_sum_of(place, plan) if plan else "",
        settings=newer_settings(place.run_dir, Settings()),
    )


@step(name="plan")
def sum_of_plan(place: Place, plan: str) -> str:
    """The checksum of the plan as it is now; empty if it is gone."""
    try:
        return _sum_of(place, plan)
    except PlanPathError:
        return ""


def _sum_of(place: Place, plan: str) -> str:
    try:
        with open(open_artifact(place.workspace, plan), "rb") as file:
            return sha256(file.read()).hexdigest()
    except (UnsafePathError, OSError) as error:
        raise PlanPathError(f"the plan {plan!r} cannot be read: {error}") from None


def make_order(
    settings: Settings, tasks: list[TaskRecord], *, instruction: str = "", yes: bool = False
) -> PipelineOrder:
    """What a run is started with; tasks that cannot be queued are refused here, before there is a run.

    Raises:
        ActivationError: See ``sort_tasks``; or the pipeline uses an id itself.
    """
    taken = next((record.id for record in tasks if is_reserved(record.id)), "")
    if taken:
        raise ActivationError(f"the pipeline uses the name {taken!r} itself: give the task another id")
    return PipelineOrder(settings=settings, tasks=sort_tasks(tasks), instruction=instruction, yes=yes)
