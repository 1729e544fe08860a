from __future__ import annotations

import resource
from pathlib import Path

import pytest

from bartack.supervision.process.limits import (
    Bound,
    files_limit,
    memory_left,
    most_files,
    processes_left,
    raise_files,
    restore_files,
)

MIB = 1024 * 1024


@pytest.fixture
def groups(tmp_path: Path) -> tuple[str, str, Path]:
    """The list of our groups, where they are, and the one that we are in."""
    own = tmp_path / "own"
    own.write_text("0::/outer/inner\n", "utf-8")
    inner = tmp_path / "cgroup/outer/inner"
    inner.mkdir(parents=True)
    return str(own), str(tmp_path / "cgroup"), inner


def write(folder: Path, **files: object) -> None:
    for name, content in files.items():
        (folder / name.replace("_", ".", 1)).write_text(f"{content}\n", "utf-8")


def test_the_nearest_limit_of_all_groups_above_counts(groups: tuple[str, str, Path], tmp_path: Path) -> None:
    own, cgroups, inner = groups
    write(inner, memory_max="max", memory_current=10 * MIB)
    write(inner.parent, memory_max=100 * MIB, memory_current=70 * MIB)
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:  8000000 kB\n", "utf-8")

    left = memory_left(own, cgroups, str(tmp_path / "meminfo"))

    assert left is not None
    assert left.left == 30 * MIB
    assert f"memory.max = {100 * MIB} of the control group {inner.parent}" in left.source


def test_a_machine_with_less_memory_than_its_groups_may_use_is_the_limit(
    groups: tuple[str, str, Path], tmp_path: Path
) -> None:
    own, cgroups, inner = groups
    write(inner, memory_max=100 * MIB, memory_current=0)
    (tmp_path / "meminfo").write_text("MemAvailable:  1024 kB\n", "utf-8")

    assert memory_left(own, cgroups, str(tmp_path / "meminfo")) == Bound(MIB, "the memory of the machine")


def test_processes_are_limited_by_groups(groups: tuple[str, str, Path]) -> None:
    own, cgroups, inner = groups
    write(inner, pids_max=50, pids_current=45)

    left = processes_left(own, cgroups)

    assert left is not None
    assert left.left == 5


def test_groups_of_the_first_version_have_other_names(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("5:cpu,memory:/box\n7:pids:/box\n", "utf-8")
    box = tmp_path / "cgroup/memory/box"
    box.mkdir(parents=True)
    write(box, memory_limit_in_bytes=64 * MIB, memory_usage_in_bytes=MIB)

    left = memory_left(str(tmp_path / "own"), str(tmp_path / "cgroup"), str(tmp_path / "nothing"))

    assert left is not None
    assert left.left == 63 * MIB


def test_nothing_is_known_where_nothing_is_reported(tmp_path: Path) -> None:
    nothing = str(tmp_path / "nothing")

    assert memory_left(nothing, nothing, nothing) is None


def test_the_limit_of_files_is_raised_and_set_back() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard - 1, hard))
    try:
        before = raise_files()
        raised = files_limit()
        restore_files(before)

        assert (before, raised, files_limit()) == (hard - 1, most_files(), hard - 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
