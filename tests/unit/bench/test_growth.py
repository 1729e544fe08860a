"""That the smallest of each table of growth can be measured, and that its limits name values that are there."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import growth


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "size"), [("steps", 1_010), ("workers", 2), ("queued", 10), ("views", 100), ("spans", 10_000)]
)
def test_each_table_can_be_measured(tmp_path: Path, name: str, size: int) -> None:
    row = growth.TABLES[name].measure(str(tmp_path), size)

    assert all(value > 0 for value in row.values()), row
    assert {limit.what for limit in growth.BENCH.limits if limit.table == name} <= set(row)


def test_every_limit_is_at_a_size_that_is_measured() -> None:
    assert [
        limit for limit in growth.BENCH.limits if limit.size not in growth.TABLES[limit.table].sizes
    ] == []
