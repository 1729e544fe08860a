"""What run.json says that a run is doing."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.runtime.stage import Stage, ask, delegate, shell

from bartack.runtime.rundir.doing import FirstQuestion, OpenKind, doing_of
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.mirror import Mirror
from bartack.runtime.rundir.moments import iso_time


def test_workers_and_open_steps_are_counted_and_the_kind_that_says_most_comes_first() -> None:
    stage = Stage()
    main = stage.begin()
    delegate(main, 1, ["first", "second"])
    began = stage.clock.now_us()
    first, second = (puppet for path, puppet in stage.workers.items() if path != "main")
    shell(second, 1)
    stage.wait(5)
    shell(first, 1)

    doing = doing_of(stage.core.state)

    assert doing.workers == 3
    assert doing.open[0] == OpenKind("shell", 2, iso_time(began), f"{second.path}:1")
    assert [kind.kind for kind in doing.open] == ["shell", "delegate"]
    stage.end_shell(token=max(stage.shells))
    first.result()
    assert doing_of(stage.core.state).workers == 2


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ({"type": "bool"}, FirstQuestion("q1", "Go?", "bool")),
        ({"options": ["red", "blue"]}, FirstQuestion("q1", "Go?", "str", ["red", "blue"])),
        ({"options": ["r" * 150, "b" * 150]}, FirstQuestion("q1", "Go?")),
        ({"question": "Go\n\nnow?", "type": "bool"}, FirstQuestion("q1", "Go now?")),
        ({"question": "Go " * 100, "type": "bool"}, FirstQuestion("q1", ("Go " * 100)[:199] + "…")),
    ],
)
def test_a_question_can_be_answered_where_all_of_it_is_shown(
    asked: dict[str, object], shown: FirstQuestion
) -> None:
    stage = Stage()
    main = stage.begin()
    ask(main, 1, **asked)
    ask(main, 2, question="Another?")

    assert doing_of(stage.core.state).asked == shown


def test_files_are_stale_when_the_run_does_something_else(tmp_path: Path) -> None:
    stage = Stage()
    main = stage.begin()
    mirror = Mirror(RunDir(tmp_path), stage.core.state)
    mirror.write(1, active=True)
    assert not mirror.is_stale()
    shell(main, 1)
    assert mirror.is_stale()

    mirror.write(2, active=True)
    stage.wait(5)
    assert not mirror.is_stale()
