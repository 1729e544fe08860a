"""Who counts the processes that were ended for want of memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from bartack.supervision.process.memory import count_oom_kills


@pytest.mark.parametrize(
    ("own", "files", "count"),
    [
        ("0::/a/b\n", {"a/b/memory.events": "low 0\noom 3\noom_kill 2\n"}, 2),
        ("0::/a/b\n", {"memory.events": "oom_kill 5\n"}, 5),
        ("4:memory:/a\n0::/\n", {"memory/a/memory.oom_control": "oom_kill_disable 0\noom_kill 7\n"}, 7),
        ("4:cpu,memory:/a\n", {"memory/memory.oom_control": "oom_kill 1\n"}, 1),
        ("4:memoryless:/a\n", {"memory/a/memory.oom_control": "oom_kill 7\n"}, None),
        ("0::/a\n", {"a/memory.events": "oom_kill many\n"}, None),
        ("0::/a\n", {}, None),
        ("nonsense\n", {}, None),
    ],
)
def test_the_counter_of_our_own_group_is_found(
    tmp_path: Path, own: str, files: dict[str, str], count: int | None
) -> None:
    (tmp_path / "own").write_text(own)
    for name, text in files.items():
        (tmp_path / "cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cgroup" / name).write_text(text)

    assert count_oom_kills(str(tmp_path / "own"), str(tmp_path / "cgroup")) == count


def test_where_there_are_no_groups_nothing_is_counted(tmp_path: Path) -> None:
    assert count_oom_kills(str(tmp_path / "missing"), str(tmp_path)) is None
