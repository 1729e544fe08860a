"""What becomes of outcomes that arrive after the session has failed, or after a step was given up."""

from __future__ import annotations

import pytest
from tests.unit.runtime.stage import Puppet, Stage, delegate, error

from bartack.errors import AgentError
from bartack.journal import Entry
from bartack.runtime.kernel.commands import ShellEnd
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s

BY_ITSELF = ShellEnd(0, b"done", by_itself=True)
REPLY = s.ThinkOutcome(key="k", agent="a", text="because", usd=0.5)


def pair(stage: Stage) -> tuple[Puppet, Puppet]:
    """The two workers that a first one delegates to."""
    delegate(stage.begin(), 1, ["a", "b"])
    return stage.workers["main/1.1:a"], stage.workers["main/1.2:b"]


def shell(worker: Puppet, n: int, *, once: bool = False, p: str = "") -> int:
    return worker.step(n, "shell", s.ShellArgs(pipeline=[["make"]], once=once), p=p)


def think(worker: Puppet, n: int, p: str = "") -> int:
    return worker.step(n, "think", s.ThinkArgs(prompt="why?", name="prompt"), p=p)


def replayed(stage: Stage, path: str) -> list[tuple[str, int, str]]:
    """The history that the next process of a worker is told after a resume."""
    stage.hub.flush()
    stage.again()
    return [
        (past.step, past.n, "failed" if past.e is not None else "finished")
        for past in stage.workers[path].past
    ]


def ends(stage: Stage, path: str) -> list[Entry]:
    return [entry for entry in stage.entries("step.finished", "step.failed") if entry.data["p"] == path]


@pytest.mark.requirement("replay-late-outcome")
@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("told_of_beginning", [False, True])
def test_a_body_that_ends_after_the_failure_is_history(once: bool, told_of_beginning: bool) -> None:
    stage = Stage()
    first, second = pair(stage)
    if once or told_of_beginning:
        second.begin(1, once=once, asked=once)
    else:
        second._begun.add((second.path, 1))  # on its slate only
    first.fail()

    second.done(1, "receipt")

    assert replayed(stage, second.path) == [("body", 1, "finished")]


@pytest.mark.requirement("replay-late-outcome")
@pytest.mark.parametrize("once", [False, True])
def test_a_command_that_had_ended_by_itself_when_it_was_stopped_is_history(once: bool) -> None:
    stage = Stage()
    first, second = pair(stage)
    shell(second, 1, once=once)
    first.fail()
    assert stage.stopped_shells == [1]

    stage.end_shell(BY_ITSELF)

    assert replayed(stage, second.path) == [("shell", 1, "finished")]


@pytest.mark.requirement("replay-late-outcome")
def test_a_reply_that_was_on_its_way_when_the_session_failed_is_paid_once() -> None:
    stage = Stage()
    first, second = pair(stage)
    think(second, 1)
    first.fail()
    assert stage.stopped_prompts == [1]

    stage.end_prompt(REPLY)

    assert replayed(stage, second.path) == [("think", 1, "finished")]
    assert stage.core.state.spent_usd == 0.5


@pytest.mark.requirement("replay-late-outcome")
def test_what_was_stopped_because_the_session_failed_has_no_outcome_and_begins_again() -> None:
    stage = Stage()
    first, second = pair(stage)
    shell(second, 1)
    think(second, 1, p=f"{second.path}.1.1")
    first.fail()

    stage.end_shell(ShellEnd(-15))
    stage.end_prompt(AgentError("a", "the call was given up"))

    assert replayed(stage, second.path) == []
    assert len(stage.worker(second.path).open) == 2


@pytest.mark.requirement("replay-late-outcome")
def test_a_reply_for_a_worker_that_was_cut_off_is_there_when_the_worker_is_taken_up_again() -> None:
    stage = Stage()
    main = stage.begin()
    delegate(main, 1, ["a"], p="main.1.1")
    child = "main.1.1/1.1:a"
    think(stage.workers[child], 1)
    shell(main, 1, p="main.1.2")
    stage.end_shell(ShellEnd(1, by_itself=True))
    main.cancel(1, p="main.1.1")
    stage.end_prompt(REPLY)
    main.fail(error(), origin=("main.1.2", 1))

    assert replayed(stage, child) == [("think", 1, "finished")]
    assert stage.worker(child).open == {}


