"""The tables of growth: what is printed, what is missed, and that the smallest of each can be measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import growth


def test_a_table_has_a_column_for_each_size_and_says_what_was_missed() -> None:
    row = {"resume to the next new step (s)": 0.2}
    values: growth.Values = {"steps": {1_000: row, 10_000: {**row, "resume to the next new step (s)": 0.9}}}

    text = growth.as_text(values).splitlines()

    assert text[1].split() == ["steps", "1,000", "10,000"]
    assert text[3].split()[-2:] == ["0.2", "0.9"]
    assert text[-1] == "missed: resume to the next new step (s) at 10,000 steps: 0.9, at most 0.8"


def test_a_limit_that_was_not_measured_is_not_missed() -> None:
    assert growth.missed({"views": {100_000: {"show (s)": 100.0}}}) == []


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "size"), [("steps", 1_010), ("workers", 2), ("views", 100), ("spans", 10_000)]
)
def test_each_table_can_be_measured(tmp_path: Path, name: str, size: int) -> None:
    row = growth.TABLES[name].measure(str(tmp_path), size)

    assert all(value > 0 for value in row.values()), row
