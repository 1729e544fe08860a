"""Runs of all workspaces of a user: found, listed, answered and resumed from any directory."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from tests.cli.runs.programs import ASKING, BROKEN
from tests.cli.runs.stories import Call, Story, an_error, started

from bartack._version import __version__
from bartack.cli.app._runs import complete_run
from bartack.cli.look._status import status
from bartack.cli.look._status_all import waits_of
from bartack.core.clock import SystemClock
from bartack.depot import FileDepot, Job, NodeFacts, Standing, Verdict, Workspace, user_depot, user_workspaces
from bartack.node import stop_node
from bartack.runtime.client.everywhere import PlacedRun
from bartack.runtime.protocol.frames import ErrorData
from bartack.runtime.rundir.find import summarise
from bartack.runtime.rundir.mirror import Mirror
from bartack.runtime.state import entries as e

Tell = Callable[..., Story]
US = 1_000_000


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A user of its own, who is in a directory without runs; the node ends with the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    yield
    stop_node(user_depot())


@pytest.fixture
def tell(tmp_path: Path) -> Iterator[Tell]:
    """Begins a run of a workspace by hand."""
    told: list[Story] = []

    def begin(workspace: str, hexes: str, *, known: bool = True) -> Story:
        place = tmp_path / workspace
        told.append(Story(place / ".bartack/runs" / f"run-20260101-000000-{hexes}"))
        if known:
            user_workspaces().add(Workspace(str(place), str(place / ".bartack")))
        return told[-1].begin()

    yield begin
    for story in told:
        story.journal.close()


def ask(story: Story) -> Story:
    story.tell(
        e.StepStarted(p="main", n=1, step="ask", fp="q", about="Publish?", question="q1"),
        b'{"question":"Publish?","type":"bool"}',
    )
    story.tell(e.HubStopped(reason="waiting")).end()
    Mirror(story.run, story.state).write(1, active=False, status="waiting")
    return story


def fail(story: Story) -> Story:
    story.tell(e.FailureRecorded(worker="main", error=an_error(), p="main", n=1))
    return story.tell(e.RunEnded(status="failed")).end()


def over(story: Story, status: str = "completed") -> Story:
    return story.tell(e.RunEnded(status=status)).end()


def job_of(story: Story) -> Job:
    return Job(run=story.id, path=str(story.run.path), workspace=str(story.run.path.parents[2]))


def put(story: Story, verdict: Verdict | None = None) -> Standing:
    """Give a run a place in the queue, as a node would."""
    depot, now = user_depot(), SystemClock().now_us()
    depot.submit(job_of(story), now)
    if verdict is not None:
        (claim,) = depot.claim("node-1", 1, now)
        depot.release(claim, verdict, now)
    found = depot.find(story.id)
    assert found is not None
    return found


def lines(text: str) -> dict[str, str]:
    """The lines of a list by the last digits of their runs."""
    return {line[20:28]: line for line in text.splitlines() if line.startswith("run-")}


def wait_until_over(depot: FileDepot, run: str) -> str:
    with depot.watch() as watch:
        for _ in range(600):
            found = depot.find(run)
            if found is not None and found.state == "over":
                return found.outcome
            watch.wait(0.1)
    raise AssertionError(depot.find(run))


# Real runs.


@pytest.fixture
def shops(tmp_path: Path) -> tuple[Path, Path]:
    """Two workspaces with a program each."""
    for name, program in (("shop", ASKING), ("stock", BROKEN)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "team.py").write_text(program)
    return tmp_path / "shop", tmp_path / "stock"


@pytest.mark.requirement("all-workspaces-in-one-list")
def test_runs_of_two_workspaces_are_listed_answered_and_resumed_from_a_third(
    bartack: Call, call: Call, shops: tuple[Path, Path]
) -> None:
    shop, stock = shops
    assert bartack("run", "team.py", "-C", str(shop)).returncode == 3
    assert bartack("run", "team.py", "-C", str(stock)).returncode == 1

    failed, asking = json.loads(call("status", "--all", "--json").stdout)
    assert (failed["status"], failed["workspace"]) == ("failed", str(stock))
    assert (asking["status"], asking["workspace"]) == ("waiting", str(shop))
    assert asking["waits_for"] == ["waits for an answer: q1"]
    run = asking["run"]

    (question,) = json.loads(call("answer", "--all", "--json").stdout)
    assert (question["run"], question["workspace"], question["id"]) == (run, str(shop), "q1")

    assert call("answer", run, "q1", "yes").returncode == 0
    done = json.loads(call("resume", "--all", "--yes", "--json").stdout)
    assert [one["run"] for one in done["runs"]] == [run]
    assert [one["run"] for one in done["left_out"]] == [failed["run"]]
    assert done["queued"] is True
    assert wait_until_over(user_depot(), run) == "completed"
    assert json.loads(call("show", run, "--json").stdout)["status"] == "completed"


@pytest.mark.requirement("answer-continues-a-resting-run")
@pytest.mark.parametrize("state", ["resting", "owned"])
def test_an_answer_to_a_run_that_rests_in_the_queue_resumes_it(
    bartack: Call, call: Call, shops: tuple[Path, Path], state: str
) -> None:
    """Also if its node was killed before it could see that the run rests."""
    shop, _ = shops
    assert bartack("run", "team.py", "-C", str(shop)).returncode == 3
    (asking,) = json.loads(call("status", "--all", "--json").stdout)
    run = asking["run"]
    depot, now = user_depot(), SystemClock().now_us()
    depot.submit(Job(run=run, path=asking["dir"], workspace=str(shop)), now)
    (claim,) = depot.claim("node-1", 1, now)
    if state == "resting":
        depot.release(claim, Verdict(state="resting", reason="it waits for an answer"), now)

    shown = call("answer", run, "q1", "yes")

    assert shown.returncode == 0
    assert f"answered q1 of {run}; the node resumes it" in shown.stderr
    assert wait_until_over(depot, run) == "completed"


def test_an_answer_to_a_run_that_the_queue_does_not_know_starts_no_node(call: Call, tell: Tell) -> None:
    asking = ask(tell("shop", "aaaa0001"))
    shown = call("answer", asking.id, "q1", "yes")

    assert f"resume it with: bartack resume {asking.id}" in shown.stderr
    assert user_depot().seated() is None
    assert user_depot().standings() == []


def test_a_copy_of_a_resting_run_is_not_the_one_that_is_queued_again(
    call: Call, tell: Tell, tmp_path: Path
) -> None:
    asking = ask(tell("shop", "aaaa0001"))
    put(asking, Verdict(state="resting"))
    other = ask(tell("stock", "aaaa0001"))
    call("answer", str(other.run.path), "q1", "yes", "-C", str(tmp_path / "stock"))

    found = user_depot().find(asking.id)
    assert found is not None
    assert found.state == "resting"


# Finding a run.


@pytest.mark.parametrize(
    "words", [("status",), ("show",), ("log",), ("answer",), ("ps",), ("mailbox", "list")]
)
@pytest.mark.requirement("run-is-found-from-anywhere")
def test_a_run_of_another_workspace_is_found(call: Call, tell: Tell, words: tuple[str, ...]) -> None:
    asking = ask(tell("shop", "aaaa0001"))
    ask(tell("stock", "bbbb0002"))

    for name in (asking.id, "run-20260101-000000-a", "20260101-000000-aa"):
        shown = call(*words, name)
        assert shown.returncode == 0
        assert f"{asking.id} is a run of " in shown.stderr
        assert "shop" in shown.stderr


def test_a_run_of_another_workspace_is_cancelled(call: Call, tell: Tell) -> None:
    asking = ask(tell("shop", "aaaa0001"))

    assert call("cancel", asking.id).stdout == f"{asking.id} is cancelled\n"


def test_a_run_of_this_workspace_comes_first(call: Call, tell: Tell) -> None:
    ask(tell("shop", "aaaa0001"))
    ask(tell("here", "aaaa0002"))
    shown = call("status", "run-20260101-000000-a", "--json")

    assert json.loads(shown.stdout)["run"].endswith("aaaa0002")
    assert "is a run of" not in shown.stderr


def test_a_run_that_only_the_queue_knows_is_found(call: Call, tell: Tell) -> None:
    asking = ask(tell("shop", "aaaa0001", known=False))
    assert call("show", asking.id).returncode == 7
    put(asking)

    assert call("show", asking.id).returncode == 0
    assert list(lines(call("status", "--all").stdout)) == ["aaaa0001"]


def test_a_prefix_of_several_runs_is_an_error_that_names_them(call: Call, tell: Tell) -> None:
    found = [ask(tell("shop", "aaaa0001")), ask(tell("stock", "aaaa0002"))]
    shown = call("show", "run-20260101-000000-aaaa")

    assert shown.returncode == 2
    assert "is a prefix of several run ids" in shown.stderr
    assert all(story.id in shown.stderr for story in found)


def test_copies_of_one_run_are_named_by_their_directories(call: Call, tell: Tell) -> None:
    found = [ask(tell("shop", "aaaa0001")), ask(tell("stock", "aaaa0001"))]
    shown = call("show", found[0].id)

    assert shown.returncode == 2
    assert "Name the directory of the run" in shown.stderr
    assert all(str(story.run.path) in shown.stderr for story in found)


@pytest.mark.parametrize("name", ["latest", "", "./run-20260101-000000-aaaa0001"])
def test_what_is_not_the_name_of_a_run_is_looked_for_here_only(call: Call, tell: Tell, name: str) -> None:
    ask(tell("shop", "aaaa0001"))

    assert call("show", name).returncode == 7


def test_a_workspace_that_is_named_is_meant_alone(call: Call, tell: Tell, tmp_path: Path) -> None:
    asking = ask(tell("shop", "aaaa0001"))

    assert call("show", asking.id, "-C", str(tmp_path / "here")).returncode == 7
    assert call("show", asking.id, "-C", str(tmp_path / "shop")).returncode == 0


@pytest.mark.requirement("run-is-found-from-anywhere")
def test_runs_that_another_user_can_change_are_reported_and_not_read(
    call: Call, tell: Tell, tmp_path: Path
) -> None:
    asking = ask(tell("shop", "aaaa0001"))
    ask(tell("stock", "bbbb0002"))
    (tmp_path / "shop/.bartack/runs").chmod(0o777)

    assert call("show", asking.id).returncode == 7
    shown = call("status", "--all").stdout
    assert list(lines(shown)) == ["bbbb0002"]
    assert "every user can write to it" in shown.splitlines()[-1]
    (row,) = [row for row in json.loads(call("status", "--all", "--json").stdout) if not row["run"]]
    assert (row["status"], row["workspace"]) == ("unreadable", str(tmp_path / "shop"))
    assert "are skipped" in call("answer", "--all").stderr


@pytest.mark.parametrize("command", ["cancel", "log", "show"])
def test_a_run_that_another_user_can_change_is_refused(call: Call, tell: Tell, command: str) -> None:
    asking = ask(tell("shop", "aaaa0001"))
    asking.run.path.chmod(0o777)
    shown = call(command, asking.id)

    assert shown.returncode != 0
    assert "every user can write to it" in shown.stderr


def test_a_bundle_of_a_run_of_another_workspace_hides_the_secrets_of_that_workspace(
    call: Call, tell: Tell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOOR_CODE", "long-and-secret")
    told = tell("shop", "aaaa0001").tell(started(1, about="open long-and-secret")).end()
    (tmp_path / "shop/bartack.toml").write_text('[redaction]\nnames = ["DOOR_CODE"]\n')

    assert call("bundle", told.id, "-o", "run.tgz").returncode == 0
    with tarfile.open("run.tgz") as archive:
        packed = [archive.extractfile(member) for member in archive.getmembers()]
        assert not any(b"long-and-secret" in file.read() for file in packed if file is not None)


def test_the_ids_of_other_workspaces_are_completed(tell: Tell) -> None:
    asking = ask(tell("shop", "aaaa0001"))
    context = click.Context(status)
    here = status.params[0]

    assert complete_run(context, here, "run-2026") == [asking.id]
    assert complete_run(context, here, "") == ["latest"]
    assert complete_run(context, here, "run-3") == []


# The list.


@pytest.mark.requirement("all-workspaces-in-one-list")
def test_the_list_has_what_is_open_and_what_ended_lately(call: Call, tell: Tell) -> None:
    tell("shop", "aaaa0001").end()
    ask(tell("shop", "aaaa0002"))
    over(tell("stock", "aaaa0003"))
    fail(tell("stock", "aaaa0004"))
    recent = tell("stock", "aaaa0005")
    recent.clock.advance(SystemClock().now_us() / US - recent.clock.now_us() / US)
    over(recent)

    assert list(lines(call("status", "--all").stdout)) == ["aaaa0005", "aaaa0002", "aaaa0001"]
    assert len(lines(call("status", "--all", "--since", "99999w").stdout)) == 5


def test_what_a_run_waits_for_in_the_queue_is_shown(call: Call, tell: Tell) -> None:
    first, second, third = (tell("shop", f"aaaa000{n}").end() for n in (1, 2, 3))
    resting = ask(tell("shop", "aaaa0004"))
    put(third, Verdict(state="held", reason="its process died 5 times"))
    put(resting, Verdict(state="resting", reason="it waits for an answer"))
    put(first)
    depot = user_depot()
    depot.submit(Job(run=second.id, path=str(second.run.path), workspace="/shop", after=(first.id,)), 1)

    shown = lines(call("status", "--all").stdout)
    assert shown["aaaa0001"].split()[1] == "queued"
    assert f"after {first.id}" in shown["aaaa0002"]
    assert shown["aaaa0003"].split()[1] == "held"
    assert "its process died 5 times" in shown["aaaa0003"]
    assert shown["aaaa0004"].endswith("waits for an answer: q1")
    facts = {row["run"]: row for row in json.loads(call("status", "--all", "--json").stdout)}
    assert facts[third.id]["queue"]["state"] == "held"
    assert facts[third.id]["status"] == "interrupted"


NO_NODE = "No node is running; start it with: bartack node start"


@pytest.mark.requirement("lists-without-a-node")
@pytest.mark.parametrize("command", ["queue", "status"])
def test_a_run_that_neither_a_node_nor_a_hub_has_is_interrupted_and_the_list_says_how_it_continues(
    call: Call, tell: Tell, command: str
) -> None:
    words = ("queue",) if command == "queue" else ("status", "--all")
    killed, completed = tell("shop", "aaaa0001").end(), over(tell("shop", "aaaa0002"))
    for story in (killed, completed):
        put(story)
    user_depot().claim("node-1", 2, SystemClock().now_us())

    shown = call(*words).stdout

    assert lines(shown)["aaaa0001"].split()[1] == "interrupted"
    assert lines(shown)["aaaa0002"].split()[1] == "completed"
    assert shown.splitlines()[-1] == NO_NODE
    rows = {row["run"]: row for row in json.loads(call(*words, "--json").stdout)}
    row = rows[killed.id]
    assert (row if command == "queue" else row["queue"])["state"] == "interrupted"
    assert "1 running" not in call("node", "status").stdout

    with user_depot().sit(NodeFacts(id="node-2", pid=os.getpid(), boot="", version=__version__)):
        shown = call(*words).stdout
        assert NO_NODE not in shown
        if command == "queue":
            assert lines(shown)["aaaa0001"].split()[1] == "running"


@pytest.mark.requirement("lists-without-a-node")
@pytest.mark.parametrize("words", [("queue",), ("status", "--all")])
@pytest.mark.parametrize(
    ("verdict", "needed"),
    [
        (None, True),
        (Verdict(state="resting", wakes=True), True),
        (Verdict(state="resting", reason="a person has stopped it"), False),
        (Verdict(state="held", reason="it died"), False),
    ],
)
def test_a_node_is_asked_for_only_if_a_run_needs_one(
    call: Call, tell: Tell, words: tuple[str, ...], verdict: Verdict | None, needed: bool
) -> None:
    put(tell("shop", "aaaa0001").end(), verdict)

    assert (NO_NODE in call(*words).stdout) is needed


def test_an_agent_that_is_rate_limited_is_what_an_active_run_waits_for(tell: Tell) -> None:
    told = tell("shop", "aaaa0001")
    due = SystemClock().now_us() + 3610 * US
    error = ErrorData(type="bartack.errors:AgentRateLimitedError", message="limit", worker="main")
    told.tell(started(1, "think")).tell(e.StepRetried(p="main", n=1, attempt=1, due=due, error=error)).end()
    summary = summarise(told.run)
    summary.pid, summary.status = 1, "running"

    (waits,) = waits_of(PlacedRun(told.run, "/shop"), summary)
    assert waits.startswith("calls its agent again in 1 h 00 min")


def test_a_run_that_cannot_be_read_is_a_line(call: Call, tell: Tell) -> None:
    told = ask(tell("shop", "aaaa0001"))
    (told.run.path / "journal.ndjson").write_bytes(b"not a journal\n")
    shown = lines(call("status", "--all").stdout)

    assert shown["aaaa0001"].split()[1] == "unreadable"


def test_a_workspace_that_is_gone_is_forgotten(call: Call, tell: Tell, tmp_path: Path) -> None:
    asking = ask(tell("shop", "aaaa0001"))
    shutil.rmtree(tmp_path / "shop")

    assert call("status", "--all").stdout.startswith("No run of any workspace is open")
    assert call("show", asking.id).returncode == 7
    assert list((tmp_path / "state/bartack/workspaces").iterdir()) == []


def test_workspaces_that_share_a_state_directory_show_each_run_once(
    call: Call, tell: Tell, tmp_path: Path
) -> None:
    ask(tell("shop", "aaaa0001"))
    (tmp_path / "stock").mkdir()
    user_workspaces().add(Workspace(str(tmp_path / "stock"), str(tmp_path / "shop/.bartack")))

    (row,) = json.loads(call("status", "--all", "--json").stdout)
    assert row["workspace"] == str(tmp_path / "shop")


def test_the_current_workspace_counts_although_it_is_not_known(call: Call, tell: Tell) -> None:
    ask(tell("here", "aaaa0001", known=False))

    assert list(lines(call("status", "--all").stdout)) == ["aaaa0001"]


@pytest.mark.parametrize(
    "words",
    [
        ("status", "--all", "latest"),
        ("status", "--all", "--watch"),
        ("status", "--since", "1d"),
        ("status", "--all", "--since", "soon"),
        ("answer", "--all", "latest"),
        ("resume", "--all", "latest"),
        ("resume", "--all", "--update"),
        ("resume", "--all", "--unknown", "retry"),
        ("resume", "--failed"),
        ("resume", "--yes"),
        ("resume", "--all", "--since", "-1d"),
    ],
)
def test_options_that_do_not_go_together_are_refused(call: Call, words: tuple[str, ...]) -> None:
    assert call(*words).returncode == 2


# Resuming.


@pytest.mark.requirement("resume-all-takes-interrupted-runs")
def test_interrupted_runs_are_chosen_and_others_are_left_out_with_the_reason(call: Call, tell: Tell) -> None:
    tell("shop", "aaaa0001").end()
    tell("shop", "aaaa0002").tell(e.HubStopped(reason="interrupted")).end()
    answered = ask(tell("stock", "aaaa0003"))
    call("answer", answered.id, "q1", "yes")
    ask(tell("stock", "bbbb0001"))
    fail(tell("stock", "bbbb0002"))
    put(tell("stock", "bbbb0003").end(), Verdict(state="held", reason="it died"))
    over(tell("stock", "cccc0001"), "cancelled")
    over(tell("stock", "cccc0002"))
    put(tell("stock", "cccc0003").end())

    shown = call("resume", "--all")
    chosen, _, left_out = shown.stdout.partition("Left out:\n")
    assert shown.returncode == 2
    assert "--yes queues without asking" in shown.stderr
    assert list(lines(chosen)) == ["aaaa0003", "aaaa0002", "aaaa0001"]
    reasons = [line.strip() for line in left_out.splitlines()]
    assert [line[20:28] for line in reasons] == ["bbbb0003", "bbbb0002", "bbbb0001"]
    assert "it is held (it died); --failed includes it" in reasons[0]
    assert "it failed; --failed includes it" in reasons[1]
    assert "it waits for an answer: q1" in reasons[2]
    chosen = call("resume", "--all", "--failed").stdout.partition("Left out:\n")[0]
    assert list(lines(chosen)) == ["bbbb0003", "bbbb0002", "aaaa0003", "aaaa0002", "aaaa0001"]
    assert [one.job.run[-8:] for one in user_depot().standings() if one.state == "queued"] == ["cccc0003"]


def test_runs_that_changed_long_ago_can_be_left_alone(call: Call, tell: Tell) -> None:
    tell("shop", "aaaa0001").end()

    assert call("resume", "--all", "--since", "1d", "--yes").stdout == "No run is to be resumed.\n"


def test_a_run_that_came_from_elsewhere_is_not_resumed(call: Call, tell: Tell, tmp_path: Path) -> None:
    told = tell("shop", "aaaa0001").end()
    told.run.path.rename(tmp_path / "original")  # it stays, so that the copy cannot get its inode
    shutil.copytree(tmp_path / "original", told.run.path)

    done = json.loads(call("resume", "--all", "--json").stdout)
    assert (done["queued"], done["runs"]) == (False, [])
    assert "its directory is not the one that it was made in" in done["left_out"][0]["reason"]


def test_a_run_that_cannot_be_queued_is_reported_and_the_others_are_queued(
    call: Call, tell: Tell, tmp_path: Path
) -> None:
    tell("shop", "aaaa0001").end()
    (tmp_path / "shop/bartack.toml").write_text("[nonsense\n")

    done = call("resume", "--all", "--yes", "--json")
    assert done.returncode == 1
    assert list(json.loads(done.stdout)["failed"]) == ["run-20260101-000000-aaaa0001"]
    assert user_depot().seated() is None
