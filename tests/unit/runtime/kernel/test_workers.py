"""The crew: how workers start, end and crash, and how the failure of one reaches all."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.unit.runtime.stage import Puppet, Stage, delegate, error, fields, plain, raw

from bartack.errors import ResumeRefusedError, StepCancelledError
from bartack.runtime.hub.launch import check_resumable
from bartack.runtime.kernel.commands import ShellEnd
from bartack.runtime.kernel.outcome import describe
from bartack.runtime.kernel.timers import CROWD
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state import entries as e
from bartack.runtime.state.worker_state import UnknownDecision, Value

CANCELLED = describe(StepCancelledError("cancelled"))


def pair(
    stage: Stage, on_failure: str = "fail", timeout_s: float | None = None
) -> tuple[Puppet, int, Puppet, Puppet]:
    """A first worker that delegates to two."""
    main = stage.begin()
    i = delegate(main, 1, ["a", "b"], on_failure=on_failure, timeout_s=timeout_s)
    return main, i, stage.workers["main/1.1:a"], stage.workers["main/1.2:b"]


def shell(worker: Puppet, n: int, *words: str, once: bool = False, check: bool = True, p: str = "") -> int:
    args = s.ShellArgs(pipeline=[list(words or ("make",))], once=once, check=check)
    return worker.step(n, "shell", args, p=p)


def receive(worker: Puppet, n: int, mailbox: str = "box") -> int:
    return worker.step(n, "receive", s.ReceiveArgs(mailbox=mailbox))


# The life of a run.


def test_a_run_ends_with_the_result_of_its_first_worker() -> None:
    stage = Stage()
    main = stage.begin()

    main.result({"answer": 42})

    assert stage.hub.status == "completed"
    assert plain(stage.core.state.result.raw) == {"answer": 42}
    assert stage.core.state.status == "completed"


def test_a_worker_is_told_its_arguments_and_nothing_of_others() -> None:
    stage = Stage()
    _, _, first, _ = pair(stage)

    welcome = first.heard[0]
    assert isinstance(welcome, f.Welcome)
    assert (welcome.worker, plain(welcome.v)) == ("prog:a", {})
    assert first.past == []


def test_a_process_that_is_not_the_current_one_of_its_worker_is_sent_away() -> None:
    stage = Stage()
    stage.begin()
    stale = Puppet(stage, "main", 7)
    stage.hub.run_ready()

    shell(stale, 1)

    assert stale.heard == []
    assert stage.started_shells == []


def test_a_hub_that_stops_in_order_leaves_the_run_resumable() -> None:
    stage = Stage()
    main = stage.begin()
    main.value(main.step(1, "send", s.SendArgs(mailbox="box"), 1))

    stage.core.stop("interrupted")
    stage.hub.finish_turn()

    stopped = stage.core.state.status
    assert [past.step for past in stage.again().past] == ["send"]
    assert (stopped, stage.core.state.status) == ("interrupted", "running")


# Delegates.


def test_a_delegate_gives_the_results_in_order_in_the_line_of_the_last_one() -> None:
    stage = Stage()
    main, i, first, second = pair(stage)
    second.result("b")
    assert main.answer(i) is None

    first.result("a")

    assert main.value(i) == ["a", "b"]
    ended, finished = stage.entries()[-2:]
    assert (ended.kind, finished.kind) == ("worker.ended", "step.finished")
    assert stage.hub.journal.last_seq == finished.seq


def test_an_empty_delegate_is_done_at_once_with_one_entry() -> None:
    stage = Stage()
    main = stage.begin()
    before = len(stage.entries())

    assert main.value(delegate(main, 1, [])) == []
    assert len(stage.entries()) == before + 1


def test_a_failure_fails_the_session_in_one_line() -> None:
    stage = Stage()
    _, _, first, _ = pair(stage)
    before = stage.hub.journal.last_seq

    first.fail(error("KeyError", "'x'"))

    line = [entry.kind for entry in stage.store.entries if entry.seq > before]
    assert line == ["worker.ended", "session.failed"]
    assert stage.core.state.failure is not None


def test_a_sibling_is_told_at_once_and_the_delegating_worker_last() -> None:
    stage = Stage()
    main, i, first, second = pair(stage)
    receive(second, 1)

    first.fail()
    assert second.pushed(f.SessionFailed) == 1
    assert (main.answer(i), main.pushed(f.SessionFailed)) == (None, 0)
    second.fail(error("SessionFailedError"))

    assert main.error(i) == "WorkerError"
    assert main.pushed(f.SessionFailed) == 1


def test_the_delegating_worker_sees_which_worker_failed_and_why() -> None:
    stage = Stage()
    main, i, first, second = pair(stage)
    first.fail(error("KeyError", "'x'"))
    second.fail(error("SessionFailedError"))

    refusal = main.answer(i)
    assert isinstance(refusal, f.Refusal)
    assert refusal.e.facts["worker"] == first.path
    assert refusal.e.cause is not None
    assert (refusal.e.cause.type, refusal.e.cause.message) == ("builtins:KeyError", "'x'")


def test_in_a_nested_delegate_each_level_learns_it_after_the_one_below() -> None:
    stage = Stage()
    main = stage.begin()
    outer = delegate(main, 1, ["middle"])
    middle = stage.workers["main/1.1:middle"]
    inner = delegate(middle, 1, ["deep", "other"])
    deep, other = stage.workers["main/1.1:middle/1.1:deep"], stage.workers["main/1.1:middle/1.2:other"]

    deep.fail()
    assert (middle.answer(inner), main.answer(outer)) == (None, None)
    other.fail(error("SessionFailedError"))
    assert middle.error(inner) == "WorkerError"
    assert main.answer(outer) is None
    middle.fail(error("WorkerError"))

    assert main.error(outer) == "WorkerError"
    refusal = main.answer(outer)
    assert isinstance(refusal, f.Refusal)
    assert refusal.e.facts["worker"] == deep.path


def test_a_result_behind_the_failure_is_suppressed_and_comes_again_after_resume() -> None:
    stage = Stage()
    _, _, first, second = pair(stage)

    first.fail()
    second.result("too late")
    stage.workers["main"].fail(error("WorkerError"))

    assert stage.worker(second.path).status != "completed"
    main = stage.again()
    i = delegate(main, 1, ["a", "b"])
    stage.workers[first.path].result("mended")
    stage.workers[second.path].result("b")
    assert main.value(i) == ["mended", "b"]


def test_a_result_before_the_failure_is_kept() -> None:
    stage = Stage()
    _, _, first, second = pair(stage)
    second.result("b")

    first.fail()
    stage.workers["main"].fail(error("WorkerError"))
    main = stage.again()
    i = delegate(main, 1, ["a", "b"])
    stage.workers[first.path].result("mended")

    assert main.value(i) == ["mended", "b"]
    assert second.path not in stage.workers


def test_two_failures_are_one_cause_and_one_suppressed() -> None:
    stage = Stage()
    _, _, first, second = pair(stage)

    first.fail(error("KeyError"))
    second.fail(error("OSError"))

    state = stage.core.state
    assert state.failure is not None
    assert (state.failure.worker, state.suppressed) == (first.path, 1)


def test_both_failed_workers_are_set_back_when_the_run_is_resumed() -> None:
    stage = Stage()
    _, _, first, second = pair(stage)
    shells = [shell(first, 1), shell(second, 1)]
    for worker, i in zip((first, second), shells, strict=True):
        stage.end_shell(ShellEnd(1))
        assert worker.error(i) == "ShellError"

    first.fail(error("ShellError"), (first.path, 1))
    second.fail(error("ShellError"), (second.path, 1))
    stage.workers["main"].fail(error("WorkerError"))
    stage.again()

    assert [stage.workers[path].past for path in (first.path, second.path)] == [[], []]


def test_the_failed_worker_does_not_hear_of_its_own_failure() -> None:
    stage = Stage()
    main = stage.begin()

    main.fail()

    assert (main.pushed(f.SessionFailed), main.pushed(f.Leave)) == (0, 1)


def test_failures_are_values_of_a_delegate_that_collects() -> None:
    stage = Stage()
    main, i, first, second = pair(stage, on_failure="collect")

    first.fail(error("KeyError", "'x'"))
    assert stage.core.state.failure is None
    second.result(2)

    assert main.value(i) == [
        {"ok": False, "error": {"type": "builtins:KeyError", "message": "'x'"}},
        {"ok": True, "value": 2},
    ]


def test_a_collected_failure_ends_what_the_worker_had_started() -> None:
    stage = Stage()
    main, i, first, second = pair(stage, on_failure="collect")
    delegate(first, 1, ["below"], kind="spawn")
    below = stage.workers["main/1.1:a/1:below"]
    delegate(below, 1, ["deeper"])
    deeper = stage.workers["main/1.1:a/1:below/1.1:deeper"]
    shell(deeper, 1)

    first.fail()
    second.result(2)

    assert (below.gone, deeper.gone, stage.stopped_shells) == (True, True, [1])
    outcomes = msgspec.convert(main.value(i), type=list[dict[str, object]])
    assert [outcome["ok"] for outcome in outcomes] == [False, True]


def test_a_worker_that_cannot_be_kept_alive_is_a_value_too_if_failures_are_collected() -> None:
    stage = Stage()
    main, i, first, second = pair(stage, on_failure="collect")
    second.result(2)

    for _ in range(3):
        stage.workers[first.path].die()
        stage.hub.run_ready()
        stage.wait(2.0)

    assert stage.core.state.failure is None
    outcomes = msgspec.convert(main.value(i), type=list[dict[str, object]])
    assert [outcome["ok"] for outcome in outcomes] == [False, True]


def test_what_the_program_must_not_handle_fails_the_session_also_if_failures_are_collected() -> None:
    stage = Stage()
    _, _, first, _ = pair(stage, on_failure="collect")

    first.say(f.Failed(e=error("ReplayMismatchError"), fatal=True))

    assert stage.core.state.failure is not None


def test_a_delegate_with_a_limit_runs_so_many_workers_at_a_time() -> None:
    stage = Stage()
    main = stage.begin()
    i = delegate(main, 1, ["a", "b", "c"], limit=2)
    assert sorted(stage.workers) == ["main", "main/1.1:a", "main/1.2:b"]

    stage.workers["main/1.1:a"].result(1)
    assert "main/1.3:c" in stage.workers
    stage.workers["main/1.2:b"].result(2)
    stage.workers["main/1.3:c"].result(3)

    assert main.value(i) == [1, 2, 3]


def test_the_limit_of_a_delegate_holds_after_a_restart() -> None:
    stage = Stage()
    delegate(stage.begin(), 1, ["a", "b", "c"], limit=1)

    stage.again()

    assert sorted(stage.workers) == ["main", "main/1.1:a"]


def test_a_delegate_that_takes_too_long_ends_its_workers_first() -> None:
    stage = Stage()
    main, i, first, second = pair(stage, timeout_s=10.0)
    stage.slow_to_die.add(second.path)

    stage.wait(10.0)
    assert (first.gone, main.answer(i)) == (True, None)
    second.die()
    stage.hub.run_ready()

    assert main.error(i) == "DeadlineExceededError"
    assert stage.core.state.failure is None


def test_a_cancelled_delegate_leaves_nothing_of_its_workers() -> None:
    stage = Stage()
    main, i, first, _ = pair(stage)
    shell(first, 1)
    delegate(first, 2, ["deep"], p=f"{first.path}.2.1")
    deep = stage.workers[f"{first.path}.2.1/2.1:deep"]

    main.cancel(1)

    assert main.error(i) == "StepCancelledError"
    assert (first.gone, deep.gone, stage.stopped_shells) == (True, True, [1])
    shell(first, 3)
    assert len(stage.started_shells) == 1


@pytest.mark.parametrize("told", [False, True])
def test_a_delegate_that_was_cancelled_when_the_hub_died_is_cancelled_after_it(told: bool) -> None:
    stage = Stage()
    main, _, first, second = pair(stage)
    if not told:
        stage.slow_to_die |= {first.path, second.path}
    main.cancel(1)

    main = stage.again()

    if told:
        assert [past.e is not None for past in main.past] == [True]
    else:
        assert main.error(delegate(main, 1, ["a", "b"])) == "StepCancelledError"


def test_a_worker_that_asks_for_its_delegate_when_the_session_has_failed_cancels_nobody() -> None:
    stage = Stage()
    pair(stage)
    main = stage.again()
    first, second = (stage.workers[path] for path in sorted(stage.workers) if path != main.path)
    receive(second, 1)

    first.fail()
    delegate(main, 1, ["a", "b"])
    second.fail(error("SessionFailedError"))

    assert [entry.data["path"] for entry in stage.entries("worker.ended")] == [first.path]
    assert not stage.worker(second.path).ended


def test_a_cancelled_worker_that_says_hello_late_is_sent_away() -> None:
    stage = Stage()
    stage.shy.add("main/1.1:a")
    main = stage.begin()
    delegate(main, 1, ["a"])
    stage.slow_to_die.add("main/1.1:a")
    stage.shy.clear()
    stage.core.delegates.cancel(
        stage.worker("main"), stage.worker("main").open["main", 1], StepCancelledError("x")
    )

    late = Puppet(stage, "main/1.1:a", 1)
    stage.hub.run_ready()

    assert late.heard == []
    assert stage.worker("main/1.1:a").ended


def failed_beside_a_delegate(stage: Stage) -> Puppet:
    """A first worker that failed in one branch, so that the delegate in another one was given up; returns its worker."""
    main = stage.begin()
    failing = shell(main, 1, p="main.1.1")
    delegate(main, 1, ["a"], p="main.1.2")
    child = stage.workers["main.1.2/1.1:a"]
    child.value(child.step(1, "send", s.SendArgs(mailbox="box"), "paid for"))
    shell(child, 2)
    delegate(child, 3, ["deep"], p=f"{child.path}.3.1")
    deep = stage.workers[f"{child.path}.3.1/3.1:deep"]
    deep.value(deep.step(1, "send", s.SendArgs(mailbox="box"), "paid for"))
    stage.end_shell(ShellEnd(1), 1)
    main.cancel(1, p="main.1.2")
    main.fail(error("ShellError"), ("main.1.1", 1))
    assert main.error(failing) == "ShellError"
    assert (child.gone, deep.gone) == (True, True)
    return child


def test_workers_that_were_given_up_because_of_a_failure_go_on_where_they_were_when_it_is_mended() -> None:
    stage = Stage()
    child = failed_beside_a_delegate(stage)

    main = stage.again()
    shell(main, 1, p="main.1.1")
    i = delegate(main, 1, ["a"], p="main.1.2")
    again = stage.workers[child.path]
    deep = stage.workers[f"{child.path}.3.1/3.1:deep"]
    shell(again, 2)
    delegate(again, 3, ["deep"], p=f"{child.path}.3.1")

    assert [past.step for past in again.past] == ["send"]
    assert [past.step for past in deep.past] == ["send"]
    assert stage.started_shells[1].key == stage.started_shells[-1].key
    deep.result("deep")
    again.result("whole")
    assert main.value(i) == ["whole"]


def test_a_delegate_that_is_done_anew_with_other_workers_forgets_those_before() -> None:
    stage = Stage()
    child = failed_beside_a_delegate(stage)

    main = stage.again()
    i = delegate(main, 1, ["b"], p="main.1.2")
    assert not any(path.startswith(child.path) for path in stage.core.state.workers)
    stage.workers["main.1.2/1.1:b"].result("b")

    assert main.value(i) == ["b"]
    stage.again()
    assert not any(path.startswith(child.path) for path in stage.core.state.workers)


def test_workers_that_are_made_anew_have_other_keys() -> None:
    stage = Stage()
    child = failed_beside_a_delegate(stage)
    before = {start.key for start in stage.started_shells}

    main = stage.again()
    args = s.DelegateArgs(workers=["prog:a"])
    main.step(1, "delegate", args, [{"args": [1]}], p="main.1.2")
    shell(stage.workers[child.path], 2)

    assert stage.started_shells[-1].key not in before


def test_a_worker_that_was_given_up_for_another_reason_stays_so() -> None:
    stage = Stage()
    main = stage.begin()
    failing = shell(main, 1, p="main.1.1")
    delegate(main, 1, ["a"], p="main.1.2")
    child = stage.workers["main.1.2/1.1:a"]
    inner = delegate(child, 1, ["late"], timeout_s=5.0)
    stage.wait(5.0)
    assert child.error(inner) == "DeadlineExceededError"
    child.value(child.step(2, "send", s.SendArgs(mailbox="box"), "went on"))
    stage.end_shell(ShellEnd(1))
    main.cancel(1, p="main.1.2")
    main.fail(error("ShellError"), ("main.1.1", 1))
    assert main.error(failing) == "ShellError"

    stage.again()

    assert child.path in stage.workers
    assert f"{child.path}/1.1:late" not in stage.workers


# Spawned workers.


def test_a_spawned_worker_runs_beside_and_is_joined() -> None:
    stage = Stage()
    main = stage.begin()
    path = main.value(delegate(main, 1, ["a"], kind="spawn"))
    assert path == "main/1:a"
    joins = [main.step(n, "join", s.JoinArgs(path=str(path)), p=f"main.2.{n}") for n in (1, 2)]

    stage.workers["main/1:a"].result("done")

    assert [main.value(i) for i in joins] == ["done", "done"]
    assert main.value(main.step(3, "join", s.JoinArgs(path=str(path)))) == "done"


def test_joining_a_worker_that_is_not_there_is_an_error() -> None:
    main = Stage().begin()

    assert main.error(main.step(1, "join", s.JoinArgs(path="main/9:x"))) == "WorkerError"


def test_the_end_of_a_worker_waits_for_what_it_spawned() -> None:
    stage = Stage()
    main = stage.begin()
    delegate(main, 1, ["a"], kind="spawn")
    main.result("end")
    assert stage.hub.status == ""

    stage.workers["main/1:a"].result()

    assert stage.hub.status == "completed"
    assert plain(stage.core.state.result.raw) == "end"


def test_a_worker_that_dies_while_its_end_waits_comes_to_it_again() -> None:
    stage = Stage()
    main = stage.begin()
    delegate(main, 1, ["a"], kind="spawn")
    main.result("end")
    again = stage.kill("main")
    assert again is not None
    stage.workers["main/1:a"].result()
    assert stage.hub.status == ""

    again.result("end")

    assert stage.hub.status == "completed"


def test_a_spawned_worker_that_fails_fails_the_session_at_once() -> None:
    stage = Stage()
    main = stage.begin()
    delegate(main, 1, ["a"], kind="spawn")

    stage.workers["main/1:a"].fail()

    assert stage.core.state.failure is not None
    assert main.pushed(f.SessionFailed) == 1


def test_a_spawned_worker_whose_failure_is_collected_is_joined_with_it() -> None:
    stage = Stage()
    main = stage.begin()
    delegate(main, 1, ["a"], kind="spawn", on_failure="collect")
    stage.workers["main/1:a"].fail(error("KeyError"))

    joined = main.value(main.step(2, "join", s.JoinArgs(path="main/1:a")))

    assert fields(joined)["ok"] is False


def stop(worker: Puppet, n: int, path: str) -> int:
    return worker.step(n, "stop", s.StopArgs(path=path, reason="enough"))


def test_a_worker_that_is_stopped_learns_it_at_its_open_step_and_fails_nobody() -> None:
    stage = Stage()
    main = stage.begin()
    delegate(main, 1, ["a"], kind="spawn")
    child = stage.workers["main/1:a"]
    waiting = receive(child, 1)

    main.value(stop(main, 2, child.path))
    assert child.error(waiting) == "StepCancelledError"
    child.fail(CANCELLED, (child.path, 1))

    assert stage.core.state.failure is None
    assert main.error(main.step(3, "join", s.JoinArgs(path=child.path))) == "WorkerError"


def test_a_worker_that_is_stopped_between_steps_learns_it_at_the_next_one() -> None:
    stage = Stage()
    main = stage.begin()
    delegate(main, 1, ["a"], kind="spawn")
    child = stage.workers["main/1:a"]
    stop(main, 2, child.path)
    child.say(f.Out(p=child.path, n=1, channel="print", text="still here"))
    child.say(f.Note(p=child.path, n=2, step="now", fp="x", v=raw(1)))

    assert child.error(shell(child, 3)) == "StepCancelledError"
    shell(child, 4)
    assert len(stage.started_shells) == 1


def test_a_worker_that_is_stopped_before_its_process_is_there_learns_it_at_its_first_step() -> None:
    stage = Stage()
    stage.shy.add("main/1:a")
    main = stage.begin()
    delegate(main, 1, ["a"], kind="spawn")
    stop(main, 2, "main/1:a")
    stage.shy.clear()
    stage.again()
    child = stage.workers["main/1:a"]

    assert child.error(receive(child, 1)) == "StepCancelledError"


@pytest.mark.parametrize("asked", [False, True])
def test_a_worker_that_is_stopped_in_a_body_is_restarted_behind_it(asked: bool) -> None:
    stage = Stage()
    main = stage.begin()
    delegate(main, 1, ["a"], kind="spawn")
    child = stage.workers["main/1:a"]
    child.begin(1, asked=asked)

    stop(main, 2, child.path)

    again = stage.workers[child.path]
    assert again is not child
    assert [past.e is not None for past in again.past] == [True]
    child.done(1, "nobody wants it")
    assert stage.outcomes()[child.path, 1] == 1


def test_a_body_that_begins_in_a_worker_that_is_to_stop_is_cancelled() -> None:
    stage = Stage()
    main = stage.begin()
    delegate(main, 1, ["a"], kind="spawn")
    child = stage.workers["main/1:a"]
    stop(main, 2, child.path)

    i = child.begin(1, asked=True)

    assert child.error(i) == "StepCancelledError"


def test_stopping_a_worker_that_has_ended_changes_nothing() -> None:
    stage = Stage()
    main = stage.begin()
    delegate(main, 1, ["a"], kind="spawn")
    stage.workers["main/1:a"].result("done")

    main.value(stop(main, 2, "main/1:a"))

    assert main.value(main.step(3, "join", s.JoinArgs(path="main/1:a"))) == "done"


# Crashes.


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


# Failure and its end.


def test_a_worker_that_does_not_end_behind_the_failure_is_ended() -> None:
    stage = Stage()
    _, _, first, second = pair(stage)
    stage.slow_to_die.add("none")

    first.fail()
    stage.wait(4.9)
    assert second.path not in stage.stopped
    stage.wait(0.2)

    assert second.path in stage.stopped


def test_a_failed_worker_whose_process_does_not_go_is_ended() -> None:
    stage = Stage()
    main = stage.begin()
    main.gone = True

    main.fail()
    assert stage.hub.status == ""
    main.gone = False
    stage.wait(5.0)

    assert stage.hub.status == "failed"


def test_behind_the_failure_only_clean_up_works_and_is_no_history() -> None:
    stage = Stage()
    _, _, first, second = pair(stage)
    waiting = receive(second, 1)
    first.fail()

    cleaned = shell(second, 2, "rm")
    stage.end_shell()
    second.say(f.Begin(p=second.path, n=3, step="timeout", fp="t", timeout_s=5.0))
    second.done(4, kind="write")
    second.say(f.Out(p=second.path, n=5, channel="print", text="bye"))

    assert second.error(second.step(6, "send", s.SendArgs(mailbox="box"), 1)) == "SessionFailedError"
    assert second.answer(waiting) is None
    assert second.value(cleaned)
    stage.again()
    again = stage.workers[second.path]
    assert again.past == []
    assert list(stage.worker(second.path).open) == [(second.path, 1)]


def test_a_command_under_way_is_ended_when_the_session_fails_and_runs_again_after_resume() -> None:
    stage = Stage()
    _, _, first, second = pair(stage)
    shell(second, 1)

    first.fail()
    assert stage.stopped_shells == [1]
    stage.end_shell(ShellEnd(-15))
    assert stage.outcomes()[second.path, 1] == 0

    stage.again()
    shell(stage.workers[second.path], 1)
    assert [start.key for start in stage.started_shells] == [stage.started_shells[0].key] * 2


def test_deadlines_that_pass_behind_the_failure_are_no_outcomes() -> None:
    stage = Stage()
    _, _, first, second = pair(stage)
    path = second.path
    second.step(1, "receive", s.ReceiveArgs(mailbox="box", timeout_s=1.0), p=f"{path}.1.1")
    second.step(1, "call", s.CallMailboxArgs(mailbox="other", timeout_s=1.0), 1, p=f"{path}.1.2")
    second.step(1, "ask", s.AskArgs(question="q", timeout_s=1.0), p=f"{path}.1.3")

    first.fail()
    stage.wait(2.0)

    assert not any(p.startswith(path) for p, _ in stage.outcomes())


def test_anybody_may_fail_the_session_and_the_run_goes_on_where_it_was() -> None:
    stage = Stage()
    main, i, first, second = pair(stage)
    receive(second, 1)

    first.step(1, "fail", s.FailArgs(message="stop", data={"code": 7}))

    failure = stage.core.state.failure
    assert failure is not None
    assert (failure.error.message, failure.error.facts["code"]) == ("stop", 7)
    assert [worker.pushed(f.SessionFailed) for worker in (first, second, main)] == [1, 1, 1]
    assert main.answer(i) is None
    for worker in (first, second, main):
        worker.fail(error("SessionFailedError"))
    assert stage.hub.status == "failed"
    assert stage.again().past == []


def test_a_cancelled_run_ends_cancelled() -> None:
    stage = Stage()
    main = stage.begin()
    receive(main, 1)

    stage.core.failure.cancel_run("not needed")
    stage.hub.finish_turn()
    main.fail(error("SessionFailedError"))

    assert stage.hub.status == "cancelled"
    assert stage.core.state.status == "cancelled"


def test_what_a_worker_cancels_because_of_the_failure_has_no_outcome() -> None:
    stage = Stage()
    main, i, first, second = pair(stage)
    waiting = main.step(1, "receive", s.ReceiveArgs(mailbox="box"), p="main.2.1")
    first.fail()
    second.fail(error("SessionFailedError"))
    assert main.error(i) == "WorkerError"

    main.cancel(1, p="main.2.1")

    assert main.answer(waiting) is None
    assert stage.outcomes()["main.2.1", 1] == 0


def test_a_restarted_worker_that_waits_for_its_workers_learns_of_the_failure_like_the_others() -> None:
    stage = Stage()
    _, _, first, second = pair(stage)
    second.result("b")
    stage.slow_to_die.add(first.path)
    again = stage.kill("main")
    assert again is not None
    first.gone = True
    first.fail()

    i = delegate(again, 1, ["a", "b"])
    assert again.answer(i) is None
    first.gone = False
    first.die()
    stage.hub.run_ready()

    assert again.error(i) == "WorkerError"
    assert stage.outcomes()["main", 1] == 0


def test_a_restarted_worker_asks_in_vain_for_what_the_failure_has_ended() -> None:
    stage = Stage()
    _, _, first, second = pair(stage)
    shell(second, 1)
    again = stage.kill(second.path)
    assert again is not None
    first.fail()

    assert again.error(shell(again, 1)) == "SessionFailedError"


# Setting back.


def failed_at_shell(stage: Stage) -> Puppet:
    """A run whose first worker fails at its second step, behind a send."""
    main = stage.begin()
    main.step(1, "send", s.SendArgs(mailbox="box"), 1)
    shell(main, 2)
    stage.end_shell(ShellEnd(1))
    return main


def test_resume_executes_the_failing_step_anew_with_another_key() -> None:
    stage = Stage()
    failed_at_shell(stage).fail(error("ShellError"), ("main", 2))

    main = stage.again()
    i = shell(main, 2)
    stage.end_shell()

    assert [past.step for past in main.past] == ["send"]
    assert main.value(i)
    assert stage.started_shells[0].key != stage.started_shells[1].key


def test_clean_up_behind_the_failing_step_is_not_replayed() -> None:
    stage = Stage()
    main = failed_at_shell(stage)
    shell(main, 3, "rm")
    stage.end_shell()
    main.done(4, kind="write")
    main.say(f.Out(p="main", n=5, channel="log", text="sorry"))
    main.fail(error("ShellError"), ("main", 2))

    assert [past.step for past in stage.again().past] == ["send"]


def test_a_failure_that_was_handled_is_history() -> None:
    stage = Stage()
    main = failed_at_shell(stage)
    main.step(3, "send", s.SendArgs(mailbox="box"), "it failed")
    main.fail(error("ShellError"), ("main", 2))

    assert [past.step for past in stage.again().past] == ["send", "shell", "send"]


def test_a_failure_of_the_program_itself_keeps_the_history() -> None:
    stage = Stage()
    main = failed_at_shell(stage)
    main.fail(error("KeyError"))

    assert [past.step for past in stage.again().past] == ["send", "shell"]


def test_what_was_open_in_another_branch_when_a_worker_failed_is_open_when_it_is_back() -> None:
    stage = Stage()
    main = stage.begin()
    delegate(main, 1, ["a"], p="main.1.1")
    child = stage.workers["main.1.1/1.1:a"]
    child.value(child.step(1, "send", s.SendArgs(mailbox="box"), 1))

    main.say(f.Failed(e=error("ForeignAwaitError"), fatal=True))
    main = stage.again()
    i = delegate(main, 1, ["a"], p="main.1.1")
    again = stage.workers["main.1.1/1.1:a"]
    again.result("kept")

    assert [past.step for past in again.past] == ["send"]
    assert main.value(i) == ["kept"]


def test_a_different_step_where_one_is_under_way_is_a_mismatch() -> None:
    stage = Stage()
    main = stage.begin()
    shell(main, 1)
    again = stage.kill("main")
    assert again is not None

    again.step(1, "receive", s.ReceiveArgs(mailbox="box"))

    failure = stage.core.state.failure
    assert failure is not None
    assert failure.error.type == "bartack.errors:ReplayMismatchError"


# Outcomes that nobody knows.


def test_a_once_body_that_was_under_way_at_a_crash_has_an_unknown_outcome() -> None:
    stage = Stage()
    main = stage.begin()
    main.value(main.begin(1, asked=True, once=True))

    again = stage.kill("main")

    assert again is not None
    assert [past.e.type.rpartition(":")[2] for past in again.past if past.e] == ["OutcomeUnknownError"]


@pytest.mark.parametrize("kind", ["body", "shell", "think"])
def test_a_once_step_that_was_under_way_when_the_hub_died_has_an_unknown_outcome(kind: str) -> None:
    stage = Stage()
    stage.begin()

    def begin(worker: Puppet) -> int:
        if kind == "body":
            return worker.begin(1, asked=True, once=True)
        if kind == "shell":
            return shell(worker, 1, once=True)
        return worker.step(1, "think", s.ThinkArgs(prompt="p", name="n", once=True))

    begin(stage.workers["main"])
    main = stage.again()

    assert main.error(begin(main)) == "OutcomeUnknownError"


def unknown_failure(stage: Stage, name: str = "OutcomeUnknownError") -> None:
    main = stage.begin()
    shell(main, 1, once=True)
    main = stage.again()
    shell(main, 1, once=True)
    main.fail(error(name), ("main", 1))
    assert stage.hub.status == "failed"


@pytest.mark.parametrize("name", ["OutcomeUnknownError", "RuntimeError"])
def test_a_step_of_unknown_outcome_is_not_done_again_before_somebody_decides(
    name: str, tmp_path: Path
) -> None:
    stage = Stage()
    unknown_failure(stage, name)

    with pytest.raises(ResumeRefusedError, match="--unknown"):
        check_resumable(RunDir(tmp_path), stage.core.state, None)
    check_resumable(RunDir(tmp_path), stage.core.state, UnknownDecision("retry"))
    main = stage.again(unknown=UnknownDecision("done", Value(raw({"status": 0}))))

    assert [(past.step, plain(past.v)) for past in main.past] == [("shell", {"status": 0})]


def test_an_unknown_outcome_may_be_decided_as_done() -> None:
    stage = Stage()
    unknown_failure(stage)

    main = stage.again(unknown=UnknownDecision("done", Value(raw({"status": 0}))))

    assert [(past.step, plain(past.v)) for past in main.past] == [("shell", {"status": 0})]


def test_an_unknown_outcome_may_be_decided_to_be_tried_again() -> None:
    stage = Stage()
    unknown_failure(stage)

    main = stage.again(unknown=UnknownDecision("retry"))
    shell(main, 1, once=True)

    assert main.past == []
    assert len(stage.started_shells) == 2


def test_an_unknown_outcome_may_be_decided_to_be_a_failure() -> None:
    stage = Stage()
    unknown_failure(stage)

    main = stage.again(unknown=UnknownDecision("fail"))

    assert [past.e is not None for past in main.past] == [True]


def test_a_once_step_that_was_cut_short_by_a_failure_beside_it_is_not_done_again() -> None:
    stage = Stage()
    main = stage.begin()
    shell(main, 1, "pay", once=True, p="main.1.1")
    shell(main, 1, "test", p="main.1.2")
    stage.end_shell(ShellEnd(1), token=2)
    main.cancel(1, p="main.1.1")
    stage.end_shell(token=1)
    main.fail(error("ShellError"), ("main.1.2", 1))

    main = stage.again()

    assert [(past.p, past.e.type.rpartition(":")[2]) for past in main.past if past.e] == [
        ("main.1.1", "OutcomeUnknownError")
    ]
    main.fail(error("OutcomeUnknownError"), ("main.1.1", 1))
    main = stage.again(unknown=UnknownDecision("done", Value(raw({"status": 0}))))
    assert [(past.p, past.e) for past in main.past] == [("main.1.1", None)]


# Attempts.


def test_a_body_is_tried_again_when_it_is_time_and_the_count_survives_a_crash() -> None:
    stage = Stage()
    main = stage.begin()
    assert main.value(main.begin(1, asked=True)) == {"attempt": 1}
    waiting = main.done(1, e=error("OSError"), attempt=1, retry_in_s=10.0)
    stage.wait(6.0)
    assert main.answer(waiting) is None

    again = stage.kill("main")
    assert again is not None
    waiting = again.begin(1, asked=True)
    stage.wait(3.0)
    assert again.answer(waiting) is None
    stage.wait(1.1)

    assert again.value(waiting) == {"attempt": 2}
    assert stage.worker("main").crashes == {}


@pytest.mark.parametrize("dies", ["worker", "hub"])
def test_a_once_body_that_waits_for_its_next_attempt_has_a_known_outcome(dies: str) -> None:
    stage = Stage()
    main = stage.begin()
    main.begin(1, asked=True, once=True)
    main.done(1, e=error("OSError"), attempt=1, retry_in_s=10.0)

    again = stage.kill("main") if dies == "worker" else stage.again()
    assert again is not None
    waiting = again.begin(1, asked=True, once=True)
    stage.wait(10.0)
    assert again.value(waiting) == {"attempt": 2}

    third = stage.kill("main")
    assert third is not None
    assert [past.e.type.rpartition(":")[2] for past in third.past if past.e] == ["OutcomeUnknownError"]


def test_the_next_attempt_of_a_once_body_is_written_down_before_it_begins() -> None:
    stage = Stage()
    main = stage.begin()
    main.begin(1, asked=True, once=True)
    waiting = main.done(1, e=error("OSError"), attempt=1, retry_in_s=10.0)
    stage.wait(10.0)
    assert main.value(waiting) == {"attempt": 2}
    main.begin(1, once=True, attempt=2)
    assert stage.core.state.failure is None

    main = stage.again()

    assert main.error(main.begin(1, asked=True, once=True)) == "OutcomeUnknownError"


def test_each_attempt_has_its_own_time() -> None:
    stage = Stage()
    main = stage.begin()
    main.begin(1, asked=True, timeout_s=5.0)
    stage.wait(4.0)
    main.done(1, e=error("OSError"), attempt=1, retry_in_s=10.0)
    stage.wait(10.0)
    main.begin(1, attempt=2, timeout_s=5.0)

    stage.wait(4.0)
    assert stage.stopped == []
    stage.wait(1.1)

    assert stage.stopped == ["main"]
    assert stage.outcomes()["main", 1] == 1


def test_waiting_for_the_next_attempt_can_be_cancelled() -> None:
    stage = Stage()
    main = stage.begin()
    main.begin(1, asked=True)
    waiting = main.done(1, e=error("OSError"), attempt=1, retry_in_s=10.0)

    main.cancel(1)

    assert main.error(waiting) == "StepCancelledError"
    assert not main.gone


def test_a_rewound_worker_is_described_in_the_journal() -> None:
    stage = Stage()
    failed_at_shell(stage).fail(error("ShellError"), ("main", 2))
    stage.again()

    rewound = [e.decode_entry(entry.kind, entry.raw) for entry in stage.entries("worker.rewound")]
    assert [isinstance(data, e.WorkerRewound) and data.path for data in rewound] == ["main"]


class CountingDict(dict[str, int]):
    """Counts how often somebody looks."""

    looks = 0

    def __contains__(self, key: object) -> bool:
        self.looks += 1
        return super().__contains__(key)


def test_a_delegate_with_a_limit_looks_at_its_workers_a_few_times_for_each_that_ends() -> None:
    stage = Stage()
    main = stage.begin()
    alive = stage.core.processes.alive = CountingDict(stage.core.processes.alive)
    count = 60
    i = delegate(main, 1, ["a"] * count, limit=4)

    for position in range(1, count + 1):
        stage.workers[f"main/1.{position}:a"].result(position)

    assert main.value(i) == list(range(1, count + 1))
    assert alive.looks <= 10 * count * count


def test_the_deadlines_of_delegates_that_are_through_do_not_pile_up() -> None:
    stage = Stage()
    main = stage.begin()
    for n in range(1, CROWD + 200):
        delegate(main, n, ["a"])
        stage.workers[f"main/{n}.1:a"].result(n)
        stage.wait(10.0)

    assert len(stage.core.timers._alive) < CROWD


def test_a_worker_that_speaks_for_another_is_not_listened_to_any_more() -> None:
    stage = Stage()
    main, _, first, second = pair(stage)

    receive(first, 1)
    second.step(1, "receive", s.ReceiveArgs(mailbox="box"), p=first.path)
    delegate(second, 2, ["c"], p=main.path)
    second.say(f.Note(p="nobody", n=-1, step="now", fp=""))

    assert set(stage.core.state.workers) == {main.path, first.path, second.path}
    assert (list(stage.worker(main.path).open), list(stage.worker(second.path).open)) == ([("main", 1)], [])
    assert second.number not in stage.hub._ears
