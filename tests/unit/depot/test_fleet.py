"""The queue of nodes in a real PostgreSQL: who takes what, who buries, and what an owner that was buried can still do."""

from __future__ import annotations

import errno
import os
import threading
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from tests.unit.depot.postgres.history import commit_after
from tests.unit.depot.yard import Yard, append
from tests.waiting import until

from bartack.core.clock import SystemClock
from bartack.depot.fleet import Fleet
from bartack.depot.postgres._carrier import Parcel
from bartack.depot.postgres._lease import Sent
from bartack.depot.postgres._rewound import Kept
from bartack.depot.postgres._run import PostgresRun
from bartack.depot.taken import FleetFacts, Taken
from bartack.errors import (
    BartackError,
    BlobMissingError,
    DepotError,
    DepotUnavailableError,
    JournalLockedError,
    JournalLostError,
    NodeLostError,
)
from bartack.journal import BlobRef
from bartack.journal.mirror import Mirror
from bartack.journal.shared import Commit
from bartack.supervision.process.lease import LeasePage


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


def test_a_claim_whose_answer_was_lost_takes_no_more_than_the_node_has_slots(yard: Yard) -> None:
    for _ in range(5):
        yard.submit()
    fleet = yard.node(slots=2)

    assert len(fleet.claim(2)) == 2
    assert fleet.claim(2) == [], "as when it is sent again"
    assert len(fleet.owned()) == 2


def test_the_beats_of_a_node_whose_number_was_given_again_renew_no_lease(yard: Yard) -> None:
    fleet = yard.node()
    yard.rows("UPDATE bartack.node SET joined = clock_timestamp()")
    before = yard.rows("SELECT until FROM bartack.node")

    with yard.database.session() as session:
        fleet.node._beat(session)

    assert fleet.node.is_dead
    assert yard.rows("SELECT until FROM bartack.node") == before


LOSE = "UPDATE bartack.owner SET state = 'queued', node = NULL, fence = fence - 1"
"""As a standby has a run that does not know the last claim."""


class ShownPage:
    """A lease page that notes what it is to show."""

    def __init__(self, seen: list[str]) -> None:
        self._seen = seen

    @staticmethod
    def now_ns() -> int:
        return LeasePage.now_ns()

    def renew(self, until_ns: int) -> None:
        self._seen.append("renewed")

    def set_offset(self, offset_us: int) -> None:
        pass

    def end(self) -> None:
        self._seen.append("over")


def owner_of(yard: Yard, seen: list[str]) -> Fleet:
    """A node that owns a run, and notes that it was lost and that its lease was renewed."""
    yard.submit()
    seat = yard.folder / "seat"
    seat.mkdir()
    claimed: list[tuple[int, int]] = []
    fleet = Fleet(
        yard.database,
        FleetFacts("one", seat, "boot", 1, lease_s=60.0),
        ShownPage(seen),
        lambda: None,
        None,
        lambda run, fence, why: seen.append(f"lost {run, fence} {why}"),
        lambda: claimed,
    )
    claimed += [(run.no, run.fence) for run in fleet.claim(1)]
    return fleet


@pytest.mark.requirement("fleet-lost-claim")
def test_a_beat_over_a_new_connection_finds_a_lost_claim_before_it_shows_the_lease(yard: Yard) -> None:
    seen: list[str] = []
    fleet = owner_of(yard, seen)
    ((run, fence),) = fleet._at_work()
    with yard.database.session() as session:
        fleet.node._beat(session)
        seen.clear()
        yard.rows(LOSE)
        session.drop()

        fleet.node._beat(session)

    assert seen == [f"lost {run, fence} the database does not know of its ownership", "renewed"]
    assert not fleet.node.is_dead
    fleet.close()


def test_a_beat_that_cannot_find_out_what_is_lost_shows_no_lease(yard: Yard) -> None:
    seen: list[str] = []
    fleet = owner_of(yard, seen)
    yard.rows(LOSE)
    seen.clear()

    def fail(session: object) -> None:
        raise DepotUnavailableError("the database", "it is away again")

    found, fleet.node.reconnected = fleet.node.reconnected, fail
    with yard.database.session() as session:
        fleet.node._beat(session)
        assert seen == []
        fleet.node.reconnected = found

        fleet.node._beat(session)

    assert [line.split()[0] for line in seen] == ["lost", "renewed"]
    fleet.close()


