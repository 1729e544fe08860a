"""Calls whose agent does not say what they cost are priced by their model."""

from __future__ import annotations

import pytest

from bartack.agents._prices import cost_usd, find_price
from bartack.agents.program_config import Price
from bartack.agents.protocol.messages import Usage


def test_the_longest_name_counts_and_the_settings_come_first() -> None:
    mini = find_price("gpt-5-mini-2026")
    assert mini is not None
    assert mini.output == 2.0

    own = {"gpt-5": Price(input=1.0, output=1.0)}
    assert find_price("gpt-5-mini-2026", own) == own["gpt-5"]
    assert find_price("some-model") is None


def test_a_built_in_price_is_not_that_of_a_later_version() -> None:
    later = "gpt-5.9-codex"

    assert find_price(later) is None
    assert find_price("gpt-50") is None
    assert find_price("gpt-5-codex") == find_price("gpt-5")
    assert find_price("claude-opus-4-5-20251101") == find_price("claude-opus-4-5")
    assert find_price(later, {"gpt-5": Price(input=9.0)}) == Price(input=9.0)


def test_each_kind_of_tokens_has_its_price() -> None:
    usage = Usage(
        input_tokens=1_000_000, output_tokens=100_000, cache_read_tokens=10_000, cache_write_tokens=1_000
    )

    assert cost_usd(usage, Price(input=1, output=10, cache_read=100, cache_write=1000)) == pytest.approx(4.0)
    assert cost_usd(Usage(), Price(input=1, output=10)) == 0.0
