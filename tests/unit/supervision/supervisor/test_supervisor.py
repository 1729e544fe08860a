"""Supervisors with real tasks and real processes."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.crash.warden import Findings, check_soon, read_findings, under_warden

from bartack.errors import (
    ChildNotFoundError,
    ChildSpecError,
    ChildStartError,
    ChildStateError,
    SupervisorExhaustedError,
    SupervisorNotRunningError,
)
from bartack.resilience import Backoff
from bartack.supervision import ChildSpec, CrashReport, Supervisor, SupervisorSpec, monitor
from bartack.supervision.process.system import read_facts
from bartack.supervision.process.tree import find_by_environment
from bartack.supervision.supervisor._process_host import MARK, ProcessHost
from bartack.telemetry import Telemetry

T = TypeVar("T")
BOUND_S = 60.0
SHAPES = Path(__file__).parents[3] / "crash/shapes.py"
HARD = ("double_fork", "own_session", "ignores_signals", "forks_on_term", "forgets_everything", "multiplies")
AT_ONCE = Backoff(0.0)

linux = pytest.mark.skipif(sys.platform != "linux", reason="the promise is that of Linux")


def parent_pids(host: ProcessHost) -> tuple[int, int]:
    """The processes of the guardian and of the parent program."""
    assert host._client is not None
    return host._client.pid, host._client.program_pid


def play(scene: Callable[[], Awaitable[T]]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(BOUND_S):
            return await scene()

    return asyncio.run(bounded())


async def forever() -> None:
    await asyncio.Event().wait()


def task(name: str, start: Any = forever, **options: Any) -> ChildSpec:
    return ChildSpec(name, start, **options)


def python(name: str, code: str, **options: Any) -> ChildSpec:
    return ChildSpec(name, [sys.executable, "-I", "-S", "-c", code], **options)


def top(*children: ChildSpec, **options: Any) -> Supervisor:
    return Supervisor(SupervisorSpec(children=children), name="top", **options)


def is_alive(pid: int) -> bool:
    facts = read_facts(pid)
    return facts is not None and not facts.dead


def states(supervisor: Supervisor) -> dict[str, str]:
    return {info.name: info.state for info in supervisor.which_children()}


def marked(supervisor: Supervisor) -> list[int]:
    host = supervisor._host
    assert isinstance(host, ProcessHost)
    return [facts.pid for facts in find_by_environment(MARK, host.marks()[MARK])]


# -- tasks ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("children-start-in-order")
def test_tasks_start_in_order_and_stop_in_reverse() -> None:
    events: list[str] = []

    def named(name: str) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            events.append(f"+{name}")
            try:
                await forever()
            finally:
                events.append(f"-{name}")

        return run

    async def scene() -> None:
        async def is_up() -> bool:
            return f"+{names[-1]}" in events

        names = ["a", "b", "c"]
        async with top(*(task(name, named(name)) for name in names[:-1]), task("c", named("c"), ready=is_up)):
            assert events == ["+a", "+b", "+c"]

    play(scene)

    assert events == ["+a", "+b", "+c", "-c", "-b", "-a"]


def test_a_task_that_raises_is_started_again_and_reported() -> None:
    reports: list[CrashReport] = []
    lives: list[int] = []
    alive = asyncio.Event()

    async def fragile() -> None:
        lives.append(1)
        if len(lives) < 3:
            raise ValueError("not yet")
        alive.set()
        await forever()

    async def scene() -> None:
        async with top(task("a", fragile, backoff=AT_ONCE), on_crash=reports.append) as supervisor:
            await alive.wait()
            assert supervisor.which_children()[0].incarnation == 3
            assert list(supervisor.reports) == reports

    play(scene)

    assert [report.reason for report in reports] == ["error", "error"]
    assert reports[0].exception == "ValueError: not yet"
    assert re.fullmatch(r".*test_supervisor\.py:\d+ in fragile", reports[0].stack[-1])
    assert reports[0].path == "top/a"


@pytest.mark.requirement("crash-reports-are-complete")
@pytest.mark.parametrize(
    ("code", "reason"), [(3, "exit:3"), ("bad luck", "exit:1"), (True, "exit:1"), (0, ""), (None, "")]
)
def test_a_task_that_wants_to_end_the_program_ends_only_itself(code: int | str | None, reason: str) -> None:
    async def leaving() -> None:
        await asyncio.sleep(0)
        sys.exit(code)

    async def scene() -> list[CrashReport]:
        async with top(task("a", leaving, restart="temporary"), task("b")) as supervisor:
            async with monitor(supervisor.child("a")) as watch:
                await watch.down(BOUND_S)
            assert states(supervisor) == {"a": "ended", "b": "running"}
            return list(supervisor.reports)

    reports = play(scene)

    assert [report.reason for report in reports] == ([reason] if reason else [])
    for report in reports:
        assert report.exception == f"SystemExit: {code}"
        assert re.fullmatch(r".*test_supervisor\.py:\d+ in leaving", report.stack[-1])


@pytest.mark.requirement("too-many-restarts-escalate")
def test_a_supervisor_that_gives_up_cancels_its_block_and_raises() -> None:
    seen: list[str] = []

    async def broken() -> None:
        raise ValueError("always")

    async def scene() -> None:
        async with top(task("good"), task("bad", broken, backoff=AT_ONCE)):
            try:
                await forever()
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

    with pytest.raises(SupervisorExhaustedError) as caught:
        play(scene)

    assert seen == ["cancelled"]
    assert (caught.value.supervisor, caught.value.child) == ("top", "bad")


def test_an_error_of_the_block_continues_after_all_children_have_stopped() -> None:
    stopped: list[bool] = []

    async def child() -> None:
        try:
            await forever()
        finally:
            stopped.append(True)

    async def scene() -> None:
        async with top(task("a", child)):
            await asyncio.sleep(0)
            raise KeyError("mine")

    with pytest.raises(KeyError):
        play(scene)

    assert stopped == [True]


def test_a_block_that_is_cancelled_stops_its_children_and_stays_cancelled() -> None:
    async def scene() -> list[str]:
        entered = asyncio.Event()
        supervisor = top(task("a"), task("b"))

        async def block() -> None:
            async with supervisor:
                entered.set()
                await supervisor.wait()

        async with asyncio.TaskGroup() as group:
            running = group.create_task(block())
            await entered.wait()
            running.cancel()
        assert running.cancelled()
        return list(states(supervisor).values())

    assert play(scene) == ["stopped", "stopped"]


def test_an_error_of_the_block_is_not_lost_when_the_supervisor_gives_up_as_well() -> None:
    async def broken() -> None:
        raise ValueError("always")

    async def scene() -> None:
        supervisor = top(task("bad", broken, backoff=AT_ONCE))
        async with supervisor:
            try:
                await forever()
            except asyncio.CancelledError:
                raise KeyError("mine") from None

    with pytest.raises(KeyError) as caught:
        play(scene)

    assert "gave up" in caught.value.__notes__[0]


def test_a_child_that_does_not_start_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async def never() -> bool:
        raise RuntimeError("cannot know")

    async def scene() -> None:
        async with top(task("a"), task("b", ready=never)):
            raise AssertionError("not reached")

    with caplog.at_level(logging.CRITICAL), pytest.raises(ChildStartError) as caught:
        play(scene)

    assert (caught.value.child, caught.value.problem) == ("top/b", "RuntimeError: cannot know")


def test_an_async_function_that_cannot_be_called_is_a_child_that_does_not_start() -> None:
    async def needs_more(_: int) -> None: ...

    async def scene() -> None:
        async with top(task("a"), task("b", needs_more)):
            raise AssertionError("not reached")

    with pytest.raises(ChildStartError, match="missing 1 required positional argument"):
        play(scene)


def test_a_process_for_which_there_are_no_descriptors_left_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> tuple[int, int]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def scene() -> None:
        monkeypatch.setattr(os, "pipe", refuse)
        async with top(task("a"), python("b", "")):
            raise AssertionError("not reached")

    with pytest.raises(ChildStartError, match=os.strerror(errno.EMFILE)):
        play(scene)


def test_a_listener_that_raises_harms_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def once() -> None:
        raise ValueError("once")

    def listen(report: CrashReport) -> None:
        raise KeyError(report.child)

    async def scene() -> dict[str, str]:
        spec = task("a", once, restart="temporary")
        async with top(spec, task("b"), on_crash=listen) as supervisor:
            async with monitor(supervisor.child("a")) as watch:
                await watch.down(BOUND_S)
            return states(supervisor)

    assert play(scene) == {"a": "ended", "b": "running"}
    assert "top: on_crash raised" in caplog.text


def test_a_block_that_others_cancel_as_well_stays_cancelled() -> None:
    async def broken() -> None:
        raise ValueError("always")

    async def scene() -> bool:
        async def block() -> None:
            async with top(task("bad", broken, backoff=AT_ONCE)):
                try:
                    await forever()
                except asyncio.CancelledError:
                    running.cancel()
                    raise

        async with asyncio.TaskGroup() as group:
            running = group.create_task(block())
        return running.cancelled()

    assert play(scene)


def test_a_child_that_is_never_ready_is_given_up_in_time() -> None:
    async def never() -> bool:
        return False

    async def scene() -> None:
        async with top(task("a", ready=never, start_timeout=0.05)):
            raise AssertionError("not reached")

    with pytest.raises(ChildStartError) as caught:
        play(scene)

    assert caught.value.reason == "start_timeout"


@pytest.mark.parametrize("shutdown", [0.05, "kill"])
def test_a_task_that_ignores_its_cancellation_does_not_hold_the_others_up(
    caplog: pytest.LogCaptureFixture, shutdown: float | str
) -> None:
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async def scene() -> None:
        async with top(task("a"), task("b", stubborn, shutdown=shutdown)) as supervisor:
            await asyncio.sleep(0)
        assert states(supervisor) == {"a": "stopped", "b": "stopped"}
        release.set()

    play(scene)

    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert re.search(
        r"top/b ignores its cancellation.*test_supervisor\.py:\d+ in stubborn", record.getMessage()
    )


# -- dynamic --------------------------------------------------------------------------------------------------------


def test_children_can_be_added_and_taken_away_while_it_runs() -> None:
    async def scene() -> None:
        async with top(task("a")) as supervisor:
            await supervisor.start_child(task("b"))
            await supervisor.terminate_child("a")
            assert states(supervisor) == {"a": "stopped", "b": "running"}
            assert supervisor.count_children() == (2, 1, 2, 0, 0)
            await supervisor.restart_child("a")
            await supervisor.terminate_child("b")
            await supervisor.delete_child("b")
            assert states(supervisor) == {"a": "running"}

    play(scene)


@pytest.mark.parametrize(
    ("order", "what", "error"),
    [
        ("start", task("a"), ChildSpecError),
        ("terminate", "nobody", ChildNotFoundError),
        ("restart", "a", ChildStateError),
        ("delete", "a", ChildStateError),
        ("start", ChildSpec("c", ["no-such-program-here"]), ChildStartError),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(
    order: str, what: str | ChildSpec, error: type[Exception]
) -> None:
    async def scene() -> dict[str, str]:
        async with top(task("a")) as supervisor:
            with pytest.raises(error):
                await getattr(supervisor, f"{order}_child")(what)
            return states(supervisor)

    assert play(scene) == {"a": "running"}


def test_a_supervisor_takes_no_orders_outside_its_block() -> None:
    async def scene() -> None:
        supervisor = top(task("a"))
        with pytest.raises(SupervisorNotRunningError):
            await supervisor.terminate_child("a")
        with pytest.raises(SupervisorNotRunningError):
            supervisor.which_children()
        with pytest.raises(SupervisorNotRunningError):
            await supervisor.wait()
        async with supervisor:
            await asyncio.sleep(0)
        with pytest.raises(SupervisorNotRunningError):
            await supervisor.terminate_child("a")
        with pytest.raises(SupervisorNotRunningError):
            await supervisor.__aenter__()

    play(scene)


# -- nested ---------------------------------------------------------------------------------------------------------


def test_a_supervisor_below_that_gives_up_is_started_again_by_the_one_above() -> None:
    lives: list[int] = []
    settled = asyncio.Event()

    async def fragile() -> None:
        lives.append(1)
        if len(lives) <= 2:
            raise ValueError("again")
        settled.set()
        await forever()

    async def scene() -> list[tuple[str, str, str]]:
        inner = SupervisorSpec(children=(task("leaf", fragile, backoff=AT_ONCE),), max_restarts=1)
        async with top(ChildSpec("inner", inner, backoff=AT_ONCE), task("beside")) as supervisor:
            await settled.wait()
            assert states(supervisor) == {"inner": "running", "beside": "running"}
            assert supervisor.count_children().supervisors == 1
            return [(report.path, report.reason, report.decision) for report in supervisor.reports]

    assert play(scene) == [
        ("top/inner/leaf", "error", "restart"),
        ("top/inner/leaf", "error", "escalate"),
        ("top/inner", "intensity_exceeded", "restart"),
    ]


def test_a_supervisor_below_stops_its_children_in_reverse_before_those_before_it() -> None:
    events: list[str] = []

    def named(name: str) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            try:
                await forever()
            finally:
                events.append(name)

        return run

    async def scene() -> None:
        inner = SupervisorSpec(children=(task("b", named("b")), task("c", named("c"))))
        async with top(task("a", named("a")), ChildSpec("inner", inner), task("d", named("d"))):
            await asyncio.sleep(0)

    play(scene)

    assert events == ["d", "c", "b", "a"]


def test_a_supervisor_below_that_does_not_start_stops_everything() -> None:
    async def scene() -> None:
        inner = SupervisorSpec(children=(ChildSpec("c", ["no-such-program-here"]),))
        async with top(task("a"), ChildSpec("inner", inner)):
            raise AssertionError("not reached")

    with pytest.raises(ChildStartError) as caught:
        play(scene)

    assert caught.value.child == "top/inner"
    assert "top/inner/c" in caught.value.problem


# -- processes ------------------------------------------------------------------------------------------------------


def crash(*children: ChildSpec) -> list[CrashReport]:
    """Run children that end by themselves; the reports of those that ended abnormally."""

    async def scene() -> list[CrashReport]:
        async with top(*children) as supervisor:
            for spec in children:
                async with monitor(supervisor.child(spec.name)) as watch:
                    await watch.down(BOUND_S)
            return list(supervisor.reports)

    return play(scene)


@pytest.mark.requirement("crash-reports-are-complete")
def test_how_a_process_ended_is_read_from_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", "hunter2-hunter2")
    kill = "import os, signal; os.kill(os.getpid(), signal.{})"
    reports = crash(
        python("segfault", kill.format("SIGSEGV"), restart="temporary"),
        python("killed", kill.format("SIGKILL"), restart="temporary"),
        python(
            "three",
            "import os, sys; sys.stderr.write('x' * 9000 + os.environ['MY_SECRET']); sys.exit(3)",
            restart="temporary",
        ),
        python("allowed", "import sys; sys.exit(4)", restart="temporary", normal_codes=frozenset({0, 4})),
        python("fine", "", restart="transient"),
    )

    found = {report.child: report for report in reports}
    assert {name: report.reason for name, report in found.items()} == {
        "segfault": "signal:SIGSEGV",
        "killed": "signal:SIGKILL",
        "three": "exit:3",
    }
    assert found["three"].stderr_tail.endswith("x$env:MY_SECRET")
    assert len(found["three"].stderr_tail) <= 4096
    assert found["three"].peak_memory_bytes > 1_000_000
    assert all(report.pid for report in reports)


def remark() -> None:
    """Runs in a process of its own."""
    sys.stdout.write(f"{os.environ['COLOUR']} {os.getcwd()}\n")
    if os.environ["COLOUR"] == "red":
        raise ValueError("on purpose")


def test_a_function_runs_in_a_process_of_its_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    places = {"restart": "temporary", "cwd": tmp_path}
    (report,) = crash(
        ChildSpec("red", remark, env={"COLOUR": "red"}, **places),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - a dictionary of options
        ChildSpec("blue", remark, env={"COLOUR": "blue"}, **places),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - a dictionary of options
    )

    assert (report.child, report.reason) == ("red", "exit:1")
    assert report.stderr_tail.endswith("ValueError: on purpose\n")
    lines = [record.getMessage() for record in caplog.records]
    assert f"top/blue: blue {tmp_path}" in lines
    assert f"top/red: red {tmp_path}" in lines


PROGRAM = """
import asyncio, os
from bartack.supervision import ChildSpec, Supervisor, SupervisorSpec, monitor

