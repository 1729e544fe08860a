from __future__ import annotations

import errno
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from tests.waiting import until

from bartack.supervision.forms import Form, Pipeline, SimpleCommand, pack_form
from bartack.supervision.parent.client import KEEPER, ParentClient
from bartack.supervision.parent.wire import (
    Exited,
    Gone,
    ParentDied,
    ParentEvent,
    ParentReady,
    Started,
    StartFailed,
)
from bartack.supervision.process.lease import LeasePage
from bartack.supervision.process.system import read_facts

BOUND_S = 60.0
E = TypeVar("E", ParentReady, Started, StartFailed, Exited, Gone, ParentDied)

ZYGOTE = """
import json, os, resource, signal, sys, threading
from bartack.supervision.parent.parent import run_parent

warm_ups = []

def entry(payload, fds):
    if payload == b"warm-ups":
        os.write(fds[0], b"%d" % len(warm_ups))
        return 0
    if payload == b"raise":
        raise RuntimeError("on purpose")
    if payload == b"leave":
        sys.exit(9)
    if payload == b"wait":
        os.write(fds[0], b".")
        signal.pause()
    facts = {
        "pid": os.getpid(), "group": os.getpgid(0), "fds": sorted(map(int, os.listdir("/dev/fd"))), "given": fds,
        "worker": os.environ.get("BARTACK_WORKER"), "extra": os.environ.get("EXTRA"),
        "pipe": signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN,
        "term": signal.getsignal(signal.SIGTERM) is signal.SIG_DFL,
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "limit": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }
    os.write(fds[0], json.dumps(facts).encode())
    return payload[0]

if __name__ == "__main__":
    if "THREADS" in os.environ:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    if "MUTE" in os.environ:
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, 2)
        sys.exit(run_parent(entry, lambda: 1 / 0))
    sys.exit(run_parent(entry, lambda: warm_ups.append(os.getpid())))
"""


class Crew:
    """A parent program, what it said, and a pipe for what its children say."""

    def __init__(self, client: ParentClient) -> None:
        self.client = client
        self.events: list[ParentEvent] = []
        self.reader, self.writer = os.pipe()

    def wait(self, kind: type[E]) -> E:
        """The next event of a kind."""
        until = time.monotonic() + BOUND_S
        while True:
            for event in self.events:
                if isinstance(event, kind):
                    self.events.remove(event)
                    return event
            writing = [self.client] if self.client.wants_write else []
            select.select([self.client], writing, [], max(0, until - time.monotonic()))
            assert time.monotonic() < until, f"no {kind.__name__}, but {self.events}"
            self.events += self.client.read_events()

    def read(self) -> bytes:
        ready, _, _ = select.select([self.reader], [], [], BOUND_S)
        assert ready
        return os.read(self.reader, 1 << 16)

    def close(self) -> None:
        self.client.close()
        for fd in [fd for event in self.events if isinstance(event, Started) for fd in event.pidfds]:
            os.close(fd)
        os.close(self.reader)
        os.close(self.writer)


Hire = Callable[..., Crew]


@pytest.fixture
def hire(tmp_path: Path) -> Iterator[Hire]:
    (tmp_path / "zygote_of_test.py").write_text(ZYGOTE)
    with ExitStack() as stack:

        def start(module: str, lease: int | None = None, **env: str) -> Crew:
            whole = {**os.environ, "PYTHONPATH": str(tmp_path), **env}
            lock = str(tmp_path / "lock.tree")
            crew = Crew(ParentClient.start(module, lock, whole, str(tmp_path), lease=lease))
            stack.callback(crew.close)
            return crew

        yield start


@pytest.fixture
def keeper(hire: Hire) -> Crew:
    return hire(KEEPER)


@pytest.fixture
def zygote(hire: Hire) -> Crew:
    return hire("zygote_of_test")


ENV = {"PATH": os.environ.get("PATH", os.defpath)}


def run(crew: Crew, *pipeline: list[str], cwd: str = "/", env: dict[str, str] = ENV) -> Exited:
    crew.client.exec(1, pipeline, cwd, env, stdout=crew.writer)
    for fd in crew.wait(Started).pidfds:
        os.close(fd)
    exited = crew.wait(Exited)
    crew.wait(Gone)
    return exited


# -- programs -------------------------------------------------------------------------------------------------------