@pytest.mark.requirement("fleet-lost-claim")
def test_a_comparison_reports_at_once_that_a_run_has_another_owner(yard: Yard, tmp_path: Path) -> None:
    seen: list[str] = []
    fleet = owner_of(yard, seen)
    (run,) = fleet.owned()
    assert append(fleet, run, tmp_path) is None
    yard.rows(LOSE)

    fleet._courier.compare()

    until(lambda: any(line.startswith(f"lost {run.no, run.fence}") for line in seen), "the loss")
    fleet.close()


@pytest.mark.requirement("fleet-lost-claim")
def test_the_first_commit_of_a_lost_ownership_is_not_taken_for_that_of_the_next_owner(
    yard: Yard, tmp_path: Path
) -> None:
    yard.submit()
    one, two = yard.node("one"), yard.node("two")
    (run,) = one.claim(1)
    yard.rows("UPDATE bartack.owner SET node = %s", two.node.id)  # with the same fence
    one._courier._session.drop()

    assert isinstance(append(one, run, tmp_path), NodeLostError)

    (run,) = two.owned()
    assert append(two, run, tmp_path) is None


@pytest.mark.requirement("fleet-lost-claim")
def test_a_node_ends_no_ownership_of_another_one_that_has_the_same_fence(yard: Yard) -> None:
    yard.submit()
    one, two = yard.node("one"), yard.node("two")
    (run,) = one.claim(1)
    yard.rows(
        "UPDATE bartack.owner SET node = %s", two.node.id
    )  # its claim was lost, and the other one came first

    assert one.give_back(run, "queued", 0, "its hub has ended", 0) is None

    assert [again.fence for again in two.owned()] == [run.fence]


def test_what_another_node_owns_that_was_given_its_number_is_not_taken_for_its_own(yard: Yard) -> None:
    yard.submit()
    fleet = yard.node()
    fleet.claim(1)

    yard.rows("UPDATE bartack.node SET joined = clock_timestamp()")

    assert fleet.owned() == []


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

    assert isinstance(refused, NodeLostError)
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


@pytest.mark.requirement("fleet-strikes")
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


def test_a_run_is_due_by_the_clock_of_the_database(yard: Yard) -> None:
    yard.submit()
    fleet = yard.node()
    (taken,) = fleet.claim(1)
    fleet.node._wall_offset_us = None
    fleet.node.note_time(SystemClock().now_us() + 3_600_000_000, fleet.node.sent())

    fleet.give_back(taken, "queued", SystemClock().now_us(), "later", 0)

    assert yard.rows("SELECT round(extract(epoch FROM due - clock_timestamp()) / 60) FROM bartack.owner") == [
        (60,)
    ]


def test_a_node_that_cannot_end_its_runs_leaves_them_to_the_end_of_its_lease(yard: Yard) -> None:
    run_id = yard.submit()
    fleet = yard.node()
    fleet.claim(1)

    fleet.close(leaves=False)

    assert yard.state(run_id) == "owned"
    assert yard.rows("SELECT state FROM bartack.node") == [("live",)]


