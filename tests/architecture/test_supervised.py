"""Our own code keeps the rules that ``bartack check`` holds others to: every task, process and wait has somebody who ends it."""

from __future__ import annotations

from pathlib import Path

from bartack.supervision.lint import check_python

SRC = Path(__file__).parents[2] / "src/bartack"


def test_nothing_of_ours_waits_for_ever_or_is_left_alone() -> None:
    found = check_python([SRC]).findings

    assert [f"{finding.file}:{finding.line} {finding.type}: {finding.message}" for finding in found] == []
