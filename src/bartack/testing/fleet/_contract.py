"""The promises of what gives runs to nodes, as tests that run on any implementation of ``FleetFunctions``.

An implementation is checked by a test class of its own::

    class TestMyFleet(FleetContract):
        def make_fleet(self) -> FleetFunctions:
            return MyFleet()

``pytest.register_assert_rewrite("bartack.testing")`` in a ``conftest.py`` gives failures that show their values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import count
from typing import Final
from uuid import UUID, uuid4
from zlib import crc32

from bartack.depot.taken import LEASE_S, OWNER_CHANGES, POOL, OwnerState, Taken
from bartack.journal.shared import Commit
from bartack.testing.fleet._functions import FleetFunctions, NodeForm

SECOND_US: Final = 1_000_000
_numbers = count()


def commit_at(seq: int, fence: int, text: str = "a line", before: int = 0) -> Commit:
    """A commit of one entry."""
    lines = f"{seq} {text}\n".encode()
    return Commit(seq, seq, fence, crc32(lines, before), lines)


# Long because it is the list of all promises, one test each.
class FleetContract(ABC):
    """What a database promises to nodes that take runs from it; see the module."""

    fleet: FleetFunctions

    @abstractmethod
    def make_fleet(self) -> FleetFunctions:
        """One without runs and nodes. Called before each test."""

    def setup_method(self) -> None:
        """Called by pytest before each test."""
        self.fleet = self.make_fleet()

    def run(self, pool: str = POOL, priority: int = 0, needs: tuple[str, ...] = ()) -> int:
        """A run that waits for a node."""
        made = self.fleet.submit(f"run-20260101-000000-{next(_numbers):08x}", commit_at(1, 1))
        assert self.fleet.enqueue(made, pool, priority, needs) == "queued"
        return made

    def node(
        self,
        name: str = "one",
        pools: tuple[str, ...] = (POOL,),
        labels: tuple[str, ...] = (),
        *,
        seat: UUID | None = None,
        boot: str = "boot",
        slots: int = 4,
    ) -> int:
        """A node that has joined."""
        return self.fleet.join(NodeForm(name, seat or uuid4(), boot, slots, pools, labels))

    def claim_one(self, node: int) -> Taken:
        """The run that a node takes."""
        (taken,) = self.fleet.claim(node, 1)
        return taken

    def state(self, run: int) -> str:
        """Who has to take care of a run."""
        return self.fleet.standing(run).state

    def make_steady(self, *nodes: int) -> None:
        """Let these nodes beat for more than a lease, and all others be silent."""
        for _ in range(8):
            self.fleet.pass_time(LEASE_S / 5)
            for node in nodes:
                self.fleet.beat(node)

    def seen_s_ago(self, run: Taken) -> float:
        """How long ago a hub of a run was last seen alive."""
        assert run.seen_us is not None
        return (self.fleet.now_us() - run.seen_us) / 1e6

    def numbers(self, *runs: Taken) -> list[int]:
        """The runs that were taken."""
        return [run.no for run in runs]

    # Claiming.

    def test_runs_are_taken_by_priority_then_by_age(self) -> None:
        low, first, second = self.run(), self.run(priority=5), self.run(priority=5)

        assert self.numbers(*self.fleet.claim(self.node(), 10)) == [first, second, low]

    def test_a_node_takes_only_runs_of_its_pools_whose_needs_it_meets(self) -> None:
        plain, elsewhere, needy = self.run(), self.run("gpu"), self.run(needs=("agent:claude",))

        assert self.numbers(*self.fleet.claim(self.node("one"), 10)) == [plain]
        able = self.node("two", labels=("agent:claude", "os:linux"))
        assert self.numbers(*self.fleet.claim(able, 10)) == [needy]
        assert self.numbers(*self.fleet.claim(self.node("three", pools=("gpu", POOL)), 10)) == [elsewhere]

    def test_a_run_is_taken_once_and_each_owner_has_a_higher_fence(self) -> None:
        run, one, two = self.run(), self.node("one"), self.node("two")
        first = self.claim_one(one)
        assert self.fleet.claim(two, 1) == []
        assert self.fleet.owned(one) == [first]

        assert self.fleet.give_back(run, first.fence, "queued", 0, "", 0, refuses=False) == "queued"

        assert self.claim_one(two).fence > first.fence
        assert self.fleet.owned(one) == []

    def test_a_node_takes_no_more_of_a_short_queue_than_its_share(self) -> None:
        nodes = [self.node("one"), self.node("two"), self.node("other", pools=("gpu",))]
        for _ in range(5):
            self.run()
        self.run("gpu")

        assert [len(self.fleet.claim(node, 4)) for node in nodes] == [3, 1, 1]

    def test_a_draining_node_takes_no_more_runs_and_keeps_those_that_it_has(self) -> None:
        self.run()
        one = self.node("one")
        mine = self.claim_one(one)
        self.run()

        assert self.fleet.drain("one") == 1
        assert self.fleet.drain("none of this name") == 0

        assert self.fleet.claim(one, 1) == []
        assert self.fleet.beat(one).state == "draining"
        assert self.fleet.owned(one) == [mine]

    def test_a_beat_says_whether_a_run_waits_in_the_pools_of_its_node(self) -> None:
        here, there = self.node("here"), self.node("there", pools=("gpu",))
        self.run()

        assert self.fleet.beat(here).is_queued
        assert not self.fleet.beat(there).is_queued

    # Giving back.

    def test_a_run_is_not_taken_before_it_is_due(self) -> None:
        run, node = self.run(), self.node()
        mine = self.claim_one(node)
        due_us = self.fleet.now_us() + 10 * SECOND_US
        self.fleet.give_back(run, mine.fence, "queued", due_us, "it died", 1, refuses=False)

        assert self.fleet.claim(node, 1) == []
        self.fleet.pass_time(11)
        assert self.claim_one(node).strikes == 1

    def test_a_resting_run_is_queued_when_it_is_due(self) -> None:
        run, node = self.run(), self.node()
        due_us = self.fleet.now_us() + 10 * SECOND_US
        self.fleet.give_back(
            run, self.claim_one(node).fence, "resting", due_us, "it waits for a time", 0, refuses=False
        )

        self.fleet.beat(node)
        assert self.state(run) == "resting"
        self.fleet.pass_time(11)
        self.fleet.beat(node)
        assert self.state(run) == "queued"

    def test_a_run_that_all_nodes_refuse_is_held_with_the_reason(self) -> None:
        run, one, two = self.run(), self.node("one"), self.node("two")

        def refuse(node: int) -> str | None:
            mine = self.claim_one(node)
            return self.fleet.give_back(run, mine.fence, "queued", 0, "no such workspace", 0, refuses=True)

        assert refuse(one) == "queued"
        assert self.fleet.claim(one, 1) == []
        assert refuse(two) == "held"
        assert self.fleet.standing(run).reason == "no such workspace"

    def test_an_answer_that_was_lost_is_asked_for_again_without_harm(self) -> None:
        run, node = self.run(), self.node()
        mine = self.claim_one(node)

        assert self.fleet.give_back(run, mine.fence, "over", 0, "", 0, refuses=False) == "over"
        assert self.fleet.give_back(run, mine.fence, "over", 0, "", 0, refuses=False) is None
        assert self.state(run) == "over"

    # Dying.

    def test_an_owner_that_was_declared_dead_changes_nothing(self) -> None:
        run, old, new = self.run(), self.node("old"), self.node("new")
        mine = self.claim_one(old)
        self.make_steady(new)
        assert self.fleet.beat(old).state == "dead"
        assert self.state(run) == "queued"

        for number in range(2):
            assert self.fleet.append([(run, commit_at(2, mine.fence))]) == {run: "lost"}
            assert self.fleet.give_back(run, mine.fence, "over", 0, "", 0, refuses=False) is None
            assert not self.fleet.alive(run, mine.fence)
            assert len(self.fleet.claim(new, 1)) == (number == 0), "the same holds when it has another owner"
        (theirs,) = self.fleet.owned(new)
        assert theirs.fence > mine.fence
        assert self.fleet.commits(run) == [commit_at(1, 1)]
        assert self.fleet.append([(run, commit_at(2, theirs.fence))]) == {run: "written"}

    def test_a_node_that_beats_is_not_declared_dead(self) -> None:
        one, two = self.node("one"), self.node("two")

        self.make_steady(one, two)

        assert [self.fleet.beat(node).state for node in (one, two)] == ["live", "live"]

    def test_after_the_database_was_away_no_node_is_declared_dead(self) -> None:
        nodes = [self.node("one"), self.node("two"), self.node("three")]
        self.make_steady(*nodes)

        self.fleet.pass_time(30)

        for _ in range(2):
            assert [self.fleet.beat(node).state for node in nodes] == ["live"] * 3
            self.fleet.pass_time(1)

    def test_only_a_node_that_was_steady_for_a_whole_lease_declares_others_dead(self) -> None:
        late, other = self.node("late"), self.node("other")
        self.make_steady(late, other)
        self.fleet.pass_time(LEASE_S * 0.5)
        self.fleet.beat(other)

        for _ in range(4):
            self.fleet.pass_time(LEASE_S * 0.2)
            assert self.fleet.beat(other).buried == (), "its own beats had a gap less than a lease ago"
        self.fleet.pass_time(LEASE_S * 0.3)

        assert self.fleet.beat(other).buried == (late,)

    def test_a_late_node_is_left_alone_for_as_long_as_the_clock_may_step_without_a_gap(self) -> None:
        late, steady = self.node("late"), self.node("steady")
        self.make_steady(late, steady)

        for _ in range(5):
            self.fleet.pass_time(LEASE_S * 0.2)
            self.fleet.beat(steady)
        self.fleet.pass_time(LEASE_S * 0.1)
        assert self.fleet.beat(steady).buried == ()
        self.fleet.pass_time(LEASE_S * 0.1)

        assert self.fleet.beat(steady).buried == (late,)

    def test_no_node_is_declared_dead_for_a_lease_after_the_database_has_crashed(self) -> None:
        late, steady = self.node("late"), self.node("steady")
        self.make_steady(late, steady)

        self.fleet.crash()

        for _ in range(6):
            assert self.fleet.beat(steady).buried == ()
            self.fleet.pass_time(LEASE_S * 0.2)
        assert self.fleet.beat(steady).buried == (late,)

    def test_a_request_to_join_that_arrives_late_frees_nothing_of_its_successor(self) -> None:
        seat, run = uuid4(), self.run()
        node = self.node(seat=seat, boot="boot/2")
        self.claim_one(node)

        for boot in ("boot/1", "boot/2"):
            self.node(seat=seat, boot=boot)
            assert (self.fleet.node_state(node), self.state(run)) == ("live", "owned")
        self.node(seat=seat, boot="boot/10")

        assert (self.fleet.node_state(node), self.state(run)) == ("dead", "queued")

    def test_a_node_of_the_same_seat_and_boot_frees_the_runs_of_the_one_before_at_once(self) -> None:
        seat, run = uuid4(), self.run()
        old = self.node(seat=seat)
        mine = self.claim_one(old)

        self.node(seat=seat, boot="another boot")
        assert self.fleet.node_state(old) == "live"
        new = self.node(seat=seat)

        assert self.fleet.node_state(old) == "dead"
        assert self.claim_one(new).fence > mine.fence
        assert self.fleet.standing(run).node == new

    def test_a_node_that_leaves_frees_what_it_owns(self) -> None:
        run, node = self.run(), self.node()
        self.claim_one(node)

        self.fleet.leave(node)

        assert self.fleet.node_state(node) == "left"
        assert self.state(run) == "queued"
        assert self.fleet.beat(node).state == "left"

    def test_a_run_that_takes_three_nodes_down_is_held_until_a_person_gives_it_back(self) -> None:
        run, seat = self.run(), uuid4()
        for death in range(3):
            mine = self.claim_one(self.node(seat=seat))
            assert mine.strikes == death
            assert self.fleet.alive(run, mine.fence)
        node = self.node(seat=seat)

        assert self.state(run) == "held"
        assert "third time" in self.fleet.standing(run).reason
        assert self.fleet.claim(node, 1) == []
        assert self.fleet.enqueue(run) == "queued"
        assert self.claim_one(node).strikes == 0

    def test_the_death_of_a_node_before_a_hub_ran_is_not_the_fault_of_the_run(self) -> None:
        run, seat = self.run(), uuid4()
        for _ in range(4):
            self.claim_one(self.node(seat=seat))
        self.node(seat=seat)

        assert (self.state(run), self.fleet.standing(run).strikes) == ("queued", 0)

    def test_the_death_of_a_node_that_prepared_the_run_counts(self) -> None:
        run, seat = self.run(), uuid4()
        for death in range(3):
            mine = self.claim_one(self.node(seat=seat))
            assert mine.strikes == death
            assert self.fleet.begun(run, mine.fence)
            assert not self.fleet.begun(run, mine.fence - 1), "that was another ownership"
        self.node(seat=seat)

        assert self.state(run) == "held"
        assert "third time" in self.fleet.standing(run).reason

    def test_only_the_ownership_counts_that_has_prepared_the_run(self) -> None:
        run, seat = self.run(), uuid4()
        mine = self.claim_one(self.node(seat=seat))
        self.fleet.begun(run, mine.fence)
        for _ in range(4):
            self.claim_one(self.node(seat=seat))
        self.node(seat=seat)

        assert (self.state(run), self.fleet.standing(run).strikes) == ("queued", 1)

    def test_deaths_of_its_process_alone_are_not_deaths_of_nodes(self) -> None:
        run, seat = self.run(), uuid4()
        first = self.claim_one(self.node(seat=seat))
        assert (
            self.fleet.give_back(run, first.fence, "queued", 0, "its process died", 3, refuses=False)
            == "queued"
        )
        for death in range(3):
            mine = self.claim_one(self.node(seat=seat))
            assert (self.state(run), mine.strikes) == ("owned", 3 + death)
            self.fleet.alive(run, mine.fence)
        self.node(seat=seat)

        assert self.state(run) == "held"
        assert "its node died for the third time" in self.fleet.standing(run).reason

    def test_what_clears_the_strikes_clears_the_deaths_of_nodes(self) -> None:
        run, seat = self.run(), uuid4()
        for strikes in (2, 2):
            for _ in range(strikes):
                mine = self.claim_one(self.node(seat=seat))
                self.fleet.alive(run, mine.fence)
            mine = self.claim_one(self.node(seat=seat))
            assert mine.strikes == strikes
            self.fleet.give_back(run, mine.fence, "queued", 0, "it has come further", 0, refuses=False)
        assert (self.state(run), self.fleet.standing(run).strikes) == ("queued", 0)

    def test_an_owner_learns_when_a_hub_of_the_run_was_last_seen_alive(self) -> None:
        run, first, second = self.run(), self.node("first"), self.node("second")
        mine = self.claim_one(first)
        self.fleet.alive(run, mine.fence)
        self.make_steady(first, second)
        self.make_steady(second)
        theirs = self.claim_one(second)

        assert abs(self.seen_s_ago(theirs) - 8 * LEASE_S / 5) < 1.0
        assert self.fleet.owned(second) == [theirs]
        assert self.fleet.give_back(run, theirs.fence, "queued", 0, "", 0, refuses=False) == "queued"
        assert self.claim_one(second).seen_us == theirs.seen_us, "no hub was alive meanwhile"

    def test_a_hub_that_ended_in_order_was_seen_alive_until_then(self) -> None:
        run, node = self.run(), self.node()
        self.fleet.alive(run, self.claim_one(node).fence)
        self.fleet.pass_time(2.0)
        assert self.fleet.give_back(run, 2, "queued", 0, "", 0, refuses=False) == "queued"
        self.fleet.pass_time(60.0)

        assert abs(self.seen_s_ago(self.claim_one(self.node("next"))) - 60.0) < 1.0

    def test_a_finished_step_clears_the_strikes(self) -> None:
        run, seat = self.run(), uuid4()
        for death in range(4):
            mine = self.claim_one(self.node(seat=seat))
            self.fleet.alive(run, mine.fence)
            if death == 1:
                self.fleet.progressed(run, mine.fence)
        self.node(seat=seat)

        assert self.state(run) == "held"
        assert self.fleet.standing(run).strikes == 3

    # Writing.

    def test_a_commit_is_kept_after_the_one_before_it_and_once(self) -> None:
        run, node = self.run(), self.node()
        fence = self.claim_one(node).fence
        second, third, fourth = (commit_at(seq, fence) for seq in (2, 3, 4))

        assert self.fleet.append([(run, second)]) == {run: "written"}
        assert self.fleet.append([(run, second)]) == {run: "look"}, "it is there already"
        assert self.fleet.append([(run, fourth)]) == {run: "look"}, "there would be a gap"
        assert self.fleet.append([(run, third)]) == {run: "written"}
        assert self.fleet.commits(run) == [commit_at(1, 1), second, third]

    def test_what_is_at_a_place_is_shown_with_the_fence_of_the_owner(self) -> None:
        run, node = self.run(), self.node()
        fence = self.claim_one(node).fence
        second = commit_at(2, fence)
        self.fleet.append([(run, second)])

        found = self.fleet.look(run, 2)
        assert (found.owner_fence, found.found, found.ends) == (fence, second, 2)
        assert self.fleet.look(run, 3).found is None
        self.fleet.give_back(run, fence, "resting", 0, "", 0, refuses=False)
        assert self.fleet.look(run, 2).owner_fence == -1

    def test_commits_of_several_runs_have_their_own_outcomes(self) -> None:
        good, bad, early = self.run(), self.run(), self.run()
        node = self.node()
        fences = {taken.no: taken.fence for taken in self.fleet.claim(node, 3)}

        outcomes = self.fleet.append(
            [
                (good, commit_at(2, fences[good])),
                (bad, commit_at(2, fences[bad] - 1)),
                (early, commit_at(5, fences[early])),
            ]
        )

        assert outcomes == {good: "written", bad: "lost", early: "look"}

    # Owning one run.

    def test_a_process_that_owns_a_queued_run_for_a_moment_leaves_it_queued(self) -> None:
        run, process = self.run(), self.node(slots=0)

        outcome, fence = self.fleet.claim_run(process, run, 30)
        assert (outcome, self.state(run)) == ("claimed", "owned")
        assert self.fleet.claim_run(process, run, 30) == ("claimed", fence), "its answer was lost"
        assert self.fleet.claim(self.node(), 1) == []
        assert self.fleet.release(run, fence, "resting", "")

        assert self.state(run) == "queued"
        assert not self.fleet.release(run, fence, "resting", "")

    def test_a_process_takes_a_run_only_from_a_node_that_is_late_by_the_grace(self) -> None:
        run, node, process = self.run(), self.node(), self.node(slots=0)
        mine = self.claim_one(node)

        self.fleet.pass_time(LEASE_S + 10)
        assert self.fleet.claim_run(process, run, 30) == ("owned", mine.fence)
        self.fleet.pass_time(30)
        outcome, fence = self.fleet.claim_run(process, run, 30)

        assert outcome == "claimed"
        assert fence > mine.fence
        assert self.fleet.node_state(node) == "dead"

    def test_what_owned_a_run_before_the_database_was_restored_owns_it_no_longer(self) -> None:
        run, node = self.run(), self.node()
        mine = self.claim_one(node)

        assert self.fleet.restored() == 1

        assert self.fleet.append([(run, commit_at(2, mine.fence))]) == {run: "lost"}
        assert self.fleet.beat(node).state == "dead"
        standing = self.fleet.standing(run)
        assert (standing.state, standing.reason) == ("held", "the database was restored from a backup")
        assert standing.fence >= mine.fence + 1000

    # States.

    def test_every_change_of_a_state_is_one_of_the_table(self) -> None:
        seat = uuid4()
        ends: tuple[OwnerState, ...] = ("over", "resting", "queued")
        for end in ends:
            run, node = self.run(), self.node(seat=seat)
            taken = self.claim_one(node)
            self.fleet.give_back(run, taken.fence, end, 1, "", 0, refuses=False)
            self.fleet.beat(node)
            self.fleet.enqueue(run)
            for _ in range(3):
                self.fleet.alive(run, self.claim_one(node).fence)
                node = self.node(seat=seat)
            assert self.state(run) == "held"
            self.fleet.enqueue(run)
            self.fleet.give_back(run, self.claim_one(node).fence, "held", 0, "", 0, refuses=True)

        queued, owned, resting = self.run(), self.run(), self.run()
        node = self.node()
        fences = {taken.no: taken.fence for _ in range(3) for taken in self.fleet.claim(node, 3)}
        self.fleet.give_back(queued, fences[queued], "queued", 0, "", 0, refuses=False)
        self.fleet.give_back(resting, fences[resting], "resting", 0, "", 0, refuses=False)
        assert self.fleet.restored() == 3
        assert [self.state(run) for run in (queued, owned, resting)] == ["held"] * 3

        assert self.fleet.changes() == {(change.start, change.end) for change in OWNER_CHANGES}
