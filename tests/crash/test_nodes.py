"""Detached runs and their node, while terminals are closed, processes are killed and the machine is restarted."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from tests.cli.live.terminal import Terminal
from tests.crash.node_stage import NodeStage, fill, small_disk

from bartack.depot import Job, NodeFacts
from bartack.depot._contract import MOST_QUEUED
from bartack.journal import open_journal
from bartack.runtime.rundir.find import read_state
from bartack.runtime.rundir.layout import RunDir
from bartack.supervision.process.tree import find_by_environment

ALL = ["before", "gate", "after"]
ASKING = """
from bartack import Context, worker

@worker
async def main(ctx: Context) -> str:
    return await ctx.ask("Which?")
"""
FILLING = """
from bartack import Context, step, worker

@step
def make(size: int) -> str:
    return "x" * size

@worker
async def main(ctx: Context, lines: int) -> None:
    await ctx.shell("sh", "-c", "echo before >> done.txt")
    await ctx.shell("sh", "-c", "touch begun; until test -e go; do sleep 0.05; done")
    for number in range(lines):
        await make(240_000 // lines)
"""
SLEEPING = """
from bartack import Context, worker

@worker
async def main(ctx: Context) -> None:
    await ctx.shell("sh", "-c", "echo before >> done.txt")
    await ctx.sleep(3600)
"""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[NodeStage]:
    made = NodeStage(tmp_path)
    yield made
    made.close()


@pytest.mark.requirement("detached-runs-outlive-everything")
def test_a_detached_run_survives_its_terminal(stage: NodeStage) -> None:
    terminal = stage.start("run", "--detach", "gated.py")
    _, shown = terminal.communicate(timeout=120)
    (standing,) = stage.depot.standings()
    with pytest.raises(ProcessLookupError):  # nothing is left there that the end of the terminal could reach
        os.killpg(terminal.pid, signal.SIGHUP)

    stage.open_gate()
    over = stage.until_state(RunDir(standing.job.path), "over")

    assert f"{standing.job.run} runs detached" in shown
    assert (over.outcome, stage.done()) == ("completed", ALL)


@pytest.mark.requirement("detached-runs-outlive-everything")
@pytest.mark.parametrize("victims", ["node", "hub", "both"])
def test_whatever_is_killed_the_run_goes_on_at_its_step(stage: NodeStage, victims: str) -> None:
    run = stage.detach("gated.py")
    stage.until_gate()
    hub = stage.hub_pid(run)
    stage.kill(stage.node_pid() if victims != "hub" else 0, hub if victims != "node" else 0)

    stage.call("node", "start")
    stage.open_gate()
    over = stage.until_state(run, "over")

    assert (over.outcome, stage.done()) == ("completed", ALL)
    assert ("this node watches it from now on" in stage.log()) is (victims == "node")


@pytest.mark.requirement("detached-runs-outlive-everything")
def test_after_a_restart_of_the_machine_the_node_resumes_without_blame(stage: NodeStage) -> None:
    """Locks and sockets are left behind, all processes are gone, and the machine has another boot id."""
    run = stage.detach("gated.py")
    stage.until_gate()
    stage.kill(stage.node_pid(), stage.hub_pid(run))
    stage.change(run, node="node-0123456789ab-00000000")

    stage.call("node", "start")
    stage.until_state(run, "owned")
    stage.open_gate()
    over = stage.until_state(run, "over")

    assert "the machine was restarted" in stage.log()
    assert (over.outcome, stage.done()) == ("completed", ALL)


@pytest.mark.requirement("detached-runs-outlive-everything")
@pytest.mark.parametrize("lines", [1, 6])
def test_a_full_disk_is_waited_for_whatever_could_not_be_written(stage: NodeStage, lines: int) -> None:
    """A large value needs a file of its own, and the hub can still record why it stops; many small ones fill the journal itself."""
    (stage.workspace / "filling.py").write_text(FILLING)
    state_dir = stage.workspace / ".bartack"
    with small_disk(state_dir):
        run = stage.detach("filling.py", "--", str(lines))
        stage.until_gate()
        fill(state_dir / "ballast")
        stage.open_gate()
        waits = stage.until_state(run, "queued", "held", "over")

        assert (waits.state, waits.reason) == ("queued", "its disk is full or does not work")
        assert waits.due_us - waits.changed_us == 16_000_000
        (state_dir / "ballast").unlink()
        stage.change(run, due_us=1)
        assert stage.until_state(run, "held", "over").outcome == "completed"
        stage.call("node", "stop")
    assert stage.done() == ["before"]


def test_of_two_nodes_that_start_at_once_one_runs_and_a_run_is_owned_once(stage: NodeStage) -> None:
    nodes = [stage.start("node", "run", "--idle", "1") for _ in range(3)]
    run = stage.detach("counting.py")
    over = stage.until_state(run, "over")
    codes = sorted(node.wait(120) for node in nodes)

    assert codes == [0, 0, 0]
    assert (over.outcome, stage.done()) == ("completed", [str(number) for number in range(6)])
    for node in nodes:
        node.communicate()


@pytest.mark.requirement("detached-runs-outlive-everything")
def test_a_hub_that_no_node_knows_of_is_watched_from_then_on(stage: NodeStage) -> None:
    """A node that is killed when it has just started a hub has noted nothing, and the next one has seen no hub yet."""
    run = stage.detach("gated.py")
    stage.until_gate()
    hub = stage.hub_pid(run)
    stage.kill(stage.node_pid())
    stage.change(run, state="queued", node="", reason="its process died")

    stage.call("node", "start")
    stage.until(lambda: stage.log().count(f"{run.id} started") == 2, stage.depot.directory, "it is started")
    stage.kill(hub)
    stage.open_gate()

    assert stage.until_state(run, "over", "resting").outcome == "completed"
    assert stage.done() == ALL


def test_a_run_that_a_command_owns_for_a_moment_is_tried_again_and_one_in_a_terminal_is_left_to_it(
    stage: NodeStage,
) -> None:
    attached = stage.start("run", "gated.py")
    stage.until_gate()
    (path,) = (stage.workspace / ".bartack" / "runs").iterdir()
    run = RunDir(path)
    stage.depot.submit(Job(run=run.id, path=str(path), workspace=str(stage.workspace)), 1)
    stage.call("node", "start")

    assert stage.until_state(run, "resting").reason == "another process runs it"
    stage.kill(attached.pid)
    attached.communicate()
    with open_journal(path):
        stage.depot.submit(stage.standing(run).job, 1)
        stage.until(lambda: stage.standing(run).waits > 0, stage.depot.directory / "changes", "it waits")
    stage.open_gate()
    assert stage.until_state(run, "over", "resting").outcome == "completed"


def test_a_run_that_a_person_stops_is_not_resumed_by_the_node(stage: NodeStage) -> None:
    run = stage.detach("gated.py")
    stage.until_gate()
    os.kill(stage.hub_pid(run), signal.SIGINT)

    rests = stage.until_state(run, "resting")
    assert rests.reason == "a person has stopped it"
    shown = stage.call("queue").stdout
    assert f"{run.id}  resting" in shown

    stage.open_gate()
    stage.call("queue", "add", run.id)
    assert stage.until_state(run, "over").outcome == "completed"
    assert stage.done() == ALL


@pytest.mark.requirement("resting-runs-cost-nothing")
def test_a_run_that_sleeps_has_no_process_until_it_is_due(stage: NodeStage) -> None:
    (stage.workspace / "sleeping.py").write_text(SLEEPING)
    stage.environ["BARTACK_NODE_REST_AFTER_S"] = "0.2"
    run = stage.detach("sleeping.py")
    rests = stage.until_state(run, "resting")

    assert not stage.hub_pid(run)
    assert find_by_environment("BARTACK_RUN_DIR", str(run.path)) == []
    assert (rests.wakes, rests.reason) == (True, "timer of main")
    assert rests.due_us > rests.changed_us + 3000 * 1_000_000
    assert "rests until" in stage.call("queue").stdout
    assert "rests until" in stage.call("status").stdout
    assert ", timer of main" in stage.call("status", run.id).stdout
    assert "rests until" in stage.call("attach", run.id, code=3).stderr

    stage.change(run, due_us=1)
    stage.until_fence(run, rests.fence + 2)
    again = stage.until_state(run, "resting")

    assert (again.due_us, again.reason) == (rests.due_us, rests.reason)
    assert stage.done() == ["before"]


@pytest.mark.requirement("resting-runs-cost-nothing")
def test_a_run_that_waits_for_an_answer_has_no_process_until_it_is_there(stage: NodeStage) -> None:
    (stage.workspace / "asking.py").write_text(ASKING)
    stage.environ["BARTACK_NODE_REST_AFTER_S"] = "0.2"
    run = stage.detach("asking.py")
    rests = stage.until_state(run, "resting")

    assert (rests.wakes, rests.due_us, rests.reason) == (True, 0, "it waits for an answer")
    assert "the node resumes it" in stage.call("answer", run.id, "q1", "this one").stderr
    assert stage.until_state(run, "over").outcome == "completed"


@pytest.mark.requirement("queue-learns-of-ends")
@pytest.mark.parametrize(("outcome", "follows"), [("cancelled", "held"), ("completed", "completed")])
def test_what_ends_a_resting_run_outside_of_the_node_ends_what_waits_for_it(
    stage: NodeStage, monkeypatch: pytest.MonkeyPatch, outcome: str, follows: str
) -> None:
    """The node is notified, and need not wait for its next look; then it has nothing left to do, and ends."""
    monkeypatch.chdir(stage.workspace)
    (stage.workspace / "asking.py").write_text(ASKING)
    stage.environ["BARTACK_NODE_REST_AFTER_S"] = "0.2"
    run = stage.detach("asking.py")
    stage.until_state(run, "resting")
    follower = stage.detach("counting.py", "--after", run.id)
    stage.call("node", "stop")
    node = stage.start("node", "run", "--idle", "0.1")
    stage.until(lambda: stage.node_pid() == node.pid, stage.depot.directory, "it is the node")

    if outcome == "cancelled":
        stage.call("cancel", run.id)
    else:
        home = stage.environ["XDG_STATE_HOME"]
        with closing(Terminal("resume", run.id, XDG_STATE_HOME=home)) as terminal:
            terminal.wait_for("Which?", " >")
            terminal.type("this one\n")
            assert terminal.end() == 0

    assert stage.until_state(run, "over").outcome == outcome
    over = stage.until_state(follower, "held", "over")
    assert (over.outcome or over.state) == follows
    _, said = node.communicate(timeout=60)
    assert node.returncode == 0
    assert f"{run.id} {outcome} outside of this node" in said


@pytest.mark.requirement("queue-learns-of-ends")
def test_what_ended_while_no_node_was_there_is_learned_by_the_next_one(stage: NodeStage) -> None:
    (stage.workspace / "asking.py").write_text(ASKING)
    stage.environ["BARTACK_NODE_REST_AFTER_S"] = "0.2"
    run, deleted = stage.detach("asking.py"), stage.detach("asking.py")
    for one in (run, deleted):
        stage.until_state(one, "resting")
    stage.call("node", "stop")
    stage.call("cancel", run.id)
    shutil.rmtree(deleted.path)

    stage.call("node", "start")

    assert stage.until_state(run, "over").outcome == "cancelled"
    assert stage.until_state(deleted, "over").outcome == "deleted"


def test_a_stopped_node_stops_its_runs_in_order_and_the_next_one_goes_on(stage: NodeStage) -> None:
    run = stage.detach("gated.py")
    stage.until_gate()

    stage.call("node", "stop")

    assert stage.standing(run).state == "queued"
    assert not stage.hub_pid(run)
    assert stage.call("node", "status", code=9).stdout.startswith("no node is running")
    stage.open_gate()
    stage.call("node", "start")
    assert stage.until_state(run, "over").outcome == "completed"


def test_an_active_run_is_handed_over_to_the_node(stage: NodeStage) -> None:
    attached = stage.start("run", "gated.py")
    stage.until_gate()

    stage.call("detach")
    _, shown = attached.communicate(timeout=120)
    (standing,) = stage.depot.standings()
    stage.open_gate()
    over = stage.until_state(RunDir(standing.job.path), "over")

    assert (attached.returncode, over.outcome, stage.done()) == (130, "completed", ALL)
    assert "was interrupted" in shown


def test_a_key_in_the_live_view_hands_the_run_over_and_one_in_attach_leaves_it(
    stage: NodeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stage.workspace)
    home = stage.environ["XDG_STATE_HOME"]
    with closing(Terminal("run", "gated.py", XDG_STATE_HOME=home)) as terminal:
        terminal.wait_for("d and Enter: detach")
        stage.until_gate()
        terminal.type("d\n")
        terminal.wait_for("runs detached")
        assert terminal.end() == 0
    (standing,) = stage.depot.standings()

    with closing(Terminal("attach", standing.job.run, XDG_STATE_HOME=home)) as watching:
        watching.wait_for("d and Enter: leave the view")
        watching.type("d\n")
        watching.wait_for("continues")
        assert watching.end() == 0
    assert stage.standing(RunDir(standing.job.path)).state == "owned"

    stage.open_gate()
    assert stage.until_state(RunDir(standing.job.path), "over").outcome == "completed"
    assert stage.done() == ALL


@pytest.mark.requirement("detaching-is-not-an-answer")
def test_a_run_is_handed_over_and_left_while_it_asks_and_a_d_is_not_its_answer(
    stage: NodeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stage.workspace)
    (stage.workspace / "asking.py").write_text(ASKING)
    home = stage.environ["XDG_STATE_HOME"]
    with closing(Terminal("run", "asking.py", XDG_STATE_HOME=home)) as terminal:
        terminal.wait_for("Which?", " >", ":detach and Enter: detach")
        terminal.type("d\n")
        terminal.wait_for("to detach type :detach; to answer d, type it again")
        terminal.type(":detach\n")
        terminal.wait_for("runs detached")
        assert terminal.end() == 0
    (standing,) = stage.depot.standings()
    run = RunDir(standing.job.path)

    with closing(Terminal("attach", run.id, XDG_STATE_HOME=home)) as watching:
        watching.wait_for("Which?", " >", ":detach and Enter: leave the view")
        watching.type(":detach\n")
        watching.wait_for("continues")
        assert watching.end() == 0
    assert list(read_state(run).questions) == ["q1"]

    with closing(Terminal("attach", run.id, XDG_STATE_HOME=home)) as answering:
        answering.wait_for("Which?", " >")
        answering.type("d\n")
        answering.wait_for("type it again")
        answering.type("d\n")
        answering.wait_for("completed in")
        assert answering.end() == 0
        assert "? Which?  d" in answering.screen()


def test_a_question_of_a_detached_run_is_answered_in_attach(
    stage: NodeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stage.workspace)
    (stage.workspace / "asking.py").write_text(ASKING)
    run = stage.detach("asking.py")
    with closing(Terminal("attach", run.id, XDG_STATE_HOME=stage.environ["XDG_STATE_HOME"])) as terminal:
        terminal.wait_for("Which?", " >")

        terminal.type("this one\n")
        terminal.wait_for("completed")

        assert terminal.end() == 0
        assert "this one" in terminal.screen()


@pytest.mark.requirement("answer-continues-a-resting-run")
@pytest.mark.parametrize("has_node", [True, False])
def test_a_question_of_a_resting_run_is_answered_in_attach_which_shows_the_run_to_its_end(
    stage: NodeStage, monkeypatch: pytest.MonkeyPatch, has_node: bool
) -> None:
    monkeypatch.chdir(stage.workspace)
    (stage.workspace / "asking.py").write_text(ASKING)
    stage.environ["BARTACK_NODE_REST_AFTER_S"] = "0.2"
    run = stage.detach("asking.py")
    stage.until_state(run, "resting")
    if not has_node:
        stage.call("node", "stop")
    with closing(Terminal("attach", run.id, XDG_STATE_HOME=stage.environ["XDG_STATE_HOME"])) as terminal:
        terminal.wait_for("Which?", " >")

        terminal.type("this one\n")
        terminal.wait_for("completed in")

        assert terminal.end() == 0
        assert "the node resumes it" in terminal.screen()
        assert "bartack resume" not in terminal.screen()
    assert stage.until_state(run, "over").outcome == "completed"


@pytest.mark.requirement("answer-continues-a-resting-run")
def test_attach_reports_why_the_node_does_not_resume_a_run_that_was_answered_there(
    stage: NodeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stage.workspace / "asking.py").write_text(ASKING)
    stage.environ["BARTACK_NODE_REST_AFTER_S"] = "0.2"
    run = stage.detach("asking.py")
    stage.until_state(run, "resting")
    monkeypatch.chdir(stage.workspace)
    with closing(Terminal("attach", run.id, XDG_STATE_HOME=stage.environ["XDG_STATE_HOME"])) as terminal:
        terminal.wait_for("Which?", " >")
        job = msgspec.to_builtins(stage.standing(run).job)
        stage.change(run, job={**job, "workspace": str(stage.root / "gone")})

        terminal.type("this one\n")

        assert terminal.end() == 3
        assert "the node does not resume it: BT368" in terminal.screen()
        assert f"bartack queue add {run.id}" in terminal.screen()
        assert "bartack resume" not in terminal.screen()


def test_attach_shows_a_run_to_its_end_and_leaving_it_leaves_the_run_alone(stage: NodeStage) -> None:
    run = stage.detach("gated.py")
    left, stays = stage.start("attach", run.id), stage.start("attach", run.id)
    for watcher in (left, stays):
        assert watcher.stderr is not None
        assert watcher.stderr.readline() == f"{run.id} attached\n"
    left.send_signal(signal.SIGINT)
    _, shown = left.communicate(timeout=120)
    assert (left.returncode, stage.standing(run).state) == (0, "owned")
    assert f"{run.id} continues" in shown

    stage.open_gate()
    result, shown = stays.communicate(timeout=120)

    assert (stays.returncode, result) == (0, "through\n")
    assert f"{run.id} completed" in shown


def test_runs_follow_each_other_and_one_that_follows_a_failure_is_held(stage: NodeStage) -> None:
    (stage.workspace / "failing.py").write_text(
        "from bartack import Context, worker\n\n\n@worker\nasync def main(ctx: Context) -> None:\n    raise ValueError('no')\n"
    )
    first = stage.detach("failing.py", "--retry", "1")
    second = stage.detach("counting.py", "--after", first.id)

    held = stage.until_state(second, "held")

    assert held.reason == f"it was to follow {first.id}, which is failed"
    assert stage.standing(first).failures == 1
    assert stage.done() == []


def test_the_settings_of_the_node_are_the_users_own_and_those_of_failures_also_the_projects(
    stage: NodeStage,
) -> None:
    home = stage.depot.directory.parent
    home.mkdir(parents=True, mode=0o700)
    (home / "bartack.toml").write_text("[node]\nmax_runs = 1\nretries = 2\n")
    (stage.workspace / "bartack.toml").write_text('[node]\non_failure = "retry"\n')
    first, second = stage.detach("gated.py"), stage.detach("gated.py", "--retry", "0")

    node = stage.depot.seated()
    assert node is not None
    assert node.slots == 1
    assert "1 runs at a time" in stage.log()
    assert [stage.standing(run).state for run in (first, second)] == ["owned", "queued"]
    jobs = [stage.standing(run).job for run in (first, second)]
    assert [(job.on_failure, job.retries) for job in jobs] == [("retry", 2), ("stop", 0)]


def test_a_run_whose_workspace_is_gone_is_held_with_the_reason(stage: NodeStage) -> None:
    run = stage.detach("gated.py")
    stage.until_gate()
    stage.call("node", "stop")
    moved = stage.root / "moved"
    shutil.move(stage.workspace, moved)
    stage.workspace = moved

    stage.call("node", "start")

    held = stage.until_state(run, "held")
    gone = stage.root / "work"
    assert held.reason == f"BT368: {run.id} cannot be run: its workspace {gone} is gone"


def test_a_node_of_another_version_is_not_given_runs(stage: NodeStage) -> None:
    other = NodeFacts(id="node-0", pid=os.getpid(), boot="", version="0.0.1")
    with stage.depot.sit(other):
        done = stage.call("run", "--detach", "counting.py", code=1)

    assert "error[BT367]: the node is version 0.0.1" in done.stderr
    (standing,) = stage.depot.standings()
    assert standing.state == "queued"
    stage.call("node", "start")
    assert stage.until_state(RunDir(standing.job.path), "over").outcome == "completed"


@pytest.mark.parametrize(
    ("words", "code", "shown"),
    [
        (("run", "counting.py", "--after", "x"), 2, "add --detach"),
        (("run", "-d", "counting.py", "--priority", "1000"), 2, "between -100 and 100"),
        (
            ("run", "-d", "counting.py", "--after", "run-1"),
            7,
            "it is not in the queue, so nothing can follow it",
        ),
        (("queue", "remove", "run-1"), 7, "error[BT363]: run-1: it is not in the queue"),
        (("queue", "add", "run-1"), 7, "error[BT301]"),
        (("attach", "run-1"), 7, "error[BT301]"),
        (("detach", "run-1"), 7, "error[BT301]"),
    ],
)
def test_bad_input_is_named_and_starts_nothing(
    stage: NodeStage, words: tuple[str, ...], code: int, shown: str
) -> None:
    done = stage.call(*words, code=code)

    assert shown in done.stderr
    assert "Traceback" not in done.stderr
    assert stage.depot.standings() == []
    assert not stage.node_pid()


def test_a_full_queue_is_named_and_the_run_can_be_queued_later(stage: NodeStage) -> None:
    job = Job(run="run-0", path="p", workspace="w")
    stage.depot.submit(job, 1)
    queued = (stage.depot.directory / "runs" / "run-0.json").read_text(encoding="utf-8")
    for number in range(1, MOST_QUEUED):
        path = stage.depot.directory / "runs" / f"run-{number}.json"
        path.write_text(queued.replace("run-0", f"run-{number}"), encoding="utf-8")

    done = stage.call("run", "--detach", "counting.py", code=1)

    assert f"error[BT362]: the queue holds {MOST_QUEUED} runs and takes no more" in done.stderr
    (run,) = (stage.workspace / ".bartack" / "runs").iterdir()
    assert stage.depot.find(run.name) is None
    assert not stage.node_pid()
    shutil.rmtree(stage.depot.directory / "runs")
    stage.call("queue", "add", run.name)
    assert stage.until_state(RunDir(run), "over").outcome == "completed"


def test_secrets_are_not_written_to_the_queue(stage: NodeStage) -> None:
    run = stage.detach("counting.py")
    stage.until_state(run, "over")
    stage.environ |= {"MY_TOKEN": "yellow-bird-0815", "PLAIN": "kept"}
    stage.detach("counting.py")

    texts = [path.read_text() for path in stage.depot.directory.rglob("*") if path.is_file()]
    assert not [text for text in texts if "yellow-bird" in text]
    assert [text for text in texts if '"PLAIN":"kept"' in text]
    for one in stage.depot.standings():
        stage.until_state(RunDir(one.job.path), "over")


def test_the_queue_is_shown_for_programs_too(stage: NodeStage) -> None:
    run = stage.detach("counting.py")
    stage.until_state(run, "over")

    (listed,) = msgspec.json.decode(stage.call("queue", "--all", "--json").stdout)
    status = msgspec.json.decode(stage.call("node", "status", "--json", code=None).stdout)

    assert (listed["run"], listed["state"], listed["outcome"]) == (run.id, "over", "completed")
    assert status["runs"] == {"over": 1}
    assert stage.call("queue").stdout == "The queue is empty. 'bartack run --detach' adds a run.\n"
