"""Detached runs while terminals are closed, signals of terminals arrive, and people cancel; and two that meet one limit."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.programs.fakes import settings, started, write_fake
from tests.crash.node_stage import NodeStage

from bartack.journal import open_reader
from bartack.runtime.rundir.layout import RunDir
from bartack.supervision.process.tree import find_by_environment

ALL = ["before", "gate", "after"]
ASKING = """
from bartack import Context, worker

@worker
async def main(ctx: Context) -> str:
    return await ctx.think("say it")
"""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[NodeStage]:
    made = NodeStage(tmp_path)
    yield made
    made.close()


@pytest.mark.requirement("detached-runs-outlive-everything")
def test_a_terminal_that_is_closed_right_after_detaching_takes_nothing_with_it(stage: NodeStage) -> None:
    with stage.terminal("run", "--detach", "gated.py") as terminal:
        terminal.wait_for("runs detached")
    (standing,) = stage.depot.standings()
    run = RunDir(standing.job.path)

    assert stage.node_pid()
    stage.until_gate()
    stage.open_gate()
    assert stage.until_state(run, "over", "resting", "held").outcome == "completed"
    assert stage.done() == ALL


@pytest.mark.requirement("detached-runs-outlive-everything")
def test_a_terminal_that_is_closed_while_it_shows_a_run_leaves_the_run_alone(stage: NodeStage) -> None:
    run = stage.detach("gated.py")
    hub = stage.hub_pid(run)
    with stage.terminal("attach", run.id) as terminal:
        terminal.wait_for("d and Enter: leave the view")

    assert terminal.shell.returncode is not None
    assert (stage.standing(run).state, stage.hub_pid(run)) == ("owned", hub)
    stage.open_gate()
    assert stage.until_state(run, "over", "resting", "held").outcome == "completed"
    assert stage.done() == ALL


@pytest.mark.requirement("detached-runs-outlive-everything")
def test_a_hangup_is_not_for_nodes_and_detached_hubs(stage: NodeStage) -> None:
    run = stage.detach("gated.py")
    stage.until_gate()
    node, hub = stage.node_pid(), stage.hub_pid(run)
    for pid in (node, hub):
        os.kill(pid, signal.SIGHUP)

    stage.open_gate()
    assert stage.until_state(run, "over", "resting", "held").outcome == "completed"
    assert stage.done() == ALL
    assert stage.node_pid() == node
    with open_reader(run.path) as reader:
        assert sum(entry.kind == "hub.started" for entry in reader.read()) == 1


def test_a_detached_run_that_is_cancelled_is_over_and_leaves_nothing(stage: NodeStage) -> None:
    run = stage.detach("gated.py")
    stage.until_gate()
    follows = stage.detach("counting.py", "--after", run.id)

    stage.call("cancel", run.id)

    over = stage.until_state(run, "over", "resting", "held")
    assert (over.outcome, over.fence) == ("cancelled", 2)
    assert stage.until_state(follows, "held").reason == f"it was to follow {run.id}, which is cancelled"
    assert find_by_environment("BARTACK_RUN_DIR", str(run.path)) == []
    assert stage.done() == ["before"]


@pytest.mark.requirement("a-limit-holds-for-all-runs")
def test_a_limit_that_one_run_meets_holds_back_the_call_of_another_until_it_ends(stage: NodeStage) -> None:
    fake = write_fake(stage.root)
    stage.environ["ANTHROPIC_API_KEY"] = "key-of-the-test"
    (stage.workspace / "asking.py").write_text(ASKING, encoding="utf-8")
    text = settings("claude", "limited", [str(fake), "claude", "limited"])
    (stage.workspace / "bartack.toml").write_text(text, encoding="utf-8")
    first = stage.detach("asking.py")
    stage.until((stage.root / "resets-at").exists, stage.root, "the limit is met")
    resets = int((stage.root / "resets-at").read_text())

    second = stage.detach("asking.py")
    stage.until(lambda: bool(waits_until(second)), second.path, "it is held back")

    assert len(started(stage.root)) == 1
    assert [at // 1_000_000 for run in (first, second) for at in waits_until(run)] == [resets, resets]
    for run in (first, second):
        assert stage.until_state(run, "over", "resting", "held").outcome == "completed"
    assert len(started(stage.root)) == 3


def waits_until(run: RunDir) -> list[int]:
    """The moments that prompts of a run are held back to."""
    with open_reader(run.path) as reader:
        return [int(str(entry.data["due"])) for entry in reader.read() if entry.kind == "step.retried"]
