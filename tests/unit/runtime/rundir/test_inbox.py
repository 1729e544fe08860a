"""What is left for a run while nobody runs it."""

from __future__ import annotations

import os
from pathlib import Path

from tests.unit.runtime.kernel.mail.test_mailroom import Outsider
from tests.unit.runtime.stage import Stage, plain, raw

from bartack.runtime.hub.inbox import take_in
from bartack.runtime.kernel.actions import RemoveFile
from bartack.runtime.protocol import steps as s
from bartack.runtime.rundir.inbox import Left, _leave, leave_answer, leave_message
from bartack.runtime.rundir.layout import RunDir


def queued(stage: Stage, mailbox: str = "box") -> list[object]:
    return [plain(message.value) for message in stage.core.state.mailbox(mailbox).queued()]


def take(run: RunDir, stage: Stage) -> list[str]:
    """Take in what was left; returns the files that go when that is durable."""
    take_in(run, stage.core)
    actions = stage.core.turn._actions
    return [action.path for action in actions if isinstance(action, RemoveFile)]


def test_messages_are_taken_in_in_the_order_in_which_they_were_left(tmp_path: Path) -> None:
    stage, run = Stage(), RunDir(tmp_path)
    stage.begin()
    for number, key in enumerate(("d", "a", "c", "b")):
        leave_message(run, "box", key, str(number).encode())

    taken = take(run, stage)

    assert queued(stage) == [0, 1, 2, 3]
    assert len(taken) == 4


def test_a_message_for_which_there_is_no_room_stays_with_all_that_came_after_it(tmp_path: Path) -> None:
    stage, run = Stage(), RunDir(tmp_path)
    main = stage.begin()
    args = s.DeclareArgs(mailbox="box", capacity=2, max_bytes=1000, overflow="reject")
    main.step(1, "declare", args)
    for number, key in enumerate(("d", "a", "c", "b")):
        leave_message(run, "box", key, str(number).encode())
    leave_message(run, "other", "e", b"4")

    first = take(run, stage)
    for path in first:
        os.unlink(path)
    main.step(2, "drain", s.DrainArgs(mailbox="box"))
    take(run, stage)

    assert len(first) == 3
    assert (queued(stage), queued(stage, "other")) == ([2, 3], [4])


def test_a_file_that_holds_nothing_is_set_aside(tmp_path: Path) -> None:
    stage, run = Stage(), RunDir(tmp_path)
    stage.begin()
    run.inbox.mkdir()
    (run.inbox / "m-1.json").write_bytes(b'{"value": "\xff')
    (run.inbox / "m-2.json").write_bytes(b"[]")

    assert take(run, stage) == []
    assert sorted(os.listdir(run.inbox)) == ["m-1.json.refused", "m-2.json.refused"]


def test_a_message_that_a_hub_took_before_it_died_is_not_taken_in_again(tmp_path: Path) -> None:
    stage, run = Stage(), RunDir(tmp_path)
    stage.begin()
    outside = Outsider(stage)
    outside.ask("send", "once", "mine", mailbox="box")
    leave_message(run, "box", "mine", b'"once"')
    leave_message(run, "box", "yours", b'"and this"')

    taken = take(run, stage)

    assert queued(stage) == ["once", "and this"]
    assert len(taken) == 2


def test_a_message_that_was_left_and_read_is_not_carried_out_again_by_the_socket(tmp_path: Path) -> None:
    stage, run = Stage(), RunDir(tmp_path)
    stage.begin()
    leave_message(run, "box", "mine", b'"once"')
    take(run, stage)
    stage.hub.finish_turn()
    outside = Outsider(stage)

    sent = outside.value(outside.ask("send", "once", "mine", mailbox="box"))

    assert [message.id for message in stage.core.state.mailbox("box").queued()] == [sent]
    (entry,) = stage.entries("request.taken")
    assert entry.data == {"id": "mine", "do": "send", "by": "inbox"}


def test_a_file_that_was_read_just_before_a_crash_counts_once(tmp_path: Path) -> None:
    stage, run = Stage(), RunDir(tmp_path)
    stage.begin()
    leave_message(run, "box", "mine", b'"once"')
    take(run, stage)
    stage.hub.finish_turn()
    stage.again()

    assert len(take(run, stage)) == 1
    assert queued(stage) == ["once"]


def test_a_key_is_one_message_whichever_way_it_comes(tmp_path: Path) -> None:
    stage, run = Stage(), RunDir(tmp_path)
    stage.begin()
    outside = Outsider(stage)
    outside.ask("send", "first", "one", mailbox="box", key="k")
    leave_message(run, "box", "two", b'"second"', "k")

    take(run, stage)

    assert queued(stage) == ["first"]


def test_a_file_of_an_earlier_version_is_taken_in_once(tmp_path: Path) -> None:
    stage, run = Stage(), RunDir(tmp_path)
    stage.begin()
    _leave(run, "m-k", Left(value=raw("old"), mailbox="box"))
    take(run, stage)
    stage.hub.finish_turn()
    stage.again()
    assert len(take(run, stage)) == 1
    stage.hub.finish_turn()
    leave_message(run, "box", "new", b'"old, left again"', "k")

    take(run, stage)

    assert queued(stage) == ["old"]


def test_an_answer_that_was_left_is_taken_in_once_under_its_id(tmp_path: Path) -> None:
    stage, run = Stage(), RunDir(tmp_path)
    main = stage.begin()
    asked = main.step(1, "ask", s.AskArgs(question="Ship?", type="bool"))
    leave_answer(run, stage.core.state, "q1", b"true", "mine")

    take(run, stage)
    stage.hub.finish_turn()

    assert main.value(asked) is True
    outside = Outsider(stage)
    assert outside.value(outside.ask("answer", True, "mine", question="q1")) is None
    assert outside.error(outside.ask("answer", True, "other", question="q1")) == "QuestionAnsweredError"


def test_nothing_is_taken_in_by_a_run_that_only_ends(tmp_path: Path) -> None:
    stage, run = Stage(), RunDir(tmp_path)
    stage.begin()
    stage.slow_to_die.add("main")
    outside = Outsider(stage)
    outside.ask("cancel", None, "mine", message="enough")
    leave_message(run, "box", "late", b"1")
    stage.hub = stage._hub(None)
    stage.hub.core.start()

    assert take(run, stage) == []
    assert queued(stage) == []
