"""Claude Code uses ``bartack mcp``: a scripted model starts, watches, messages, answers and cancels runs."""

from __future__ import annotations

import json
import select
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from tests.cli.mcp.peer import make_project
from tests.realcli.conftest import StartServer

from bartack import Run
from bartack.errors import BartackError
from bartack.testing import ClaudeSandbox, wait_for

PREFIX: Final = "mcp__bartack__"
TOOLS: Final = [
    "start_run",
    "wait_run",
    "run_status",
    "list_runs",
    "answer_question",
    "send_message",
    "receive_message",
    "cancel_run",
]


def step(name: str, expect: str = "", **arguments: object) -> dict[str, Any]:
    """One turn of the model: a call, after the result of the last one was as expected."""
    made: dict[str, Any] = {"tools": [{"name": PREFIX + name, "input": arguments}]}
    return {**made, "expect": {"tool_result": expect}} if expect else made


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """A project whose runs end with the test."""
    place = tmp_path / "project"
    place.mkdir()
    made = make_project(place)
    yield made
    for run in Run.list(made):
        with suppress(BartackError):
            run.cancel()


def words(project: Path, script: str, *options: str) -> list[str]:
    """Arguments with which Claude Code follows a script."""
    server = {"command": sys.executable, "args": ["-m", "bartack", "mcp", "-C", str(project)]}
    return [
        "-p",
        f"[[script:{script}]] Go.",
        "--output-format",
        "json",
        "--mcp-config",
        json.dumps({"mcpServers": {"bartack": server}}),
        "--strict-mcp-config",
        "--allowedTools",
        ",".join(PREFIX + tool for tool in TOOLS),
        *options,
    ]


def use(sandbox: ClaudeSandbox, project: Path, script: str, *options: str) -> str:
    """Let Claude Code follow a script; its last text."""
    done = sandbox.claude(*words(project, script, *options), timeout_s=120.0)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(json.loads(done.stdout)["result"])


OpenSandbox = Callable[[str, list[dict[str, Any]]], ClaudeSandbox]


@pytest.fixture
def open_sandbox(
    tmp_path: Path, start_server: StartServer, claude: list[str], slot: int
) -> Iterator[OpenSandbox]:
    """Makes sandboxes, each with one script. They end together: runs outlive the program that started them."""
    assert claude
    assert slot >= 0
    with ExitStack() as stack:

        def make(script: str, steps: list[dict[str, Any]]) -> ClaudeSandbox:
            server = start_server({script: steps})
            return stack.enter_context(ClaudeSandbox(tmp_path / script, server))

        yield make


def runs_of(project: Path) -> dict[str, Run]:
    """The runs by the name of their first worker."""
    return {next(iter(run.state().workers)): run for run in Run.list(project)}


@pytest.mark.requirement("mcp-starts-and-reports-runs")
def test_a_model_uses_every_tool_and_the_journal_has_each_effect_once(
    project: Path, open_sandbox: OpenSandbox
) -> None:
    begin = [
        step("start_run", entry="gated"),
        step("start_run", entry="asking"),
        {"text": "Started.", "expect": {"tool_result": "run-"}},
    ]
    assert use(open_sandbox("begin", begin), project, "begin") == "Started."
    gated, asking = runs_of(project)["gated"], runs_of(project)["asking"]
    wait_for(gated, "message.sent", count=2)
    wait_for(asking, "step.started", question="q1")

    follow = [
        step("run_status", run=gated.id),
        step("receive_message", '"waiting": ?2', run=gated.id, mailbox="out"),
        step("receive_message", '"n": ?1', run=gated.id, mailbox="out"),
        step("send_message", '"n": ?2', run=gated.id, mailbox="gate", message={"go": 1}, key="once"),
        step("wait_run", "message_id", run=gated.id),
        step("wait_run", '"go": ?1', run=asking.id),
        step("answer_question", "Which colour", run=asking.id, question="q1", answer="green"),
        step("wait_run", "accepted", run=asking.id),
        step("start_run", "green", entry="gated"),
        step("list_runs", '"existing": ?false', status="running"),
        {"text": "All done.", "expect": {"tool_result": "desk.py"}},
    ]
    assert use(open_sandbox("follow", follow), project, "follow") == "All done."
    third = next(run for run in Run.list(project) if run.id not in {gated.id, asking.id})
    stop = [
        step("cancel_run", run=third.id, reason="enough"),
        {"text": "Stopped.", "expect": {"tool_result": "cancelled"}},
    ]
    assert use(open_sandbox("stop", stop), project, "stop") == "Stopped."

    assert (gated.result(), asking.result(), third.state().status) == ({"go": 1}, "green", "cancelled")
    for run in (gated, asking, third):
        kinds = Counter(str(event["kind"]) for event in run.events())
        assert (kinds["run.created"], kinds["run.ended"]) == (1, 1)
    sent = [event for event in gated.events() if event["kind"] == "message.sent"]
    assert Counter(event["mailbox"] for event in sent) == {"out": 2, "gate": 1}


@pytest.mark.requirement("mcp-run-outlives-its-server")
@pytest.mark.requirement("mcp-start-is-not-repeated")
def test_a_run_outlives_claude_code_and_the_same_conversation_finds_it(
    project: Path, open_sandbox: OpenSandbox, claude: list[str]
) -> None:
    conversation = str(uuid.uuid4())
    steps: list[dict[str, Any]] = [step("start_run", entry="gated"), {"text": "late", "hang_s": 100}]
    sandbox = open_sandbox("begin", steps)
    process = sandbox.start([*claude, *words(project, "begin", "--session-id", conversation)])
    with process:
        (run,) = wait_until(lambda: Run.list(project))
        wait_for(run, "message.sent", count=2)
        process.kill()

    again = [
        step("start_run", entry="gated"),
        {"text": "Found.", "expect": {"tool_result": '"existing": ?true'}},
    ]
    assert use(open_sandbox("again", again), project, "again", "--session-id", conversation) == "Found."
    run.send("gate", {"go": 1})
    report = [
        step("wait_run", run=run.id, cursor=0),
        {"text": "Read.", "expect": {"tool_result": "gated: before"}},
    ]
    assert use(open_sandbox("report", report), project, "report") == "Read."

    assert [found.id for found in Run.list(project)] == [run.id]
    assert run.result() == {"go": 1}


def wait_until(look: Callable[[], list[Run]]) -> list[Run]:
    """What is there, once there is something."""
    until = time.monotonic() + 60.0
    while not (found := look()):
        assert time.monotonic() < until, "it takes too long"
        select.select([], [], [], 0.05)
    return found
