"""What the end of a worker's process means: crashes and restarts."""

from __future__ import annotations

import pytest
from tests.unit.runtime.stage import (
    Puppet,
    Stage,
    fields,
    shell,
)

from bartack.runtime.kernel.commands import ShellEnd
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s


def test_a_worker_whose_process_dies_is_started_again_with_its_history() -> None:
    stage = Stage()
    main = stage.begin()
    main.value(main.step(1, "send", s.SendArgs(mailbox="box"), 1))

    again = stage.kill("main")

    assert again is not None
    assert (again.incarnation, [past.step for past in again.past]) == (2, ["send"])
    assert ("note", "crashed (signal:SIGKILL); restarting from its last step") in stage.shown


@pytest.mark.parametrize("reason", ["exit:0", "exit:3", "signal:SIGSEGV", "oom"])
def test_a_process_that_ends_without_a_result_has_crashed_whatever_its_status(reason: str) -> None:
    stage = Stage()
    main = stage.begin()
    assert main.value(main.done(1, "done"))

    main.die(reason)
    stage.hub.run_ready()

    (crash,) = stage.entries("worker.crashed")
    assert (crash.data["reason"], crash.data["last_step"]) == (reason, "main:1 body")
    assert stage.workers["main"] is not main
    assert [past.n for past in stage.workers["main"].past] == [1]


def test_a_command_in_flight_goes_on_and_the_restarted_worker_is_attached_to_it() -> None:
    stage = Stage()
    main = stage.begin()
    shell(main, 1)
    again = stage.kill("main")
    assert again is not None

    i = shell(again, 1)
    stage.end_shell(ShellEnd(0, b"built"))

    assert fields(again.value(i))["stdout"] == "built"
    assert len(stage.started_shells) == 1


def test_a_command_that_ends_before_the_restarted_worker_asks_again_is_not_run_twice() -> None:
    stage = Stage()
    main = stage.begin()
    shell(main, 1)
    again = stage.kill("main")
    assert again is not None
    stage.end_shell(ShellEnd(0, b"built"))

    shell(again, 1)

    assert [past.step for past in again.past] == ["shell"]
    assert len(stage.started_shells) == 1
    assert stage.outcomes()["main", 1] == 1


def test_the_outcome_of_a_step_that_ends_while_nobody_is_there_is_history() -> None:
    stage = Stage()
    main = stage.begin()
    shell(main, 1)
    stage.shy.add("main")
    main.die()
    stage.hub.run_ready()
    stage.end_shell()
    stage.shy.clear()

    again = Puppet(stage, "main", 2)
    stage.hub.run_ready()

    assert [past.step for past in again.past] == ["shell"]


def test_a_step_in_which_its_worker_dies_three_times_has_crashed_also_across_a_resume() -> None:
    stage = Stage()
    main = stage.begin()
    for turn in range(3):
        main.begin(1)
        if turn == 1:
            main.die()
            stage.hub.run_ready()
            main = stage.again()
        else:
            main.die()
            stage.hub.run_ready()
            stage.wait(2.0)
            main = stage.workers["main"]

    assert [past.e.type.rpartition(":")[2] for past in main.past if past.e] == ["StepCrashedError"]


def test_another_step_does_not_reset_the_crashes_of_a_step() -> None:
    stage = Stage()
    main = stage.begin()
    for _ in range(3):
        main.begin(1, p="main.1.1")
        main.done(1, p="main.1.2")
        main.die()
        stage.hub.run_ready()
        stage.wait(2.0)
        main = stage.workers["main"]

    assert stage.worker("main").crashes["main.1.1", 1] == 3
    assert [past.e.type.rpartition(":")[2] for past in main.past if past.e] == ["StepCrashedError"]


def test_a_worker_that_dies_between_steps_again_and_again_fails_the_session_and_may_try_after_resume() -> (
    None
):
    stage = Stage()
    main = stage.begin()
    for _ in range(3):
        stage.workers["main"].die()
        stage.hub.run_ready()
        stage.wait(2.0)
    assert stage.hub.status == "failed"

    main = stage.again()
    main.die()
    stage.hub.run_ready()

    assert stage.core.state.failure is None


