"""Tasks side by side: each in a git worktree of its own, some at a time, and their work merged in their order.

Worker code, like ``_main.py``: what is decided here is decided from what is journaled. Tasks go in waves: all whose
dependencies are merged are delegated together, and when the last of them is over their work is merged, one after the other. A
task that depends on others begins with their work.
"""

from __future__ import annotations

import os

import msgspec

from bartack.pipeline._steps import find_left
from bartack.pipeline._task import check_result, task
from bartack.pipeline.records._done_before import join_notes
from bartack.pipeline.records.records import (
    Base,
    Delivered,
    Lane,
    Merged,
    Noted,
    Place,
    Settings,
    Spent,
    Summary,
    TaskRecord,
    TaskResult,
)
from bartack.pipeline.snapshot._paths import first_paths
from bartack.pipeline.worktree._lanes import (
    deliver,
    make_base,
    mark_conflicts,
    merge_task,
    remove_worktrees,
    result_lane,
)
from bartack.pipeline.worktree._worktrees import RESULT, branch_of, lane_name
from bartack.runtime import Context, Outcome


class SideBySide:
    """The tasks of a run, at most ``parallel.tasks`` at a time."""

    def __init__(self, ctx: Context, place: Place, settings: Settings, spent: Spent) -> None:
        self.settings = settings
        self._ctx = ctx
        self._place = place
        self._spent = spent
        self._base: Base | None = None
        self._result = ""
        """The commit that the result is at."""
        self._lanes: dict[str, Lane] = {}
        self._attempts: dict[str, int] = {}
        self._notes: dict[str, list[Noted]] = {}
        """The notes of tasks that failed."""

    async def begin(self) -> None:
        """Find out what all tasks begin with."""
        self._base = await make_base(self._place, self.settings)
        self._result = self._base.commit

    async def do(self, records: list[TaskRecord]) -> list[TaskResult]:
        """Do tasks that wait for nothing, and merge the work of those that are done."""
        width = self.settings.parallel.tasks
        lanes = [self._lane(record, min(width, len(records))) for record in records]
        calls = [
            task(self.settings, record, self._spent, lane, 0, self._notes.get(record.id, []))
            for record, lane in zip(records, lanes, strict=True)
        ]
        if self.settings.pipeline.on_task_failure == "stop":
            results = await self._ctx.delegate(calls, limit=width)
        else:
            outcomes = await self._ctx.delegate(calls, on_failure="collect", limit=width)
            results = [
                await result_of(self._place, outcome, record, self._notes.get(record.id, []))
                for record, outcome in zip(records, outcomes, strict=True)
            ]
        self._notes |= {result.id: result.notes for result in results}
        return [
            await self._merge(record, result) if result.status == "done" else result
            for record, result in zip(records, results, strict=True)
        ]

    async def end(self, results: list[TaskResult]) -> Summary:
        """Check the work of all tasks together, and report where it is."""
        base = self._known_base()
        if not results:
            return Summary(tasks=[])
        if self.settings.tests.judged_by == "command":
            record = TaskRecord(id=RESULT, goal="the work of all tasks together")
            lane = result_lane(base, self._result)
            self.settings = await check_result(self._ctx, self.settings, record, lane)
        delivered = await deliver(self._place, self.settings, base)
        self._ctx.log(describe_delivered(delivered))
        for result in results:
            for note in result.left:
                self._ctx.log(f"{result.id}: {note}")
        if not self.settings.parallel.keep:
            for problem in await remove_worktrees(self._place):
                self._ctx.log(f"the worktree stays: {problem}")
        return Summary(tasks=results, result=delivered)

    def _known_base(self) -> Base:
        assert self._base is not None, "begin comes first"
        return self._base

    def _lane(self, record: TaskRecord, width: int) -> Lane:
        """Where a task works: where it did before, or in a new worktree that has the work it depends on.

        Args:
            record: The task.
            width: How many are under way at the same time.
        """
        known = self._lanes.get(record.id)
        base = self._known_base()
        if known is None:
            start = self._result if record.depends_on else base.commit
            known = Lane(name=lane_name(record.id), start=start, prefix=base.prefix)
        self._lanes[record.id] = msgspec.structs.replace(known, width=width)
        return self._lanes[record.id]

    # Merging.

    async def _merge(self, record: TaskRecord, result: TaskResult) -> TaskResult:
        """Merge the work of a task into the result; a conflict is resolved and merged again, as often as it takes."""
        while True:
            merged = await merge_task(self._place, self._known_base(), self._lanes[record.id], record.id)
            if merged.commit:
                self._result = merged.commit
                self._ctx.log(f"merged {record.id} into {self._branch(RESULT)} {merged.commit[:12]}")
                return result
            self._ctx.log(f"{record.id} is in conflict: {first_paths(merged.conflicts)}")
            answer = await self._ask(record, merged)
            if answer == "builder":
                again = await self._settle(record, merged)
                accepted, left = [*result.accepted, *again.accepted], [*result.left, *again.left]
                spent = result.spent + again.spent
                result = msgspec.structs.replace(again, accepted=accepted, left=left, spent=spent)
            elif answer == "manual":
                await self._wait_for_a_person(record)
            else:
                await self._ctx.abort(f"aborted by a person: task {record.id} is in conflict")

    async def _ask(self, record: TaskRecord, merged: Merged) -> str:
        text = f"task {record.id} has changed what other tasks have changed, too: {first_paths(merged.conflicts)}\n"
        options = ["builder", "abort"]
        if self.settings.carried:  # no person works in a worktree that moves from machine to machine
            text += "builder: its builder makes one of both; abort: the run ends, and nothing is deleted"
        else:
            text += "builder: its builder makes one of both; manual: you do; abort: the run ends, and nothing is deleted"
            options.insert(1, "manual")
        return await self._ctx.ask(text, options=options, timeout_s=self.settings.questions.timeout_s)

    async def _wait_for_a_person(self, record: TaskRecord) -> None:
        lane = self._lanes[record.id]
        folder = f"{self.settings.state_dir}/worktrees/{os.path.basename(self._place.run_dir)}/{lane.name}"
        text = (
            f"task {record.id}: in {folder} type: git merge {self._branch(RESULT)}\n"
            "settle the conflicts, commit, and say done"
        )
        answer = await self._ctx.ask(
            text, options=["done", "abort"], timeout_s=self.settings.questions.timeout_s
        )
        if answer == "abort":
            await self._ctx.abort(f"aborted by a person: task {record.id} is in conflict")

    async def _settle(self, record: TaskRecord, merged: Merged) -> TaskResult:
        """Have the builder resolve a conflict, in a worktree in which it is marked."""
        attempt = self._attempts[record.id] = self._attempts.get(record.id, 1) + 1
        lane = Lane(
            name=lane_name(record.id, attempt),
            start=await mark_conflicts(self._place, merged),
            prefix=self._known_base().prefix,
            conflicts=merged.conflicts,
        )
        self._lanes[record.id] = lane
        return await task(self.settings, record, self._spent, lane)

    def _branch(self, name: str) -> str:
        return branch_of(self._place.run_dir, name)


