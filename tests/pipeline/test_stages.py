"""The table of stages and the statuses of a run: every move that is allowed happens, and every other one is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Final, get_args

import msgspec
import pytest
from tests.pipeline.team import (
    APPROVED,
    GREEN,
    RED,
    UNCHANGED,
    Shell,
    Team,
    begin,
    order,
    settings,
    spec_wants,
    wants,
)

from bartack.config.sections import PipelineConfig
from bartack.errors import PipelineError, ResumeRefusedError
from bartack.pipeline.records import _stages
from bartack.pipeline.records._stages import NEXT, Stages, TaskStage
from bartack.runtime import ShellResult
from bartack.runtime.memory.hub import KilledError

SPEC: Final = {"SPEC.md": "# Spec\n\n## Status\n"}
NOWHERE: Final = ShellResult(["make", "test"], 127, "", "make: not found\n")
WAY: Final[dict[TaskStage, tuple[TaskStage, ...]]] = {
    "start": (),
    "implement": ("implement",),
    "tests": ("implement", "tests"),
    "review": ("implement", "tests", "review"),
    "spec": ("implement", "tests", "spec"),
    "complete": ("implement", "tests", "complete"),
}
"""How to come to each stage."""

Move = tuple[str, str]


def ending(*ends: ShellResult) -> Shell:
    """Test commands that end so, one after the other; then they pass."""
    left = list(ends)
    return lambda _: left.pop(0) if left else GREEN


def bounded() -> PipelineConfig:
    return PipelineConfig(on_limit="fail", max_review_rounds=1, max_spec_rounds=1)


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> set[Move]:
    """Every move that any task makes."""
    seen: set[Move] = set()
    real = Stages.enter

    def enter(self: Stages, stage: TaskStage) -> None:
        before = self._now
        real(self, stage)
        seen.add((before, stage))

    monkeypatch.setattr(_stages.Stages, "enter", enter)
    return seen


PLAIN: Final = PipelineConfig(on_limit="fail")


class Story(msgspec.Struct):
    """What the agents do, what is there, the bounds, the ends of test commands, and how often the run is resumed."""

    responses: dict[str, object] = {}
    files: dict[str, str] = {}
    pipeline: PipelineConfig = PLAIN
    ends: tuple[ShellResult, ...] = ()
    resumes: int = 0


STORIES: Final = {
    "all goes well": Story(files=SPEC),
    "red tests": Story(ends=(RED,)),
    "tests that cannot be run": Story(ends=(NOWHERE,), resumes=1),
    "review wants more": Story({"review": [wants("a"), APPROVED]}),
    "review at its bound": Story({"review": [wants("a"), APPROVED]}, pipeline=bounded(), resumes=1),
    "spec wants more": Story({"update_spec": [spec_wants("a"), UNCHANGED]}, SPEC),
    "spec at its bound": Story({"update_spec": [spec_wants("a"), UNCHANGED]}, SPEC, bounded(), resumes=1),
    "no review": Story(files=SPEC, pipeline=PipelineConfig(on_limit="fail", review=False)),
    "neither review nor spec": Story(pipeline=PipelineConfig(on_limit="fail", review=False)),
}


def test_every_move_of_the_table_happens_and_no_other(tmp_path: Path, moves: set[Move]) -> None:
    for name, story in STORIES.items():
        team = Team(tmp_path, story.responses, tests=ending(*story.ends), files=story.files)
        with team.running(order("T-1", using=settings(pipeline=story.pipeline))) as run:
            for _ in range(story.resumes):
                assert run.status == "failed", name
                run.resume()
                run.finish()
            assert run.status == "completed", f"{name}: {run.error}"

    assert moves == {(before, after) for before, known in NEXT.items() for after in known}


@pytest.mark.parametrize("before", get_args(TaskStage))
@pytest.mark.parametrize("after", get_args(TaskStage))
def test_a_move_that_is_not_in_the_table_is_refused(before: TaskStage, after: TaskStage) -> None:
    stages = Stages("T-1")
    for stage in WAY[before]:
        stages.enter(stage)

    if after in NEXT[before]:
        stages.enter(after)
    else:
        with pytest.raises(PipelineError, match=f"{after} cannot follow {before}"):
            stages.enter(after)


# Statuses of a run.


def test_a_run_that_failed_or_was_killed_runs_again(tmp_path: Path) -> None:
    using = settings(pipeline=bounded())
    team = Team(tmp_path, {"review": [wants("a"), APPROVED]})
    with team.start(order("T-1", using=using), dies_after=12) as run:
        with pytest.raises(KilledError):
            begin(run)
        seen = [run.status]
        for _ in range(2):
            run.resume()
            seen.append(run.status)
            run.finish()
            seen.append(run.status)

    assert seen == ["running", "running", "failed", "running", "completed"]


def test_what_is_completed_or_aborted_stays_so(tmp_path: Path) -> None:
    ask = settings(pipeline=PipelineConfig(on_limit="ask", max_review_rounds=1))
    completed = Team(tmp_path)
    with completed.running(order("T-1")) as run, pytest.raises(ResumeRefusedError, match="completed"):
        run.resume()
    aborted = Team(tmp_path, {"review": wants("a")}, answers={"*": "abort"})
    with aborted.running(order("T-1", using=ask)) as run:
        assert run.status == "aborted"
        with pytest.raises(ResumeRefusedError):
            run.resume()