def test_a_command_gets_exactly_its_words(keeper: Crew) -> None:
    words = ["$HOME", "a b", "*", "", "'", "\n", os.fsdecode(b"\xff")]

    exited = run(keeper, ["printf", "[%s]", *words])

    assert exited.statuses == [0]
    assert keeper.read() == b"[$HOME][a b][*][]['][\n][\xff]"


def test_a_command_gets_exactly_its_environment_and_directory(keeper: Crew, tmp_path: Path) -> None:
    run(keeper, ["sh", "-c", "env; pwd"], cwd=str(tmp_path), env={**ENV, "ONE": "1"})

    said = keeper.read().decode().splitlines()
    assert {line for line in said if not line.startswith(("PWD=", "_=", "SHLVL=", "OLDPWD="))} == {
        f"PATH={ENV['PATH']}",
        "ONE=1",
        str(tmp_path),
    }


def test_commands_are_connected_by_pipes_and_all_statuses_reported(keeper: Crew) -> None:
    exited = run(keeper, ["yes"], ["head", "-n", "2"], ["sh", "-c", "tr y z; exit 3"])

    assert keeper.read() == b"z\nz\n"
    assert exited.statuses == [-signal.SIGPIPE, 0, 3]


def test_a_command_has_no_descriptor_but_the_first_three(keeper: Crew) -> None:
    run(keeper, [sys.executable, "-I", "-S", "-c", "import os; print(os.listdir('/dev/fd'))"])

    assert keeper.read() == b"['0', '1', '2', '3']\n"  # the last is the listing itself


def test_a_command_starts_with_every_signal_as_usual(keeper: Crew) -> None:
    code = (
        "import signal\n"
        "print([n for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN],"
        " signal.pthread_sigmask(signal.SIG_BLOCK, ()))\n"
    )
    run(keeper, [sys.executable, "-I", "-S", "-c", code])

    # Python itself ignores these two.
    assert keeper.read() == b"[<Signals.SIGPIPE: 13>, <Signals.SIGXFSZ: 25>] set()\n"


