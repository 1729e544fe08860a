"""The life of a run: how it begins, is resumed and set back, and what is decided when an outcome is unknown."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.runtime.stage import (
    Puppet,
    Stage,
    delegate,
    error,
    pair,
    plain,
    raw,
    receive,
    shell,
)

from bartack.errors import ResumeRefusedError
from bartack.journal.memory import MemoryJournal
from bartack.runtime.hub.launch import check_resumable
from bartack.runtime.kernel.commands import ShellEnd
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state import entries as e
from bartack.runtime.state.apply import apply_all
from bartack.runtime.state.run_state import State
from bartack.runtime.state.worker_state import UnknownDecision, Value


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


@pytest.mark.requirement("fleet-decisions")
def test_the_last_recorded_decision_counts_for_the_next_hub_only(tmp_path: Path) -> None:
    stage = Stage()
    unknown_failure(stage)
    with MemoryJournal(stage.store, take_over=True, clock=stage.clock) as journal:
        journal.stage(e.draft(e.RunDecided(choice="retry")))
        journal.stage(e.draft(e.RunDecided(choice="done"), raw({"status": 0})))
        journal.commit()
        state = State()
        apply_all(state, journal.read())

    check_resumable(RunDir(tmp_path), state, None)
    assert state.undecided == ""
    main = stage.again()

    assert [(past.step, plain(past.v)) for past in main.past] == [("shell", {"status": 0})]
    assert stage.core.state.decided is None


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


def test_a_rewound_worker_is_described_in_the_journal() -> None:
    stage = Stage()
    failed_at_shell(stage).fail(error("ShellError"), ("main", 2))
    stage.again()

    rewound = [e.decode_entry(entry.kind, entry.raw) for entry in stage.entries("worker.rewound")]
    assert [isinstance(data, e.WorkerRewound) and data.path for data in rewound] == ["main"]


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
