"""What a call of Codex uses: tokens as it reports them, and their cost by the table of prices, which is always an estimate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from bartack.agents._prices import cost_usd, find_price
from bartack.agents.program._json_lines import Json, count_of, object_of
from bartack.agents.program_config import Price
from bartack.agents.protocol.messages import Usage
from bartack.agents.usage import total_usage

REPORTED: Final = ("inputTokens", "outputTokens", "cachedInputTokens", "cacheWriteInputTokens")


def reply_usage(params: Json) -> Usage:
    """The tokens of the newest reply of the model, by ``thread/tokenUsage/updated``.

    Its ``total`` counts the whole thread, and the one that was forked.
    """
    return usage_of(object_of(params, "tokenUsage", "last"), REPORTED)


def usage_of(counts: Json, names: tuple[str, str, str, str]) -> Usage:
    """The tokens of one reply. ``names`` are those of input, output, cache reads and cache writes; the input has all of them."""
    taken, said, read, written = (count_of(counts, name) for name in names)
    return Usage(
        input_tokens=max(taken - read - written, 0),
        output_tokens=said,
        cache_read_tokens=read,
        cache_write_tokens=written,
        turns=1,
    )


def priced(usage: Usage, model: str, prices: Mapping[str, Price] | None = None) -> Usage:
    """The same with its cost, if the price of the model is known."""
    price = find_price(model, prices)
    return usage if price is None else msgspec.structs.replace(usage, cost_usd=cost_usd(usage, price))


class TokenCount:
    """Adds up the replies of one attempt."""

    def __init__(self, model: str = "", prices: Mapping[str, Price] | None = None) -> None:
        self.model = model
        self._prices = prices
        self._sum = Usage()

    @property
    def usage(self) -> Usage:
        """All replies so far."""
        return priced(self._sum, self.model, self._prices) if self._sum.turns else self._sum

    def add(self, params: Json) -> Usage:
        """Another reply; returns all of them."""
        self._sum = total_usage([self._sum, reply_usage(params)])
        return self.usage
