"""When a run waits for nothing but a person."""

from __future__ import annotations

import pytest
from tests.unit.runtime.stage import Puppet, Stage, delegate

from bartack.runtime.kernel.idle import is_blocked_on_people
from bartack.runtime.kernel.turn import CommitBatch
from bartack.runtime.protocol import steps as s
from bartack.runtime.state import entries as e

QUESTION = s.AskArgs(question="Go on?")


@pytest.fixture
def stage() -> Stage:
    return Stage()


def pair(stage: Stage) -> tuple[Puppet, Puppet]:
    """Two workers of a delegate; the first one asks."""
    delegate(stage.begin(), 1, ["one", "two"])
    one, two = stage.workers["main/1.1:one"], stage.workers["main/1.2:two"]
    one.step(1, "ask", QUESTION)
    return one, two


def test_a_question_of_the_only_worker_needs_a_person(stage: Stage) -> None:
    main = stage.begin()
    assert not is_blocked_on_people(stage.core)

    main.step(1, "ask", QUESTION)

    assert is_blocked_on_people(stage.core)


def test_without_a_question_no_person_can_help(stage: Stage) -> None:
    stage.begin().step(1, "receive", s.ReceiveArgs(mailbox="m"))

    assert not is_blocked_on_people(stage.core)


def test_a_worker_that_computes_can_go_on_by_itself(stage: Stage) -> None:
    pair(stage)

    assert not is_blocked_on_people(stage.core)


@pytest.mark.parametrize(
    ("kind", "args"),
    [
        ("shell", s.ShellArgs(pipeline=[["make"]])),
        ("sleep", s.SleepArgs(seconds=9.0)),
        ("think", s.ThinkArgs(prompt="p", name="n")),
    ],
)
def test_a_worker_that_has_something_under_way_can_go_on_by_itself(
    stage: Stage, kind: str, args: s.Args
) -> None:
    _, two = pair(stage)

    two.step(1, kind, args)

    assert not is_blocked_on_people(stage.core)


def test_a_worker_that_waits_for_the_asking_one_cannot_go_on(stage: Stage) -> None:
    _, two = pair(stage)

    two.step(1, "receive", s.ReceiveArgs(mailbox="m"))

    assert is_blocked_on_people(stage.core)


def test_a_branch_that_works_can_go_on_beside_one_that_asks(stage: Stage) -> None:
    main = stage.begin()
    main.step(1, "ask", QUESTION, p="main.1.1")
    main.step(1, "shell", s.ShellArgs(pipeline=[["make"]]), p="main.1.2")

    assert not is_blocked_on_people(stage.core)


def test_a_worker_that_has_yet_to_replay_may_still_go_on(stage: Stage) -> None:
    _, two = pair(stage)
    two.step(1, "receive", s.ReceiveArgs(mailbox="m"))

    main = stage.again()
    assert stage.core.state.questions
    assert not is_blocked_on_people(stage.core)

    delegate(main, 1, ["one", "two"])
    stage.workers["main/1.1:one"].step(1, "ask", QUESTION)
    assert not is_blocked_on_people(stage.core)
    stage.workers["main/1.2:two"].step(1, "receive", s.ReceiveArgs(mailbox="m"))
    assert is_blocked_on_people(stage.core)


def test_a_session_that_failed_needs_nobody(stage: Stage) -> None:
    _, two = pair(stage)

    two.fail()

    assert not is_blocked_on_people(stage.core)


def test_who_listens_hears_every_entry_in_its_place(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    turn = stage.core.turn
    batches: list[CommitBatch] = []
    begin = turn.begin_commit

    def begin_commit() -> CommitBatch:
        batches.append(begin())
        return batches[-1]

    monkeypatch.setattr(turn, "begin_commit", begin_commit)
    turn.listen()
    stage.begin().step(1, "ask", QUESTION)

    heard = [recorded for batch in batches for recorded in batch.recorded]

    kinds = ("run.created", "worker.spawned", "hub.started", "step.started")
    written = [(entry.seq, entry.at, entry.kind) for entry in stage.entries(*kinds)]
    assert [(recorded.seq, recorded.at, recorded.data.kind) for recorded in heard] == written
    assert isinstance(heard[-1].data, e.StepStarted)
