"""What is left for a run while nobody runs it."""

from __future__ import annotations

import os
from pathlib import Path

from tests.unit.runtime.stage import Stage, plain

from bartack.runtime.hub.inbox import take_in
from bartack.runtime.protocol import steps as s
from bartack.runtime.rundir.inbox import leave_message
from bartack.runtime.rundir.layout import RunDir


def queued(stage: Stage, mailbox: str = "box") -> list[object]:
    return [plain(message.value) for message in stage.core.state.mailbox(mailbox).queued()]


def test_messages_are_taken_in_in_the_order_in_which_they_were_left(tmp_path: Path) -> None:
    stage, run = Stage(), RunDir(tmp_path)
    stage.begin()
    for number, key in enumerate(("d", "a", "c", "b")):
        leave_message(run, "box", key, str(number).encode())

    taken = take_in(run, stage.core)

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

    first = take_in(run, stage.core)
    for path in first:
        os.unlink(path)
    main.step(2, "drain", s.DrainArgs(mailbox="box"))
    take_in(run, stage.core)

    assert len(first) == 3
    assert (queued(stage), queued(stage, "other")) == ([2, 3], [4])


def test_a_file_that_holds_nothing_is_set_aside(tmp_path: Path) -> None:
    stage, run = Stage(), RunDir(tmp_path)
    stage.begin()
    run.inbox.mkdir()
    (run.inbox / "m-1.json").write_bytes(b'{"value": "\xff')
    (run.inbox / "m-2.json").write_bytes(b"[]")

    assert take_in(run, stage.core) == []
    assert sorted(os.listdir(run.inbox)) == ["m-1.json.refused", "m-2.json.refused"]
