"""Calling agents for one task or for the intake: each command with its snapshot, its checks and its receipt.

Nothing here knows of loops; ``_task.py`` and ``_intake.py`` decide what is commanded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

import msgspec

from bartack.agents import AgentResult, Usage, command_key
from bartack.agents.protocol.messages import ROLES, Finding
from bartack.agents.replies import findings_of
from bartack.agents.usage import total_usage
from bartack.core import typed
from bartack.errors import AgentError, BudgetExceededError, WorktreeError
from bartack.pipeline._steps import (
    accept,
    count_rewinds,
    keep_receipt,
    prepare_steps,
    rebase,
    stop_here,
    take_snapshot,
    write_findings,
)
from bartack.pipeline._templates import fill
from bartack.pipeline.records._done_before import Notebook, Past
from bartack.pipeline.records._transcript import describe_answer, describe_command
from bartack.pipeline.records.records import (
    Accepted,
    Checks,
    Lane,
    Noted,
    Place,
    Settings,
    Shot,
    Spent,
    Stop,
    StopPlace,
    TaskRecord,
)
from bartack.pipeline.worktree._isolated import begin_review, review_name
from bartack.pipeline.worktree._lane_work import enter
from bartack.pipeline.worktree._lanes import check_place, place_of, tally
from bartack.runtime import Context
from bartack.runtime.rundir.receipts import Receipt, ReceiptAgent, ReceiptArtifact

Cause = Literal["start", "tests", "review", "spec", "conflict", "clarification", "more", "resume"]

LINE_BYTES: Final = 190_000
"""Inputs that are longer than this have their findings in a file."""
COMMAND_BYTES: Final = 240_000
"""Inputs with their list of changed files take no more of a line than this: the rest of the command has to fit into it, too."""
NO_USD: Final = 1e-9
"""Less money than this is none."""
REPLIES: Final = 3
"""How often an agent may give an answer that contradicts the workspace."""


class Answer(msgspec.Struct, frozen=True):
    """An answer that was accepted."""

    result: AgentResult
    accepted: Accepted
    findings: list[Finding]
    recalled: bool = False
    """Another worker has had it, which failed later."""


class Refusal(NamedTuple):
    """Why the last answer to a command was refused, and how many attempts there were so far."""

    code: str = ""
    problem: str = ""
    attempts: int = 0


class AgentCalls:
    """The calls of agents for one task, and what they have used."""

    def __init__(
        self,
        ctx: Context,
        settings: Settings,
        record: TaskRecord,
        spent: Spent,
        lane: Lane | None = None,
        past: list[Noted] | None = None,
    ) -> None:
        self.settings = self._begun = settings
        self.spent = Spent()
        """What this task has used, but for money; what was used before it is not in it."""
        self._usd = 0.0
        self.receipts = 0
        self._ctx = ctx
        self._record = record
        self._lane = lane
        self._before = spent
        run_dir = str(ctx.session.dir.parent)
        continues = settings.pipeline.on_task_failure == "continue"
        self.past = Past(past, Notebook(run_dir, ctx.path, lambda: self.total) if continues else None)
        self._place = Place(run_dir=run_dir) if lane is None else place_of(run_dir, lane)
        self.first = ""
        """The first snapshot: changes are listed since then."""
        self._shot: Shot | None = None
        """The workspace as it was seen last, as long as nothing can have changed it since."""
        self._rounds: Counter[str] = Counter()
        self._isolated: Lane | None = None
        """The worktree of the reviewer that is commanded now, where it has one of its own."""
        prepare_steps()

    @property
    def total(self) -> Spent:
        """What this task has used, with its money."""
        return msgspec.structs.replace(self.spent, usd=self._usd)

    @property
    def place(self) -> Place:
        """Where its steps work."""
        return self._place

    @property
    def changed_settings(self) -> Settings | None:
        """The settings, if they are not those that it began with."""
        return self.settings if self.settings.hub > self._begun.hub else None

    async def stop(
        self,
        kind: str,
        loop: StopPlace,
        count: int,
        problem: str,
        detail: str = "",
    ) -> None:
        """Fail, until a person resumes the run; then continue with the settings as they are then."""
        if self.past.recall("stop", loop, bool):
            return  # the run was resumed, and these are the settings as they are now
        self.past.note("stop", loop, value=True)
        stop = Stop(
            kind=kind, task_id=self._record.id, loop=loop, count=count, problem=problem, detail=detail
        )
        self.expect_changes()
        grant = await stop_here(self._place, self.settings, stop, await count_rewinds())
        if grant.settings is not None:
            self.settings = grant.settings

    async def snapshot(self) -> Shot:
        """Capture the workspace, and what changed in it since the first time."""
        shot = self.past.recall("snapshot", "", Shot)
        return self._recalled(shot) if shot is not None else await self._capture()

    async def latest(self) -> Shot:
        """The workspace as it was seen last; captured now if an agent or a person can have changed it since."""
        shot = self.past.recall("snapshot", "", Shot)
        if shot is not None:
            return self._recalled(shot)
        if self._shot is None:
            return await self._capture()
        self.past.note("snapshot", "", self._shot)
        return self._shot

    def see(self, shot: Shot) -> None:
        """The workspace was captured."""
        self._shot = shot
        self.first = self.first or shot.snapshot_id
        self.renew(shot.settings)
        for note in shot.notes:
            self._ctx.log(note)

    def renew(self, settings: Settings | None) -> None:
        """Take the settings that hold since the run was resumed."""
        if settings is not None and settings.hub > self.settings.hub:
            self.settings = settings

    async def _capture(self) -> Shot:
        shot = await take_snapshot(self._place, self.settings, self.first)
        self.past.note("snapshot", "", shot)
        self.see(shot)
        return shot

    def _recalled(self, shot: Shot) -> Shot:
        """The workspace as it was in the past; what it is now is not known by that."""
        self.expect_changes()
        self.first = self.first or shot.snapshot_id
        self.renew(shot.settings)
        return shot

    def expect_changes(self) -> None:
        """An agent or a person can change files now: what was seen last does not count any longer."""
        self._shot = None

    async def act(
        self,
        action: str,
        cause: Cause,
        findings: list[Finding],
        shot: Shot,
        more: Mapping[str, object],
    ) -> Answer:
        """Have an agent do something, until its answer is acceptable.

        Args:
            action: What.
            cause: Why.
            findings: What it has to deal with.
            shot: The snapshot it works on.
            more: What this action needs in addition to the inputs of every command.
        """
        self._rounds[action] += 1
        self.expect_changes()
        inputs = await self._inputs(action, cause, findings, more)
        key = command_key(action, self._record.id, shot.snapshot_id, inputs)
        base, refusal, replies = shot, Refusal(), 0
        refused: list[Usage] = []
        self._isolated = None
        while True:
            result = self.past.recall("result", key, AgentResult)
            if result is None:
                if action == "review" and self.settings.review.isolated:
                    self._isolated = self._isolated or await self._isolate()
                result = await self._command(action, inputs, shot, key, refusal)
                self.past.note("result", key, result)
            draft = self._draft(action, cause, shot, key, result, refused)
            recalled, accepted = await self._weigh(draft, base, result)
            if accepted.receipt is not None:
                return Answer(result, accepted, findings_of(result.event), recalled=recalled)
            replies += 1
            if accepted.used is not None:
                refused = [accepted.used]  # with all that was used before it
            refusal = Refusal(accepted.code, accepted.problem, refusal.attempts + result.attempts)
            if accepted.code != "invalid_reply" or replies % REPLIES == 0:
                detail = accepted.diff or self._agent(action)
                await self.stop(accepted.code, "answer", replies, accepted.problem, detail)
            if not accepted.blamed:
                base = await self._rebase(base, accepted.result_snapshot_id)
                continue
            # An answer whose files a person has restored need not be paid for again.
            recalled, accepted = await self._weigh(draft, base, result)
            if accepted.receipt is not None:
                return Answer(result, accepted, findings_of(result.event), recalled=recalled)
            base = await self.snapshot()

    async def _isolate(self) -> Lane:
        """Make the worktree in which a reviewer works that is to change nothing that counts."""
        name = review_name(self._place, self._record.id, self._rounds["review"])
        tree = await begin_review(self._place, name)
        if tree.empty:
            empty = ", ".join(tree.empty[:10])
            self._ctx.log(f"the worktree of the reviewer has no files of other repositories: {empty}")
        await enter(self._ctx, self.settings, self._record.id, tree.lane)
        return tree.lane

    async def _weigh(self, draft: Receipt, base: Shot, result: AgentResult) -> tuple[bool, Accepted]:
        """Look whether an answer is acceptable, and ask who changed a file where that is not clear.

        Returns whether that was done by another worker, and what came of it.
        """
        checks = self._checks(draft.action, result)
        while True:
            accepted = self.past.recall("accepted", draft.idempotency_key, Accepted)
            recalled = accepted is not None
            if accepted is None:
                accepted = await self._accept(draft, base, result, checks)
            if accepted.code != "unclear":
                return recalled, accepted
            paths = accepted.blamed
            if await self._ask_whose(draft, accepted.problem) == "other":
                checks = msgspec.structs.replace(checks, cleared=[*checks.cleared, *paths])
            else:
                checks = msgspec.structs.replace(checks, accused=[*checks.accused, *paths])

    async def _ask_whose(self, draft: Receipt, paths: str) -> str:
        """Ask a person who changed files while an agent only had to read: ``other`` or ``agent``."""
        answer = self.past.recall("whose", paths, str)
        if answer is None:
            asked = self.settings.questions
            answer = await self._ctx.ask(
                f"task {draft.task_id}: {paths} changed during {draft.action}, and {draft.agent.agent_id} did not report it\n"
                "other: a person or another program changed it, and the answer counts\n"
                "agent: the agent changed it, and the answer is refused",
                options=["other", "agent"],
                default="other" if asked.on_timeout == "default" else None,
                timeout_s=asked.timeout_s,
            )
            self.past.note("whose", paths, answer)
        return answer

    async def _accept(self, draft: Receipt, base: Shot, result: AgentResult, checks: Checks) -> Accepted:
        """Look whether an answer is acceptable, and keep its receipt."""
        accepted = await accept(self._place, self.settings, draft, base, checks, self.first)
        # At once: an answer that has a receipt gets no second one, whatever comes next.
        self.past.note("accepted", draft.idempotency_key, msgspec.structs.replace(accepted, after=None))
        for note in [*result.notes, *accepted.notes]:
            self._ctx.log(note)
        if accepted.after is not None:
            self.see(accepted.after)
        if accepted.receipt is not None:
            keep_receipt(self._place, accepted.receipt)
            self.receipts += 1
            self._ctx.log(describe_answer(result, self._record.id, accepted.receipt))
        return accepted

    async def _rebase(self, base: Shot, refused: str) -> Shot:
        """What the next answer is measured from."""
        made = self.past.recall("rebase", refused, Shot)
        if made is None:
            made = await rebase(self._place, self.settings, base.snapshot_id, refused)
            self.past.note("rebase", refused, made)
        return made

    async def _command(
        self, action: str, inputs: dict[str, object], shot: Shot, key: str, refusal: Refusal
    ) -> AgentResult:
        while True:
            try:
                return await self._send(action, inputs, shot, key, refusal)
            except BudgetExceededError as error:
                if error.unit == "usd":
                    raise
                # The other tasks have what is left of it: what a person decides holds for all.
                await self.stop("budget", "budget", self.receipts, error.message, self._agent(action))

    async def _send(
        self, action: str, inputs: dict[str, object], shot: Shot, key: str, refusal: Refusal
    ) -> AgentResult:
        settings = self.settings
        used = await self._check_budget(action)
        self._ctx.log(describe_command(action, self._record.id, inputs, key, self._agent(action)))
        max_tokens = self._share(settings.budget.tokens, used.tokens)
        max_turns = self._share(settings.budget.turns, used.turns)
        try:
            result = await self._ctx.command(
                action,
                inputs,
                task_id=self._record.id,
                agent=self._agent(action),
                key=key,
                snapshot_id=shot.snapshot_id,
                specs_hash=shot.specs_hash,
                pinning=settings.pipeline.version_pinning,
                cwd=self._folder(),
                refused_paths=[settings.state_dir],
                rejected=refusal.code,
                rejected_because=refusal.problem,
                attempts_before=refusal.attempts,
                share=1 if self._lane is None else self._lane.width,
                prompt=self._prompt(action, inputs, refusal.code),
                timeout_s=settings.deadlines.get(action),
                max_tokens=max_tokens,
                max_turns=max_turns,
            )
        except AgentError as error:
            _blame_place(self._place, error)
            raise
        self._usd += result.usage.cost_usd or 0.0
        reserved = Spent(tokens=max_tokens or 0, turns=max_turns or 0)
        self.spent += _costs(result.usage, result.took_s, reserved if settings.budget.strict else Spent())
        return result

    def _folder(self) -> str:
        """Where the agent works, if not in the workspace."""
        if self._isolated is not None:
            return place_of(self._place.run_dir, self._isolated).workspace
        return "" if self._lane is None else self._place.workspace

    def _prompt(self, action: str, inputs: dict[str, object], refused: str) -> str:
        """The prompt for an agent that takes prompts only; empty for one that takes actions."""
        template = self.settings.prompts.get(action)
        if template is None:
            return ""
        values: dict[str, object] = {
            "task_id": self._record.id,
            "inputs": inputs,
            "iteration": inputs["iteration"],
            "expected_outputs": [],
            "retry": {"cause": "rejected", "code": refused} if refused else None,
        }
        return fill(template, values)

    async def _check_budget(self, action: str) -> Spent:
        """What the run has used so far; stop if that is all that it may use."""
        while problem := _exceeded(self.settings, used := await self._used()):
            await self.stop("budget", "budget", self.receipts, problem, self._agent(action))
        while self.settings.checks_money and self.settings.budget.usd is not None:
            # The hub decides; this is so that no command is shown that is not sent.
            money = await self._ctx.budget()
            least = min(self.settings.budget.min_reserve_usd, self.settings.budget.reserve_usd)
            if money.limit_usd is None or money.left_usd is None or money.left_usd >= max(least, NO_USD):
                break
            taken = money.spent_usd + money.reserved_usd
            problem = BudgetExceededError(money.limit_usd, taken).message
            await self.stop("money", "budget", self.receipts, problem, f"{money.limit_usd} {taken}")
        return used

    async def _used(self) -> Spent:
        caps = self.settings.budget
        if self._lane is None or (caps.tokens is None and caps.turns is None and caps.wall_s is None):
            return self._before + self.spent
        return self._before + await tally(self._place, self._ctx.path, self.spent)

    def _share(self, cap: int | None, used: int) -> int | None:
        """What one call may use: all that is left, or its part of it while others are at work."""
        if cap is None:
            return None
        left = max(cap - used, 0)
        return left if self._lane is None else max(left // self._lane.width, min(left, 1))

    async def _inputs(
        self, action: str, cause: Cause, findings: list[Finding], more: Mapping[str, object]
    ) -> dict[str, object]:
        inputs = _with_room(more)
        number = self._rounds[action]
        iteration: dict[str, object] = {"round": number, "cause": cause, "findings": plain(findings)}
        inputs["iteration"] = iteration
        if len(msgspec.json.encode(inputs)) > LINE_BYTES and findings:
            name = f"{self._place.lane or self._record.id}-{action}-{number}"
            written = await write_findings(self._place, name, findings)
            iteration["findings"] = []
            iteration["findings_file"] = msgspec.to_builtins(written)
        return inputs

    def _agent(self, action: str) -> str:
        return self.settings.agents[ROLES[action]]

    def _checks(self, action: str, result: AgentResult) -> Checks:
        if action == "review":
            return Checks(review=self.settings.review, isolated=self._isolated)
        if action == "update_spec":
            return Checks(spec=self.settings.spec)
        if result.event.event == "orchestration.proposed_tasks":
            return Checks(proposal=result.payload)
        return Checks(protect=self.settings.tests.protect)

    def _draft(
        self, action: str, cause: str, shot: Shot, key: str, result: AgentResult, refused: list[Usage]
    ) -> Receipt:
        event, record = result.event, self._record
        # Runs that began before attempts were counted have receipts without them.
        used = result.usage if result.failed else event.usage
        tests = result.payload.get("tests")
        return Receipt(
            schema=1,
            run_id=self._ctx.session.id,
            task_id=record.id,
            step=self.receipts + 1,
            action=action,
            round=self._rounds[action],
            cause=cause,
            idempotency_key=key,
            correlation_id=event.correlation_id,
            command_message_id=event.in_reply_to or result.command_id,
            event_message_id=event.message_id,
            agent=ReceiptAgent(agent_type=ROLES[action], agent_id=self._agent(action)),
            attempts=[],
            snapshot_id=shot.snapshot_id,
            result_snapshot_id="",
            changes=[],
            event=event.event,
            status=event.status or "",
            replayed=event.replayed or False,
            artifacts=[ReceiptArtifact.of(artifact) for artifact in result.artifacts],
            tests=typed.convert(tests, dict[str, object]) if isinstance(tests, dict) else None,
            usage=total_usage([*refused, used or Usage()]) if refused else used,
            task_title=record.title,
            instruction=record.instruction,
            approved_plan=record.approved_plan,
            clarifications=record.clarifications,
            conflict_resolutions=record.conflict_resolutions,
            created_at="",
        )


def _with_room(given: Mapping[str, object]) -> dict[str, object]:
    """Inputs without as many names of changed files as a line has no room for; the number of the others is in them."""
    inputs = dict(given)
    changed, more = inputs.get("changed_files"), inputs.get("changed_files_more", 0)
    if not isinstance(changed, list) or not isinstance(more, int):
        return inputs
    room = COMMAND_BYTES - len(msgspec.json.encode({**inputs, "changed_files": []}))
    names = typed.convert(changed, type=list[str])
    for index, name in enumerate(names):
        room -= len(msgspec.json.encode(name)) + 1
        if room < 0:
            inputs["changed_files"] = names[:index]
            inputs["changed_files_more"] = more + len(names) - index
            break
    return inputs


def _blame_place(place: Place, error: AgentError) -> None:
    """Report that the worktree is gone, where that is why a command failed.

    It is not a step: the task fails in either case, and a resume goes back to the command. Only the message to people differs.

    Raises:
        WorktreeError: It is gone.
    """
    try:
        check_place(place)
    except WorktreeError as gone:
        raise gone from error


def plain(findings: list[Finding]) -> list[object]:
    """Findings as they stand in a command."""
    return [msgspec.to_builtins(finding) for finding in findings]


def _costs(usage: Usage, took_s: float, unsaid: Spent) -> Spent:
    """What one command used; ``unsaid`` counts where the agent does not report it."""
    turns = unsaid.turns if usage.turns is None else usage.turns
    return Spent(tokens=usage.tokens or unsaid.tokens, turns=turns, wall_s=took_s)


def _exceeded(settings: Settings, spent: Spent) -> str:
    """Which cap of the run is reached; empty if none is."""
    caps = settings.budget
    for name, cap, used in (
        ("tokens", caps.tokens, spent.tokens),
        ("turns", caps.turns, spent.turns),
        ("wall_s", caps.wall_s, spent.wall_s),
    ):
        if cap is not None and used >= cap:
            return f"budget.{name} is used up: {used:g} of {cap:g}"
    return ""
