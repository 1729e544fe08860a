"""What a conversation with Claude Code has used, by its lines: each ``result`` settles what came since the one before.

``total_cost_usd`` is not used: it adds up over the session, counts the parent of a fork, and lacks what a killed process had
spent. What no result settles is estimated by the prices of models: each reply is several lines with the same id and usage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from bartack.agents._prices import cost_usd, find_price
from bartack.agents.program._json_lines import Json, count_of, member, object_of, text_of
from bartack.agents.program_config import Price
from bartack.agents.protocol.messages import Usage
from bartack.agents.usage import total_usage
from bartack.core import typed

SYNTHETIC: Final = "<synthetic>"
"""The model of replies that the program writes itself."""
CUT_OFF: Final = "aborted_streaming"
"""Why a turn ended that was interrupted during a reply: its result does not count that reply, which is paid."""
REPLY: Final = b'{"type":"assistant",'
"""How a line with a reply of a model begins."""

Count = Annotated[int, msgspec.Meta(ge=0)]


class Tokens(msgspec.Struct, gc=False):
    """The tokens of replies, as their lines name them."""

    input_tokens: Count = 0
    output_tokens: Count = 0
    cache_read_input_tokens: Count = 0
    cache_creation_input_tokens: Count = 0

    def add(self, more: Tokens) -> None:
        """Count those of another reply."""
        self.input_tokens += more.input_tokens
        self.output_tokens += more.output_tokens
        self.cache_read_input_tokens += more.cache_read_input_tokens
        self.cache_creation_input_tokens += more.cache_creation_input_tokens

    def without(self, used: Json) -> Tokens:
        """Those that a result does not count."""
        return Tokens(
            max(self.input_tokens - (count_of(used, "inputTokens") or 0), 0),
            max(self.output_tokens - (count_of(used, "outputTokens") or 0), 0),
            max(self.cache_read_input_tokens - (count_of(used, "cacheReadInputTokens") or 0), 0),
            max(self.cache_creation_input_tokens - (count_of(used, "cacheCreationInputTokens") or 0), 0),
        )


class ModelReply(msgspec.Struct, gc=False):
    """What a reply of a model was, but for its content."""

    id: str = ""
    model: str = ""
    usage: Tokens = msgspec.field(default_factory=Tokens)


class _ReplyLine(msgspec.Struct, gc=False):
    type: str
    message: ModelReply


_REPLIES: Final = typed.decoder(_ReplyLine)


def skim_reply(line: bytes) -> ModelReply | None:
    """The reply in a line, whose content is not decoded; ``None``: the line has to be read as a whole to know."""
    try:
        read = _REPLIES.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return read.message if read.type == "assistant" else None


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
        self._open: dict[str, Tokens] = {}
        """What no result has settled, by model, but for ``_new``."""
        self._new: list[ModelReply] = []
        """Replies since ``usage`` was read: in the past of a stream a result settles most before they are added up."""
        self._ids: set[str] = set()
        self._is_list_price = True

    def take(self, line: Json) -> bool:
        """Take a line; returns whether it changes anything."""
        match text_of(line, "type"):
            case "assistant":
                return self.take_reply(_reply_of(object_of(line, "message")))
            case "result":
                return self._settle(line)
            case _:
                return False

    def take_reply(self, reply: ModelReply) -> bool:
        """Take a line that is a reply."""
        if not reply.id or reply.id in self._ids or reply.model == SYNTHETIC:
            return False
        self._ids.add(reply.id)
        self._new.append(reply)
        return True

    @property
    def usage(self) -> Usage:
        """All of it. The turns are the replies of models, those of subagents included."""
        self._add_up()
        unsettled = [_usage(tokens, find_price(model, self._prices)) for model, tokens in self._open.items()]
        counted = total_usage([*self._settled, *unsettled])
        cost = counted.cost_usd
        if self._reserved_usd is not None and any(one.cost_usd is None for one in unsettled):
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
        return bool(self._open or self._new) or not self._is_list_price

    def _add_up(self) -> None:
        for reply in self._new:
            self._open.setdefault(reply.model, Tokens()).add(reply.usage)
        self._new.clear()

    def _settle(self, result: Json) -> bool:
        if not isinstance(member(result, "model_usage_since_last_result"), dict):
            return False
        models = object_of(result, "model_usage_since_last_result")
        uncounted = self._uncounted(models) if text_of(result, "terminal_reason") == CUT_OFF else {}
        self._open.clear()
        self._new.clear()
        self._open.update(uncounted)
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

    def _uncounted(self, models: Json) -> dict[str, Tokens]:
        """Tokens of replies that a result does not count, by model."""
        self._add_up()
        found = {model: seen.without(object_of(models, model)) for model, seen in self._open.items()}
        return {model: tokens for model, tokens in found.items() if tokens != Tokens()}


def _reply_of(message: Json) -> ModelReply:
    """The same as ``skim_reply``, of an object whose members may be anything."""
    tokens = Tokens(*(count_of(message, "usage", name) for name in Tokens.__struct_fields__))
    return ModelReply(text_of(message, "id"), text_of(message, "model"), tokens)


def _usage(tokens: Tokens, price: Price | None) -> Usage:
    usage = Usage(
        input_tokens=tokens.input_tokens,
        output_tokens=tokens.output_tokens,
        cache_read_tokens=tokens.cache_read_input_tokens,
        cache_write_tokens=tokens.cache_creation_input_tokens,
    )
    return usage if price is None else msgspec.structs.replace(usage, cost_usd=cost_usd(usage, price))


def _amount(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return max(float(value), 0.0)
    return 0.0
