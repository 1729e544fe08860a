"""What is decided of a step before its handler starts it."""

from __future__ import annotations

import re

from tests.unit.runtime.stage import Stage, raw, shell

from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s

MAKE = s.ShellArgs(pipeline=[["make"]])


def listed_kinds() -> set[str]:
    """The kinds in the table of the protocol's docstring."""
    table = re.split(r"^=+ =.*$", s.__doc__ or "", flags=re.MULTILINE)[2]
    rows = [re.split(r"\s(?:hub|worker)\b", row)[0] for row in table.strip().splitlines()]
    return {kind for row in rows for kind in row.split()}


def test_every_kind_of_step_is_listed_has_a_handler_and_a_meaning() -> None:
    handled = set(Stage().core.steps.kinds)

    assert listed_kinds() == set(s.MEANINGS) - {"tool"}
    assert handled <= listed_kinds()
    assert listed_kinds() >= s.WAITS | s.HARMLESS | s.CLEANUP | s.BODIES
    assert handled >= s.WAITS


def test_a_step_that_nobody_knows_is_an_error_of_that_step() -> None:
    main = Stage().begin()

    assert main.error(main.step(1, "dance")) == "UnknownRequestError"


def test_arguments_that_do_not_fit_are_an_error_of_that_step() -> None:
    main = Stage().begin()

    main.say(f.Step(i=1, p="main", n=1, step="shell", fp="x", a=raw({"pipeline": "rm -rf"})))

    assert main.error(1) == "FrameError"


def test_a_step_of_a_branch_that_was_cancelled_before_is_not_begun() -> None:
    stage = Stage()
    main = stage.begin()

    i = main.step(1, "shell", MAKE, cancelled=True)

    assert main.error(i) == "StepCancelledError"
    assert stage.started_shells == []


def test_a_cancellation_that_comes_behind_the_outcome_changes_nothing() -> None:
    stage = Stage()
    main = stage.begin()
    i = main.step(1, "shell", MAKE)
    stage.end_shell()

    main.cancel(1)

    assert main.value(i)
    assert stage.outcomes()["main", 1] == 1


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


def test_the_table_has_each_kind_of_step_that_the_protocol_describes_as_done_by_the_hub() -> None:
    described = re.findall(r"^([a-z_ ]+?) +hub ", s.__doc__ or "", re.MULTILINE)

    begun_by_workers = {*s.BODIES, "timeout"}
    assert {*" ".join(described).split(), *begun_by_workers} == set(Stage().core.steps.kinds)
