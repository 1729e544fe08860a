"""Trees and runs whose lease is not renewed: everything stands still, whoever is stopped, and continues as if nothing had been."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.crash.runs import PATIENCE_S, RealRun, wait_until
from tests.crash.trees import HERE, Crew, Reports, begin, wait_deaths
from tests.unit.supervision.process.tickers import Board

from bartack.core.watch import open_watch
from bartack.supervision.parent.client import KEEPER, ParentClient
from bartack.supervision.parent.wire import Exited, Started
from bartack.supervision.process.cgroup_probe import probe_cgroups
from bartack.supervision.process.lease import LeasePage

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the bounds are those of Linux")

TICKERS = Path(__file__).parents[1] / "unit/supervision/process/tickers.py"
LEASED_HUB = Path(__file__).with_name("leased_hub.py")
SECOND_NS = 1_000_000_000
LONG_S = 600.0
HELD_S = 7.0
"""Longer than any limit of the program that is held."""


class Lease:
    """What a node does with its lease page."""

    def __init__(self) -> None:
        self._page, self.fd = LeasePage.create()
        self.renew()

    def renew(self, seconds: float = LONG_S) -> None:
        self._page.renew(LeasePage.now_ns() + int(seconds * SECOND_NS))

    def expire(self) -> None:
        """The time is over now. A lease that a node renews is never shortened: who reads it may find out a second later."""
        self._page.renew(LeasePage.now_ns())

    def end(self) -> None:
        self._page.end()

    def close(self) -> None:
        self._page.close()
        os.close(self.fd)


@pytest.fixture
def lease() -> Iterator[Lease]:
    made = Lease()
    yield made
    made.close()


Hold = Callable[[str], Crew]


@pytest.fixture(params=["groups", "signals"])
def hire_leased(request: pytest.FixtureRequest, tmp_path: Path, lease: Lease) -> Iterator[Hold]:
    """Starts parent programs that need the lease, with control groups and without."""
    if request.param == "groups" and (problem := probe_cgroups()):
        pytest.skip(f"NOT TESTED, no control groups here: {problem}")
    switch = {"BARTACK_CGROUPS": "off"} if request.param == "signals" else {}
    with ExitStack() as stack:

        def start(module: str) -> Crew:
            env = {**os.environ, "PYTHONPATH": str(HERE), **switch}
            lock = str(tmp_path / "lock.tree")
            crew = Crew(ParentClient.start(module, lock, env, str(tmp_path), lease=lease.fd))
            stack.callback(crew.close)
            return crew

        yield start


def let_time_pass(seconds: float = 0.1) -> None:
    """What is tested is that nothing happens meanwhile."""
    select.select([], [], [], seconds)


def wait_still(board: Board) -> None:
    """Wait until nothing counts any more."""
    until = time.monotonic() + PATIENCE_S
    while True:
        before = board.counts()
        let_time_pass()
        if board.counts() == before:
            return
        assert time.monotonic() < until, "something still moves"


def wait_moves(board: Board) -> None:
    before = sum(board.counts())
    wait_until(lambda: sum(board.counts()) > before)


def tick(crew: Crew, board: Path, reports: Reports, shape: str, size: int, token: int = 1) -> None:
    words = [sys.executable, "-I", "-S", str(TICKERS), str(board), shape, str(size)]
    crew.client.exec(token, [words], "/", {"BARTACK_STEP": f"ik:{token}"}, stdout=reports.writer)


@pytest.mark.requirement("held-trees-stand-still")
@pytest.mark.parametrize(("shape", "count"), [("family", 9), ("bomb", 60)])
def test_everything_below_a_parent_program_stands_still_while_the_lease_is_not_valid(
    hire_leased: Hold, lease: Lease, reports: Reports, tmp_path: Path, shape: str, count: int
) -> None:
    board = Board(str(tmp_path / "board"))
    crew = hire_leased(KEEPER)
    tick(crew, tmp_path / "board", reports, shape, 4 if shape == "family" else count)
    if shape == "family":
        reports.read_pids(count)
    else:
        let_time_pass(0.05)  # it is held while it multiplies

    lease.expire()
    wait_still(board)
    stopped = board.counts()
    let_time_pass(0.3)
    assert board.counts() == stopped

    lease.renew()
    reports.read_pids(count)
    wait_moves(board)


def test_forked_children_stand_still_too(hire_leased: Hold, lease: Lease, reports: Reports) -> None:
    crew = hire_leased("shapes")
    begin(crew, "shapes", "everything", reports)
    reports.read_pids(11)
    lease.expire()
    begin(crew, "shapes", "plain", reports, 2)
    let_time_pass(0.3)
    assert not any(isinstance(event, Started) and event.token == 2 for event in crew.client.read_events())

    lease.renew()
    crew.wait(lambda event: isinstance(event, Started) and event.token == 2)
    reports.read_pids(12)


def test_a_grace_period_stands_still_with_the_tree(hire_leased: Hold, lease: Lease, reports: Reports) -> None:
    crew = hire_leased(KEEPER)
    begin(crew, KEEPER, "ignores_signals", reports)
    crew.wait(lambda event: isinstance(event, Started))
    reports.read_pids(2)
    began = time.monotonic()
    crew.client.stop(1, 1.0)
    let_time_pass(0.05)
    lease.expire()
    crew.client.sweep(99)  # there is none: it only wakes the program
    let_time_pass(1.5)
    assert crew.client.read_events() == []

    lease.renew()
    crew.wait(lambda event: isinstance(event, Exited))

    assert time.monotonic() - began >= 2.3
    assert crew.wait_gone().survivors == []


@pytest.mark.parametrize("held", [True, False])
def test_a_lease_that_is_gone_for_good_ends_everything(
    hire_leased: Hold, lease: Lease, reports: Reports, held: bool
) -> None:
    crew = hire_leased(KEEPER)
    begin(crew, KEEPER, "everything", reports)
    pids = reports.read_pids(11)
    if held:
        lease.expire()
        let_time_pass(0.3)

    lease.end()

    wait_deaths(pids)
    reports.wait_end()


def test_a_held_tree_ends_with_its_owner(hire_leased: Hold, lease: Lease, reports: Reports) -> None:
    crew = hire_leased(KEEPER)
    begin(crew, KEEPER, "everything", reports)
    pids = reports.read_pids(11)
    lease.expire()
    let_time_pass(0.3)

    crew.client.close()

    wait_deaths(pids)
    reports.wait_end()


def test_a_lease_that_is_renewed_all_the_time_is_not_noticed(
    hire_leased: Hold, lease: Lease, reports: Reports, tmp_path: Path
) -> None:
    board = Board(str(tmp_path / "board"))
    crew = hire_leased(KEEPER)
    tick(crew, tmp_path / "board", reports, "family", 2)
    reports.read_pids(5)

    for _ in range(10):
        lease.renew(LONG_S)
        wait_moves(board)


# Runs.


@pytest.fixture
def held_run(request: pytest.FixtureRequest, tmp_path: Path, lease: Lease) -> Iterator[RealRun]:
    """A run that needs the lease, with all its waits begun."""
    with RealRun.create(tmp_path, "held.py", "main") as run:
        hold_s = str(getattr(request, "param", 300.0))
        run.start(module=[str(LEASED_HUB), str(lease.fd), hold_s], pass_fds=[lease.fd])
        for kind in ("receive", "shell", "body"):
            run.wait_open(kind)
        wait_until(lambda: ticks(run) > 0)
        yield run


def ticks(run: RealRun) -> int:
    file = run.workspace / "ticks"
    return len(file.read_bytes()) if file.exists() else 0


def wait_run_still(run: RealRun) -> None:
    until = time.monotonic() + PATIENCE_S
    while True:
        before = ticks(run)
        let_time_pass(0.2)
        if ticks(run) == before:
            return
        assert time.monotonic() < until, "its command still runs"


def finish(run: RealRun) -> None:
    """Let the waits end well, and see that they did."""
    run.api.send("go", "message")
    (run.workspace / "enough").touch()
    assert run.wait_hub() == 0, run.story()
    assert run.api.result() == ["message", "done\n", "slept"]
    assert run.count("step.failed") == run.count("worker.crashed") == 0


@pytest.mark.requirement("held-time-does-not-count")
def test_a_run_that_stands_still_for_longer_than_all_its_limits_continues(
    held_run: RealRun, lease: Lease
) -> None:
    began = time.monotonic()
    lease.expire()
    wait_run_still(held_run)
    before = (ticks(held_run), held_run.last_seq())
    let_time_pass(HELD_S)
    assert (ticks(held_run), held_run.last_seq()) == before

    lease.renew()
    held_s = time.monotonic() - began
    finish(held_run)

    (stood,) = [entry.data["by_us"] for entry in held_run.entries() if entry.kind == "clock.set"]
    assert isinstance(stood, int)
    assert HELD_S * 1e6 < stood <= (held_s + 1.0) * 1e6


@pytest.mark.requirement("held-trees-stand-still")
def test_a_hub_that_is_stopped_does_not_keep_its_tree_from_standing_still(
    held_run: RealRun, lease: Lease
) -> None:
    assert held_run.hub is not None
    os.kill(held_run.hub.pid, signal.SIGSTOP)
    lease.expire()
    wait_run_still(held_run)

    lease.renew()
    os.kill(held_run.hub.pid, signal.SIGCONT)

    finish(held_run)


@pytest.mark.parametrize("how", ["gone for good", "terminated"])
def test_a_run_that_ends_while_it_stands_still_is_left_as_it_is(
    held_run: RealRun, lease: Lease, how: str
) -> None:
    lease.expire()
    wait_run_still(held_run)
    before = held_run.last_seq()

    if how == "terminated":
        assert held_run.hub is not None
        os.kill(held_run.hub.pid, signal.SIGTERM)
    else:
        lease.end()

    assert held_run.wait_hub() == 130, held_run.story()
    held_run.wait_nothing_left()
    assert held_run.last_seq() == before
    (held_run.workspace / "enough").touch()
    held_run.start()
    held_run.api.send("go", "message")
    assert held_run.wait_hub() == 0, held_run.story()


@pytest.mark.requirement("fleet-hold-time")
@pytest.mark.parametrize("held_run", [0.3], indirect=True)
def test_a_hub_gives_up_after_the_time_that_its_starter_has_named(held_run: RealRun, lease: Lease) -> None:
    before = held_run.last_seq()

    lease.expire()

    assert held_run.wait_hub() == 130, held_run.story()
    held_run.wait_nothing_left()
    assert held_run.last_seq() == before


def test_a_run_without_a_lease_knows_of_none(tmp_path: Path) -> None:
    with RealRun.create(tmp_path, "held.py", "main") as run, open_watch(str(tmp_path)) as watch:
        run.start()
        while ticks(run) == 0:
            watch.wait(PATIENCE_S)
        finish(run)
        assert run.count("clock.set") == 0
