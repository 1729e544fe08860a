"""One task from its goal to its end: implemented, tested, reviewed, and the spec kept true.

A worker: everything between two steps is decided from what is journaled, so a resumed run takes the same steps. What the steps do
is in ``_steps.py``, how agents are called in ``_agent_calls.py``, what becomes of several tasks in ``_main.py``.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from bartack.agents.protocol.messages import Finding
from bartack.core import typed
from bartack.errors import (
    BartackError,
    MessageTooLargeError,
    RunDiskError,
    SessionFailedError,
    ShellError,
    ShellTimeoutError,
    StepCancelledError,
)
from bartack.pipeline._agent_calls import AgentCalls, Answer, Cause
from bartack.pipeline._steps import CANNOT_RUN, judge_tests
from bartack.pipeline.records._stages import STAGES, Stages
from bartack.pipeline.records._transcript import describe_gate
from bartack.pipeline.records.records import (
    KEPT_BYTES,
    Gate,
    Lane,
    Noted,
    Place,
    Settings,
    Shot,
    Spent,
    TaskRecord,
    TaskResult,
    TestRun,
)
from bartack.pipeline.worktree._lane_work import conflict_findings, enter
from bartack.pipeline.worktree._lanes import commit_work, look_for_marks
from bartack.runtime import Context, worker

Choice = Literal["retry", "accept"]


@worker
async def task(
    ctx: Context,
    settings: Settings,
    record: TaskRecord,
    spent: Spent,
    lane: Lane | None = None,
    receipts: int = 0,
    past: list[Noted] | None = None,
) -> TaskResult:
    """Take one task through the pipeline, in the workspace or in a worktree of its own.

    Args:
        ctx: The worker.
        settings: Of the run.
        record: The task.
        spent: What was used before it.
        lane: Where it works, if not in the workspace.
        receipts: How many receipts it has already, from an attempt that failed.
        past: What that attempt has done. If it is given, and other tasks continue after a failure, a failure is a result that
            has what was done until then.
    """
    doing = _Task(ctx, settings, record, spent, lane, past)
    if past is None or settings.pipeline.on_task_failure == "stop":
        return await doing.run(receipts)
    try:
        return await doing.run(receipts)
    except (SessionFailedError, StepCancelledError, RunDiskError):
        raise
    except BartackError as error:
        return doing.failed(error)


async def check_result(ctx: Context, settings: Settings, record: TaskRecord, lane: Lane) -> Settings:
    """Run the tests on the work of all tasks together, until they pass; returns the settings as they are then."""
    return await _Task(ctx, settings, record, Spent(), lane).check()


class _Task:
    def __init__(
        self,
        ctx: Context,
        settings: Settings,
        record: TaskRecord,
        spent: Spent,
        lane: Lane | None,
        past: list[Noted] | None = None,
    ) -> None:
        self._calls = AgentCalls(ctx, settings, record, spent, lane, past)
        self._ctx = ctx
        self._lane = lane
        self._before = spent
        self._record = record
        self._stages = Stages(record.id)
        self._gates = 0
        self._accepted: list[str] = []
        self._builds = 0
        """Commands to the builder since the last grant."""
        self._report: dict[str, object] = {}
        self._protected: set[str] = set()
        """Files that the builder had to leave alone, and changed at some time."""

    async def run(self, receipts: int) -> TaskResult:
        self._calls.receipts = receipts
        if self._lane is not None:
            self._calls.receipts = await enter(self._ctx, self._calls.settings, self._record.id, self._lane)
        if self._lane is not None and self._lane.conflicts:
            await self._build("implement_changes", "conflict", conflict_findings(self._lane))
        else:
            await self._build("implement", "start", [])
        await self._tests()
        await self._spec_loop()
        left = await self._commit("what was left", "")
        self._stages.enter("complete")
        return TaskResult(
            id=self._record.id,
            status="done",
            receipts=self._calls.receipts,
            accepted=self._accepted,
            spent=self._calls.total,
            before=self._before,
            left=left,
            settings=self._calls.changed_settings,
        )

    def failed(self, error: BartackError) -> TaskResult:
        """How it ends if that does not end the run."""
        problem = f"{type(error).__name__}: {error.message.partition(chr(10))[0]}"
        self._ctx.log(f"{self._record.id} failed: {problem}")
        return TaskResult(
            id=self._record.id,
            status="failed",
            receipts=self._calls.receipts,
            accepted=self._accepted,
            problem=problem,
            spent=self._calls.total,
            before=self._before,
            notes=self._calls.past.notes,
            settings=self._calls.changed_settings,
        )

    async def check(self) -> Settings:
        assert self._lane is not None
        await enter(self._ctx, self._calls.settings, self._record.id, self._lane)
        self._stages.enter("implement")  # the tasks did that: their work is in this worktree
        while True:
            # What a person has fixed there belongs to the result. The text is part of journaled arguments and stays as it is.
            await self._commit("what was mended", "")
            gate = await self._gate()
            if gate.verdict == "pass":
                return self._calls.settings
            problem = gate.stuck or "the tests fail on the work of all tasks together"
            await self._calls.stop("tests", "tests", self._gates, problem, _list(gate.findings))

    # Loops.

    async def _spec_loop(self) -> None:
        cause: Cause = "start"
        reviewed, rounds = False, 0
        while True:
            if not reviewed:
                await self._review_loop(cause)
            if not self._calls.settings.pipeline.spec or "spec_maintainer" not in self._calls.settings.agents:
                return
            shot = await self._calls.latest()
            if not shot.specs_hash and not self._calls.settings.spec.create:
                self._ctx.log(f"{self._calls.settings.spec.file} is not there: the spec is left out")
                return
            answer = await self._act("update_spec", cause, [], shot)
            if answer.result.event.event != "spec.changes_requested":
                return
            rounds += 1
            if rounds >= self._calls.settings.pipeline.max_spec_rounds:
                if await self._limit("spec", rounds, answer.findings) == "accept":
                    return
                cause, reviewed, rounds = "resume", True, 0
                continue
            await self._build("implement_changes", "spec", answer.findings)
            await self._tests()
            cause, reviewed = "spec", False

    async def _review_loop(self, cause: Cause) -> None:
        if not self._calls.settings.pipeline.review:
            return
        rounds = 0
        findings: list[Finding] = []
        while True:
            answer = await self._act("review", cause, findings, await self._calls.latest())
            if answer.result.event.status == "approved":
                return
            rounds += 1
            findings = answer.findings
            if rounds >= self._calls.settings.pipeline.max_review_rounds:
                if await self._limit("review", rounds, findings) == "accept":
                    return
                cause, rounds = "resume", 0
                continue
            await self._build("implement_changes", "review", findings)
            await self._tests()
            cause = "review"

    async def _tests(self) -> None:
        repairs = 0
        while True:
            gate = await self._gate()
            if gate.stuck:
                await self._calls.stop(
                    "tests", "tests", self._gates, f"the tests cannot be run: {gate.stuck}"
                )
                continue
            if gate.verdict != "fail":
                return
            if repairs >= self._calls.settings.pipeline.max_fix_rounds:
                await self._limit("tests", repairs, gate.findings)
                repairs = 0
                if gate.mode == "report":
                    await self._build("implement_changes", "resume", gate.findings)
                continue
            await self._build("implement_changes", "tests", gate.findings)
            repairs += 1

    # Bounds.

    async def _limit(
        self, loop: Literal["tests", "review", "spec"], count: int, findings: list[Finding]
    ) -> Choice:
        """A loop is at its bound: the run stops, or a person is asked. Returns what is to be done."""
        problem = _PROBLEMS[loop].format(count=count)
        choice: Choice = "retry"
        if self._calls.settings.pipeline.on_limit == "ask" or (
            self._calls.settings.pipeline.on_limit == "auto" and self._calls.settings.asks
        ):
            choice = await self._ask_at_limit(loop, problem, findings)
        else:
            await self._calls.stop(loop, loop, count, problem, _list(findings))
        self._builds = 0
        return choice

    async def _ask_at_limit(self, loop: str, problem: str, findings: list[Finding]) -> Choice:
        options = ["retry", "abort"] if loop == "tests" else ["retry", "accept", "abort"]
        asked = self._calls.settings.questions
        answer = self._calls.past.recall("asked", loop, str)
        if answer is None:
            self._calls.expect_changes()
            answer = await self._ctx.ask(
                f"task {self._record.id}: {problem}\n{_list(findings)}",
                options=options,
                default="retry" if asked.on_timeout == "default" else None,
                timeout_s=asked.timeout_s,
            )
            self._calls.past.note("asked", loop, answer)
        if answer == "abort":
            await self._ctx.abort(f"aborted by a person: task {self._record.id}: {problem}")
        if answer == "accept":
            self._accepted.append(loop)
            return "accept"
        return "retry"

    # Steps.

    async def _build(
        self, action: Literal["implement", "implement_changes"], cause: Cause, findings: list[Finding]
    ) -> None:
        most = self._calls.settings.pipeline.max_rounds
        if self._builds >= most:
            problem = f"the builder was commanded {self._builds} times"
            await self._calls.stop("rounds", "rounds", self._builds, problem, _list(findings))
            self._builds = 0
        self._builds += 1
        answer = await self._act(action, cause, findings, await self._calls.latest())
        tests = answer.result.payload.get("tests")
        self._report = typed.convert(tests, dict[str, object]) if isinstance(tests, dict) else {}
        self._protected |= set(answer.accepted.protected)

    async def _act(self, action: str, cause: Cause, findings: list[Finding], shot: Shot) -> Answer:
        self._stages.enter(STAGES[action])
        inputs = base_inputs(self._record)
        if action in {"review", "update_spec"}:
            inputs["changed_files"] = shot.changed
            if shot.changed_more:
                inputs["changed_files_more"] = shot.changed_more
        if action == "update_spec":
            inputs["spec_file"] = self._calls.settings.spec.file
            inputs["editable_sections"] = self._calls.settings.spec.sections
        answer = await self._calls.act(action, cause, findings, shot, inputs)
        receipt = answer.accepted.receipt
        if action != "review" and receipt is not None and not answer.recalled:
            await self._commit(f"{action} round {receipt.round}", receipt.idempotency_key)
        return answer

    async def _commit(self, what: str, key: str) -> list[str]:
        """Commit what is in the worktree, where there is one; returns what its branch does not have."""
        if self._lane is None:
            return []
        self._calls.expect_changes()  # hooks of git may do anything
        done = await commit_work(
            Place(run_dir=self._calls.place.run_dir), self._lane, self._record, what, key
        )
        return done.left

    # The gate.

    async def _gate(self) -> Gate:
        settings = self._calls.settings
        tests = settings.tests
        self._stages.enter("tests")
        self._gates += 1
        mode = tests.judged_by
        # The verdict names the tree that was tested, not the one that was there when the answer came.
        shot = await (self._calls.snapshot() if mode == "command" else self._calls.latest())
        known = self._calls.past.recall("gate", "", Gate)
        if known is not None:
            return known
        waives = mode == "report" or tests.honour_waiver
        gate = Gate(
            task_id=self._record.id,
            round=self._gates,
            verdict="waived" if waives else "fail",
            mode=mode,
            snapshot_id=shot.snapshot_id,
        )
        ran = await self._run_tests() if mode == "command" else None
        changed = self._protected if shot.changed_more else self._protected.intersection(shot.changed)
        if self._lane is not None and self._lane.conflicts:
            marks = await look_for_marks(Place(run_dir=self._calls.place.run_dir), self._lane)
        else:
            marks = None
        before = settings.tests
        judged = await judge_tests(
            settings, gate, ran, self._report, sorted(changed), marks, self._calls.place, self._calls.first
        )
        if judged.after is not None:
            self._calls.see(judged.after)
        self._ctx.log(describe_gate(judged))
        if self._calls.settings.tests != before:
            self._ctx.log("the tests are run again: their settings were changed when the run was resumed")
            return await self._gate()
        self._calls.past.note("gate", "", msgspec.structs.replace(judged, after=None))
        return judged

    async def _run_tests(self) -> TestRun:
        tests = self._calls.settings.tests
        command = tests.command if isinstance(tests.command, str) else " ".join(tests.command)
        self._calls.expect_changes()
        began = await self._ctx.now()
        try:
            done = await self._ctx.shell(
                *tests.argv,
                check=False,
                cwd=None if self._lane is None else self._calls.place.workspace,
                env=tests.env or None,
                timeout_s=tests.timeout_s,
                kept_bytes=KEPT_BYTES,
            )
            ran = TestRun(
                command=command,
                exit_code=done.status,
                output=done.stdout + done.stderr,
                problem=_ended(done.status),
                stuck=done.status in CANNOT_RUN,
            )
        except ShellTimeoutError:
            ran = TestRun(command=command, problem=f"not over within {tests.timeout_s:g} s, and ended")
        except MessageTooLargeError:
            # This text is part of journaled arguments and stays as it is.
            ran = TestRun(command=command, problem="wrote more than anybody could read, and was ended")
        except ShellError as error:
            ran = TestRun(command=command, problem=error.message, stuck=True)
        took = (await self._ctx.now() - began).total_seconds()
        return msgspec.structs.replace(ran, duration_s=took)


_PROBLEMS: Final = {
    "tests": "the tests still fail after {count} repairs",
    "review": "the reviewer wanted changes {count} times",
    "spec": "the spec maintainer wanted changes {count} times",
}


def base_inputs(record: TaskRecord) -> dict[str, object]:
    """The inputs that every command for a task has."""
    inputs: dict[str, object] = {
        "goal": record.goal,
        "task_files": record.task_files,
        "clarifications": msgspec.to_builtins(record.clarifications),
        "conflict_resolutions": record.conflict_resolutions,
    }
    optional = {
        "task_title": record.title,
        "instruction": record.instruction,
        "approved_plan": record.approved_plan,
    }
    return inputs | {name: value for name, value in optional.items() if value}


def _list(findings: list[Finding]) -> str:
    return "\n".join(f"- {finding.message.splitlines()[0]}" for finding in findings[:10])


def _ended(status: int) -> str:
    """How a command ended that did not end by itself."""
    return f"ended by signal {-status}" if status < 0 else ""
