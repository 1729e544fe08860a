"""Workers that start others: delegate, spawn, join and stop."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.runtime.stage import Puppet, Stage, delegate, error, fields, pair, plain, raw, receive, shell

from bartack.errors import StepCancelledError
from bartack.runtime.kernel.commands import ShellEnd
from bartack.runtime.kernel.outcome import describe
from bartack.runtime.kernel.timers import PURGE_SIZE
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s

CANCELLED = describe(StepCancelledError("cancelled"))


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


def test_a_spawned_worker_runs_beside_and_is_joined() -> None:
    stage = Stage()
    main = stage.begin()
    path = main.value(delegate(main, 1, ["a"], kind="spawn"))
    assert path == "main/1:a"
    joins = [main.step(n, "join", s.JoinArgs(path=str(path)), p=f"main.2.{n}") for n in (1, 2)]

    stage.workers["main/1:a"].result("done")

    assert [main.value(i) for i in joins] == ["done", "done"]
    assert main.value(main.step(3, "join", s.JoinArgs(path=str(path)))) == "done"


@pytest.mark.requirement("places-are-journaled")
@pytest.mark.parametrize(("kind", "entry"), [("delegate", "step.started"), ("spawn", "worker.spawned")])
def test_the_journal_has_where_a_worker_was_asked_for(kind: str, entry: str) -> None:
    stage = Stage()
    site = f.Site("team.py", 12)
    asked = raw(s.DelegateArgs(workers=["prog:a"]))
    stage.begin().say(
        f.Step(i=1, p="main", n=1, step=kind, fp="fp", a=asked, v=msgspec.Raw(b"[{}]"), site=site)
    )

    assert stage.entries(entry)[-1].data["site"] == {"file": "team.py", "line": 12}
    (child,) = stage.core.state.children_of(("main", 1))
    assert child.site == site


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
    for n in range(1, PURGE_SIZE + 200):
        delegate(main, n, ["a"])
        stage.workers[f"main/{n}.1:a"].result(n)
        stage.wait(10.0)

    assert len(stage.core.timers._alive) < PURGE_SIZE
