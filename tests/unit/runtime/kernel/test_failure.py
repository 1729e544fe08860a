"""The failure of a session, and how it reaches every worker."""

from __future__ import annotations

from tests.unit.runtime.stage import (
    Stage,
    delegate,
    error,
    pair,
    receive,
    shell,
)

from bartack.runtime.kernel.commands import ShellEnd
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s


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


def test_the_delegating_worker_learns_it_after_the_trees_of_its_other_workers_are_gone() -> None:
    stage = Stage()
    main, i, first, second = pair(stage)
    delegate(second, 1, ["below"])
    below = stage.workers[f"{second.path}/1.1:below"]

    first.fail()
    second.fail(error("SessionFailedError"))
    assert (main.answer(i), main.pushed(f.SessionFailed)) == (None, 0)
    below.fail(error("SessionFailedError"))

    assert main.error(i) == "WorkerError"


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
