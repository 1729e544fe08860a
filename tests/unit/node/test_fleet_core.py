"""What a node of a database decides: the test is the database, the hubs and the clock."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bartack.depot import Job
from bartack.depot.taken import Taken
from bartack.node._core import Ending, Policy
from bartack.node._fleet_core import (
    STUCK_S,
    BeginRun,
    CannotRun,
    ClaimRuns,
    Damaged,
    EndLife,
    FleetCore,
    ForgetRun,
    GiveBack,
    HubEnded,
    HurryRun,
    Join,
    KillRun,
    LeaseView,
    ListRuns,
    Moment,
    Note,
    Output,
    Postponed,
    StopRun,
)

VALID = LeaseView("live", is_valid=True)
LATE = LeaseView("live", is_valid=False)
DRAINING = LeaseView("draining", is_valid=True)
DEAD = LeaseView("dead", is_valid=False)
HOLD_S = 300.0
DRAIN_S = 600.0


def at(seconds: float) -> Moment:
    return Moment(seconds, int(seconds * 1e6))


def a_run(number: int = 1, fence: int = 2, strikes: int = 0) -> Taken:
    return Taken(number, f"run-{number}", "default", fence, strikes)


def ended(stop: str = "", status: str = "interrupted", before: int = 0, progress: int = 0) -> HubEnded:
    job = Job(run="run-1", path="runs/run-1", workspace="w")
    return HubEnded(job, before, Ending(status=status, stop=stop, progress=progress))


def taken(core: FleetCore) -> list[Output]:
    """What the core wants, without its notes, and without its requests for a list of what it owns."""
    return [output for output in core.take() if not isinstance(output, Note | ListRuns)]


def a_node(*runs: Taken, slots: int = 4, policy: Policy | None = None) -> FleetCore:
    """A node that has joined and owns these runs."""
    core = FleetCore(slots, policy, HOLD_S)
    core.look(at(0), VALID)
    assert taken(core) == [Join()]
    core.joined()
    assert taken(core) == [ClaimRuns(slots)]
    core.owns(runs)
    assert taken(core) == [BeginRun(run) for run in runs]
    return core


def given_back(core: FleetCore) -> Sequence[GiveBack]:
    return [output for output in core.take() if isinstance(output, GiveBack)]


def test_a_node_claims_what_it_has_room_for() -> None:
    core = a_node(a_run(1), a_run(2), slots=3)

    core.look(at(1), VALID)
    assert taken(core) == [ClaimRuns(1)]
    core.owns([a_run(1), a_run(2), a_run(3)])
    assert taken(core) == [BeginRun(a_run(3))]
    core.look(at(2), VALID)
    assert taken(core) == []


def test_a_run_whose_claim_was_not_answered_is_begun_at_the_next_one() -> None:
    core = a_node()
    core.look(at(1), VALID)
    core.take()
    core.no_answer("cut")

    core.look(at(2), VALID)
    assert taken(core) == [ClaimRuns(4)]
    core.owns([a_run()])
    assert taken(core) == [BeginRun(a_run())]


def asks_for_a_list(core: FleetCore) -> bool:
    return any(isinstance(output, ListRuns) for output in core.take())


def test_a_node_without_room_asks_what_it_owns() -> None:
    core = a_node(a_run(), slots=1)

    core.look(at(1), VALID)
    assert asks_for_a_list(core)
    core.look(at(2), LATE)
    assert not asks_for_a_list(core), "the database does not answer anyway"
    core.look(at(3), DRAINING)
    assert asks_for_a_list(core)


@pytest.mark.requirement("fleet-lost-claim")
@pytest.mark.parametrize(
    "there", [[a_run(2)], [a_run(2), a_run(1, fence=3)]], ids=["no owner", "claimed again by this node"]
)
def test_a_run_that_the_database_does_not_have_for_the_node_is_killed_and_forgotten(
    there: Sequence[Taken],
) -> None:
    core = a_node(a_run(1), a_run(2), slots=2)

    core.owns(there)
    assert taken(core) == [KillRun(a_run(1))]
    core.owns(there)
    core.lost(1, 2, "told by another way")
    assert taken(core) == [], "once is enough"

    core.work_ended(a_run(1), ended(progress=3), at(1))
    assert taken(core) == [ForgetRun(a_run(1))]
    core.look(at(1), VALID)
    assert taken(core) == [ClaimRuns(1)], "it is not given back: the fence may be that of another owner"
    core.owns([a_run(2), a_run(1, fence=3)])
    assert taken(core) == [BeginRun(a_run(1, fence=3))]


@pytest.mark.requirement("fleet-lost-claim")
def test_a_loss_that_is_noticed_elsewhere_ends_only_that_ownership() -> None:
    core = a_node(a_run(1), a_run(2))

    core.lost(1, 1, "an earlier ownership")
    core.lost(7, 1, "a run that is not here")
    assert taken(core) == []
    core.lost(1, 2, "the claim is not there")
    assert taken(core) == [KillRun(a_run(1))]


def test_a_run_whose_work_is_over_is_given_back_though_it_is_not_in_the_list() -> None:
    core = a_node(a_run())
    core.work_ended(a_run(), ended(status="completed"), at(1))

    core.owns([])
    core.look(at(2), VALID)

    assert [output.run for output in given_back(core)] == [a_run()]


def test_a_node_that_drains_ends_when_its_last_run_is_lost() -> None:
    core = a_node(a_run())
    core.look(at(1), DRAINING)
    core.take()
    core.owns([])
    assert taken(core) == [KillRun(a_run())]

    core.work_ended(a_run(), ended(), at(2))

    assert core.state == "ended"


def test_an_ended_run_is_given_back_until_the_database_answers() -> None:
    core = a_node(a_run())
    core.work_ended(a_run(), ended(status="completed"), at(1))

    for second in (2, 3):
        core.look(at(second), VALID)
        (wanted,) = given_back(core)
        assert wanted.verdict.state == "over"
        core.no_answer("cut")
    core.look(at(4), VALID)
    core.take()
    core.given_back(a_run(), "over")
    assert core.owned == []


def test_the_end_of_an_earlier_ownership_changes_nothing() -> None:
    core = a_node(a_run(fence=4))

    core.work_ended(a_run(fence=2), ended(status="completed"), at(1))

    core.look(at(2), VALID)
    assert given_back(core) == []


def test_a_run_that_dies_without_progress_gets_a_strike_and_one_with_progress_does_not() -> None:
    for progress, strikes in ((3, 2), (4, 1)):
        core = a_node(a_run(strikes=1))
        core.work_ended(a_run(strikes=1), ended(before=3, progress=progress), at(1))
        core.look(at(2), VALID)
        (wanted,) = given_back(core)
        assert (wanted.verdict.state, wanted.verdict.strikes) == ("queued", strikes)


@pytest.mark.requirement("fleet-damaged")
def test_a_run_with_a_damaged_journal_is_held_at_once_and_not_refused() -> None:
    core = a_node(a_run(strikes=1))
    core.work_ended(a_run(strikes=1), Damaged("entry 3 is damaged; restore it"), at(1))

    core.look(at(2), VALID)

    (wanted,) = given_back(core)
    assert (wanted.verdict.state, wanted.verdict.reason) == ("held", "entry 3 is damaged; restore it")
    assert (wanted.refuses, wanted.verdict.strikes) == (False, 1)


@pytest.mark.requirement("strikes-apart")
def test_a_node_that_lacks_something_waits_longer_each_time_and_gives_no_strike() -> None:
    core, dues = a_node(), list[int]()
    for fence in range(2, 5):
        run = a_run(fence=fence, strikes=1)
        core.owns([run])
        core.work_ended(run, ended("disk", progress=3, before=3), at(1))
        core.look(at(1), VALID)
        (wanted,) = given_back(core)
        core.given_back(run, "queued")
        assert (wanted.verdict.state, wanted.verdict.strikes) == ("queued", 1)
        dues.append(wanted.verdict.due_us)

    assert dues == sorted(set(dues))


def test_a_clean_stop_clears_no_strikes_and_a_finished_step_does() -> None:
    for progress, strikes in ((3, 2), (4, 0)):
        core = a_node(a_run(strikes=2))
        core.work_ended(a_run(strikes=2), ended("terminated", before=3, progress=progress), at(1))
        core.look(at(2), VALID)
        (wanted,) = given_back(core)
        assert (wanted.verdict.state, wanted.verdict.strikes) == ("queued", strikes)


def test_a_run_that_cannot_run_here_is_refused_and_one_that_cannot_begin_now_is_not() -> None:
    core = a_node(a_run(1), a_run(2))
    core.work_ended(a_run(1), CannotRun("no such workspace"), at(1))
    core.work_ended(a_run(2), Postponed("the database did not answer"), at(1))

    core.look(at(1), VALID)

    refused, postponed = given_back(core)
    assert (refused.refuses, refused.verdict.reason) == (True, "no such workspace")
    assert (postponed.refuses, postponed.verdict.due_us) == (False, 6_000_000)


def test_a_node_without_lease_takes_nothing_and_keeps_its_runs() -> None:
    core = a_node(a_run())

    core.look(at(1), LATE)
    assert (core.state, taken(core)) == ("holding", [])
    core.look(at(HOLD_S), LATE)
    assert (core.state, taken(core)) == ("holding", [])
    core.look(at(HOLD_S + 0.5), VALID)
    assert (core.state, taken(core)) == ("live", [ClaimRuns(3)])


def test_runs_that_stood_still_for_too_long_are_stopped_and_get_no_strike() -> None:
    core = a_node(a_run(strikes=1))
    core.look(at(1), LATE)
    core.take()

    core.look(at(1 + HOLD_S), LATE)
    assert (core.state, taken(core)) == ("waiting", [HurryRun(a_run(strikes=1))])
    core.work_ended(a_run(strikes=1), ended(), at(302))
    core.look(at(303), LATE)
    (wanted,) = given_back(core)
    assert (wanted.verdict.state, wanted.verdict.strikes) == ("queued", 1)
    core.no_answer("cut")

    core.look(at(400), VALID)
    assert core.state == "live"
    assert taken(core) == [wanted, ClaimRuns(3)]


@pytest.mark.requirement("fleet-hold-time")
def test_a_hub_that_waits_for_its_last_commit_is_killed_while_the_database_is_away() -> None:
    core = a_node(a_run())
    core.look(at(1), LATE)
    core.look(at(1 + HOLD_S), LATE)
    core.take()

    core.look(at(HOLD_S + STUCK_S), LATE)
    assert taken(core) == []
    core.look(at(1 + HOLD_S + STUCK_S), LATE)
    assert taken(core) == [KillRun(a_run())]
    core.look(at(2 + HOLD_S + STUCK_S), LATE)
    assert taken(core) == [], "once"
    core.work_ended(a_run(), ended(), at(400))
    core.look(at(401), VALID)
    (wanted,) = given_back(core)
    assert (wanted.verdict.state, wanted.verdict.strikes) == ("queued", 0)


def test_a_hub_that_is_to_stop_is_not_killed_when_the_database_answers() -> None:
    core = a_node(a_run())
    core.look(at(1), LATE)
    core.look(at(1 + HOLD_S), LATE)
    core.look(at(2 + HOLD_S), VALID)
    core.take()

    core.look(at(400), VALID)
    assert taken(core) == [ClaimRuns(3)]


def test_a_hub_that_gives_up_standing_still_by_itself_gets_no_strike() -> None:
    core = a_node(a_run())
    core.look(at(1), LATE)
    core.take()

    core.work_ended(a_run(), ended(), at(300))

    core.look(at(300), LATE)
    (wanted,) = given_back(core)
    assert (wanted.verdict.state, wanted.verdict.strikes) == ("queued", 0)


def test_a_drained_node_stops_its_runs_and_ends_when_they_are_given_back() -> None:
    for lease, stops in ((DRAINING, 0), (VALID, 1)):
        core = a_node(a_run())
        core.look(at(1), lease, stops)
        assert (core.state, taken(core)) == ("draining", [StopRun(a_run())])
        core.work_ended(a_run(), ended("terminated"), at(2))
        core.look(at(2), lease, stops)
        (wanted,) = given_back(core)
        assert wanted.verdict.state == "queued"
        core.given_back(a_run(), "queued")
        assert core.state == "ended"


@pytest.mark.parametrize(
    "lease",
    [VALID, LeaseView("draining", is_valid=True, is_hurried=True), LATE],
    ids=["time", "person", "lease"],
)
def test_a_node_that_drains_interrupts_steps_when_it_may_not_wait_any_longer(lease: LeaseView) -> None:
    core = a_node(a_run())
    core.look(at(1), VALID, 1)
    assert taken(core) == [StopRun(a_run())]
    core.look(at(DRAIN_S), VALID, 1)
    assert taken(core) == []
    if lease is LATE:
        core.look(at(2), LATE, 1)
        assert taken(core) == []

    core.look(at(HOLD_S + 2 if lease is LATE else DRAIN_S + 1), lease, 1)
    assert taken(core) == [HurryRun(a_run())]
    core.look(at(DRAIN_S + 2), lease, 1)
    killed = [KillRun(a_run())] if lease is LATE else []
    assert (core.state, taken(core)) == ("draining", killed), (
        "it asks once, and waits while the database answers"
    )


def test_a_run_that_was_claimed_while_the_node_began_to_drain_is_given_back_unbegun() -> None:
    core = a_node(a_run(1))
    core.look(at(1), VALID)
    assert taken(core) == [ClaimRuns(3)]
    core.look(at(2), VALID, 1)
    core.take()

    core.owns([a_run(1), a_run(2)])
    assert taken(core) == []
    core.look(at(3), VALID, 1)
    assert [wanted.run for wanted in given_back(core)] == [a_run(2)]


def test_a_second_signal_kills_and_gives_back_what_has_ended() -> None:
    core = a_node(a_run(1), a_run(2))
    core.look(at(1), VALID, 1)
    core.take()

    core.look(at(2), VALID, 2)
    assert taken(core) == [KillRun(a_run(1)), KillRun(a_run(2))]
    core.work_ended(a_run(1), ended(), at(3))
    core.look(at(3), VALID, 2)
    (wanted,) = given_back(core)
    assert (wanted.run, wanted.verdict.strikes) == (a_run(1), 0)
    core.given_back(a_run(1), "queued")
    states: list[str] = []
    for second in (31, 32):
        core.look(at(second), VALID, 2)
        states.append(core.state)
    assert states == ["killing", "ended"], "what cannot be killed is left to the lease"


def test_a_dead_node_kills_its_runs_and_joins_anew_when_they_are_gone() -> None:
    core = a_node(a_run(1), a_run(2))
    core.work_ended(a_run(2), ended(status="completed"), at(1))

    core.look(at(1), DEAD)
    assert (core.state, taken(core)) == ("ending", [KillRun(a_run(1))])
    core.work_ended(a_run(1), ended(), at(2))
    assert (core.state, taken(core)) == ("joining", [EndLife(), Join()])
    core.look(at(2), DEAD)
    assert taken(core) == [], "it has asked already"
    core.no_answer("cut")
    core.look(at(3), DEAD)
    assert taken(core) == [Join()]
    core.joined()
    assert (core.state, taken(core)) == ("live", [ClaimRuns(4)])


def test_a_node_that_is_stopped_while_it_joins_ends() -> None:
    core = FleetCore(4)
    core.look(at(0), VALID)
    core.no_answer("cut")

    core.look(at(1), VALID, 1)

    assert core.state == "ended"


def test_a_dead_node_that_was_asked_to_stop_does_not_join_anew() -> None:
    core = a_node(a_run())
    core.look(at(1), DEAD)
    core.take()
    core.work_ended(a_run(), ended(), at(2))

    core.look(at(2), DEAD, 1)

    assert (core.state, taken(core)) == ("ended", [EndLife()])


def test_the_database_is_reported_away_once_and_back_once() -> None:
    core = a_node(a_run())
    notes: list[str] = []
    for second in (1, 2):
        core.look(at(second), VALID)
        core.no_answer("cut")
        notes += [output.text for output in core.take() if isinstance(output, Note)]
    core.owns([a_run()])
    core.owns([a_run()])
    notes += [output.text for output in core.take() if isinstance(output, Note)]

    assert notes == ["the database does not answer: cut", "the database answers again"]
