"""What the journal tells of processes that died, and what becomes of a run whose parent programs die again and again."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.crash.runs import Begin, RealRun, kill, wait_until

from bartack.journal import Entry
from bartack.runtime.hub.parents import PARENT_RESTARTS
from bartack.runtime.state.entries import FailureRecorded, WorkerCrashed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the bounds are those of Linux")


TICK_S = 0.01
"""How exactly the system tells when a process began."""


def find(run: RealRun, kind: str) -> Entry:
    return next(entry for entry in run.entries() if entry.kind == kind)


def reports(run: RealRun) -> list[WorkerCrashed]:
    return [entry.decode(WorkerCrashed) for entry in run.entries() if entry.kind == "worker.crashed"]


@pytest.mark.requirement("crashes-are-reported")
def test_the_crash_of_a_worker_is_reported_with_all_that_is_known_of_it(begin: Begin) -> None:
    run = begin("aborting")
    run.start(env={"SOME_SECRET": "hunter2hunter2"})

    assert run.wait_hub() == 0, run.story()
    (report,) = reports(run)
    assert (report.path, report.incarnation, report.reason) == ("aborting", 1, "signal:SIGABRT")
    assert (report.p, report.n, report.last_step) == ("aborting", 3, "aborting:3 body")
    assert report.last_message == next(
        entry.data["id"] for entry in run.entries() if entry.kind == "message.sent"
    )
    assert report.pid > 0
    started, crashed = (find(run, kind).at for kind in ("hub.started", "worker.crashed"))
    assert 0 < report.uptime_s <= (crashed - started) / 1e6 + TICK_S
    assert report.peak_memory_bytes > 5_000_000
    assert (report.restarts, report.decision) == (1, "restart")
    assert report.next_start > 0
    assert report.stderr_tail.startswith("the key is $env:SOME_SECRET\n")
    assert "in crash_in_c" in report.stderr_tail, "the interpreter says where it was"
    assert "the key is $env:SOME_SECRET\n" in run.run.log.read_text()


def kill_too_often(run: RealRun, victim: str) -> None:
    """Kill a parent program, and its successors, once more than is borne."""
    seen = {0}
    for _ in range(PARENT_RESTARTS[0] + 1):
        parts = run.wait_parts(lambda parts: getattr(parts, victim) not in seen)
        seen.add(getattr(parts, victim))
        kill(getattr(parts, victim))


def error_of(run: RealRun) -> tuple[str, object]:
    failed = find(run, "session.failed").decode(FailureRecorded)
    return failed.error.type.rpartition(":")[2], failed.error.facts["child"]


@pytest.mark.requirement("parents-are-bounded")
def test_a_parent_of_workers_that_dies_again_and_again_fails_the_session_which_can_be_resumed(
    begin: Begin,
) -> None:
    run = begin("waiting")
    run.start_doomed("unforgiving:hub")
    kill_too_often(run, "zygote")

    assert run.wait_hub() == 1, run.story()
    assert error_of(run) == ("SupervisorExhaustedError", "parent of workers")
    assert run.count("worker.crashed") == 0, "the workers are not to blame"
    run.wait_nothing_left()
    run.start()
    run.wait_entry(lambda entry: entry.kind == "hub.started" and entry.data["hub"] == 2)
    run.wait_parts(lambda parts: bool(parts.workers))
    run.api.send("go", "at last")
    assert run.wait_hub() == 0, run.story()
    assert run.api.result() == "at last"


@pytest.mark.requirement("parents-are-bounded")
def test_a_parent_of_commands_that_dies_again_and_again_fails_the_session(begin: Begin) -> None:
    run = begin("commanding")
    run.start_doomed("unforgiving:hub")
    run.wait_effects(1)
    kill_too_often(run, "keeper")

    assert run.wait_hub() == 1, run.story()
    assert error_of(run) == ("SupervisorExhaustedError", "parent of commands")
    assert run.count("worker.crashed") == 0
    run.wait_nothing_left()


def test_what_a_worker_leaves_behind_is_ended_and_named(begin: Begin) -> None:
    run = begin("littering")
    run.start()

    wait_until(lambda: "left sleep running; it was terminated" in run.run.log.read_text())

    run.api.send("go", None)
    assert run.wait_hub() == 0, run.story()


def test_the_limits_of_the_project_hold_for_the_bodies_of_steps_too(begin: Begin, tmp_path: Path) -> None:
    (tmp_path / "bartack.toml").write_text("[timeouts]\nstep = 0.05\n")
    run = begin("dawdling")

    assert run.finish() == 0, run.story()
    assert run.api.result() == "0.05"
