"""``bartack schedule``: what is refused, what is listed, and what a real node makes of it."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bartack.depot import FileDepot, Schedule, Verdict, user_depot
from bartack.node._launch import Launcher, StartOutcome
from bartack.node._schedules import find_schedule, start_key

Result = subprocess.CompletedProcess[str]
Call = Callable[..., Result]
WAIT_S = 120.0
PROGRAM = """
from bartack import Context, worker

@worker
async def main(ctx: Context) -> str:
    return "done"
"""


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with a program, and a user without schedules."""
    for name in ("CI", "TZ"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    place = tmp_path / "work space"
    place.mkdir()
    (place / "night.py").write_text(PROGRAM)
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def depot() -> Iterator[FileDepot]:
    found = user_depot()
    yield found
    node = found.seated()
    if node is not None:
        os.kill(node.pid, signal.SIGKILL)


def nightly(workspace: Path | str, **given: object) -> Schedule:
    facts = {"name": "nightly", "cron": "0 3 * * *", "zone": "UTC", "words": ("night.py",), **given}
    return Schedule(**{"workspace": str(workspace), "next_us": 1, **facts})  # type: ignore[arg-type]  # - the types fit


def wait_until(depot: FileDepot, holds: Callable[[], bool]) -> None:
    """Wait for a change of the depot after which something holds."""
    limit = time.monotonic() + WAIT_S
    with depot.watch() as watch:
        while not holds():
            assert time.monotonic() < limit, [depot.schedules(), depot.standings()]
            watch.wait(0.5)


@pytest.mark.requirement("schedule-is-checked")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["61 * * * *", "--", "night.py"], "is not a time: bad minute"),
        (["often", "--", "night.py"], "does not have five fields"),
        (["0 0 30 2 *", "--", "night.py"], "'0 0 30 2 *' never comes"),
        (["0 3 * * *", "--zone", "Mars/Base", "--", "night.py"], "there is no time zone 'Mars/Base'"),
        (["0 3 * * *", "--name", "a/b", "--", "night.py"], "a name has letters, digits"),
        (["0 3 * * *", "--name", "../up", "--", "night.py"], "a name has letters, digits"),
        (["0 3 * * *", "--name", "", "--", "night.py"], "a name has letters, digits"),
        (["0 3 * * *", "--missed", "twice", "--", "night.py"], "'twice'"),
        (["0 3 * * *", "-C", "nowhere", "--", "night.py"], "nowhere does not exist"),
        (["0 3 * * *", "--", "gone.py"], "there is no such file"),
        (["0 3 * * *"], "there are no tasks"),
        (["0 3 * * *", "--", "--task", "x"], "x"),
        (["0 3 * * *", "--", "night.py", "--bogus"], "no such option '--bogus'"),
        (["0 3 * * *", "--", "--goal", "-"], "no standard input"),
        (["0 3 * * *", "--", "night.py", "--start-key", "ab"], "are for the node"),
        (["0 3 * * *", "--goal", "x"], "no such option '--goal'"),
    ],
)
def test_a_schedule_that_cannot_work_is_refused_when_it_is_added(
    call: Call, words: list[str], message: str
) -> None:
    done = call("schedule", "add", *words)

    assert done.returncode in {2, 7}
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert user_depot().schedules() == []
    assert user_depot().seated() is None


def test_a_name_that_is_taken_is_refused_and_the_schedule_stays(call: Call, workspace: Path) -> None:
    user_depot().put_schedule(nightly(workspace))

    done = call("schedule", "add", "0 4 * * *", "--name", "nightly", "--", "night.py")

    assert done.returncode == 2
    assert "there is a schedule of this name" in done.stderr
    assert user_depot().schedules() == [nightly(workspace)]


