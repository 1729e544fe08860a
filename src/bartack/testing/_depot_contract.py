"""The promises of a depot, as tests that run on any engine.

An engine is checked by a test class of its own::

    class TestMyDepot(DepotContract):
        def make_depot(self, most: int) -> Depot:
            return MyDepot(most)

        def make_runs(self) -> RunStore:
            return MyDepot(10)

``serve`` and ``lose_last`` do from outside what a hub and a faulty disk do. pytest finds the tests in it.
``pytest.register_assert_rewrite("bartack.testing")`` in a ``conftest.py`` gives failures that show their values.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable

import msgspec

from bartack.depot import Claim, Depot, Job, NodeFacts, Schedule, Verdict
from bartack.errors import (
    NodeRunningError,
    QueueFullError,
    RunNotQueuedError,
    ScheduleError,
    ScheduleNotFoundError,
    UsageError,
)
from bartack.testing._kept_contract import KeptRunContract

NODE = NodeFacts(id="node-1", pid=1, boot="boot", version="1")
MOST = 30
"""The runs that the queue takes."""
OVER = Verdict(state="over", outcome="completed")
NIGHTLY = Schedule(
    name="nightly", cron="0 3 * * *", zone="UTC", workspace="w", words=("team.pw",), next_us=30
)


# Long because it is the list of all promises of a queue, one test each.
class DepotContract(KeptRunContract):
    """What every depot promises: of the runs that it keeps, and of its queue. See the module's text for how to use it."""

    depot: Depot

    @abstractmethod
    def make_depot(self, most: int) -> Depot:
        """An empty depot whose queue takes ``most`` runs. Called before each test."""

    def setup_method(self) -> None:
        """Called by pytest before each test."""
        self.depot = self.make_depot(MOST)
        self.store = self.make_runs()

    def submit(self, run: str, at_us: int = 0, **changes: object) -> None:
        """Queue a run."""
        job = msgspec.structs.replace(Job(run=run, path=f"runs/{run}", workspace="w"), **changes)
        self.depot.submit(job, at_us)

    def claim(self, most: int = 1, at_us: int = 0, node: str = "node-1") -> list[Claim]:
        """Own runs."""
        return list(self.depot.claim(node, most, at_us))

    def names(self, *claims: Claim) -> list[str]:
        """The runs that were claimed."""
        return [claim.job.run for claim in claims]

    # Queueing.

    def test_a_run_that_was_accepted_is_there(self) -> None:
        self.submit("run-1", 7, title="a team", environ={"A": "1"})

        found = self.depot.find("run-1")

        assert found is not None
        assert (found.state, found.job.title, found.submitted_us) == ("queued", "a team", 7)
        assert found.job.environ == {"A": "1"}
        assert self.depot.standings() == [found]
        assert self.depot.find("run-2") is None

    def test_a_run_that_is_submitted_again_keeps_its_place(self) -> None:
        self.submit("run-1", 1)
        self.submit("run-2", 2)
        self.submit("run-1", 3)

        assert self.names(*self.claim(2, 4)) == ["run-1", "run-2"]

    def test_a_run_that_is_over_can_be_queued_again(self) -> None:
        self.submit("run-1")
        (first,) = self.claim()
        assert self.depot.release(first, OVER, 1)

        self.submit("run-1", 2)

        (second,) = self.claim(1, 3)
        assert second.fence > first.fence

    def test_runs_are_taken_by_priority_then_in_their_order(self) -> None:
        self.submit("run-1", 1)
        self.submit("run-2", 2, priority=5)
        self.submit("run-3", 3)

        assert self.names(*self.claim(2, 4)) == ["run-2", "run-1"]
        assert self.names(*self.claim(2, 4)) == ["run-3"]

    def test_a_priority_out_of_range_is_refused(self) -> None:
        self.refused(UsageError, lambda: self.submit("run-1", priority=101))

        assert self.depot.standings() == []

    def test_a_full_queue_takes_no_more_until_a_run_has_ended(self) -> None:
        for number in range(MOST):
            self.submit(f"run-{number}", number)

        self.refused(QueueFullError, lambda: self.submit("run-more"))

        assert self.depot.find("run-more") is None
        self.submit("run-3", priority=7)
        (claim,) = self.claim(1, MOST)
        assert claim.job.run == "run-3"
        self.refused(QueueFullError, lambda: self.submit("run-more"))
        self.depot.release(claim, OVER, MOST)
        self.submit("run-more")
        self.refused(QueueFullError, lambda: self.submit("run-3"))

    def test_a_run_is_withdrawn_unless_it_is_owned(self) -> None:
        self.submit("run-1")
        self.submit("run-2", 1)
        self.claim()

        self.refused(RunNotQueuedError, lambda: self.depot.withdraw("run-1"))
        self.refused(RunNotQueuedError, lambda: self.depot.withdraw("run-3"))

        assert self.depot.withdraw("run-2").job.run == "run-2"
        assert self.depot.find("run-2") is None

    # One after another.

    def test_a_run_waits_for_those_before_it(self) -> None:
        self.submit("run-1")
        self.submit("run-2", 1, after=("run-1",), priority=9)
        (first,) = self.claim(2)

        assert self.names(first) == ["run-1"]
        assert self.claim(2) == []
        self.depot.release(first, OVER, 2)
        assert self.names(*self.claim(2)) == ["run-2"]

    def test_a_run_that_follows_a_failed_one_is_held_with_the_reason(self) -> None:
        self.submit("run-1")
        self.submit("run-2", 1, after=("run-1",))
        (first,) = self.claim()
        self.depot.release(first, Verdict(state="over", outcome="failed"), 2)

        assert self.claim(2, 3) == []
        found = self.depot.find("run-2")
        assert found is not None
        assert (found.state, found.reason) == ("held", "it was to follow run-1, which is failed")

    def test_a_run_that_follows_one_that_left_the_queue_is_held_with_the_reason(self) -> None:
        self.submit("run-1")
        self.submit("run-2", 1, after=("run-1",))
        self.depot.withdraw("run-1")

        assert self.claim(2, 3) == []
        found = self.depot.find("run-2")
        assert found is not None
        assert (found.state, found.reason) == (
            "held",
            "it was to follow run-1, which is not in the queue any more",
        )

    def test_a_run_that_has_begun_continues_whatever_becomes_of_those_before_it(self) -> None:
        for name, verdict in (
            ("dies", Verdict(state="queued", due_us=50, progress=3, reason="it died")),
            ("sleeps", Verdict(state="resting", due_us=50, wakes=True, reason="timer of main")),
        ):
            self.submit("run-1")
            self.submit(name, 1, after=("run-1",))
            (first,) = self.claim(2)
            self.depot.release(first, OVER, 2)
            (second,) = self.claim(2, 3)
            self.depot.release(second, verdict, 4)

            self.depot.withdraw("run-1")

            assert self.claim(2, 5) == []
            assert self.reason_of(name) == verdict.reason
            assert self.names(*self.claim(2, 50)) == [name]

    def test_a_run_shows_what_keeps_the_one_before_it(self) -> None:
        self.submit("run-1")
        self.submit("run-2", 1, after=("run-1",))
        for verdict, reason in (
            (Verdict(state="held", reason="it died"), "waits for run-1, which is held: it died"),
            (Verdict(state="resting", reason="a stop"), "waits for run-1, which is stopped: a stop"),
            (Verdict(state="resting", wakes=True, reason="a timer"), ""),
        ):
            (first,) = self.claim(2)
            self.depot.release(first, verdict, 2)
            assert self.claim(2, 3) == []
            assert self.reason_of("run-2") == reason
            self.submit("run-1", 4)

        (first,) = self.claim(2)
        self.depot.release(first, Verdict(state="held"), 2)
        self.claim(0, 3)
        held = self.depot.find("run-1")
        assert held is not None
        assert self.depot.settle(held, OVER, 4)
        assert self.claim(0, 5) == []
        assert self.reason_of("run-2") == ""
        assert self.names(*self.claim(2, 5)) == ["run-2"]

    def test_runs_cannot_wait_for_each_other_nor_for_strangers(self) -> None:
        self.submit("run-1")
        self.submit("run-2", after=("run-1",))

        self.refused(UsageError, lambda: self.submit("run-1", after=("run-2",)))
        self.refused(UsageError, lambda: self.submit("run-3", after=("run-3",)))
        self.refused(RunNotQueuedError, lambda: self.submit("run-4", after=("run-9",)))

    # Owning.

    def test_a_run_is_owned_once_however_many_nodes_claim(self) -> None:
        for number in range(20):
            self.submit(f"run-{number}", number)
        found: list[list[Claim]] = []

        def take(node: str) -> None:
            found.append([claim for _ in range(10) for claim in self.depot.claim(node, 1, 100)])

        threads = [threading.Thread(target=take, args=(f"node-{number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)

        assert sorted(self.names(*(claim for claims in found for claim in claims))) == sorted(
            f"run-{number}" for number in range(20)
        )

    def test_a_run_is_not_taken_before_it_is_due(self) -> None:
        self.submit("run-1")
        (claim,) = self.claim()
        self.depot.release(claim, Verdict(state="queued", due_us=50, strikes=2, reason="it crashed"), 1)

        assert self.claim(1, 49) == []
        assert self.names(*self.claim(1, 50)) == ["run-1"]
        found = self.depot.find("run-1")
        assert found is not None
        assert found.strikes == 2

    def test_an_owner_of_the_past_changes_nothing(self) -> None:
        self.submit("run-1")
        (old,) = self.claim()
        (taken,) = self.depot.take_over("node-2", 1)

        assert not self.depot.release(old, OVER, 2)

        found = self.depot.find("run-1")
        assert found is not None
        assert (found.state, found.node) == ("owned", "node-2")
        assert self.depot.release(Claim(taken.job, taken.fence), OVER, 3)
        assert not self.depot.release(Claim(taken.job, taken.fence), OVER, 4)

    def test_a_node_takes_over_only_what_others_have_owned(self) -> None:
        self.submit("run-1")
        self.submit("run-2", 1)
        self.claim(1, 2, "node-1")
        self.claim(1, 2, "node-2")

        assert [one.job.run for one in self.depot.take_over("node-2", 3)] == ["run-1"]
        assert list(self.depot.take_over("node-2", 4)) == []

    # What happens elsewhere.

    def test_a_run_that_ended_elsewhere_is_settled_and_no_longer_comes_back(self) -> None:
        for name, verdict in (
            ("run-rests", Verdict(state="resting", wakes=True, progress=3, reason="it waits for an answer")),
            ("run-sleeps", Verdict(state="resting", wakes=True, due_us=50, progress=3)),
            ("run-held", Verdict(state="held", reason="it died 5 times", strikes=5)),
        ):
            self.submit(name, use="alone", workspace=name)
            (claim,) = self.claim()
            self.depot.release(claim, verdict, 1)
            self.submit(f"{name}-follows", 2, after=(name,))
            self.submit(f"{name}-works-there", 2, use="alone", workspace=name)
            seen = self.depot.find(name)
            assert seen is not None

            assert self.depot.settle(seen, Verdict(state="over", outcome="completed"), 3)

            found = self.depot.find(name)
            assert found is not None
            assert (found.state, found.outcome, found.reason) == ("over", "completed", "")
            assert (found.wakes, found.due_us, found.changed_us) == (False, 0, 3)
            assert found.fence > seen.fence
            assert self.names(*self.claim(9, 100)) == [f"{name}-follows", f"{name}-works-there"]

    def test_a_stale_look_settles_nothing(self) -> None:
        self.submit("run-1")
        (claim,) = self.claim()
        queued, owned = Verdict(state="queued"), self.depot.find("run-1")
        assert owned is not None
        assert not self.depot.settle(owned, OVER, 1)
        self.depot.release(claim, Verdict(state="resting", wakes=True), 1)
        rests = self.depot.find("run-1")
        assert rests is not None

        self.submit("run-1", 2)
        assert not self.depot.settle(rests, OVER, 2)
        (again,) = self.claim(1, 3)
        assert not self.depot.settle(rests, OVER, 3)
        self.depot.release(again, Verdict(state="resting", wakes=True), 4)
        assert not self.depot.settle(rests, OVER, 4)
        newer = self.depot.find("run-1")
        assert newer is not None
        assert newer.state == "resting"

        assert self.depot.settle(newer, OVER, 5)
        assert not self.depot.settle(newer, queued, 6)
        self.depot.withdraw("run-1")
        assert not self.depot.settle(newer, OVER, 7)

    # One workspace.

    def test_runs_that_need_the_same_workspace_are_owned_one_at_a_time(self) -> None:
        self.submit("run-1", use="alone")
        self.submit("run-2", 1, use="alone", priority=1)
        self.submit("run-3", 2, use="shared")
        self.submit("run-4", 3)
        self.submit("run-5", 4, use="alone", workspace="elsewhere")

        assert self.names(*self.claim(9)) == ["run-2", "run-4", "run-5"]
        assert self.claim(9) == []
        assert {one.job.run: one.reason for one in self.depot.standings() if one.state == "queued"} == {
            "run-1": "waits for the workspace: run-2 works there",
            "run-3": "waits for the workspace: run-2 works there",
        }

    def test_runs_that_share_a_workspace_are_owned_together(self) -> None:
        for name in ("run-1", "run-2"):
            self.submit(name, use="shared")

        assert self.names(*self.claim(2)) == ["run-1", "run-2"]

    def test_a_run_that_has_begun_keeps_its_workspace_until_it_is_over_or_a_person_is_needed(self) -> None:
        for place, comes_back in (
            ("died", Verdict(state="queued", due_us=50, strikes=1)),
            ("waits", Verdict(state="resting", due_us=50, wakes=True, progress=3)),
        ):
            first, second = f"run-{place}-1", f"run-{place}-2"
            self.submit(first, use="alone", workspace=place)
            (begun,) = self.claim()
            self.submit(second, 1, use="alone", workspace=place, priority=9)
            self.depot.release(begun, comes_back, 2)

            assert self.claim(2, 49) == []
            waits = self.depot.find(second)
            assert waits is not None
            assert waits.reason == f"waits for the workspace: {first} works there"
            (again,) = self.claim(2, 50)
            assert again.job.run == first
            self.depot.release(again, Verdict(state="resting", reason="a person has stopped it"), 51)
            assert self.names(*self.claim(2, 52)) == [second]

    def test_runs_that_only_a_person_can_continue_are_left_alone(self) -> None:
        self.submit("run-1")
        self.submit("run-2")
        first, second = self.claim(2)
        self.depot.release(first, Verdict(state="resting", reason="it waits for an answer"), 1)
        self.depot.release(second, Verdict(state="held", reason="it died 5 times"), 1)

        assert self.claim(2, 100) == []
        self.submit("run-1", 101)
        assert self.names(*self.claim(2, 102)) == ["run-1"]

    def test_a_run_that_rests_until_a_time_is_claimed_then_and_not_before(self) -> None:
        for name in ("run-1", "run-2", "run-3"):
            self.submit(name)
        timed, answered, stopped = self.claim(3)
        self.depot.release(timed, Verdict(state="resting", due_us=50, wakes=True, reason="timer of main"), 1)
        self.depot.release(answered, Verdict(state="resting", wakes=True), 1)
        self.depot.release(stopped, Verdict(state="resting", due_us=1), 1)

        assert self.claim(3, 49) == []
        assert self.names(*self.claim(3, 50)) == ["run-1"]
        found = self.depot.find("run-1")
        assert found is not None
        assert (found.state, found.wakes, found.reason) == ("owned", False, "")

    def test_a_clock_that_is_set_back_holds_up_no_retry_and_timers_follow_it(self) -> None:
        day_us = 24 * 3600 * 1_000_000
        self.submit("run-1", 2 * day_us)
        self.submit("run-2", 2 * day_us)
        retried, sleeping = self.claim(2, 2 * day_us)
        self.depot.release(retried, Verdict(state="queued", due_us=2 * day_us + 100), 2 * day_us)
        self.depot.release(
            sleeping, Verdict(state="resting", due_us=2 * day_us + 100, wakes=True), 2 * day_us
        )

        assert self.claim(2, 2 * day_us + 99) == []
        assert self.names(*self.claim(2, day_us)) == ["run-1"]
        assert self.names(*self.claim(2, 2 * day_us + 100)) == ["run-2"]

    def test_what_is_over_is_forgotten_after_a_while_unless_it_is_waited_for(self) -> None:
        self.submit("run-1")
        self.submit("run-2")
        self.submit("run-3", 1, after=("run-2",))
        for claim in self.claim(2):
            self.depot.release(claim, OVER, 5)

        assert self.depot.forget(5) == 0
        assert self.depot.forget(6) == 1
        assert [one.job.run for one in self.depot.standings()] == ["run-2", "run-3"]

    # The seat.

    def test_one_node_at_a_time_has_the_seat(self) -> None:
        assert self.depot.seated() is None
        with self.depot.sit(NODE):
            self.refused(NodeRunningError, lambda: self.depot.sit(NODE))
            assert self.depot.seated() == NODE

        assert self.depot.seated() is None
        with self.depot.sit(msgspec.structs.replace(NODE, id="node-2")):
            seated = self.depot.seated()
            assert seated is not None
            assert seated.id == "node-2"

    # Schedules.

    def test_schedules_are_kept_until_they_are_removed(self) -> None:
        self.depot.put_schedule(NIGHTLY)
        self.refused(ScheduleError, lambda: self.depot.put_schedule(NIGHTLY))
        changed = msgspec.structs.replace(NIGHTLY, cron="0 4 * * *")
        self.depot.put_schedule(changed, replace=True)

        assert list(self.depot.schedules()) == [changed]
        assert self.depot.remove_schedule("nightly") == changed
        self.refused(ScheduleNotFoundError, lambda: self.depot.remove_schedule("nightly"))

    def test_a_time_of_a_schedule_is_used_once(self) -> None:
        self.depot.put_schedule(NIGHTLY)
        later = msgspec.structs.replace(NIGHTLY, next_us=60)

        assert self.depot.advance("nightly", 30, later)
        assert not self.depot.advance("nightly", 30, later)
        assert not self.depot.advance("gone", 30, later)
        assert list(self.depot.schedules()) == [later]

    # Waking.

    def test_a_change_of_the_queue_wakes_every_watch(self) -> None:
        with self.depot.watch() as watch:
            assert not watch.wait(0)
            self.submit("run-1")
            assert watch.wait(30)

    def reason_of(self, run: str) -> str:
        """Why a run is where it is."""
        found = self.depot.find(run)
        assert found is not None
        return found.reason

    def refused(self, error: type[Exception], work: Callable[[], object]) -> None:
        """Check that something is refused."""
        try:
            work()
        except error:
            return
        raise AssertionError(f"{error.__name__} was not raised")
