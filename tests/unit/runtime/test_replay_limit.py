"""A replay that does not come to its end."""

from __future__ import annotations

from pathlib import Path

from bartack.runtime.program.replay import check_replay
from bartack.runtime.rundir.layout import RunDir


def test_a_replay_that_takes_too_long_is_a_difference_and_no_crash(tmp_path: Path) -> None:
    report = check_replay(RunDir(tmp_path), tmp_path, str(tmp_path), ".", 0, str(tmp_path), timeout_s=0.001)

    assert [difference.message for difference in report.differences] == [
        "the replay took longer than 0.001 s; the program may wait for something by itself"
    ]
