"""What agents have cost and used."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from bartack.runtime.protocol.steps import UsageFacts
from bartack.web.models._model import Model, Seq, Usd


class Share(Model, frozen=True, kw_only=True):
    """What an agent, a task or a worker has cost and used."""

    name: str
    usd: Usd = 0.0
    tokens: int = 0
    usage: UsageFacts = UsageFacts()
    calls: int = 0


class Money(Model, frozen=True, kw_only=True):
    """What agents have cost and used, over time and by what it was for."""

    seq: Seq
    spent_usd: Usd = 0.0
    reserved_usd: Usd = 0.0
    limit_usd: Usd | None = None
    tokens: int = 0
    points: Annotated[
        list[tuple[int, int, float, int]], Meta(description="us, entry, US dollars, tokens; at most 400.")
    ] = []
    by_agent: list[Share] = []
    by_task: list[Share] = []
    by_worker: list[Share] = []
    kept_usd: Annotated[Usd, Meta(description="What was paid before the last resume, and not again.")] = 0.0
    kept_calls: int = 0
    resumes: int = 0
