"""What happened for each task of a run of the pipeline, from a journal that an earlier version recorded, and what follows it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest

from bartack.journal import open_journal
from bartack.pipeline.records.records import Gate, Merged
from bartack.pipeline.report.story import Scene, TaskStory, make_story
from bartack.runtime.protocol.frames import ErrorData
from bartack.runtime.protocol.steps import CommandArgs, ThinkArgs
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state import entries as e

RECORDED = Path(__file__).parents[3] / "crash/journals/pipeline/run-20261116-094635-bef472f5"
TASK = "main/2.1:task"


def read_story(directory: Path) -> list[TaskStory]:
    with RunDir(directory).open_reader() as reader:
        return make_story(list(reader.read()), reader.load_value)


class Continued:
    """A copy of the recorded run, to which a test adds entries."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._journal = open_journal(directory)

    def add(self, data: e.EntryData, value: object = None) -> None:
        self._journal.stage(e.draft(data, None if value is None else msgspec.json.encode(value)))
        self._journal.commit()

    def body(self, n: int, about: str, value: object, p: str = TASK) -> None:
        self.add(e.StepFinished(p=p, n=n, step="body", fp="f", about=about), value)

    def ask(self, n: int, action: str, round_: int) -> None:
        inputs: dict[str, object] = {"iteration": {"round": round_, "cause": "tests"}}
        command = CommandArgs(action=action, task_id="weeks", inputs=inputs)
        asked = ThinkArgs(prompt="", name=action, agent="ann", command=command)
        self.add(e.StepStarted(p=TASK, n=n, step="think", fp="f", about=f"{action} weeks"), asked)

    def close(self) -> None:
        self._journal.close()

    def task(self) -> TaskStory:
        (found,) = (task for task in read_story(self.directory) if task.id)
        return found


@pytest.fixture
def run() -> Iterator[Continued]:
    # Not in the directory of the test: whatever is left there has to be a run as agents made it.
    with TemporaryDirectory() as folder:
        shutil.copytree(RECORDED, Path(folder) / "run")
        continued = Continued(Path(folder) / "run")
        yield continued
        continued.close()


def rows(scenes: list[Scene]) -> list[tuple[object, ...]]:
    return [(one.n, one.action, one.round, one.agent, one.status, one.verdict, one.text) for one in scenes]


@pytest.mark.requirement("pipeline-runs-have-a-story")
def test_a_task_has_its_calls_and_the_tests_that_run_and_none_of_the_bookkeeping(run: Continued) -> None:
    task = run.task()

    assert (task.id, task.status, task.path, task.title) == (
        "weeks",
        "running",
        TASK,
        "Know that a year may have 53 weeks",
    )
    assert rows(task.scenes) == [
        (3, "implement", 1, "example", "finished", "completed", "reports tests: pass"),
        (8, "tests", 0, "", "open", "", "sh -c sh gate.sh"),
    ]
    assert task.scenes[0].took_s == pytest.approx(0.21109)


def test_a_verdict_on_the_tests_names_the_command_that_has_the_output(run: Continued) -> None:
    run.add(e.StepFinished(p=TASK, n=8, step="shell", fp="f"), {"status": 1})
    gate = Gate(
        task_id="weeks", round=1, verdict="fail", mode="command", snapshot_id="s", exit_code=1, duration_s=0.5,
        reported="pass", disagreement=True,
    )  # fmt: skip
    run.body(10, "gate", gate)
    run.ask(13, "implement_changes", 1)

    _, tests, again = run.task().scenes
    assert rows([tests, again]) == [
        (8, "tests", 1, "", "finished", "fail", "exit 1, the builder reported pass"),
        (13, "implement_changes", 1, "ann", "open", "", ""),
    ]
    assert tests.took_s == 0.5


def test_a_call_that_fails_or_is_refused_says_why_and_is_one_scene_however_often_it_is_attempted(
    run: Continued,
) -> None:
    run.ask(13, "review", 1)
    run.ask(13, "review", 1)
    error = ErrorData(type="bartack.errors:AgentError", message="no credit")
    run.add(e.StepFailed(p=TASK, n=13, step="think", fp="f", error=error))
    run.body(4, "accept", {"result_snapshot_id": "s", "code": "out_of_scope", "problem": "it changed b.txt"})

    assert rows(run.task().scenes)[-1] == (
        13, "review", 1, "ann", "failed", "refused", "out_of_scope: it changed b.txt",
    )  # fmt: skip


def test_what_concerns_all_tasks_is_told_of_the_run(run: Continued) -> None:
    run.body(3, "merge", Merged(conflicts=["a.txt"], task_id="weeks"), p="main")
    run.body(4, "decide", {"status": "approved", "reason": "fine"}, p="main")

    whole, task = read_story(run.directory)
    assert rows(whole.scenes) == [(4, "decide", 0, "", "finished", "approved", "fine")]
    assert (task.status, rows(task.scenes)[-1][:6]) == (
        "conflict",
        (3, "merge", 0, "", "finished", "conflict"),
    )
