"""The queue of nodes in a real PostgreSQL: who takes what, who buries, and what an owner that was buried can still do."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import pytest
from tests.unit.depot.yard import Yard, append
from tests.waiting import until

from bartack.depot.fleet import Fleet
from bartack.depot.postgres._run import PostgresRun
from bartack.depot.taken import Taken
from bartack.errors import BartackError, BlobMissingError, JournalOwnershipLostError
from bartack.journal import BlobRef
from bartack.journal.shared import Commit


def test_runs_are_taken_by_priority_and_then_by_age(yard: Yard) -> None:
    low, first, second = yard.submit(), yard.submit(priority=5), yard.submit(priority=5)

    taken = yard.node().claim(10)

    assert [run.id for run in sorted(taken, key=lambda run: run.no)] == [low, first, second]
    assert [run.id for run in taken] == [first, second, low]


def test_a_node_takes_only_runs_of_its_pools_whose_needs_it_meets(yard: Yard) -> None:
    plain, elsewhere, needy = yard.submit(), yard.submit(pool="gpu"), yard.submit(needs=("agent:claude",))

    assert [run.id for run in yard.node("one").claim(10)] == [plain]
    assert [run.id for run in yard.node("two", labels=("agent:claude", "os:linux")).claim(10)] == [needy]
    assert [run.id for run in yard.node("three", pools=("gpu", "default")).claim(10)] == [elsewhere]


def test_each_run_is_taken_once_by_nodes_that_claim_at_the_same_time(yard: Yard) -> None:
    wanted = {yard.submit() for _ in range(24)}
    fleets = [yard.node(f"node-{number}") for number in range(4)]
    taken: list[str] = []
    begin = threading.Barrier(len(fleets))

    def claim(fleet: Fleet) -> None:
        begin.wait(5)
        while found := fleet.claim(3):
            taken.extend(run.id for run in found)

    threads = [threading.Thread(target=claim, args=(fleet,)) for fleet in fleets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert sorted(taken) == sorted(wanted)


def test_a_node_takes_no_more_of_a_short_queue_than_its_share(yard: Yard) -> None:
    one, two, other = yard.node("one"), yard.node("two"), yard.node("other", pools=("gpu",))
    for _ in range(5):
        yard.submit()
    yard.submit(pool="gpu")

    assert [len(fleet.claim(4)) for fleet in (one, two, other)] == [3, 1, 1]
    yard.make_late(two)
    assert len(one.claim(4)) == 1
    assert one.claim(4) == []


@pytest.mark.requirement("fleet-fence")
def test_a_node_that_was_buried_appends_nothing_with_its_old_fence(yard: Yard, tmp_path: Path) -> None:
    run_id = yard.submit()
    old, new = yard.node("old"), yard.node("new")
    (mine,) = old.claim(1)
    yard.make_late(old)
    yard.make_steady(new)
    yard.beat(new)
    (theirs,) = new.claim(1)
    before = yard.rows("SELECT count(*) FROM bartack.journal")

    refused = append(old, mine, tmp_path / run_id)

    assert isinstance(refused, JournalOwnershipLostError)
    assert yard.rows("SELECT count(*) FROM bartack.journal") == before
    assert old.give_back(mine, "over", 0, "", 0) is None
    assert yard.state(run_id) == "owned"
    assert theirs.fence > mine.fence
    assert append(new, theirs, tmp_path / run_id) is None


def test_only_a_steady_node_buries(yard: Yard) -> None:
    run_id = yard.submit()
    late, unsteady = yard.node("late"), yard.node("unsteady")
    late.claim(1)
    yard.make_late(late)

    yard.beat(unsteady)
    assert yard.state(run_id) == "owned", "it has not been steady for a whole lease"

    yard.make_steady(unsteady)
    yard.rows("UPDATE bartack.node SET until = until - lease * 0.7 WHERE id = %s", unsteady.node.id)
    yard.beat(unsteady)
    assert yard.state(run_id) == "owned", "its own beats had a gap"

    yard.make_steady(unsteady)
    yard.beat(unsteady)
    assert yard.state(run_id) == "queued"


def test_a_run_that_takes_three_nodes_down_is_held_until_a_person_gives_it_back(yard: Yard) -> None:
    run_id = yard.submit()
    watcher = yard.node("watcher", pools=("none",))
    for death in range(3):
        assert yard.state(run_id) == "queued"
        fleet = yard.node(f"victim-{death}")
        (taken,) = fleet.claim(1)
        assert taken.strikes == death
        yard.rows("SELECT bartack.alive(%s, %s)", taken.no, taken.fence)
        yard.make_late(fleet)
        yard.make_steady(watcher)
        yard.beat(watcher)

    assert yard.state(run_id) == "held"
    place = yard.team.queue_place(run_id)
    assert place is not None
    assert "third time" in place.reason
    yard.team.enqueue(run_id)
    (taken,) = yard.node("next").claim(1)
    assert taken.strikes == 0


def test_a_finished_step_clears_the_strikes_of_a_run(yard: Yard, tmp_path: Path) -> None:
    run_id = yard.submit()
    yard.rows("UPDATE bartack.owner SET strikes = 2")
    fleet = yard.node()
    (taken,) = fleet.claim(1)

    assert append(fleet, taken, tmp_path / run_id) is None
    until(lambda: yard.rows("SELECT strikes FROM bartack.owner") == [(0,)], "the cleared strikes")


def test_a_finished_step_that_is_not_kept_clears_no_strikes(yard: Yard, tmp_path: Path) -> None:
    run_id = yard.submit()
    yard.rows("UPDATE bartack.owner SET strikes = 2")
    fleet = yard.node()
    (taken,) = fleet.claim(1)
    # Something else is at its place.
    yard.rows("INSERT INTO bartack.journal VALUES (%s, 2, 2, %s, 7, 'other')", taken.no, taken.fence)

    assert append(fleet, taken, tmp_path / run_id) is not None
    fleet._errands.flush()
    assert yard.rows("SELECT strikes FROM bartack.owner") == [(2,)]


def test_a_run_that_all_nodes_refuse_is_held_with_the_reason(yard: Yard) -> None:
    run_id = yard.submit()
    one, two = yard.node("one"), yard.node("two")
    (taken,) = one.claim(1)

    assert one.give_back(taken, "queued", 0, "no such workspace", 0, refuses=True) == "queued"
    assert one.claim(1) == []
    (taken,) = two.claim(1)
    assert two.give_back(taken, "queued", 0, "no such workspace", 0, refuses=True) == "held"
    place = yard.team.queue_place(run_id)
    assert place is not None
    assert place.reason == "no such workspace"


def test_a_resting_run_is_queued_when_it_is_due(yard: Yard) -> None:
    run_id = yard.submit()
    fleet = yard.node()
    (taken,) = fleet.claim(1)
    fleet.give_back(taken, "resting", 1, "it waits for a time", 0)

    assert yard.state(run_id) == "resting"
    yard.beat(fleet)
    assert yard.state(run_id) == "queued"


def test_a_process_that_owns_a_queued_run_for_a_moment_leaves_it_queued(yard: Yard) -> None:
    run_id = yard.submit()

    with PostgresRun(yard.folder / run_id, yard.database).own():
        assert yard.state(run_id) == "owned"

    assert yard.state(run_id) == "queued"


def test_a_draining_node_takes_no_more_runs(yard: Yard) -> None:
    yard.submit()
    fleet = yard.node("one")

    assert yard.team.drain("one")
    assert fleet.claim(1) == []
    assert [node.state for node in yard.team.nodes()] == ["draining"]
    assert not yard.team.drain("none of this name")


def test_a_commit_whose_large_value_is_gone_fails_alone(yard: Yard, tmp_path: Path) -> None:
    for _ in range(3):
        yard.submit()
    fleet = yard.node()
    first, bad, good = fleet.claim(3)
    outcomes: dict[str, BartackError | None] = {}
    courier = fleet._courier

    def send(run: Taken, *blobs: BlobRef) -> None:
        commit = Commit(2, 2, run.fence, 1, b"{}\n", blobs)
        fleet.take(run, tmp_path / run.id, commit, partial(outcomes.__setitem__, run.id))

    with courier._session._mutex:  # the first commit waits for the connection, and the next two for the first
        send(first)
        until(lambda: not courier._waiting, "the first commit to be under way")
        send(bad, BlobRef("0" * 64, 10))
        send(good)
    until(lambda: len(outcomes) == 3, "all outcomes")

    assert isinstance(outcomes.pop(bad.id), BlobMissingError)
    assert outcomes == {first.id: None, good.id: None}
