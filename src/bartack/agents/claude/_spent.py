"""What a conversation with Claude Code has used, by its lines: each ``result`` settles what came since the one before.

``total_cost_usd`` is not used: it adds up over the session, counts the parent of a fork, and lacks what a killed process had
spent. What no result settles is estimated by the prices of models: each reply is several lines with the same id and usage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bartack.agents._prices import cost_usd, find_price
from bartack.agents.program._json_lines import Json, count_of, member, object_of, text_of
from bartack.agents.program_config import Price
from bartack.agents.protocol.messages import Usage
from bartack.agents.usage import total_usage

SYNTHETIC: Final = "<synthetic>"
"""The model of replies that the program writes itself."""


class StreamUsage:
    """What one process, or one turn of it, has used so far.

    Args:
        prices: Prices of the settings.
        reserved_usd: What a reply of a model without a known price is counted as: all that was reserved.
    """

    def __init__(self, prices: Mapping[str, Price] | None = None, reserved_usd: float | None = None) -> None:
        self._prices = prices
        self._reserved_usd = reserved_usd
        self._settled: list[Usage] = []
        self._open: list[Usage] = []
        self._ids: set[str] = set()
        self._is_list_price = True
        self._unpriced = False

    def take(self, line: Json) -> bool:
        """Take a line; returns whether it changes anything."""
        match text_of(line, "type"):
            case "assistant":
                return self._take_reply(object_of(line, "message"))
            case "result":
                return self._settle(line)
            case _:
                return False

    @property
    def usage(self) -> Usage:
        """All of it. The turns are the replies of models, those of subagents included."""
        counted = total_usage([*self._settled, *self._open])
        cost = counted.cost_usd
        if self._unpriced and self._reserved_usd is not None:
            cost = max(cost or 0.0, self._reserved_usd)
        return Usage(
            input_tokens=counted.input_tokens,
            output_tokens=counted.output_tokens,
            cache_read_tokens=counted.cache_read_tokens,
            cache_write_tokens=counted.cache_write_tokens,
            turns=len(self._ids) or None,
            cost_usd=cost,
        )

    @property
    def is_estimated(self) -> bool:
        """Whether some of it was not said by the program, or not at its list prices."""
        return bool(self._open) or not self._is_list_price

    def _take_reply(self, message: Json) -> bool:
        reply_id, model = text_of(message, "id"), text_of(message, "model")
        if not reply_id or reply_id in self._ids or model == SYNTHETIC:
            return False
        self._ids.add(reply_id)
        usage = Usage(
            input_tokens=count_of(message, "usage", "input_tokens"),
            output_tokens=count_of(message, "usage", "output_tokens"),
            cache_read_tokens=count_of(message, "usage", "cache_read_input_tokens"),
            cache_write_tokens=count_of(message, "usage", "cache_creation_input_tokens"),
        )
        price = find_price(model, self._prices)
        if price is None:
            self._unpriced = True
            self._open.append(usage)
        else:
            self._open.append(_priced(usage, cost_usd(usage, price)))
        return True

    def _settle(self, result: Json) -> bool:
        if not isinstance(member(result, "model_usage_since_last_result"), dict):
            return False
        models = object_of(result, "model_usage_since_last_result")
        self._open.clear()
        self._unpriced = False
        self._settled.append(Usage(cost_usd=0.0))
        for model in models:
            used = object_of(models, model)
            self._is_list_price &= text_of(used, "costBasis") in {"list", ""}
            self._settled.append(
                Usage(
                    input_tokens=count_of(used, "inputTokens"),
                    output_tokens=count_of(used, "outputTokens"),
                    cache_read_tokens=count_of(used, "cacheReadInputTokens"),
                    cache_write_tokens=count_of(used, "cacheCreationInputTokens"),
                    cost_usd=_amount(used.get("costUSD")),
                )
            )
        return True


def _priced(usage: Usage, cost: float) -> Usage:
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cost_usd=cost,
    )


def _amount(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return max(float(value), 0.0)
    return 0.0
