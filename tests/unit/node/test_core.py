"""What becomes of a run whose process has ended."""

from __future__ import annotations

import msgspec
import pytest

from bartack.depot import Job, Standing, Verdict
from bartack.node import Ending, Policy, judge

JOB = Job(run="run-1", path="p", workspace="w")
OWNED = Standing(job=JOB, state="owned", progress=3)
POLICY = Policy()
SECOND = 1_000_000


def judged(ending: Ending, **changes: object) -> tuple[str, str]:
    verdict = judge(msgspec.structs.replace(OWNED, **changes), ending, 100, POLICY)
    return verdict.state, verdict.outcome or verdict.reason


@pytest.mark.parametrize("status", ["completed", "cancelled", "aborted", "failed"])
def test_a_run_that_has_ended_is_over(status: str) -> None:
    assert judged(Ending(status=status)) == ("over", status)


@pytest.mark.parametrize(
    ("stop", "state", "reason"),
    [
        ("interrupted", "resting", "a person has stopped it"),
        ("waiting", "resting", "it waits for an answer"),
        ("terminated", "queued", "it was terminated"),
        ("disk", "queued", "its disk is full or does not work"),
        ("", "queued", "its process died"),
    ],
)
def test_a_run_that_was_stopped_goes_on_unless_a_person_is_needed(stop: str, state: str, reason: str) -> None:
    assert judged(Ending(stop=stop, progress=3)) == (state, reason)


@pytest.mark.parametrize(
    ("stop", "due_us", "reason"),
    [
        ("waiting", 0, "it waits for an answer"),
        ("waiting", 70, "timer of main"),
        ("resting", 70, "timer of main"),
    ],
)
def test_a_run_that_has_nothing_to_do_rests_until_its_time_or_an_answer(
    stop: str, due_us: int, reason: str
) -> None:
    ending = Ending(stop=stop, due_us=due_us, about="timer of main" if due_us else "an answer", progress=4)
    verdict = judge(OWNED, ending, 60, POLICY)

    assert (verdict.state, verdict.wakes, verdict.due_us, verdict.reason) == ("resting", True, due_us, reason)


def test_a_run_that_a_person_has_stopped_does_not_wake() -> None:
    assert not judge(OWNED, Ending(stop="interrupted"), 60, POLICY).wakes


def test_a_run_that_cannot_be_run_is_held_and_one_that_runs_elsewhere_rests() -> None:
    assert judged(Ending(problem="BT101: no")) == ("held", "BT101: no")
    assert judged(Ending(elsewhere=True)) == ("resting", "another process runs it")


def test_a_process_that_dies_again_and_again_without_progress_is_given_up_after_growing_waits() -> None:
    standing, waits = OWNED, list[int]()
    while (verdict := judge(standing, Ending(progress=3), 0, POLICY)).state == "queued":
        waits.append(verdict.due_us // SECOND)
        standing = msgspec.structs.replace(standing, strikes=verdict.strikes, progress=verdict.progress)

    assert waits == [1, 4, 16, 64]
    assert verdict.state == "held"
    assert (
        verdict.reason == "its process died 5 times in a row without progress; see hub.log in its directory"
    )


def test_a_run_whose_workspace_is_in_use_is_queued_with_growing_waits_and_without_blame() -> None:
    standing, verdicts = msgspec.structs.replace(OWNED, strikes=2, failures=1), list[Verdict]()
    for _ in range(7):
        verdicts.append(judge(standing, Ending(busy="waits for the workspace"), 0, POLICY))
        standing = msgspec.structs.replace(standing, waits=verdicts[-1].waits)

    assert [one.due_us // SECOND for one in verdicts] == [1, 4, 16, 64, 256, 600, 600]
    assert {(one.state, one.reason) for one in verdicts} == {("queued", "waits for the workspace")}
    assert {(one.strikes, one.failures, one.progress) for one in verdicts} == {(2, 1, 3)}
    assert judge(standing, Ending(progress=4), 0, POLICY).waits == 0


def test_progress_takes_the_strikes_back() -> None:
    verdict = judge(msgspec.structs.replace(OWNED, strikes=4), Ending(progress=4), 0, POLICY)

    assert (verdict.state, verdict.strikes, verdict.due_us) == ("queued", 1, SECOND)


def test_a_reboot_is_nobodys_fault() -> None:
    verdict = judge(msgspec.structs.replace(OWNED, strikes=4), Ending(progress=3, rebooted=True), 7, POLICY)

    assert (verdict.state, verdict.strikes, verdict.due_us) == ("queued", 4, 7)


def test_a_full_disk_is_waited_for_without_end() -> None:
    verdict = judge(msgspec.structs.replace(OWNED, waits=1000), Ending(stop="disk", progress=3), 0, POLICY)

    assert (verdict.state, verdict.due_us) == ("queued", 600 * SECOND)


@pytest.mark.requirement("strikes-apart")
def test_a_full_disk_is_no_strike_of_the_run() -> None:
    standing, dues = OWNED, list[int]()
    for _ in range(POLICY.strikes + 1):
        verdict = judge(standing, Ending(stop="disk", progress=3), 0, POLICY)
        dues.append(verdict.due_us)
        standing = msgspec.structs.replace(standing, strikes=verdict.strikes, waits=verdict.waits, progress=3)

    assert dues == sorted(dues)
    assert dues[0] < dues[-1]
    assert judge(standing, Ending(progress=3), 0, POLICY).state == "queued", "it has died once"


def test_a_failure_is_retried_only_if_the_user_has_said_so_and_as_often() -> None:
    job = msgspec.structs.replace(JOB, on_failure="retry", retries=2)
    standing, states = msgspec.structs.replace(OWNED, job=job), list[tuple[str, str]]()
    for _ in range(3):
        verdict = judge(standing, Ending(status="failed", progress=3), 0, POLICY)
        states.append((verdict.state, verdict.reason or verdict.outcome))
        standing = msgspec.structs.replace(standing, failures=verdict.failures)

    assert states == [
        ("queued", "it failed; retry 1 of 2"),
        ("queued", "it failed; retry 2 of 2"),
        ("over", "failed"),
    ]
