"""Which run a process belongs to, and which runs the person allowed to act on another one."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from bartack.runtime.rundir.inside import CREATOR, UNKNOWN, Inside, find_enclosing, is_allowed
from bartack.runtime.state import entries as e
from bartack.supervision.parent.client import KEEPER, ParentClient
from bartack.supervision.parent.wire import Exited
from bartack.supervision.process.cgroup import NoCgroupsError, open_cgroup_tree

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it reads what Linux tells of processes")

A, B = "run-20260801-120000-aaaaaaaa", "run-20260801-120000-bbbbbbbb"
LOOK = (
    "import os, sys\n"
    "from bartack.runtime.rundir.inside import find_enclosing\n"
    "open(sys.argv[1], 'w').write(str(find_enclosing(os.getpid())))\n"
)


def look(folder: Path, lock: str) -> str:
    """What a command finds that the parent of commands starts, with nothing in its environment."""
    answer = folder / "answer"
    with ParentClient.start(KEEPER, lock, dict(os.environ), str(folder)) as keeper:
        keeper.exec(1, [[sys.executable, "-c", LOOK, str(answer)]], str(folder), {"PATH": os.environ["PATH"]})
        events: list[object] = []
        while not any(isinstance(event, Exited) for event in events):
            select.select([keeper], [], [], 30)
            events += keeper.read_events()
    return answer.read_text()


def test_this_process_is_outside_every_run() -> None:
    assert find_enclosing(os.getpid()) is None


def test_a_process_that_is_gone_is_not_outside() -> None:
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", ""], os.environ)
    os.waitpid(pid, 0)

    found = find_enclosing(pid)

    assert found is not None
    assert found.run == UNKNOWN


def test_a_command_of_a_run_is_inside_it(tmp_path: Path) -> None:
    (tmp_path / A).mkdir()

    assert f"run='{A}'" in look(tmp_path, str(tmp_path / A / "lock.tree"))


def test_a_child_of_a_supervisor_without_a_run_is_outside_every_run(tmp_path: Path) -> None:
    assert look(tmp_path, "") == "None"


@pytest.mark.requirement("runs-do-not-steer-runs")
def test_a_process_in_the_control_group_of_a_run_is_inside_one_when_all_its_parents_are_gone() -> None:
    try:
        cgroups = open_cgroup_tree()
    except NoCgroupsError as reason:
        pytest.skip(str(reason))
    group = cgroups.make(1)
    assert group is not None
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as orphan:
        Path(group.path, "cgroup.procs").write_text(str(orphan.pid))
        found = find_enclosing(orphan.pid)
        orphan.communicate(b"\n")
    cgroups.settle(group)
    cgroups.close()

    assert found == Inside(UNKNOWN, "it is in the control group of a run")


@pytest.mark.parametrize(
    ("from_runs", "run", "allowed"),
    [
        ([], A, False),
        ([A], A, True),
        (["run-20260801-*"], A, True),
        (["*"], A, True),
        (["*"], B, False),
        (["*"], UNKNOWN, False),
        ([CREATOR], A, True),
        ([CREATOR], "run-20260801-120000-cccccccc", False),
        ([CREATOR], B, False),
    ],
)
def test_only_the_runs_that_the_person_named_may_act_on_a_run(
    from_runs: list[str], run: str, *, allowed: bool
) -> None:
    created = e.RunCreated(
        run=B,
        worker="w:main",
        name="main",
        program="w.py",
        workspace="/w",
        root="/w",
        seed=1,
        inside=A,
        from_runs=from_runs,
    )

    assert is_allowed(Inside(run, "so it is"), created) is allowed
    assert not is_allowed(Inside(run, "so it is"), None)