def test_schedules_are_listed_with_their_times_and_problems(call: Call, workspace: Path) -> None:
    assert "There are no schedules" in call("schedule", "list").stdout
    late = 4_000_000_000_000_000  # 2096-10-02 07:06:40 UTC
    user_depot().put_schedule(nightly(workspace, next_us=late, zone="Europe/Berlin", missed="skip"))
    user_depot().put_schedule(nightly("/nowhere", name="gone", last_run="run-1", last_us=late))
    user_depot().put_schedule(nightly(workspace, name="odd", problem="it \x1b[31mfailed", zone="Mars/Base"))

    shown = call("schedule", "list").stdout

    assert "2096-10-02 09:06 Europe/Berlin" in shown
    assert "0 3 * * *; skips missed times" in shown
    assert "one run for missed times" in shown
    assert "its workspace /nowhere is gone" in shown
    assert "run-1, 2096-10-02 07:06" in shown
    assert "it \\x1b[31mfailed" in shown
    assert "No node is running" in shown


def test_the_list_for_programs_has_no_variables_of_the_environment(call: Call, workspace: Path) -> None:
    user_depot().put_schedule(nightly(workspace, environ={"HOME": "/ann"}))

    (listed,) = json.loads(call("schedule", "list", "--json").stdout)

    assert listed == {
        "name": "nightly",
        "cron": "0 3 * * *",
        "zone": "UTC",
        "workspace": str(workspace),
        "run_args": ["night.py"],
        "missed": "once",
        "next_us": 1,
        "last_us": 0,
        "last_run": "",
        "problem": "",
    }


def test_a_schedule_is_removed_once(call: Call, workspace: Path) -> None:
    user_depot().put_schedule(nightly(workspace))

    assert call("schedule", "remove", "nightly").returncode == 0
    again = call("schedule", "remove", "nightly")

    assert again.returncode == 7
    assert "BT365" in again.stderr
    assert call("schedule", "remove", "../nightly").returncode == 7
    assert call("schedule", "run", "nightly").returncode == 7


def test_a_schedule_whose_workspace_is_gone_is_not_started_now(call: Call, workspace: Path) -> None:
    user_depot().put_schedule(nightly("/nowhere"))

    done = call("schedule", "run", "nightly")

    assert done.returncode == 2
    assert "its workspace /nowhere is gone" in done.stderr


@pytest.mark.requirement("schedule-time-is-used-once")
def test_starts_with_one_key_make_one_run_also_if_one_was_killed_before_it_was_queued(
    workspace: Path, depot: FileDepot
) -> None:
    launch, key = Launcher(os.environ), start_key("nightly", 1)
    first, second = launch(nightly(workspace), key), launch(nightly(workspace), key)
    assert not isinstance(first, StartOutcome)
    assert not isinstance(second, StartOutcome)

    run = first.wait_outcome().run
    assert run.startswith("run-")
    assert second.wait_outcome() == StartOutcome(run=run)
    depot.withdraw(run)  # as a kill between the two steps of the start leaves it
    third = launch(nightly(workspace), key)
    assert not isinstance(third, StartOutcome)
    assert third.wait_outcome() == StartOutcome(run=run)

    (standing,) = depot.standings()
    assert (standing.job.run, standing.job.schedule, standing.state) == (run, "nightly", "queued")
    assert depot.seated() is None  # the start itself needs no node


