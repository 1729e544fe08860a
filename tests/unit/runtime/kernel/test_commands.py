"""Commands: when they start, how they end, and when they are run again."""

from __future__ import annotations

import base64

import pytest
from tests.unit.runtime.stage import Stage, fields, raw

from bartack.runtime.kernel.commands import ShellEnd
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s

MAKE = s.ShellArgs(pipeline=[["make"]])


def test_a_command_runs_and_its_outcome_is_durable_before_it_is_told() -> None:
    stage = Stage()
    main = stage.begin()
    i = main.step(1, "shell", MAKE)
    assert stage.started_shells[0].args == MAKE

    stage.end_shell(ShellEnd(0, b"out\n", b"err\n"))

    assert main.value(i) == {"argv": ["make"], "status": 0, "stdout": "out\n", "stderr": "err\n"}
    assert stage.kinds()[-2:] == ["step.started", "step.finished"]


def test_output_that_is_no_text_comes_whole() -> None:
    stage = Stage()
    main = stage.begin()
    i = main.step(1, "shell", MAKE)

    stage.end_shell(ShellEnd(0, b"\xff\xfe"))

    assert base64.b64decode(str(fields(main.value(i))["stdout64"])) == b"\xff\xfe"


def test_a_command_that_fails_is_an_error_only_if_it_is_checked() -> None:
    stage = Stage()
    main = stage.begin()
    checked = main.step(1, "shell", MAKE)
    stage.end_shell(ShellEnd(2, stderr=b"no rule"))
    unchecked = main.step(2, "shell", s.ShellArgs(pipeline=[["make"]], check=False))
    stage.end_shell(ShellEnd(2))

    assert main.error(checked) == "ShellError"
    assert fields(main.value(unchecked))["status"] == 2


def test_a_command_that_could_not_start_is_an_error() -> None:
    stage = Stage()
    main = stage.begin()
    i = main.step(1, "shell", MAKE)

    stage.end_shell(ShellEnd(127, problem="there is no program 'make'"))

    assert main.error(i) == "ShellError"


def test_a_command_that_takes_too_long_is_ended_first() -> None:
    stage = Stage()
    main = stage.begin()
    i = main.step(1, "shell", s.ShellArgs(pipeline=[["make"]], timeout_s=3.0))

    stage.wait(3.0)
    assert (stage.stopped_shells, main.answer(i)) == ([1], None)
    stage.end_shell(ShellEnd(-15))

    assert main.error(i) == "ShellTimeoutError"


def test_a_command_that_is_cancelled_is_ended_first() -> None:
    stage = Stage()
    main = stage.begin()
    i = main.step(1, "shell", MAKE)

    main.cancel(1)
    assert (stage.stopped_shells, main.answer(i)) == ([1], None)
    stage.end_shell(ShellEnd(-15))

    assert main.error(i) == "StepCancelledError"


def test_a_command_that_says_too_much_is_ended() -> None:
    stage = Stage()
    main = stage.begin()
    i = main.step(1, "shell", MAKE)

    stage.hub.post(lambda core: core.shell_too_large(1))
    stage.hub.run_ready()
    assert stage.stopped_shells == [1]
    stage.end_shell(ShellEnd(-9))

    assert main.error(i) == "MessageTooLargeError"


@pytest.mark.parametrize("once", [False, True])
def test_a_command_that_died_with_its_keeper_runs_again_unless_it_must_not(once: bool) -> None:
    stage = Stage()
    main = stage.begin()
    i = main.step(1, "shell", s.ShellArgs(pipeline=[["make"]], once=once))

    stage.hub.post(lambda core: core.shell_lost(1))
    stage.hub.run_ready()

    assert len(stage.started_shells) == (1 if once else 2)
    if once:
        assert main.error(i) == "OutcomeUnknownError"
    else:
        assert stage.started_shells[0].key == stage.started_shells[1].key


def test_a_command_in_flight_when_the_hub_died_runs_again_with_its_key() -> None:
    stage = Stage()
    main = stage.begin()
    main.step(1, "shell", MAKE)
    stage.hub.flush()

    main = stage.again()
    i = main.step(1, "shell", MAKE)
    stage.end_shell()

    assert main.value(i)
    assert len({start.key for start in stage.started_shells}) == 1
    assert stage.outcomes()["main", 1] == 1


def test_a_once_command_does_not_start_before_it_is_written_down_and_another_does() -> None:
    stage = Stage()
    main = stage.begin()
    for n, once in ((1, False), (2, True)):
        args = s.ShellArgs(pipeline=[["make"]], once=once)
        stage.hub.say(main.number, f.Step(i=n, p="main", n=n, step="shell", fp="x", a=raw(args)))
        stage.hub._events.popleft()(stage.core)

    assert [type(action).__name__ for action in stage.core.turn.take_at_once()] == ["StartShell"]
    assert stage.core.turn.must_sync


def test_no_effect_leaves_before_what_the_program_saw_is_durable() -> None:
    stage = Stage()
    main = stage.begin()
    stage.hub.say(main.number, f.Note(p="main", n=1, step="now", fp="x", v=raw(1)))
    stage.hub.say(main.number, f.Step(i=1, p="main", n=2, step="shell", fp="x", a=raw(MAKE)))
    for _ in range(2):
        stage.hub._events.popleft()(stage.core)

    assert stage.core.turn.take_at_once() == []
    assert stage.core.turn.must_sync
    stage.hub.finish_turn()
    assert [entry.kind for entry in stage.store.entries][-2:] == ["step.finished", "step.started"]
    assert len(stage.started_shells) == 1
