"""Runs of the pipeline that a node runs: one at a time in a workspace, and whole again after kills in the middle of a stage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crash.node_stage import NodeStage
from tests.pipeline.studio import Studio

from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.receipts import iter_receipts

SETTINGS = """\
[pipeline]
max_review_rounds = 4
[[tasks]]
id = "one"
goal = "one"
[[tasks]]
id = "two"
goal = "two"
"""
IMPLEMENT = """
import pathlib
pathlib.Path(command["task_id"] + ".txt").write_text("done")
"""
REVIEW = """
import pathlib, time
task = command["task_id"]
(home / ("begun-" + task)).touch()
while not (home / ("go-" + task)).exists():
    time.sleep(0.02)
"""


class Theatre(NodeStage):
    """A workspace with two tasks, whose reviewer waits until the test lets it continue."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.studio = Studio(root, SETTINGS, implement=IMPLEMENT, review=REVIEW)
        self.home = self.studio.home

    def until_review(self, task: str) -> None:
        """Wait until the reviewer is at work: what was implemented has its receipt."""
        self.until((self.home / f"begun-{task}").exists, self.home, f"{task} is reviewed")

    def approve(self, *tasks: str) -> None:
        """Let the reviewer continue."""
        for task in tasks:
            (self.home / f"go-{task}").touch()

    def change_settings(self, old: str, new: str) -> None:
        """Change the settings of the project."""
        path = self.workspace / "bartack.toml"
        path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")

    def lock(self) -> str:
        """What the lock of the workspace says of its owner."""
        return (self.workspace / ".bartack" / "workspace.lock").read_text(encoding="utf-8").strip()

    def stages(self, run: RunDir) -> list[tuple[str, str]]:
        """The stages of a run that have receipts."""
        return [(receipt.task_id, receipt.action) for receipt in iter_receipts(run.path)]

    def close(self) -> None:
        """End everything."""
        self.approve("one", "two")
        super().close()


@pytest.fixture
def theatre(tmp_path: Path) -> Iterator[Theatre]:
    made = Theatre(tmp_path)
    yield made
    made.close()


def done(task: str) -> list[tuple[str, str]]:
    return [(task, "implement"), (task, "review")]


@pytest.mark.requirement("one-workspace-one-detached-run")
def test_detached_runs_of_one_workspace_follow_each_other_and_say_what_they_wait_for(
    theatre: Theatre,
) -> None:
    first = theatre.detach("--task", "one")
    theatre.until_review("one")

    told = theatre.call("run", "--detach", "--task", "two").stderr
    second = RunDir(theatre.depot.standings()[1].job.path)
    follows = theatre.detach("--task", "one", "--after", second.id)

    reason = f"waits for the workspace: {first.id} works there"
    assert f"{second.id} is queued: {reason}" in told
    assert reason in theatre.call("queue").stdout
    assert f"queued; {reason}" in theatre.call("status", second.id).stdout
    assert theatre.standing(follows).state == "queued"
    theatre.approve("one", "two")
    for run in (first, second, follows):
        assert theatre.until_state(run, "over", "held").outcome == "completed"
    assert theatre.studio.calls == ["implement", "review"] * 3
    assert [theatre.stages(run) for run in (first, second, follows)] == [
        done("one"),
        done("two"),
        done("one"),
    ]
    assert theatre.standing(second).strikes == 0


@pytest.mark.requirement("one-workspace-one-detached-run")
@pytest.mark.parametrize("victims", ["node", "hub", "both"])
def test_a_kill_in_the_middle_of_a_stage_leaves_the_workspace_to_the_run_that_has_begun(
    theatre: Theatre, victims: str
) -> None:
    """Whoever continues it opens it as ``bartack resume`` does: with the lock, missing receipts, and notes of what has changed."""
    first, second = theatre.detach("--task", "one"), theatre.detach("--task", "two", "--priority", "9")
    theatre.until_review("one")
    (receipt,) = first.path.glob("receipts/*/*.json")
    written = receipt.read_bytes()
    is_resumed = victims != "node"
    if is_resumed:
        receipt.unlink()
        theatre.change_settings("max_review_rounds = 4", "max_review_rounds = 5")
        (theatre.home / "begun-one").unlink()

    theatre.kill(*[theatre.hub_pid(first)] * is_resumed, *[theatre.node_pid()] * (victims != "hub"))
    theatre.call("node", "start")
    theatre.until_review("one")

    assert theatre.lock() == f"{first.id} (process {theatre.hub_pid(first)})"
    assert receipt.read_bytes() == written
    notes = first.log.read_text(encoding="utf-8")
    assert ("step-1.json was missing and is written again" in notes) is is_resumed
    assert ("pipeline.max_review_rounds is now 5; it was 4" in notes) is is_resumed
    assert theatre.standing(second).state == "queued"
    theatre.approve("one", "two")
    for run in (first, second):
        assert theatre.until_state(run, "over", "held").outcome == "completed"
    assert [theatre.stages(run) for run in (first, second)] == [done("one"), done("two")]
    again = ["review"] * is_resumed
    assert theatre.studio.calls == ["implement", "review", *again, "implement", "review"]
    assert theatre.standing(second).strikes == 0


@pytest.mark.requirement("one-workspace-one-detached-run")
def test_a_workspace_that_a_terminal_uses_is_waited_for_without_a_strike(theatre: Theatre) -> None:
    attached = theatre.start("run", "--task", "one")
    theatre.until_review("one")
    run = theatre.detach("--task", "two")
    waits = theatre.standing(run)

    assert (waits.state, waits.waits, waits.strikes) == ("queued", 1, 0)
    assert waits.reason == f"waits for the workspace: {theatre.lock()} works there"
    theatre.change(run, due_us=1)
    theatre.until(lambda: theatre.standing(run).waits == 2, theatre.depot.directory / "changes", "it waits")
    waits = theatre.standing(run)
    assert (waits.due_us - waits.changed_us, waits.strikes) == (4_000_000, 0)
    theatre.approve("one", "two")
    attached.communicate(timeout=60)
    theatre.change(run, due_us=1)
    assert theatre.until_state(run, "over", "held").outcome == "completed"
    assert (attached.returncode, theatre.stages(run)) == (0, done("two"))