@pytest.mark.requirement("schedule-time-is-used-once")
def test_a_start_that_is_repeated_late_does_not_queue_a_run_that_is_over(
    workspace: Path, depot: FileDepot
) -> None:
    launch, key = Launcher(os.environ), start_key("nightly", 1)
    first = launch(nightly(workspace), key)
    assert not isinstance(first, StartOutcome)
    run = first.wait_outcome().run
    (claim,) = depot.claim("node", 1, time.time_ns() // 1000)
    depot.release(claim, Verdict(state="over", outcome="completed"), 0)

    again = launch(nightly(workspace), key)
    assert not isinstance(again, StartOutcome)

    assert again.wait_outcome() == StartOutcome(run=run)
    assert [one.state for one in depot.standings()] == ["over"]


@pytest.mark.requirement("schedule-time-is-used-once")
def test_a_start_of_the_pipeline_is_repeatable_too(call: Call, workspace: Path, depot: FileDepot) -> None:
    assert call("init", "--example").returncode == 0
    tasks = nightly(workspace, words=())

    starts = [Launcher(os.environ)(tasks, start_key("nightly", 1)) for _ in range(2)]

    outcomes = {start.wait_outcome() for start in starts if not isinstance(start, StartOutcome)}
    assert [outcome.problem for outcome in outcomes] == [""]
    assert [StartOutcome(run=one.job.run) for one in depot.standings()] == list(outcomes)


def test_a_start_that_fails_reports_the_error_of_the_command(workspace: Path) -> None:
    start = Launcher(os.environ)(nightly(workspace, words=("gone.py",)), "")
    assert not isinstance(start, StartOutcome)

    outcome = start.wait_outcome()

    assert outcome.run == ""
    assert outcome.problem.startswith("BT310: gone.py: there is no such file")


def test_a_start_in_a_directory_that_is_gone_or_that_takes_too_long_is_a_problem(workspace: Path) -> None:
    gone = Launcher(os.environ)(nightly("/nowhere"), "")
    slow = Launcher(os.environ, limit_s=0)(nightly(workspace), "")
    assert not isinstance(slow, StartOutcome)

    assert gone == StartOutcome(problem=f"/nowhere: {os.strerror(errno.ENOENT)}")
    assert slow.outcome() == StartOutcome(problem="its start took longer than 0 s and was terminated")


@pytest.mark.requirement("schedule-starts-runs")
@pytest.mark.requirement("schedule-time-is-used-once")
@pytest.mark.parametrize("killed", ["no node", "a node between its start and its record"])
def test_a_node_starts_what_is_due_once_with_the_variables_of_who_added_it_and_stays(
    workspace: Path, depot: FileDepot, killed: str
) -> None:
    (workspace / "night.py").write_text(
        PROGRAM.replace(
            'return "done"', "import os; open('season', 'w').write(os.environ['SEASON']); return ''"
        )
    )
    depot.put_schedule(nightly(workspace, environ={"SEASON": "winter"}))
    if killed != "no node":
        begun = Launcher(os.environ)(depot.schedules()[0], start_key("nightly", 1))
        assert not isinstance(begun, StartOutcome)
        begun.wait_outcome()
    command = [sys.executable, "-m", "bartack", "node", "run", "--idle", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as node:
        try:
            wait_until(depot, lambda: any(one.state == "over" for one in depot.standings()))
            wait_until(depot, lambda: bool(depot.schedules()[0].last_run))
            assert node.poll() is None
            node.terminate()
            _, said = node.communicate(timeout=WAIT_S)
        finally:
            node.kill()

    (standing,), (schedule,) = depot.standings(), depot.schedules()
    assert node.returncode == 0, said
    assert standing.outcome == "completed"
    assert standing.job.schedule == "nightly"
    assert schedule.last_run == standing.job.run
    assert schedule.problem == ""
    assert schedule.next_us > time.time() * 1e6
    assert f"schedule nightly: {standing.job.run} is queued" in said
    assert (workspace / "season").read_text() == "winter"


@pytest.mark.requirement("schedule-starts-runs")
def test_a_schedule_is_added_with_a_node_and_started_now_and_removed(
    call: Call, workspace: Path, depot: FileDepot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    monkeypatch.setenv("DB_PASSWORD", "hunter2")
    monkeypatch.setenv("SEASON", "winter")

    added = call("schedule", "add", "0 3 * * *", "--", "night.py")
    assert added.returncode == 0, added.stderr
    assert "schedule night: the next run starts at " in added.stderr
    schedule = find_schedule(depot, "night")
    assert schedule is not None
    assert (schedule.zone, schedule.missed, schedule.words) == ("Europe/Berlin", "once", ("night.py",))
    assert schedule.environ["SEASON"] == "winter"
    file = depot.directory / "schedules/night.json"
    assert b"hunter2" not in file.read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert depot.seated() is not None

    started = json.loads(call("schedule", "run", "night", "--json").stdout)
    wait_until(depot, lambda: depot.standings()[0].state == "over")
    assert started == {"schedule": "night", "run": depot.standings()[0].job.run}
    assert f"schedule {'night'}" in call("queue", "list", "--all").stdout
    assert call("schedule", "remove", "night").returncode == 0
    assert call("node", "stop").returncode == 0
