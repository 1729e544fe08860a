"""Where the system has control groups for us: whoever is killed, nothing of a tree is left, and no group either."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.crash.trees import (
    ALL,
    BOUND_S,
    HERE,
    Crew,
    Hire,
    Perform,
    Reports,
    begin,
    is_alive,
    wait_deaths,
)

from bartack.supervision import ChildSpec, Supervisor, SupervisorSpec, monitor
from bartack.supervision.parent.client import KEEPER
from bartack.supervision.parent.wire import ParentReady
from bartack.supervision.process.cgroup import find_own_group, remove_group
from bartack.supervision.process.cgroup_probe import probe_cgroups
from bartack.supervision.process.lock import take_tree_lock
from bartack.supervision.process.system import read_environment

both = pytest.mark.parametrize("module", ["shapes", KEEPER], ids=["zygote", "keeper"])


@pytest.fixture(scope="module", autouse=True)
def control_groups() -> None:
    problem = "control groups are of Linux" if sys.platform != "linux" else probe_cgroups()
    if problem:
        pytest.skip(f"NOT TESTED, no control groups here: {problem}")


@pytest.fixture
def base() -> Iterator[str]:
    """A group to start stand-ins in, apart from those of other tests: who starts ends what dead ones left beside him."""
    path = f"{find_own_group()}/test-{os.urandom(4).hex()}"
    os.mkdir(path)
    yield path
    Path(path, "cgroup.kill").write_text("1")
    assert remove_group(path, 30.0)


def cgroup_trees(directory: Path) -> list[str]:
    """Where the parent programs of a tree had their groups, as they have written down; they have to be ready."""
    return (directory / "lock.tree").read_text().splitlines()


def children(group: str) -> list[str]:
    return [entry.path for entry in os.scandir(group) if entry.is_dir()]


def group_of(pid: int) -> str:
    (line,) = [line for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines() if line[:3] == "0::"]
    return line[3:]


def ready(crew: Crew) -> Crew:
    crew.wait(lambda event: isinstance(event, ParentReady))
    return crew


@both
def test_a_tree_is_born_in_a_group_of_its_own_that_ends_with_it(
    hire: Hire, reports: Reports, tmp_path: Path, module: str
) -> None:
    crew = ready(hire(module))
    (cgroups,) = cgroup_trees(tmp_path)
    begin(crew, module, "everything", reports, token=7)
    found = {group_of(pid) for pid in reports.read_pids(8)}

    crew.client.kill(7)

    assert crew.wait_gone(7).survivors == []
    reports.wait_end()
    assert [group.rpartition("/bartack-")[2][9:] for group in found] == ["7"]
    assert children(cgroups) == []
    crew.client.close()
    assert not os.path.exists(cgroups)


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (KEEPER, "ignores_signals"),
        ("shapes", "forks_on_term"),
        (KEEPER, "runs_away_to_sessions"),
        ("shapes", "multiplies"),
    ],
)
def test_a_stopped_tree_is_ended_by_its_group_after_its_grace(
    hire: Hire, reports: Reports, tmp_path: Path, module: str, shape: str
) -> None:
    crew = ready(hire(module))
    begin(crew, module, shape, reports)
    reports.read_pids(1)

    crew.client.stop(1, 0.05)

    assert crew.wait_gone().survivors == []
    reports.wait_end()
    assert not os.path.exists(f"{cgroup_trees(tmp_path)[0]}/1")


@both
@pytest.mark.requirement("who-hides-ends-too")
def test_an_orphan_that_hides_everything_ends_with_the_child_that_started_it(
    hire: Hire, reports: Reports, module: str
) -> None:
    crew = hire(module)
    others = Reports()
    begin(crew, module, "forgets_everything", others, token=2)
    begin(crew, module, "forgets_everything", reports, token=1)
    spared = others.read_pids(2)
    reports.read_pids(2)

    crew.client.kill(1)
    crew.wait_gone(1)

    reports.wait_end()
    assert [pid for pid in spared if not is_alive(pid)] == []
    others.close()


@pytest.mark.parametrize("end", ["the tree ends", "all ends"])
def test_who_was_put_into_the_group_of_a_tree_ends_with_it(
    hire: Hire, reports: Reports, tmp_path: Path, end: str
) -> None:
    crew = ready(hire(KEEPER))
    (cgroups,) = cgroup_trees(tmp_path)
    begin(crew, KEEPER, "plain", reports)
    (pid,) = reports.read_pids(1)
    with subprocess.Popen(["sleep", "600"]) as stranger, ExitStack() as stack:
        stack.callback(stranger.kill)
        Path(cgroups, "1", "cgroup.procs").write_text(str(stranger.pid))

        if end == "the tree ends":
            os.kill(pid, signal.SIGTERM)
            assert crew.wait_gone().leftovers == ["sleep"]
        else:
            crew.client.close()

        assert stranger.wait(BOUND_S) == -signal.SIGKILL
    assert not os.path.exists(f"{cgroups}/1")


def test_an_orphan_that_hides_everything_is_swept_away_from_the_child_that_goes_on(
    hire: Hire, reports: Reports
) -> None:
    crew = hire(KEEPER)
    others = Reports()
    begin(crew, KEEPER, "plain", others, token=2)
    others.read_pids(1)
    begin(crew, KEEPER, "forgets_everything", reports, token=1)
    pids = reports.read_pids(2)
    (hidden,) = [pid for pid in pids if not read_environment(pid)]

    crew.client.sweep(1)

    wait_deaths([hidden])
    assert [pid for pid in pids if is_alive(pid)] == [pid for pid in pids if pid != hidden]
    others.close()


def test_groups_that_a_tree_makes_for_itself_end_with_it(
    hire: Hire, reports: Reports, tmp_path: Path
) -> None:
    crew = ready(hire(KEEPER))
    (cgroups,) = cgroup_trees(tmp_path)
    own = f"{cgroups}/1/own"
    inside = 'mkdir "$0" && echo 0 >"$0/cgroup.procs" && { sleep 600 & echo $$; wait; }'
    crew.client.exec(1, [["sh", "-c", inside, own]], "/", dict(os.environ), stdout=reports.writer)
    (pid,) = reports.read_pids(1)
    assert group_of(pid).endswith("/1/own")

    crew.client.kill(1)

    assert crew.wait_gone().survivors == []
    reports.wait_end()
    assert children(cgroups) == []


def test_a_killed_hub_leaves_no_process_and_no_group(
    perform: Perform, reports: Reports, tmp_path: Path, base: str
) -> None:
    stand_in = perform(reports, "everything", 16, base)
    assert sorted(cgroup_trees(tmp_path)) == sorted(children(base))

    stand_in.process.kill()

    wait_deaths([*reports.wait_end(), stand_in.zygote, stand_in.keeper])
    assert children(base) == []


def test_what_is_left_when_all_are_killed_at_once_is_gone_when_the_lock_of_the_tree_is_had(
    perform: Perform, reports: Reports, tmp_path: Path, base: str
) -> None:
    stand_in = perform(reports, "forgets_everything", 4, base)
    hidden = [pid for pid in stand_in.pids if not read_environment(pid)]
    stand_in.kill_together(*ALL)
    assert [is_alive(pid) for pid in hidden] == [True, True]
    assert len(children(base)) == 2

    killed: list[int] = []
    os.close(take_tree_lock(str(tmp_path / "lock.tree"), 30.0, killed.append))

    assert set(hidden) <= set(killed)
    assert [pid for pid in stand_in.pids if is_alive(pid)] == []
    assert children(base) == []


def test_what_is_left_when_all_are_killed_at_once_is_ended_by_the_next_who_starts_there(
    perform: Perform, reports: Reports, tmp_path: Path, base: str
) -> None:
    stand_in = perform(reports, "forgets_everything", 4, base)
    dead = cgroup_trees(tmp_path)
    stand_in.kill_together(*ALL)
    (tmp_path / "lock.tree").unlink()
    others = Reports()

    perform(others, "plain", 2, base)

    wait_deaths(stand_in.pids)
    reports.wait_end()
    assert len(dead) == 2
    others.close()


@pytest.mark.parametrize("victim", ["zygote", "keeper"])
def test_the_groups_of_a_killed_parent_program_go_and_those_of_its_sibling_stay(
    perform: Perform, reports: Reports, base: str, victim: str
) -> None:
    stand_in = perform(reports, "double_fork", 4, base)
    dying = stand_in.zygote if victim == "zygote" else stand_in.keeper

    os.kill(dying, signal.SIGKILL)

    assert stand_in.read_line() == b"ended %d 0\n" % dying
    (left,) = children(base)
    (tree,) = children(left)
    assert len(Path(tree, "cgroup.procs").read_text().split()) == 2


def test_what_hides_below_a_supervisor_ends_with_its_killed_parent_program(reports: Reports) -> None:
    argv = [sys.executable, "-I", "-S", str(HERE / "shapes.py"), "forgets_everything"]
    pipe = f"/proc/{os.getpid()}/fd/{reports.writer}"
    hiding = ChildSpec("hiding", ["sh", "-c", 'exec "$@" >"$0"', pipe, *argv], restart="temporary")

    async def kill_parent() -> None:
        async with (
            Supervisor(SupervisorSpec(children=(hiding,))) as supervisor,
            monitor(supervisor.child("hiding")) as watch,
        ):
            reports.read_pids(2)
            assert supervisor._host is not None
            client = supervisor._host._client
            assert client is not None
            for pid in (client.pid, client.program_pid):
                os.kill(pid, signal.SIGKILL)
            await watch.down(BOUND_S)

    asyncio.run(kill_parent())

    assert len(reports.wait_end()) == 2
