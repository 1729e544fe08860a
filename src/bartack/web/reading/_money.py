"""What agents have cost and used, over time and by agent, task and worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from bartack.core import typed
from bartack.runtime.protocol.steps import UsageFacts
from bartack.runtime.state.spans.rows import CallFacts, StepSpan
from bartack.web.following._pauses import Pauses
from bartack.web.models._money import Money, Share
from bartack.web.reading._view import RunView

POINTS: Final = 400
SHARES: Final = 200
"""Agents, tasks or workers that are listed: those that cost most."""


class _Sum:
    def __init__(self) -> None:
        self.usd = 0.0
        self.tokens = self.calls = 0
        self.usage = UsageFacts()

    def add(self, step: StepSpan, usage: UsageFacts | None) -> None:
        self.usd += step.usd
        self.tokens += step.tokens
        self.calls += 1
        if usage is not None:
            self.usage = _plus(self.usage, usage)


def _plus(one: UsageFacts, other: UsageFacts) -> UsageFacts:
    """Both together; a member that neither says stays absent."""
    added: dict[str, float | None] = {}
    for name in UsageFacts.__struct_fields__:
        known = [value for value in (getattr(one, name), getattr(other, name)) if value is not None]
        added[name] = sum(known) if known else None
    return typed.convert(added, type=UsageFacts, strict=False)


async def read_money(view: RunView) -> Money:
    """What agents had cost and used after the entry."""
    spans, seq = view.spans, view.seq
    sums: dict[str, dict[str, _Sum]] = {"agent": {}, "task": {}, "worker": {}}
    resumes = [mark.seq for mark in spans.marks if mark.kind == "resume" and mark.seq <= seq]
    kept = _Sum()
    pauses = Pauses()
    async for step, facts in _ended_calls(view, pauses):
        names = {"agent": facts.agent, "task": facts.task or view.task_of(step.p), "worker": step.worker}
        for kind, name in names.items():
            sums[kind].setdefault(name, _Sum()).add(step, facts.usage)
        if resumes and step.to_seq < resumes[-1] and step.status == "finished":
            kept.add(step, None)
    spent = spans.past.spent_at(seq)
    money = Money(
        seq=seq,
        spent_usd=round(spent.usd, 6),
        reserved_usd=round(view.moment.reserved_usd, 6),
        limit_usd=view.limit_usd(),
        tokens=spent.tokens,
        points=[
            (point.us, point.seq, round(point.usd, 6), point.tokens) for point in spans.spent(POINTS, seq)
        ],
        by_agent=_shares(sums["agent"]),
        by_task=_shares({name: one for name, one in sums["task"].items() if name}),
        by_worker=_shares(sums["worker"]),
        kept_usd=round(kept.usd, 6),
        kept_calls=kept.calls,
        resumes=len(resumes),
    )
    return view.hider.hide(money)


async def _ended_calls(view: RunView, pauses: Pauses) -> AsyncIterator[tuple[StepSpan, CallFacts]]:
    columns = view.spans.columns
    limit = columns.rows.opened_by(view.seq)
    for row in columns.calls.rows():
        if row >= limit:
            break
        step = view.spans.step(row, view.seq)
        facts = columns.calls.call(row, (step.p, step.n))
        if facts is not None and 0 < step.to_seq <= view.seq:
            yield step, facts
        await pauses.take(8)


def _shares(sums: dict[str, _Sum]) -> list[Share]:
    most_first = sorted(sums.items(), key=lambda item: (-item[1].usd, -item[1].tokens, item[0]))
    return [
        Share(name=name, usd=round(one.usd, 6), tokens=one.tokens, usage=one.usage, calls=one.calls)
        for name, one in most_first[:SHARES]
    ]
