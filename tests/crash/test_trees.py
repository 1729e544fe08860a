"""Whoever is killed, nothing of its process tree is left."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import pytest

from bartack.supervision import (
    KEEPER,
    Exited,
    Gone,
    ParentClient,
    ParentEvent,
    ParentReady,
    Started,
    find_by_environment,
    kill_tree,
    read_environment,
    read_facts,
    take_tree_lock,
)

HERE = Path(__file__).parent
BOUND_S = 60.0
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


class Reports:
    """The stream that all processes of a shape write their numbers to."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        self._text = b""

    def close_writer(self) -> None:
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def close(self) -> None:
        self.close_writer()
        os.close(self.reader)

    def read_pids(self, count: int) -> list[int]:
        """Wait until ``count`` processes have reported."""
        until = time.monotonic() + BOUND_S
        while self._text.count(b"\n") < count:
            assert self._read(until), f"only {self._text!r} reported"
        return [int(line) for line in self._text.split()]

    def wait_end(self) -> list[int]:
        """Wait until nobody is left who could report; return all who did."""
        self.close_writer()
        until = time.monotonic() + BOUND_S
        while self._read(until):
            pass
        return [int(line) for line in self._text.split()]

    def has_ended(self) -> bool:
        """Whether nobody is left, as it is now; what was said and not yet read is passed over."""
        while select.select([self.reader], [], [], 0)[0]:
            if not os.read(self.reader, 4096):
                return True
        return False

    def _read(self, until: float) -> bytes:
        ready, _, _ = select.select([self.reader], [], [], max(0, until - time.monotonic()))
        assert ready, f"somebody of {self._text.split()!r} is still there"
        text = os.read(self.reader, 4096)
        self._text += text
        return text


@pytest.fixture
def reports() -> Iterator[Reports]:
    opened = Reports()
    yield opened
    opened.close()


class Crew:
    """A parent program and what it said."""

    def __init__(self, client: ParentClient) -> None:
        self.client = client
        self.events: list[ParentEvent] = []
        self.pidfds: list[int] = []

    def wait(self, wanted: Callable[[ParentEvent], bool]) -> ParentEvent:
        """The first event that is ``wanted``, of those not waited for yet."""
        until = time.monotonic() + BOUND_S
        while True:
            for event in self.events:
                if wanted(event):
                    self.events.remove(event)
                    return event
            select.select([self.client], [], [], max(0, until - time.monotonic()))
            assert time.monotonic() < until, f"no such event, but {self.events}"
            found = self.client.read_events()
            self.events += found
            self.pidfds += [fd for event in found if isinstance(event, Started) for fd in event.pidfds]

    def wait_gone(self, token: int = 1) -> Gone:
        event = self.wait(lambda event: isinstance(event, Gone) and event.token == token)
        assert isinstance(event, Gone)
        return event

    def close(self) -> None:
        self.client.close()
        for fd in self.pidfds:
            os.close(fd)


Hire = Callable[[str], Crew]


@pytest.fixture
def hire(tmp_path: Path) -> Iterator[Hire]:
    """Starts parent programs; the module ``shapes`` is the zygote."""
    with ExitStack() as stack:

        def start(module: str) -> Crew:
            env = {**os.environ, "PYTHONPATH": str(HERE)}
            crew = Crew(ParentClient.start(module, str(tmp_path / "lock.tree"), env, str(tmp_path)))
            stack.callback(crew.close)
            return crew

        yield start


def command(shape: str) -> list[str]:
    return [sys.executable, "-I", "-S", str(HERE / "shapes.py"), shape]


def begin(crew: Crew, module: str, shape: str, reports: Reports, token: int = 1) -> None:
    if module == KEEPER:
        crew.client.exec(token, [command(shape)], "/", {"BARTACK_STEP": f"ik:{token}"}, stdout=reports.writer)
    else:
        crew.client.fork(token, shape.encode(), [reports.writer], {"BARTACK_WORKER": f"main#{token}"})


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


@both
@pytest.mark.parametrize("shape", HARD)
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


def is_alive(pid: int) -> bool:
    facts = read_facts(pid)
    return facts is not None and not facts.dead


def parent_of(pid: int) -> int:
    facts = read_facts(pid)
    return facts.ppid if facts else 0


def session_of(pid: int) -> int:
    facts = read_facts(pid)
    return facts.session if facts else 0


class StandIn:
    """A process that plays the hub, with one shape below each of its parent programs."""

    def __init__(self, directory: Path, reports: Reports, shape: str, count: int) -> None:
        script = [sys.executable, str(HERE / "stand_in.py"), str(directory), str(reports.writer), shape]
        self.directory = str(directory)
        self.process = subprocess.Popen(script, pass_fds=[reports.writer], stdout=subprocess.PIPE)
        reports.close_writer()
        self.zygote, self.keeper = map(int, self.read_line().split())
        self.pids = reports.read_pids(count)

    def read_line(self) -> bytes:
        stdout: IO[bytes] | None = self.process.stdout
        assert stdout is not None
        ready, _, _ = select.select([stdout], [], [], BOUND_S)
        assert ready, "the stand-in says nothing"
        return stdout.readline()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        kill_tree(*(facts.id for facts in find_by_environment("BARTACK_RUN_DIR", self.directory)))


Perform = Callable[[Reports, str, int], StandIn]


@pytest.fixture
def perform(tmp_path: Path) -> Iterator[Perform]:
    with ExitStack() as stack:

        def start(reports: Reports, shape: str, count: int) -> StandIn:
            stand_in = StandIn(tmp_path, reports, shape, count)
            stack.callback(stand_in.close)
            return stand_in

        yield start


@pytest.mark.parametrize("shape", [*HARD, *["everything"] * 11])
def test_a_killed_hub_leaves_nothing(
    perform: Perform, reports: Reports, shape: str, record_property: Callable[[str, object], None]
) -> None:
    stand_in = perform(reports, shape, 2)

    killed_at = time.monotonic()
    stand_in.process.kill()

    pids = [*reports.wait_end(), stand_in.zygote, stand_in.keeper]
    wait_deaths(pids)
    record_property("gone_ms", round((time.monotonic() - killed_at) * 1000))
    assert [pid for pid in pids if is_alive(pid)] == []


def wait_deaths(pids: list[int]) -> None:
    """Wait until every process is dead; a reused number would fail the test, and is not to be expected."""
    until = time.monotonic() + BOUND_S
    for pid in pids:
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ready, _, _ = select.select([pidfd], [], [], max(0, until - time.monotonic()))
        os.close(pidfd)
        assert ready, f"process {pid} is still there"


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
    orphans = {pid for pid in stand_in.pids if session_of(pid) != os.getsid(0)}
    owners = [stand_in.zygote, stand_in.keeper, stand_in.process.pid]
    os.kill(stand_in.process.pid, signal.SIGSTOP)
    for pid in owners:
        os.kill(pid, signal.SIGKILL)
    wait_deaths([*owners, *set(stand_in.pids).difference(orphans)])

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
        "os.write(1, b'%d' % zygote.pid)\n"
        "os.kill(zygote.pid, signal.SIGSTOP)\n"
        "zygote.fork(1, b'plain', [int(sys.argv[2])], {})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path), str(reports.writer)]
    env = {**os.environ, "PYTHONPATH": str(HERE)}

    done = subprocess.run(
        command, pass_fds=[reports.writer], env=env, stdout=subprocess.PIPE, check=False, timeout=120
    )
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
    before = [descriptors(pid) for pid in (zygote.client.pid, keeper.client.pid)]

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

    assert [descriptors(pid) for pid in (zygote.client.pid, keeper.client.pid)] == before


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