def test_a_copy_of_a_run_is_not_used_while_an_earlier_hub_has_it(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bartack.depot.postgres._run.EARLIER_S", 0.1)
    yard.submit()
    fleet = yard.node()
    (taken,) = fleet.claim(1)
    fleet.prepare(taken, tmp_path / "runs")

    with Mirror(str(tmp_path / "runs" / taken.id)) as mirror:
        assert mirror.try_hold()
        with pytest.raises(JournalLockedError, match="an earlier hub"):
            fleet.prepare(taken, tmp_path / "runs")

    fleet.prepare(taken, tmp_path / "runs")


@pytest.mark.requirement("db-rewound")
def test_a_node_does_not_begin_a_run_of_which_it_has_more_than_the_database(
    yard: Yard, tmp_path: Path
) -> None:
    run_id = yard.submit()
    fleet = yard.node()
    (taken,) = fleet.claim(1)
    path = fleet.prepare(taken, tmp_path / "runs")
    ((crc,),) = yard.rows("SELECT crc FROM bartack.journal")
    assert isinstance(crc, int)
    commit = commit_after(1, crc, taken.fence, "more")
    with (path / "journal.ndjson").open("ab") as copy:
        copy.write(commit.lines)
    before = (path / "journal.ndjson").read_bytes()

    with pytest.raises(JournalLostError):
        fleet.prepare(taken, tmp_path / "runs")
    fleet.give_back(taken, "held", 0, "it is rewound", 0)

    assert (path / "journal.ndjson").read_bytes() == before
    assert yard.state(run_id) == "held"


def test_a_run_that_was_not_found_to_be_kept_as_far_as_it_was_marked_is_not_begun(
    yard: Yard, tmp_path: Path
) -> None:
    yard.submit()
    yard.rows("UPDATE bartack.run SET at_least = 7")
    fleet = yard.node()
    (taken,) = fleet.claim(1)

    with pytest.raises(JournalLostError, match="entry 7 was acknowledged"):
        fleet.prepare(taken, tmp_path / "runs")


def test_what_the_database_refuses_of_one_run_does_not_concern_the_others(yard: Yard, tmp_path: Path) -> None:
    for _ in range(3):
        yard.submit()
    fleet = yard.node()
    first, bad, good = fleet.claim(3)
    outcomes: dict[str, BartackError | None] = {}
    courier = fleet._courier

    def send(run: Taken, last: int) -> None:
        commit = Commit(2, last, run.fence, 1, b"{}\n")
        fleet.take(run, tmp_path / run.id, commit, partial(outcomes.__setitem__, run.id))

    with courier._session._mutex:  # the first commit waits for the connection, and the next two for the first
        send(first, 2)
        until(lambda: not courier._waiting, "the first commit to be under way")
        send(bad, 1)  # a commit that ends before it begins
        send(good, 2)
    until(lambda: len(outcomes) == 3, "all outcomes")

    assert isinstance(outcomes.pop(bad.id), DepotError)
    assert outcomes == {first.id: None, good.id: None}


def test_a_commit_that_cannot_be_sent_does_not_end_the_thread_of_all_commits(
    yard: Yard, tmp_path: Path
) -> None:
    yard.submit()
    fleet = yard.node()
    (taken,) = fleet.claim(1)
    outcomes: list[BartackError | None] = []
    strange = Commit(2, 2, taken.fence, 1, b"{}\n", ("not a reference",))  # type: ignore[arg-type]  # - what no hub sends
    fleet.take(taken, tmp_path, strange, outcomes.append)
    until(lambda: bool(outcomes), "an outcome")

    assert isinstance(outcomes[0], DepotError)
    assert append(fleet, taken, tmp_path) is None


def test_a_statement_that_the_database_never_takes_does_not_hold_up_the_others(yard: Yard) -> None:
    fleet = yard.node()
    errands = fleet._errands

    errands.run("bad", "SELECT 1 / 0")
    errands.run("good", "UPDATE bartack.node SET version = 'seen'")

    until(lambda: yard.rows("SELECT version FROM bartack.node") == [("seen",)], "the other statement")


def test_a_statement_takes_no_more_than_it_has_time_for(yard: Yard, tmp_path: Path) -> None:
    courier = yard.node()._courier

    def load_nothing(ref: BlobRef) -> bytes:
        raise AssertionError(ref)

    def parcel(run: int, size: int) -> Parcel:
        commit = Commit(2, 2, 1, 1, bytes(size))
        return Parcel(Kept(run, f"run-{run}", tmp_path, commit, load_nothing), lambda error: None)

    with courier._changed:  # its thread waits for this
        courier._waiting += [parcel(run, 3 << 20) for run in range(1, 5)]
        courier._waiting.append(parcel(5, 16 << 20))
        batches = [courier._next() or [] for _ in range(3)]
        assert courier._waiting == []

    assert [[one.run for one in batch] for batch in batches] == [[1, 2], [3, 4], [5]]


def test_a_failure_of_a_beat_does_not_end_the_beats(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    page, fd = LeasePage.create()
    seat = yard.folder / "seat"
    seat.mkdir()
    fleet = Fleet(yard.database, FleetFacts("one", seat, "boot", 1, lease_s=3.0), page, lambda: None)
    with monkeypatch.context() as patch:
        calls = count()

        def fail(now_us: int | None, sent: Sent) -> None:
            next(calls)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        patch.setattr(fleet.node, "note_time", fail)
        until(lambda: next(calls) > 2, "beats that fail")
    until(lambda: page.left_s() > 1.5, "a beat that renews the lease")

    fleet.close()
    os.close(fd)
