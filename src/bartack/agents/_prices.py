"""What calls cost whose agent does not say it: tokens priced by model. Such a cost is always marked as estimated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from bartack.agents.program_config import Price
from bartack.agents.protocol.messages import Usage

MILLION: Final = 1e6
_LATER: Final = re.compile(r"[.0-9]")
"""What continues a version number."""

BUILT_IN: Final[dict[str, Price]] = {
    "claude-opus-5-5": Price(input=4.0, output=20.0, cache_read=0.2, cache_write=5.0),
    "claude-opus-4-5": Price(input=5.0, output=25.0, cache_read=0.5, cache_write=6.25),
    "claude-opus-4": Price(input=15.0, output=75.0, cache_read=1.5, cache_write=18.75),
    "claude-sonnet-4": Price(input=3.0, output=15.0, cache_read=0.3, cache_write=3.75),
    "claude-haiku-4": Price(input=1.0, output=5.0, cache_read=0.1, cache_write=1.25),
    "claude-3-5-haiku": Price(input=0.8, output=4.0, cache_read=0.08, cache_write=1.0),
    "gpt-5.2-pro": Price(input=21.0, output=168.0, cache_read=21.0),
    "gpt-5.2": Price(input=1.75, output=14.0, cache_read=0.175),
    "gpt-5.1": Price(input=1.25, output=10.0, cache_read=0.125),
    "gpt-5-pro": Price(input=15.0, output=120.0, cache_read=15.0),
    "gpt-5": Price(input=1.25, output=10.0, cache_read=0.125),
    "gpt-5-mini": Price(input=0.25, output=2.0, cache_read=0.025),
    "gpt-5-nano": Price(input=0.05, output=0.4, cache_read=0.005),
    "gpt-4.1": Price(input=2.0, output=8.0, cache_read=0.5),
    "o3-pro": Price(input=20.0, output=80.0, cache_read=20.0),
    "o3": Price(input=2.0, output=8.0, cache_read=0.5),
    "o4-mini": Price(input=1.1, output=4.4, cache_read=0.275),
}
"""USD for a million tokens, by the beginning of the model's name. Prices change: ``[agents.prices]`` comes first."""


def find_price(model: str, own: Mapping[str, Price] | None = None) -> Price | None:
    """The price of a model: the longest name that it begins with counts, and one of the settings before one of ours.

    A name of ours does not price a later version: ``gpt-5`` is not the price of ``gpt-5.9``, which may cost more.
    """
    names = [name for name in own or {} if model.startswith(name)]
    if own and names:
        return own[max(names, key=len)]
    names = [name for name in BUILT_IN if model.startswith(name) and not _LATER.match(model, len(name))]
    return BUILT_IN[max(names, key=len)] if names else None


def cost_usd(usage: Usage, price: Price) -> float:
    """What tokens cost. Those of a cache are not among the input tokens."""
    return (
        (usage.input_tokens or 0) * price.input
        + (usage.output_tokens or 0) * price.output
        + (usage.cache_read_tokens or 0) * price.cache_read
        + (usage.cache_write_tokens or 0) * price.cache_write
    ) / MILLION