def test_a_worker_that_dies_with_its_parent_program_has_not_crashed() -> None:
    stage = Stage()
    stage.begin()
    for incarnation in range(1, 6):
        stage.core.process_gone("main", incarnation, "lost its parent", counted=False)
        stage.hub.finish_turn()
        stage.hub.run_ready()

    assert stage.entries("worker.crashed") == []
    assert stage.workers["main"].incarnation == 6


def test_a_crash_is_charged_to_the_body_the_process_was_busy_with() -> None:
    stage = Stage()
    stage.begin()
    busy = f.Begin(p="main", n=1, step="body", fp="f1", about="team.stitch", timeout_s=10.0)
    for incarnation in range(1, 4):
        stage.core.process_gone("main", incarnation, "signal:SIGSEGV", busy=[busy])
        stage.hub.finish_turn()
        stage.hub.run_ready()
        stage.wait(2.0)

    assert stage.worker("main").crashes == {("main", 1): 3}
    crashed = [past.e for past in stage.workers["main"].past if past.e]
    assert [error.type.rpartition(":")[2] for error in crashed] == ["StepCrashedError"]


def test_a_crash_in_the_turn_in_which_a_body_begins_is_charged_to_it() -> None:
    stage = Stage()
    main = stage.begin()
    stage.core.frame(main.number, f.Begin(p="main", n=1, step="body", fp="f1", about="team.stitch"))
    stage.core.process_gone("main", 1, "signal:SIGSEGV")
    stage.hub.finish_turn()

    assert stage.worker("main").crashes == {("main", 1): 1}


def test_bodies_of_branches_that_a_process_was_busy_with_are_written_down_when_it_is_gone() -> None:
    stage = Stage()
    stage.begin()
    busy = [f.Begin(p=f"main.1.{branch}", n=1, step="body", fp="f1", about="stitch") for branch in (1, 2)]
    stage.core.process_gone("main", 1, "signal:SIGSEGV", busy=busy)
    stage.hub.finish_turn()

    assert [(step.p, step.n) for step in stage.worker("main").open.values()] == [
        ("main.1.1", 1),
        ("main.1.2", 1),
    ]
    assert stage.worker("main").crashes == {("main.1.1", 1): 1}


def test_a_body_that_does_not_end_in_time_is_ended_with_its_process_and_does_not_count_as_a_crash() -> None:
    stage = Stage()
    main = stage.begin()
    main.begin(1, timeout_s=10.0)

    stage.wait(10.0)

    again = stage.workers["main"]
    assert again is not main
    assert [past.e.type.rpartition(":")[2] for past in again.past if past.e] == ["StepTimeoutError"]
    assert stage.entries("worker.crashed") == []
    main.done(1, "too late")
    assert stage.outcomes()["main", 1] == 1


def test_a_body_whose_outcome_is_decided_is_not_open_again_when_its_process_is_gone() -> None:
    stage = Stage()
    stage.slow_to_die.add("main")
    main = stage.begin()
    main.begin(1, timeout_s=10.0)
    stage.wait(10.0)
    busy = f.Begin(p="main", n=1, step="body", fp="fp-body", timeout_s=10.0)

    stage.core.process_gone("main", 1, "signal:SIGKILL", busy=[busy])
    stage.hub.finish_turn()

    assert stage.worker("main").open == {}


def test_the_time_of_a_body_begins_anew_when_its_worker_was_restarted() -> None:
    stage = Stage()
    main = stage.begin()
    main.begin(1, timeout_s=10.0)
    stage.wait(9.0)
    again = stage.kill("main")
    assert again is not None

    again.begin(1, timeout_s=10.0)
    stage.wait(9.0)

    assert stage.workers["main"] is again
    assert not again.gone
