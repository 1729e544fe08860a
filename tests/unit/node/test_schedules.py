"""The schedules of a node, with starts that are not processes: what is due, what is used up, and what a kill leaves."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from bartack.core.clock import SystemClock
from bartack.depot import Claim, Job, MemoryDepot, Missed, Schedule, Verdict
from bartack.errors import ScheduleError, ScheduleNotFoundError
from bartack.journal import open_journal
from bartack.node import Node, RealHubs, new_node
from bartack.node._launch import Start, StartOutcome
from bartack.node._schedules import POLL_US, STUCK_US, Schedules, start_key, start_now
from bartack.runtime.state import entries as e


def at(hour: int, minute: int = 0, day: int = 1) -> int:
    return int(datetime(2026, 6, day, hour, minute, tzinfo=UTC).timestamp()) * 1_000_000


class FakeStart:
    """A start that ends when the test says so."""

    def __init__(self) -> None:
        self.result: StartOutcome | None = None
        self.killed = False

    def outcome(self) -> StartOutcome | None:
        return self.result

    def wait_outcome(self) -> StartOutcome:
        assert self.result is not None
        return self.result

    def kill(self) -> None:
        self.killed = True


class Runs:
    """Makes runs as 'bartack run --detach' does: a start that is repeated finds its run by its key.

    Attributes:
        asked: The keys of all starts.
        made: The keys of the runs that exist.
        ends: What becomes of a start: ``queued``, ``hangs``, ``made`` (it makes the run and hangs), or a problem.
    """

    def __init__(self, depot: MemoryDepot, place: Path) -> None:
        self.depot = depot
        self.place = place
        self.asked: list[str] = []
        self.made: dict[str, str] = {}
        self.starts: list[FakeStart] = []
        self.ends = "queued"

    def __call__(self, schedule: Schedule, key: str) -> Start | StartOutcome:
        self.asked.append(key)
        start = FakeStart()
        self.starts.append(start)
        if self.ends == "hangs":
            return start
        if self.ends not in {"queued", "made"}:
            return StartOutcome(problem=self.ends)
        run = self.made.get(key) or self._make(key)
        if self.depot.find(run) is None:
            job = Job(
                run=run, path=str(self.place / run), workspace=schedule.workspace, schedule=schedule.name
            )
            self.depot.submit(job, 0)
        if self.ends == "queued":
            start.result = StartOutcome(run=run)
        return start

    def _make(self, key: str) -> str:
        run = f"run-{len(self.made) + 1}"
        self.made[key] = run
        path = self.place / run
        path.mkdir()
        created = e.RunCreated(
            run=run, worker="main", name="main", program="p", workspace="w", root="r", seed=1, start_key=key
        )
        open_journal(path, first=[(e.draft(created),)]).close()
        return run

    def release(self, claim: Claim) -> None:
        assert self.depot.release(claim, Verdict(state="over", outcome="completed"), 0)


class Bench:
    """A depot with one schedule, at three every night, and a node that looks when the test says so."""

    def __init__(self, place: Path) -> None:
        self.said: list[str] = []
        self.depot = MemoryDepot()
        self.runs = Runs(self.depot, place)
        self.workspace = place / "workspace"
        self.workspace.mkdir()
        self.new_node()

    def new_node(self) -> None:
        """The node is killed, and the next one takes its place."""
        self.look = Schedules(self.depot, self.runs, self.said.append)

    def add(self, missed: Missed = "once", name: str = "nightly", zone: str = "UTC") -> None:
        self.depot.put_schedule(
            Schedule(
                name=name,
                cron="0 3 * * *",
                zone=zone,
                workspace=str(self.workspace),
                words=("night.pw",),
                missed=missed,
                next_us=at(3),
            ),
            replace=True,
        )

    @property
    def schedule(self) -> Schedule:
        (found,) = self.depot.schedules()
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_without_schedules_there_is_nothing_to_wait_for(bench: Bench) -> None:
    assert bench.look(at(3)) is None


def test_a_schedule_is_started_at_its_time_and_not_before(bench: Bench) -> None:
    bench.add()

    assert bench.look(at(2, 59)) == at(3)
    assert bench.runs.asked == []
    assert bench.look(at(3)) == at(3) + POLL_US
    assert bench.look(at(3) + POLL_US) == at(3, day=2)
    assert bench.runs.asked == [start_key("nightly", at(3))]
    assert bench.schedule.last_run == "run-1"
    assert bench.schedule.last_us == at(3)
    assert bench.schedule.next_us == at(3, day=2)
    assert bench.said == ["schedule nightly: run-1 is queued"]


def test_a_start_in_progress_is_not_started_again_and_holds_nothing_up(bench: Bench) -> None:
    bench.add()
    bench.runs.ends = "hangs"
    bench.look(at(3))
    bench.look(at(3, 1))
    assert len(bench.runs.asked) == 1
    assert bench.schedule.next_us == at(3)

    bench.runs.starts[0].result = StartOutcome(run="run-9")
    bench.look(at(3, 2))

    assert bench.schedule.last_run == "run-9"
    assert len(bench.runs.asked) == 1


@pytest.mark.requirement("schedule-time-is-used-once")
@pytest.mark.parametrize("killed_when", ["hangs", "made", "queued"])
def test_a_time_is_used_once_whenever_the_node_is_killed(bench: Bench, killed_when: str) -> None:
    bench.add()
    bench.runs.ends = killed_when
    bench.look(at(3))
    assert bench.schedule.next_us == at(3)
    bench.new_node()

    bench.runs.ends = "queued"
    bench.look(at(3, 1))
    bench.look(at(3, 1) + POLL_US)

    assert list(bench.runs.made.values()) == ["run-1"]
    assert [one.job.run for one in bench.depot.standings()] == ["run-1"]
    assert bench.schedule.last_run == "run-1"
    assert bench.schedule.problem == ""
    assert bench.look(at(4)) == at(3, day=2)
    assert len(bench.runs.made) == 1


@pytest.mark.requirement("schedule-missed-times")
def test_of_times_that_no_node_has_seen_one_is_made_up_for(bench: Bench) -> None:
    bench.add("once")

    bench.look(at(12, day=9))
    bench.look(at(12, day=9) + POLL_US)

    assert len(bench.runs.made) == 1
    assert bench.schedule.next_us == at(3, day=10)


@pytest.mark.requirement("schedule-missed-times")
def test_times_that_no_node_has_seen_are_skipped_if_that_is_wanted(bench: Bench) -> None:
    bench.add("skip")

    assert bench.look(at(12, day=9)) == at(3, day=10)
    assert bench.runs.asked == []
    assert bench.schedule.problem == "2026-06-01 03:00 was skipped: no node was running"

    bench.look(at(3, day=10))
    bench.look(at(3, 1, day=10))
    assert bench.schedule.last_run == "run-1"
    assert bench.schedule.problem == ""


@pytest.mark.requirement("schedule-time-is-used-once")
@pytest.mark.parametrize("when", ["during the start", "after it"])
def test_a_clock_that_is_set_back_makes_no_second_run_of_a_time(bench: Bench, when: str) -> None:
    bench.add()
    bench.look(at(3))
    if when == "after it":
        bench.look(at(3) + POLL_US)
    for hour in (1, 2, 3, 4):
        bench.look(at(hour))
        bench.look(at(hour) + POLL_US)

    assert list(bench.runs.made.values()) == ["run-1"]
    assert bench.schedule.next_us == at(3, day=2)


@pytest.mark.requirement("schedule-missed-times")
def test_a_clock_that_jumps_over_three_nights_makes_one_run(bench: Bench) -> None:
    bench.add()
    bench.look(at(2))
    bench.look(at(12, day=4))
    bench.look(at(12, day=4) + POLL_US)

    assert len(bench.runs.made) == 1
    assert bench.schedule.next_us == at(3, day=5)


def test_a_node_that_is_a_little_late_has_missed_nothing(bench: Bench) -> None:
    bench.add("skip")

    bench.look(at(3, 4))

    assert len(bench.runs.asked) == 1


@pytest.mark.requirement("schedule-runs-do-not-overlap")
def test_a_schedule_whose_last_run_is_not_over_is_skipped_and_says_so(bench: Bench) -> None:
    bench.add()
    bench.look(at(3))
    bench.look(at(3, 1))

    bench.look(at(3, day=2))
    assert bench.schedule.problem == "2026-06-02 03:00 was skipped: run-1 is still queued"
    (claim,) = bench.depot.claim("node", 1, at(4, day=2))
    bench.look(at(3, day=3))
    assert bench.schedule.problem == "2026-06-03 03:00 was skipped: run-1 is still running"
    assert bench.schedule.last_run == "run-1"
    bench.runs.release(claim)
    bench.look(at(3, day=4))
    bench.look(at(3, 1, day=4))

    assert bench.schedule.last_run == "run-2"
    assert bench.schedule.problem == ""
    assert len(bench.runs.asked) == 2


def test_runs_of_other_schedules_do_not_count(bench: Bench) -> None:
    bench.add()
    bench.depot.submit(Job(run="run-x", path="x", workspace="w", schedule="other"), 0)

    bench.look(at(3))

    assert len(bench.runs.asked) == 1


@pytest.mark.requirement("schedule-stays-with-a-problem")
def test_a_schedule_whose_workspace_is_gone_stays_and_works_when_it_is_back(bench: Bench) -> None:
    bench.add()
    bench.workspace.rmdir()

    bench.look(at(3))
    assert bench.runs.asked == []
    assert bench.schedule.problem.endswith(f"its workspace {bench.workspace} is gone")
    assert bench.schedule.next_us == at(3, day=2)
    bench.workspace.mkdir()
    bench.look(at(3, day=2))
    bench.look(at(3, 1, day=2))

    assert bench.schedule.last_run == "run-1"
    assert bench.schedule.problem == ""


@pytest.mark.requirement("schedule-stays-with-a-problem")
def test_a_start_that_fails_is_noted_and_not_repeated_before_the_next_time(bench: Bench) -> None:
    bench.add()
    bench.runs.ends = "BT310: night.pw: there is no such file"

    assert bench.look(at(3)) == at(3, day=2)
    bench.look(at(4))

    assert len(bench.runs.asked) == 1
    assert bench.schedule.problem == "BT310: night.pw: there is no such file"
    assert bench.schedule.last_run == ""


def test_a_zone_that_is_gone_keeps_the_time_until_it_is_back(bench: Bench) -> None:
    bench.add(zone="Mars/Base")

    assert bench.look(at(3)) == at(3) + STUCK_US
    bench.look(at(3, 1))
    assert bench.runs.asked == []
    assert bench.said == ["schedule nightly: there is no time zone 'Mars/Base'"]
    bench.depot.put_schedule(msgspec.structs.replace(bench.schedule, zone="UTC"), replace=True)
    bench.look(at(3, 2))
    bench.look(at(3, 3))

    assert bench.schedule.last_run == "run-1"
    assert bench.schedule.problem == ""


def test_a_schedule_that_was_removed_during_its_start_stays_removed(bench: Bench) -> None:
    bench.add()
    bench.look(at(3))
    bench.depot.remove_schedule("nightly")

    assert bench.look(at(3, 1)) is None
    assert bench.depot.schedules() == []


def test_a_schedule_that_was_replaced_during_its_start_keeps_what_replaced_it(bench: Bench) -> None:
    bench.add()
    bench.look(at(3))
    bench.depot.put_schedule(
        msgspec.structs.replace(bench.schedule, words=("other.pw",), cron="0 5 * * *"), replace=True
    )

    bench.look(at(3, 1))

    assert bench.schedule.words == ("other.pw",)
    assert bench.schedule.next_us == at(5)


def test_a_start_for_an_earlier_time_does_not_use_the_time_of_what_replaced_its_schedule(
    bench: Bench,
) -> None:
    bench.add()
    bench.look(at(3))
    replacement = msgspec.structs.replace(bench.schedule, next_us=at(2, day=2), cron="0 2 * * *")
    bench.depot.put_schedule(replacement, replace=True)

    assert bench.look(at(3, 1)) == at(2, day=2)
    assert bench.schedule == replacement


def test_the_starts_of_a_node_that_stops_are_killed_and_their_times_stay_unused(bench: Bench) -> None:
    bench.add()
    bench.runs.ends = "hangs"
    bench.look(at(3))

    bench.look.close()

    assert bench.runs.starts[0].killed
    assert bench.schedule.next_us == at(3)


def test_a_run_can_be_started_now_and_the_next_time_stays(bench: Bench) -> None:
    bench.add()

    assert start_now(bench.depot, "nightly", bench.runs, at(1)) == StartOutcome(run="run-1")
    assert bench.runs.asked == [""]
    assert (bench.schedule.last_run, bench.schedule.last_us) == ("run-1", at(1))
    assert bench.schedule.next_us == at(3)


@pytest.mark.requirement("schedule-runs-do-not-overlap")
def test_a_run_is_not_started_now_while_one_is_queued(bench: Bench) -> None:
    bench.add()
    start_now(bench.depot, "nightly", bench.runs, at(1))

    with pytest.raises(ScheduleError, match="run-1 is still queued"):
        start_now(bench.depot, "nightly", bench.runs, at(1))
    with pytest.raises(ScheduleNotFoundError):
        start_now(bench.depot, "gone", bench.runs, at(1))


def test_a_start_now_that_fails_is_an_error(bench: Bench) -> None:
    bench.add()
    bench.runs.ends = "BT310: no"

    with pytest.raises(ScheduleError, match="BT310: no"):
        start_now(bench.depot, "nightly", bench.runs, at(1))
    assert bench.schedule.last_run == ""


def test_a_schedule_that_is_added_while_a_node_leaves_keeps_it() -> None:
    class LateDepot(MemoryDepot):
        def leave_seat(self) -> None:
            super().leave_seat()
            late = Schedule(name="late", cron="0 3 * * *", zone="UTC", workspace="w", words=())
            self.put_schedule(late, replace=True)

    depot, looks = LateDepot(), list[bool]()

    def look(now_us: int) -> None:
        looks.append(bool(depot.schedules()))
        if depot.schedules():
            node.stop()

    node = Node(depot, new_node(1, "boot", SystemClock()), RealHubs({}), str, idle_s=0, chores=look)
    node.run()

    assert looks == [False, True]


def test_the_key_of_a_start_tells_schedules_and_times_apart() -> None:
    keys = {start_key("a", 1), start_key("a", 2), start_key("b", 1)}

    assert len(keys) == 3
    assert all(set(key) <= set("0123456789abcdef") for key in keys)


@pytest.mark.requirement("one-run-cannot-end-the-node")
def test_a_fault_of_one_schedule_is_its_problem_and_the_others_are_started(bench: Bench) -> None:
    bench.add(name="bad")
    bench.add(name="good")
    started: list[str] = []

    def launch(schedule: Schedule, key: str) -> StartOutcome:
        if schedule.name == "bad":
            raise ValueError("embedded null byte")
        started.append(schedule.name)
        return StartOutcome(run="run-1")

    Schedules(bench.depot, launch, bench.said.append)(at(3))

    assert started == ["good"]
    bad, good = bench.depot.schedules()
    assert (bad.problem, bad.next_us) == ("internal error, ValueError: embedded null byte", at(3, day=2))
    assert good.problem == ""


@pytest.mark.requirement("queue-learns-of-ends")
def test_a_run_that_was_cancelled_while_it_rested_keeps_its_schedule_from_nothing(bench: Bench) -> None:
    bench.add()
    bench.look(at(3))
    (claim,) = bench.depot.claim("node-1", 1, at(3))
    bench.depot.release(claim, Verdict(state="resting", wakes=True), at(3))
    with pytest.raises(ScheduleError, match="run-1 is still resting"):
        start_now(bench.depot, "nightly", bench.runs, at(4))

    with open_journal(Path(claim.job.path)) as journal:
        journal.stage(e.draft(e.RunEnded(status="cancelled")))
        journal.commit()

    assert start_now(bench.depot, "nightly", bench.runs, at(4)).run == "run-2"


@pytest.mark.requirement("held-runs-are-noticed-once")
@pytest.mark.parametrize("case", ["fails", "workspace", "still running", "missed", "queued"])
def test_a_start_that_fails_is_reported_and_a_time_that_is_skipped_is_not(tmp_path: Path, case: str) -> None:
    depot = MemoryDepot()
    runs = Runs(depot, tmp_path)
    failed: list[str] = []
    workspace = tmp_path / "gone" if case == "workspace" else tmp_path
    depot.put_schedule(
        Schedule(
            name="nightly",
            cron="0 3 * * *",
            zone="UTC",
            workspace=str(workspace),
            words=(),
            missed="skip",
            next_us=at(3),
        )
    )
    if case == "still running":
        depot.submit(Job(run="run-0", path="x", workspace=str(tmp_path), schedule="nightly"), 0)
    runs.ends = "no such program" if case == "fails" else "queued"

    Schedules(depot, runs, print, lambda _, problem: failed.append(problem))(
        at(9) if case == "missed" else at(3)
    )

    expected = {"fails": ["no such program"], "workspace": [f"its workspace {workspace} is gone"]}
    assert [text.rpartition("was skipped: ")[2] for text in failed] == expected.get(case, [])
