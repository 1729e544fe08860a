"""A killed agent may have been killed for lack of memory: the kernel counts such kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from bartack.agents.process._memory import MemoryWatch


@pytest.mark.parametrize(
    ("status", "kills", "is_suspected"),
    [(-9, 4, True), (137, 4, True), (-9, 3, False), (-15, 4, False), (1, 4, False), (None, 4, False)],
)
def test_a_kill_is_suspected_only_if_the_kernel_has_counted_one(
    status: int | None, kills: int, is_suspected: bool, tmp_path: Path
) -> None:
    counts = tmp_path / "vmstat"
    counts.write_text("nr_free_pages 1\noom_kill 3\n", encoding="ascii")
    watch = MemoryWatch(str(tmp_path))

    counts.write_text(f"oom_kill_other 99\noom_kill {kills}\n", encoding="ascii")

    assert bool(watch.explain(status)) == is_suspected


def test_without_counts_nothing_is_suspected(tmp_path: Path) -> None:
    assert MemoryWatch(str(tmp_path)).explain(-9) == ""
