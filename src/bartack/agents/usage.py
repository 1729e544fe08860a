"""Adding up what calls use, and comparing it with what they may."""

from __future__ import annotations

from typing import Final

from bartack.agents.protocol.messages import Budget, Usage

MOST: Final = 2**53 - 1
MOST_USD: Final = 1e12
"""What a count and an amount can be at most: several that are each within that may be more together."""


def total_usage(usages: list[Usage]) -> Usage:
    """What several attempts used together; what none of them reports stays unknown."""
    costs = [usage.cost_usd for usage in usages if usage.cost_usd is not None]
    return Usage(
        input_tokens=_sum([usage.input_tokens for usage in usages]),
        output_tokens=_sum([usage.output_tokens for usage in usages]),
        cache_read_tokens=_sum([usage.cache_read_tokens for usage in usages]),
        cache_write_tokens=_sum([usage.cache_write_tokens for usage in usages]),
        turns=_sum([usage.turns for usage in usages]),
        cost_usd=min(sum(costs), MOST_USD) if costs else None,
    )


def _sum(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return min(sum(known), MOST) if known else None


def is_unpriced(usage: Usage) -> bool:
    """Whether a model was used, and what that cost is unknown."""
    return usage.cost_usd is None and bool(usage.tokens or usage.turns)


def over_budget(budget: Budget, usage: Usage) -> str:
    """What of the budget a call has used up; empty if there is some of everything left."""
    used: tuple[tuple[str, float | None, float | None], ...] = (
        ("USD", usage.cost_usd, budget.usd),
        ("tokens", usage.tokens, budget.tokens),
        ("turns", usage.turns, budget.turns),
    )
    for unit, has, cap in used:
        if cap is not None and (has or 0) > cap:
            return f"it used {has:g} {unit}, {cap:g} were reserved"
    return ""