@pytest.mark.requirement("replay-late-failure")
@pytest.mark.parametrize("once", [False, True])
def test_a_body_that_raised_after_the_failure_is_executed_again(once: bool) -> None:
    stage = Stage()
    first, second = pair(stage)
    second.begin(1, once=once, asked=once)
    first.fail()

    second.done(1, e=error("OSError"))

    assert ends(stage, second.path)[0].data["late"] is True
    assert replayed(stage, second.path) == []
    again = stage.workers[second.path]
    assert again.value(again.begin(1, once=once, asked=True)) == {"attempt": 1}


@pytest.mark.requirement("replay-late-failure")
def test_a_step_to_be_done_once_that_timed_out_after_the_failure_is_in_doubt() -> None:
    stage = Stage()
    first, second = pair(stage)
    second.begin(1, once=True, asked=True)
    first.fail()

    second.done(1, e=f.ErrorData(type="bartack.errors:StepTimeoutError", message="too long"))

    assert replayed(stage, second.path) == []
    again = stage.workers[second.path]
    assert again.error(again.begin(1, once=True, asked=True)) == "OutcomeUnknownError"


@pytest.mark.requirement("replay-late-cancel")
@pytest.mark.parametrize("kind", ["shell", "think"])
def test_the_outcome_that_arrives_while_a_step_is_being_cancelled_counts(kind: str) -> None:
    stage = Stage()
    main = stage.begin()
    asked = shell(main, 1) if kind == "shell" else think(main, 1)
    main.cancel(1)

    if kind == "shell":
        stage.end_shell(BY_ITSELF)
    else:
        stage.end_prompt(REPLY)

    assert main.value(asked)


@pytest.mark.requirement("replay-only-clean-up")
def test_a_step_that_was_asked_for_before_its_worker_knew_of_the_failure_does_not_begin() -> None:
    stage = Stage()
    first, second = pair(stage)
    first.fail()
    second.aborted = False  # the news is on its way

    shell(second, 1)
    second.begin(1, "append", asked=True, p=f"{second.path}.1.1")

    assert stage.started_shells == []
    assert stage.worker(second.path).open == {}


@pytest.mark.requirement("replay-only-clean-up")
def test_what_a_worker_did_before_it_knew_of_the_failure_is_history() -> None:
    stage = Stage()
    first, second = pair(stage)
    first.fail()
    second.aborted = False

    second.done(1, kind="write")
    second.say(f.Out(p=second.path, n=2, channel="print", text="here"))
    second.say(f.Note(p=second.path, n=3, step="now", fp="fp-now"))

    assert replayed(stage, second.path) == [
        ("write", 1, "finished"),
        ("print", 2, "finished"),
        ("now", 3, "finished"),
    ]


@pytest.mark.requirement("replay-not-begun")
def test_a_body_that_waited_for_its_beginning_when_the_session_failed_is_not_in_doubt() -> None:
    stage = Stage()
    first, second = pair(stage)
    second.begin(1, once=True, asked=True)
    first.fail()

    second.say(f.Cancel(p=second.path, n=1, unbegun=True))

    assert replayed(stage, second.path) == []
    again = stage.workers[second.path]
    assert again.value(again.begin(1, once=True, asked=True)) == {"attempt": 1}


def test_a_command_lost_with_its_keeper_after_the_failure_stays_open() -> None:
    stage = Stage()
    first, second = pair(stage)
    shell(second, 1, once=True)
    first.fail()

    stage.hub.post(lambda core: core.shell_lost(1))
    stage.hub.run_ready()

    assert replayed(stage, second.path) == []
    again = stage.workers[second.path]
    assert again.error(shell(again, 1, once=True)) == "OutcomeUnknownError"