async def result_of(
    place: Place,
    outcome: Outcome[TaskResult],
    record: TaskRecord,
    past: list[Noted],
    spent: Spent | None = None,
) -> TaskResult:
    """How a task ended. If its worker could not return a result, it is made of the notes in its file."""
    if outcome.error is None:
        return outcome.unwrap()
    left = await find_left(place, outcome.error.worker)
    own = not left or left[-1].own
    return TaskResult(
        id=record.id,
        status="failed",
        problem=f"{outcome.error.kind}: {outcome.error.message.partition(chr(10))[0]}",
        spent=left[-1].spent if left else Spent(),
        before=(spent or Spent()) if own else None,
        notes=join_notes(past, left),
    )


def describe_delivered(delivered: Delivered) -> str:
    """Where the work is, and the one command that brings it into the workspace."""
    if delivered.carried:
        at = delivered.commit[:12]
        if delivered.moved:
            return f"the work of all tasks is in the workspace of the run: {at}"
        return f"the work is on {delivered.branch}, and not in the workspace of the run: {delivered.problem}"
    if delivered.moved:
        return f"your branch is at the work of all tasks: {delivered.commit[:12]}"
    first = "commit your own changes first, then " if delivered.dirty else ""
    why = f" (your branch was not moved: {delivered.problem})" if delivered.problem else ""
    return f"the work is on {delivered.branch}; {first}type: {delivered.command}{why}"