def child():
    os.write(1, b"child\\n")

async def main():
    spec = SupervisorSpec(children=(ChildSpec("c", child, restart="transient", stdio="inherit"),))
    async with Supervisor(spec) as top, monitor(top.child("c")) as watch:
        await watch.down(20)

if __name__ == "__main__":
    asyncio.run(main())
    os.write(1, b"done\\n")
"""


@pytest.mark.parametrize("as_module", [False, True])
def test_a_function_of_the_main_program_runs_in_a_process_of_its_own(
    tmp_path: Path, *, as_module: bool
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    how = ["-m", "program"] if as_module else ["program.py"]

    done = subprocess.run(
        [sys.executable, *how], cwd=tmp_path, capture_output=True, text=True, timeout=BOUND_S, check=False
    )

    assert (done.stdout, done.stderr, done.returncode) == ("child\ndone\n", "", 0)


def test_a_process_is_ready_by_its_line_and_a_silent_one_too_late() -> None:
    async def scene() -> None:
        ready = python(
            "a", "print('port 8080', flush=True); input()", ready=r"line:^port \d+$", shutdown="kill"
        )
        async with top(ready, python("b", "", restart="temporary")) as supervisor:
            await supervisor.terminate_child("a")
            late = python("c", "import time; time.sleep(60)", ready="line:never", start_timeout=0.2)
            with pytest.raises(ChildStartError) as caught:
                await supervisor.start_child(late)
            assert caught.value.reason == "start_timeout"

    play(scene)


def test_a_process_that_is_asked_for_its_readiness_in_vain_does_not_stay() -> None:
    async def broken() -> bool:
        raise OSError("no answer")

    async def scene() -> list[int]:
        async with top() as supervisor:
            with pytest.raises(ChildStartError, match="no answer"):
                await supervisor.start_child(python("c", "import time; time.sleep(60)", ready=broken))
            host = supervisor._host
            assert host is not None
            return [pid for pid in marked(supervisor) if pid not in parent_pids(host)]

    assert play(scene) == []


@linux
@pytest.mark.parametrize("shape", HARD)
@pytest.mark.requirement("nothing-of-a-child-is-left")
def test_a_stopped_process_leaves_nothing_of_its_tree(shape: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    command = [sys.executable, "-I", "-S", str(SHAPES), shape]

    async def scene() -> None:
        async with top(ChildSpec("hard", command, ready=r"line:^\d+$", shutdown=0.05)):
            await asyncio.sleep(0)

    play(scene)

    said = [record.getMessage() for record in caplog.records]
    pids = [int(found[1]) for line in said if (found := re.fullmatch(r"top/hard: (\d+)", line))]
    assert pids
    assert [pid for pid in pids if is_alive(pid)] == []


@linux
def test_what_a_process_leaves_running_is_killed_and_reported() -> None:
    telemetry = Telemetry()
    received: list[dict[str, object]] = []

    def note(
        name: str, measurements: Mapping[str, int], metadata: Mapping[str, object], _config: object
    ) -> None:
        received.append({**measurements, **metadata})

    telemetry.attach("test", "process.orphan_killed", note)
    command = [sys.executable, "-I", "-S", str(SHAPES), "leaves_daemon"]

    async def scene() -> None:
        spec = ChildSpec("daemon", command, restart="temporary")
        async with (
            top(spec, telemetry=telemetry) as supervisor,
            monitor(supervisor.child("daemon")) as watch,
        ):
            await watch.down(BOUND_S)

    play(scene)

    assert [(event["count"], event["worker"]) for event in received] == [(1, "top/daemon")]


@linux
def test_the_death_of_the_parent_program_is_not_counted_until_it_happens_too_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # On a busy machine it takes seconds until all children run again.
    monkeypatch.setattr("bartack.supervision.supervisor._process_host.PARENT_SECONDS", 600.0)
    telemetry = Telemetry()
    starts: asyncio.Queue[tuple[object, object]] = asyncio.Queue()

    def note(
        name: str, measurements: Mapping[str, int], metadata: Mapping[str, object], _config: object
    ) -> None:
        starts.put_nowait((metadata["child"], metadata["incarnation"]))

    telemetry.attach("test", "supervisor.child_started", note)

    async def started(*expected: tuple[str, int]) -> None:
        assert sorted([await starts.get() for _ in expected], key=str) == sorted(expected, key=str)

    async def scene() -> list[int]:
        slow = "import time; print('up', flush=True); time.sleep(60)"
        children = [python(name, slow, ready="line:up", backoff=AT_ONCE) for name in ("a", "b")]
        async with top(*children, task("c"), telemetry=telemetry) as supervisor:
            await started(("a", 1), ("b", 1), ("c", 1))
            host = supervisor._host
            assert host is not None
            for incarnation in range(2, 6):
                os.kill(parent_pids(host)[incarnation % 2], signal.SIGKILL)
                await started(("a", incarnation), ("b", incarnation))
            return [report.restarts_in_window for report in supervisor.reports]

    assert play(scene) == [0, 0, 0, 0, 0, 0, 1, 2]


OWNER = """
import asyncio, os, sys
from bartack.supervision import ChildSpec, Supervisor, SupervisorSpec

async def main():
    children = [
        ChildSpec(shape, [sys.executable, "-I", "-S", sys.argv[1], shape], stdio="inherit") for shape in sys.argv[2:]
    ]
    async with Supervisor(SupervisorSpec(children=children)):
        os.write(1, b"ready\\n")
        await asyncio.Event().wait()

if __name__ == "__main__":
    asyncio.run(main())
"""


@linux
@pytest.mark.requirement("nothing-outlives-its-owner")
def test_nothing_is_left_100_ms_after_the_owner_itself_was_killed(tmp_path: Path) -> None:
    program = tmp_path / "owner.py"
    program.write_text(OWNER)

    def kill_owner() -> Findings:
        command = [sys.executable, *under_warden(tmp_path, str(program), str(SHAPES), *HARD)]
        warden = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert warden.stdout is not None
        for _ in range(len(HARD) + 1):
            assert warden.stdout.readline(), "the owner ended by itself"
        warden.terminate()
        rest, _ = warden.communicate(timeout=BOUND_S)
        pids = [int(line) for line in rest.split() if line.isdigit()]
        assert [pid for pid in pids if is_alive(pid)] == []
        return read_findings(tmp_path)

    check_soon(kill_owner)