def test_a_parent_program_raises_the_limit_of_descriptors_for_itself_and_not_for_its_children(
    hire: Hire,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        keeper, zygote = hire(KEEPER), hire("zygote_of_test")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    run(keeper, ["sh", "-c", "ulimit -n"])

    assert int(keeper.read()) == 256
    assert fork(zygote, b"\0").limit == 256
    if sys.platform == "linux":
        assert resource.prlimit(keeper.client.program_pid, resource.RLIMIT_NOFILE)[0] == hard


def test_streams_that_are_not_given_are_empty(keeper: Crew) -> None:
    keeper.client.exec(1, [["sh", "-c", "cat; echo lost; echo lost >&2"]], "/", ENV)

    assert keeper.wait(Exited).statuses == [0]


def test_streams_go_where_they_shall(keeper: Crew, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("text")
    with (tmp_path / "in").open() as given, (tmp_path / "err").open("w") as errors:
        script = "cat; echo problem >&2"
        keeper.client.exec(
            1,
            [["sh", "-c", script]],
            "/",
            ENV,
            stdin=given.fileno(),
            stdout=keeper.writer,
            stderr=errors.fileno(),
        )
        keeper.wait(Gone)

    assert keeper.read() == b"text"
    assert (tmp_path / "err").read_text() == "problem\n"


def test_the_lines_of_a_relayed_command_are_in_a_file_before_it_has_ended(
    keeper: Crew, tmp_path: Path
) -> None:
    path = tmp_path / "lines"
    script = "import sys; print('one'); print('two', flush=True); sys.stdin.read(); print('end', end='')"
    theirs, ours = os.pipe()
    with path.open("ab") as file:
        argv = [sys.executable, "-I", "-S", "-c", script]
        keeper.client.exec(1, [argv], "/", ENV, stdin=theirs, stdout=file.fileno(), relayed=True)
        os.close(theirs)
        until(lambda: path.read_bytes() == b"one\ntwo\n", "the lines are there", tmp_path)
        file.write(b"ours\n")
        file.flush()
        os.close(ours)
        keeper.wait(Gone)

    assert path.read_bytes() == b"one\ntwo\nours\nend"


def test_a_command_whose_relayed_output_finds_no_place_ends(keeper: Crew) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    keeper.client.exec(1, [["yes"]], "/", ENV, stdout=full, relayed=True)
    os.close(full)

    assert keeper.wait(Exited).statuses == [-signal.SIGPIPE]


def test_a_relayed_command_that_cannot_be_started_leaves_no_copy(keeper: Crew, tmp_path: Path) -> None:
    garbage, path = tmp_path / "garbage", tmp_path / "lines"
    garbage.write_text("text")
    garbage.chmod(0o755)
    with path.open("ab") as file:
        for program in ("no-such-program", str(garbage)):
            keeper.client.exec(1, [[program]], "/", ENV, stdout=file.fileno(), relayed=True)
            keeper.wait(StartFailed)
        keeper.client.exec(1, [["echo", "next"]], "/", ENV, stdout=file.fileno(), relayed=True)
        keeper.wait(Gone)

    assert path.read_bytes() == b"next\n"


def test_memory_and_time_of_a_command_are_reported(keeper: Crew) -> None:
    exited = run(
        keeper, [sys.executable, "-I", "-S", "-c", "x = b'.' * 50_000_000\nfor _ in range(10**6): pass"]
    )

    assert exited.max_rss_kb > 50_000
    assert 0.005 < exited.cpu_s < BOUND_S


def fails(crew: Crew, *pipeline: list[str], cwd: str = "/", env: dict[str, str] = ENV) -> StartFailed:
    crew.client.exec(1, pipeline, cwd, env, stdout=crew.writer)
    return crew.wait(StartFailed)


@pytest.mark.parametrize(
    ("argv", "number"),
    [
        (["no-such-program"], errno.ENOENT),
        (["/no/such/program"], errno.ENOENT),
        (["./plain"], errno.EACCES),
        (["./directory"], errno.EACCES),
        (["./garbage"], errno.ENOEXEC),
        (["./orphaned"], errno.ENOENT),
        (["echo", "a\0b"], errno.EINVAL),
        ([""], errno.EINVAL),
        ([], errno.EINVAL),
        (["echo", "x" * 3_000_000], errno.E2BIG),
    ],
    ids=["name", "path", "mode", "directory", "format", "interpreter", "nul", "empty", "nothing", "long"],
)
def test_a_program_that_cannot_be_started_is_reported_with_its_reason(
    keeper: Crew, tmp_path: Path, argv: list[str], number: int
) -> None:
    (tmp_path / "plain").write_text("text")
    (tmp_path / "directory").mkdir()
    for name, text in (("garbage", "text"), ("orphaned", "#!/no/such/interpreter\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    failed = fails(keeper, argv, cwd=str(tmp_path))

    assert (failed.token, failed.errno, failed.index) == (1, number, 0)
    assert failed.problem
    assert keeper.events == [ParentReady(keeper.client.program_pid)]


def test_no_command_of_a_pipeline_starts_if_one_is_missing(keeper: Crew, tmp_path: Path) -> None:
    failed = fails(keeper, ["touch", str(tmp_path / "touched")], ["no-such-program"])

    assert (failed.errno, failed.index) == (errno.ENOENT, 1)
    assert not (tmp_path / "touched").exists()


def test_the_rest_of_a_pipeline_is_ended_if_one_command_fails_to_start(keeper: Crew, tmp_path: Path) -> None:
    (tmp_path / "garbage").write_text("text")
    (tmp_path / "garbage").chmod(0o755)

    failed = fails(keeper, ["sleep", "1000"], [str(tmp_path / "garbage")], ["sleep", "1000"])

    assert (failed.errno, failed.index) == (errno.ENOEXEC, 1)
    assert not [event for event in keeper.events if not isinstance(event, ParentReady)]


@pytest.mark.parametrize(
    ("cwd", "env"),
    [
        ("/no/such/directory", ENV),
        ("/", {**ENV, "": "x"}),
        ("/", {**ENV, "A=B": "x"}),
        ("/", {**ENV, "A": "\0"}),
    ],
)
def test_a_directory_or_variable_that_cannot_be_is_reported(
    keeper: Crew, cwd: str, env: dict[str, str]
) -> None:
    failed = fails(keeper, ["echo"], cwd=cwd, env=env)

    assert failed.errno in {errno.ENOENT, errno.EINVAL}
    assert run(keeper, ["true"]).statuses == [0]


def test_an_empty_pipeline_is_refused(keeper: Crew) -> None:
    assert fails(keeper).errno == errno.EINVAL


def test_a_token_is_given_to_one_child_at_a_time(keeper: Crew) -> None:
    keeper.client.exec(1, [["cat"]], "/", ENV, stdin=keeper.reader)
    keeper.client.exec(1, [["cat"]], "/", ENV)

    assert keeper.wait(StartFailed).errno == errno.EEXIST
    keeper.client.kill(1)
    keeper.wait(Started)
    keeper.wait(Exited)
    keeper.wait(Gone)
    assert run(keeper, ["true"]).statuses == [0]


def test_a_keeper_interprets_forms(keeper: Crew) -> None:
    form = Form(Pipeline([SimpleCommand([["echo"], ["a b"]]), SimpleCommand([["cat"]])]))

    keeper.client.fork(1, pack_form(form, "/", ENV), [keeper.writer, keeper.writer], {})

    assert keeper.wait(Exited).statuses == [0]
    assert keeper.read() == b"a b\n"


# -- control --------------------------------------------------------------------------------------------------------


def test_a_signal_reaches_the_commands_and_not_what_they_started(keeper: Crew) -> None:
    script = "trap 'echo got; exit 4' USR1; sleep 1000 & echo ready; wait"
    keeper.client.exec(1, [["sh", "-c", script]], "/", ENV, stdout=keeper.writer)
    keeper.read()

    keeper.client.signal(1, signal.SIGUSR1)

    assert keeper.wait(Exited).statuses == [4]
    assert keeper.read() == b"got\n"
    assert keeper.wait(Gone).leftovers in (["sleep"], ["sh"])  # it might not have become its program yet


def test_a_stopped_tree_has_time_to_end_by_itself(keeper: Crew) -> None:
    code = (
        "import os, signal\n"
        "alive, held = os.pipe()\n"
        "def end(*_): os._exit(5)\n"
        "def end_later(*_): os.close(held); os.read(alive, 1); os.write(1, b'bye'); os._exit(6)\n"
        "child = os.fork()\n"
        "signal.signal(signal.SIGTERM, end if child else end_later)\n"
        "os.write(1, b'ready\\n')\n"
        "while True: signal.pause()\n"
    )
    keeper.client.exec(1, [[sys.executable, "-I", "-S", "-c", code]], "/", ENV, stdout=keeper.writer)
    said = b""
    while said.count(b"ready") < 2:
        said += keeper.read()

    keeper.client.stop(1, BOUND_S)

    assert keeper.wait(Exited).statuses == [5]
    assert keeper.read() == b"bye"
    assert keeper.wait(Gone).leftovers == []


def test_what_outlives_the_grace_of_a_stopped_child_is_killed_and_named(keeper: Crew) -> None:
    script = "(trap '' TERM; echo ready; exec sleep 1000) & wait"
    keeper.client.exec(1, [["sh", "-c", script]], "/", ENV, stdout=keeper.writer)
    keeper.read()

    keeper.client.stop(1, 0.05)

    assert keeper.wait(Exited).statuses == [-signal.SIGTERM]
    gone = keeper.wait(Gone)
    assert gone.leftovers in (["sleep"], ["sh"])  # it might not have become its program yet
    assert gone.survivors == []


def test_a_stopped_child_is_continued_so_that_it_can_end(keeper: Crew) -> None:
    keeper.client.exec(
        1, [["sh", "-c", "echo ready; kill -STOP $$; echo on"]], "/", ENV, stdout=keeper.writer
    )
    keeper.read()

    keeper.client.stop(1, BOUND_S)

    assert keeper.wait(Exited).statuses == [-signal.SIGTERM]


def test_a_shorter_grace_replaces_a_longer_one(keeper: Crew) -> None:
    keeper.client.exec(
        1, [["sh", "-c", "trap '' TERM; echo ready; sleep 1000"]], "/", ENV, stdout=keeper.writer
    )
    keeper.read()

    keeper.client.stop(1, 1000)
    keeper.client.stop(1, 0.01)

    assert keeper.wait(Exited).statuses == [-signal.SIGKILL]
    keeper.wait(Gone)


def test_killing_ends_the_grace(keeper: Crew) -> None:
    keeper.client.exec(
        1, [["sh", "-c", "trap '' TERM; echo ready; sleep 1000"]], "/", ENV, stdout=keeper.writer
    )
    keeper.read()

    keeper.client.stop(1, 1000)
    keeper.client.kill(1)

    assert keeper.wait(Exited).statuses == [-signal.SIGKILL]
    keeper.wait(Gone)


def test_a_child_that_is_gone_can_be_stopped_killed_and_signalled_in_vain(keeper: Crew) -> None:
    run(keeper, ["true"])
    keeper.client.stop(1, 1)
    keeper.client.kill(1)
    keeper.client.signal(1, signal.SIGTERM)

    assert run(keeper, ["false"]).statuses == [1]


def test_while_one_child_has_its_grace_others_start_and_end(keeper: Crew) -> None:
    script = "trap '' TERM; echo ready; sleep 1000"
    keeper.client.exec(7, [["sh", "-c", script]], "/", ENV, stdout=keeper.writer)
    keeper.read()
    keeper.client.stop(7, 1000)

    assert run(keeper, ["true"]).statuses == [0]


# -- forks ----------------------------------------------------------------------------------------------------------


class ForkReport(msgspec.Struct):
    """What a fork says of itself."""

    pid: int
    group: int
    fds: list[int]
    given: list[int]
    worker: str | None
    extra: str | None
    pipe: bool
    term: bool
    blocked: list[int]
    limit: int


def fork(crew: Crew, payload: bytes, **env: str) -> ForkReport:
    crew.client.fork(1, payload, [crew.writer], env)
    return msgspec.json.decode(crew.read(), type=ForkReport)


def test_a_fork_calls_the_entry_and_ends_with_its_result(zygote: Crew) -> None:
    reported = fork(zygote, b"\x07", BARTACK_WORKER="main#1", EXTRA="more")

    assert zygote.wait(Started).pids == [reported.pid]
    assert zygote.wait(Exited).statuses == [7]
    assert zygote.wait(Gone) == Gone(1, [], [])
    assert (reported.worker, reported.extra, reported.group) == ("main#1", "more", reported.pid)


def test_a_fork_has_no_descriptor_but_its_own(zygote: Crew) -> None:
    reported = fork(zygote, b"\0")

    assert len(set(reported.fds) - {0, 1, 2, *reported.given}) == 1  # the listing itself


def test_a_fork_starts_with_the_signals_of_a_python_program(zygote: Crew) -> None:
    reported = fork(zygote, b"\0")

    assert reported.pipe
    assert reported.term
    assert reported.blocked == []
    assert reported.worker is None


@pytest.mark.parametrize(("payload", "code"), [(b"raise", 70), (b"leave", 9)])
def test_an_entry_that_raises_ends_its_fork_only(zygote: Crew, payload: bytes, code: int) -> None:
    zygote.client.fork(1, payload, [], {})

    assert zygote.wait(Exited).statuses == [code]
    zygote.wait(Gone)
    assert fork(zygote, b"\0").pid != zygote.client.program_pid


def test_a_parent_program_warms_up_while_it_has_nothing_to_do_and_then_waits(zygote: Crew) -> None:
    def count() -> int:
        zygote.client.fork(1, b"warm-ups", [zygote.writer], {})
        zygote.wait(Gone)
        return int(zygote.read())

    until = time.monotonic() + BOUND_S
    while count() < 12 and time.monotonic() < until:
        pass

    assert count() == 12


def test_a_warm_up_that_fails_does_no_harm_where_no_one_reads_of_it(hire: Hire) -> None:
    zygote = hire("zygote_of_test", MUTE="1")

    for _ in range(3):  # it has nothing to do in between
        zygote.client.fork(1, b"\0", [zygote.writer], {})
        assert zygote.wait(Gone).token == 1


def test_a_parent_program_with_a_second_thread_does_not_fork(hire: Hire) -> None:
    zygote = hire("zygote_of_test", THREADS="1")

    zygote.client.fork(1, b"\0", [], {})

    assert "2 threads" in zygote.wait(StartFailed).problem


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has pidfds")
def test_a_pidfd_reports_the_death_of_a_fork(zygote: Crew) -> None:
    zygote.client.fork(1, b"wait", [zygote.writer], {})
    started = zygote.wait(Started)
    zygote.read()

    assert select.select(started.pidfds, [], [], 0)[0] == []
    signal.pidfd_send_signal(started.pidfds[0], signal.SIGKILL)
    assert select.select(started.pidfds, [], [], BOUND_S)[0] == started.pidfds
    assert zygote.wait(Exited).statuses == [-signal.SIGKILL]
    os.close(started.pidfds[0])


# -- the parent program itself --------------------------------------------------------------------------------------


def test_the_death_of_a_parent_program_is_reported_once(keeper: Crew) -> None:
    keeper.wait(ParentReady)
    os.kill(keeper.client.program_pid, signal.SIGKILL)

    keeper.wait(ParentDied)
    keeper.client.exec(1, [["true"]], "/", ENV)
    assert keeper.client.read_events() == []
    assert keeper.client.close() == -signal.SIGKILL


def test_a_module_that_cannot_be_run_is_a_parent_program_that_died(hire: Hire, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise SystemExit(5)")
    crew = hire("broken")

    crew.wait(ParentDied)
    assert crew.client.close() == 5


def test_a_parent_program_that_is_dismissed_ends_well(keeper: Crew) -> None:
    keeper.wait(ParentReady)

    assert keeper.client.close() == 0


def test_a_parent_program_leads_a_session_of_its_own_without_a_terminal(keeper: Crew) -> None:
    facts = read_facts(keeper.client.pid)

    assert facts is not None
    assert (facts.group, facts.session) == (facts.pid, facts.pid)


def test_ctrl_c_does_not_end_a_parent_program(keeper: Crew) -> None:
    keeper.wait(ParentReady)
    os.kill(keeper.client.pid, signal.SIGINT)
    os.kill(keeper.client.program_pid, signal.SIGINT)

    assert run(keeper, ["true"]).statuses == [0]


def test_a_parent_program_whose_run_is_deleted_while_it_starts_ends_without_a_word(
    tmp_path: Path,
) -> None:
    with (tmp_path / "errors").open("wb") as errors:
        client = ParentClient.start(
            KEEPER, str(tmp_path / "gone" / "lock.tree"), dict(os.environ), "/", stderr=errors.fileno()
        )
    crew = Crew(client)

    crew.wait(ParentDied)
    crew.close()

    assert (tmp_path / "errors").read_text() == ""


# -- leases ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def lease() -> Iterator[tuple[LeasePage, int]]:
    """A lease that is not valid, and its descriptor."""
    page, fd = LeasePage.create()
    yield page, fd
    page.close()
    os.close(fd)


def renew(page: LeasePage) -> None:
    page.renew(LeasePage.now_ns() + int(BOUND_S * 1e9))


def test_commands_wait_for_the_lease_and_are_obeyed_in_their_order(
    hire: Hire, lease: tuple[LeasePage, int]
) -> None:
    page, fd = lease
    keeper = hire(KEEPER, fd)
    keeper.wait(ParentReady)
    keeper.client.exec(1, [["sleep", "600"]], "/", ENV)
    keeper.client.kill(1)
    keeper.client.exec(2, [["true"]], "/", ENV)
    select.select([keeper.client], [], [], 0.3)  # nothing comes
    assert keeper.client.read_events() == []

    renew(page)

    gone = {keeper.wait(Gone).token, keeper.wait(Gone).token}
    assert gone == {1, 2}
    statuses = {event.token: event.statuses for event in keeper.events if isinstance(event, Exited)}
    assert statuses == {1: [-signal.SIGKILL], 2: [0]}


def test_a_program_that_is_dismissed_does_not_wait_for_its_lease(
    hire: Hire, lease: tuple[LeasePage, int]
) -> None:
    keeper = hire(KEEPER, lease[1])
    keeper.wait(ParentReady)
    keeper.client.exec(1, [["sleep", "600"]], "/", ENV)

    began = time.monotonic()
    assert keeper.client.close(BOUND_S) == 0
    assert time.monotonic() - began < BOUND_S


@pytest.mark.skipif(
    sys.platform != "linux", reason="the time that another process took is read from its files"
)
def test_a_program_that_stands_still_hardly_computes(hire: Hire, lease: tuple[LeasePage, int]) -> None:
    page, fd = lease
    renew(page)
    keeper = hire(KEEPER, fd, BARTACK_CGROUPS="off")
    keeper.wait(ParentReady)
    keeper.client.exec(1, [["sh", "-c", "trap '' TERM; echo $$; sleep 600"]], "/", ENV, stdout=keeper.writer)
    pid = int(keeper.read())
    keeper.client.stop(1, BOUND_S)
    page.renew(0)
    until = time.monotonic() + BOUND_S
    while (facts := read_facts(pid)) is None or facts.state != "T":
        assert time.monotonic() < until

    before = computed_s(keeper.client.program_pid)
    select.select([], [], [], 1.0)
    assert computed_s(keeper.client.program_pid) - before < 0.5


def computed_s(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
