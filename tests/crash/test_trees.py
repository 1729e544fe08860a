"""Whoever is killed, nothing of its process tree is left."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.crash.trees import (
    ALL,
    BOUND_S,
    HERE,
    Hire,
    Perform,
    Reports,
    begin,
    is_alive,
    wait_deaths,
)
from tests.crash.warden import MANY_LIMIT_S, Findings, check_soon, read_findings

from bartack.supervision.parent.client import KEEPER
from bartack.supervision.parent.wire import Exited, ParentReady, Started
from bartack.supervision.process.lock import take_tree_lock
from bartack.supervision.process.system import read_environment, read_facts
from bartack.supervision.process.tree import find_by_environment, kill_tree

HARD = (
    "double_fork",
    "own_session",
    "own_group",
    "ignores_signals",
    "forks_on_term",
    "forgets_everything",
    "runs_away",
    "runs_away_to_sessions",
    "multiplies",
)
"""Every shape that does not end by itself when asked, or not as a whole."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the bounds are those of Linux")


@pytest.fixture(autouse=True)
def without_control_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees are ended where there are none, too; ``test_cgroups.py`` is about those."""
    monkeypatch.setenv("BARTACK_CGROUPS", "off")


both = pytest.mark.parametrize("module", ["shapes", KEEPER], ids=["zygote", "keeper"])


@both
@pytest.mark.parametrize("shape", HARD)
def test_a_killed_child_leaves_nothing(hire: Hire, reports: Reports, module: str, shape: str) -> None:
    crew = hire(module)
    begin(crew, module, shape, reports)
    reports.read_pids(1)

    crew.client.kill(1)

    gone = crew.wait_gone()
    reports.wait_end()
    assert gone.survivors == []


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        # The two parents take turns; ``make soak`` tries each shape with both.
        pytest.param(
            module, shape, id=f"{parent}-{shape}", marks=() if number % 2 == turn else pytest.mark.soak
        )
        for turn, (parent, module) in enumerate((("zygote", "shapes"), ("keeper", KEEPER)))
        for number, shape in enumerate(HARD)
    ],
)
def test_a_stopped_child_leaves_nothing(hire: Hire, reports: Reports, module: str, shape: str) -> None:
    crew = hire(module)
    begin(crew, module, shape, reports)
    reports.read_pids(1)

    crew.client.stop(1, 0.05)

    gone = crew.wait_gone()
    reports.wait_end()
    assert gone.survivors == []


@both
def test_what_a_child_leaves_is_ended_and_named(hire: Hire, reports: Reports, module: str) -> None:
    crew = hire(module)
    begin(crew, module, "leaves_daemon", reports)

    gone = crew.wait_gone()

    reports.wait_end()
    assert len(gone.leftovers) == 1
    assert gone.leftovers[0].startswith("python")
    assert gone.survivors == []


@both
def test_only_the_killed_child_loses_its_orphans(hire: Hire, reports: Reports, module: str) -> None:
    crew = hire(module)
    others = Reports()
    begin(crew, module, "double_fork", reports, token=1)
    begin(crew, module, "double_fork", others, token=2)
    reports.read_pids(2)
    spared = others.read_pids(2)

    crew.client.kill(1)

    crew.wait_gone(1)
    reports.wait_end()
    assert [pid for pid in spared if not is_alive(pid)] == []
    crew.client.kill(2)
    crew.wait_gone(2)
    others.wait_end()
    others.close()


@both
def test_an_orphan_that_hides_everything_ends_with_the_last_who_may_have_started_it(
    hire: Hire, reports: Reports, module: str
) -> None:
    crew = hire(module)
    others = Reports()
    begin(crew, module, "plain", others, token=2)
    others.read_pids(1)
    begin(crew, module, "forgets_everything", reports, token=1)
    (hidden,) = [pid for pid in reports.read_pids(2) if not read_environment(pid)]

    crew.client.kill(1)
    crew.wait_gone(1)
    assert is_alive(hidden)
    crew.client.kill(2)
    crew.wait_gone(2)

    reports.wait_end()
    others.close()


@both
def test_a_child_that_ends_when_asked_is_not_killed(hire: Hire, reports: Reports, module: str) -> None:
    crew = hire(module)
    begin(crew, module, "own_session", reports)
    reports.read_pids(2)

    crew.client.stop(1, BOUND_S)

    exited = crew.wait(lambda event: isinstance(event, Exited))
    assert isinstance(exited, Exited)
    assert exited.statuses == [-signal.SIGTERM]
    assert crew.wait_gone().leftovers == []


def parent_of(pid: int) -> int:
    facts = read_facts(pid)
    return facts.ppid if facts else 0


def session_of(pid: int) -> int:
    facts = read_facts(pid)
    return facts.session if facts else 0


TOGETHER = [
    ("hub", "keeper"),
    ("hub", "zygote"),
    ("hub", "keeper", "zygote"),
    ("hub", "guardian of keeper"),
    ("hub", "guardian of zygote"),
    ("hub", "guardian of keeper", "guardian of zygote"),
    ("hub", "keeper", "guardian of zygote"),
    ("hub", "zygote", "guardian of keeper"),
]
"""The hub, and one of each two processes that watch over a tree, or fewer."""


@pytest.mark.requirement("two-deaths-leave-nothing")
@pytest.mark.parametrize("shape", ["everything", "forgets_everything"])
@pytest.mark.parametrize("names", TOGETHER, ids=" and ".join)
def test_nothing_is_left_when_the_hub_and_a_watcher_of_each_tree_are_killed_in_one_moment(
    perform: Perform, reports: Reports, tmp_path: Path, names: tuple[str, ...], shape: str
) -> None:
    stand_in = perform(reports, shape, 4)

    stand_in.kill_together(*names)

    reports.wait_end()
    wait_deaths([stand_in.zygote, stand_in.keeper, stand_in.zygote_guardian, stand_in.keeper_guardian])
    os.close(take_tree_lock(str(tmp_path / "lock.tree"), 0.0))


@pytest.mark.requirement("two-deaths-leave-nothing")
@pytest.mark.parametrize("tree", ["zygote", "keeper"])
def test_the_hub_ends_what_a_parent_program_and_its_guardian_leave_that_are_killed_in_one_moment(
    perform: Perform, reports: Reports, tree: str
) -> None:
    stand_in = perform(reports, "forgets_everything", 4)
    dying, staying = stand_in.zygote, stand_in.keeper
    if tree == "keeper":
        dying, staying = staying, dying
    below = {pid: ancestor(pid, {dying, staying}) for pid in stand_in.pids}

    stand_in.kill_together(tree, f"guardian of {tree}")

    assert stand_in.read_line() == b"ended %d 0\n" % dying
    assert [pid for pid, above in below.items() if above == dying and is_alive(pid)] == []
    assert [pid for pid, above in below.items() if above == staying and not is_alive(pid)] == []


@pytest.mark.requirement("two-deaths-leave-nothing")
@pytest.mark.parametrize("tree", ["zygote", "keeper"])
def test_a_parent_program_ends_everything_when_its_guardian_is_killed(
    perform: Perform, reports: Reports, tree: str
) -> None:
    stand_in = perform(reports, "everything", 4)
    dying = stand_in.zygote if tree == "zygote" else stand_in.keeper

    stand_in.kill_together(f"guardian of {tree}")

    assert stand_in.read_line() == b"ended %d 0\n" % dying


@pytest.mark.requirement("two-deaths-leave-nothing")
def test_a_parent_program_that_is_stopped_when_the_hub_dies_is_no_obstacle(
    perform: Perform, reports: Reports
) -> None:
    stand_in = perform(reports, "everything", 4)
    os.kill(stand_in.keeper, signal.SIGSTOP)

    stand_in.process.kill()

    reports.wait_end()
    wait_deaths([stand_in.keeper, stand_in.keeper_guardian])


@pytest.mark.parametrize("shape", [*HARD, *["everything"] * (11 if "SOAK" in os.environ else 4)])
def test_nothing_is_left_100_ms_after_a_hub_was_killed(
    perform: Perform, tmp_path: Path, shape: str, record_property: Callable[[str, object], None]
) -> None:
    def kill_hub() -> Findings:
        reports = Reports()
        stand_in = perform(reports, shape, 2, watched=True)
        stand_in.process.terminate()
        pids = [*reports.wait_end(), stand_in.zygote, stand_in.keeper]
        assert stand_in.process.wait(BOUND_S) == 0
        assert [pid for pid in pids if is_alive(pid)] == []
        reports.close()
        return read_findings(tmp_path)

    record_property("gone_ms", check_soon(kill_hub))


@pytest.mark.requirement("many-workers-take-longer-to-end")
def test_nothing_is_left_of_300_children_a_second_after_a_hub_was_killed(
    perform: Perform, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    def kill_hub() -> Findings:
        reports = Reports()
        stand_in = perform(reports, "plain", 301, watched=True, forks=300)
        stand_in.process.terminate()
        reports.wait_end()
        assert stand_in.process.wait(BOUND_S) == 0
        reports.close()
        return read_findings(tmp_path)

    record_property("many_gone_ms", check_soon(kill_hub, MANY_LIMIT_S))


@pytest.mark.parametrize("shape", ["everything", "runs_away", "multiplies"])
def test_the_lock_of_the_tree_is_free_only_when_nothing_is_left(
    perform: Perform, reports: Reports, tmp_path: Path, shape: str
) -> None:
    stand_in = perform(reports, shape, 2)

    stand_in.process.kill()
    os.close(take_tree_lock(str(tmp_path / "lock.tree"), BOUND_S))

    assert [pid for pid in reports.read_pids(0) if is_alive(pid)] == []
    assert reports.has_ended()


@pytest.mark.parametrize(
    ("shape", "count"),
    [("double_fork", 4), ("own_session", 4), ("forgets_everything", 4), ("multiplies", 14)],
)
@pytest.mark.parametrize("victim", ["zygote", "keeper"])
def test_a_killed_parent_program_leaves_its_orphans_to_the_hub_and_its_sibling_alone(
    perform: Perform, reports: Reports, shape: str, count: int, victim: str
) -> None:
    stand_in = perform(reports, shape, count)
    dying, staying = stand_in.zygote, stand_in.keeper
    if victim == "keeper":
        dying, staying = staying, dying
    below = {pid: ancestor(pid, {dying, staying}) for pid in stand_in.pids}

    os.kill(dying, signal.SIGKILL)

    assert stand_in.read_line() == b"ended %d 0\n" % dying
    assert [pid for pid, above in below.items() if above == dying and is_alive(pid)] == []
    assert [pid for pid, above in below.items() if above == staying and not is_alive(pid)] == []
    assert {dying, staying} <= set(below.values())


def ancestor(pid: int, among: set[int]) -> int:
    while pid and pid not in among:
        pid = parent_of(pid)
    return pid


def test_what_is_left_when_all_are_killed_at_once_is_found_by_its_environment(
    perform: Perform, reports: Reports, tmp_path: Path
) -> None:
    stand_in = perform(reports, "double_fork", 4)
    sessions = {os.getsid(0), stand_in.zygote_guardian, stand_in.keeper_guardian}
    orphans = {pid for pid in stand_in.pids if session_of(pid) not in sessions}
    stand_in.kill_together(*ALL)
    wait_deaths(list(set(stand_in.pids).difference(orphans)))

    found = find_by_environment("BARTACK_RUN_DIR", str(tmp_path))
    survivors = kill_tree(*(facts.id for facts in found))

    assert len(orphans) == 2
    assert {facts.pid for facts in found} == orphans
    assert survivors == []
    reports.wait_end()


def test_a_killed_worker_is_known_though_its_grandchild_holds_the_socket(
    hire: Hire, reports: Reports
) -> None:
    crew = hire("shapes")
    begin(crew, "shapes", "double_fork", reports)
    started = crew.wait(lambda event: isinstance(event, Started))
    assert isinstance(started, Started)
    reports.read_pids(2)

    os.kill(started.pids[0], signal.SIGKILL)

    ready, _, _ = select.select(started.pidfds, [], [], BOUND_S)
    assert ready == started.pidfds
    assert crew.wait_gone().survivors == []
    reports.wait_end()


def test_a_parent_program_notices_the_hubs_death_though_somebody_holds_its_socket(
    tmp_path: Path, reports: Reports
) -> None:
    script = (
        "import os, signal, sys, stand_in\n"
        "zygote = stand_in.start(sys.argv[1], 'shapes')\n"
        "zygote.fork(1, b'everything', [int(sys.argv[2])], {})\n"
        "os.close(int(sys.argv[2]))\n"
        "if not os.fork(): sys.stdin.read(); os._exit(0)\n"
        "signal.pause()\n"
    )
    fake = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path), str(reports.writer)],
        pass_fds=[reports.writer],
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(HERE)},
    )
    reports.close_writer()
    reports.read_pids(5)

    fake.kill()

    reports.wait_end()
    fake.communicate()


def test_what_a_hub_said_last_before_its_death_is_not_begun(tmp_path: Path, reports: Reports) -> None:
    script = (
        "import os, select, signal, sys, stand_in\n"
        "zygote = stand_in.start(sys.argv[1], 'shapes', 2)\n"
        "select.select([zygote], [], [])\n"
        "zygote.read_events()\n"
        "os.write(1, b'%d' % zygote.program_pid)\n"
        "os.kill(zygote.program_pid, signal.SIGSTOP)\n"
        "zygote.fork(1, b'plain', [int(sys.argv[2])], {})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path), str(reports.writer)]
    env = {**os.environ, "PYTHONPATH": str(HERE)}

    done = subprocess.run(
        command, pass_fds=[reports.writer], env=env, stdout=subprocess.PIPE, check=False, timeout=120
    )
    with suppress(ProcessLookupError):  # its guardian may have killed it already
        os.kill(int(done.stdout), signal.SIGCONT)

    assert done.returncode == -signal.SIGKILL
    assert reports.wait_end() == []


@pytest.mark.parametrize("end", [signal.SIGTERM, "close"], ids=["TERM", "close"])
def test_a_parent_program_that_is_told_to_end_ends_everything_first(
    hire: Hire, reports: Reports, end: signal.Signals | str
) -> None:
    crew = hire("shapes")
    begin(crew, "shapes", "everything", reports)
    reports.read_pids(5)

    if isinstance(end, signal.Signals):
        os.kill(crew.client.pid, end)
    else:
        crew.client.close()

    reports.wait_end()


def test_five_hundred_children_leave_no_descriptor_open(hire: Hire) -> None:
    zygote, keeper = hire("shapes"), hire(KEEPER)
    for crew in (zygote, keeper):
        crew.wait(lambda event: isinstance(event, ParentReady))
    before = [descriptors(pid) for pid in (zygote.client.program_pid, keeper.client.program_pid)]

    with Path(os.devnull).open("wb") as null:
        for token in range(250):
            zygote.client.fork(token, b"quiet", [null.fileno()], {})
            keeper.client.exec(token, [["/bin/true"]], "/", {}, stdout=null.fileno())
            if token % 25 == 24:
                for crew in (zygote, keeper):
                    crew.wait_gone(token)
        for crew in (zygote, keeper):
            for token in set(range(250)) - set(range(24, 250, 25)):
                crew.wait_gone(token)

    assert [descriptors(pid) for pid in (zygote.client.program_pid, keeper.client.program_pid)] == before


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
