"""A run that another process runs, or none, shown in any terminal."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from tests.cli.live.terminal import Terminal
from tests.cli.runs.stories import Call, Start, Story
from tests.cli.runs.test_run import wait_for

from bartack import Run

PRINTING = """
from bartack import Context, worker

@worker
async def main(ctx: Context) -> str:
    ctx.print("before")
    await ctx.mailbox.gate.receive(timeout_s=600)
    ctx.print("after")
    ctx.log("logged")
    sure = await ctx.ask("Publish?", type=bool)
    return "published" if sure else "kept"
"""


@pytest.fixture
def gated(start: Start) -> Run:
    """A run in a process of its own that waits for a message."""
    Path("printing.py").write_text(PRINTING)
    running = start("run", "printing.py", "--wait")
    assert running.stdout is not None
    assert running.stdout.readline() == "before\n"
    return Run.list()[0]


@pytest.mark.requirement("any-run-is-watched")
def test_a_run_is_watched_its_question_answered_and_its_end_reported(
    gated: Run, terminals: list[Terminal]
) -> None:
    terminal = Terminal("watch")
    terminals.append(terminal)

    terminal.wait_for(f"{gated.id} watched", "● running", "receive  gate", "d and Enter: leave the view")
    gated.send("gate", 1)
    terminal.wait_for("after\nmain: logged", "? q1 main: Publish?  yes or no")
    terminal.type("yes\n")
    terminal.wait_for("completed in")

    assert terminal.end() == 0
    lines = terminal.screen().splitlines()
    assert lines[1:4] == ["after", "main: logged", "? Publish?  true"]
    assert lines[4] == "published"
    assert "before" not in lines


@pytest.mark.requirement("any-run-is-watched")
@pytest.mark.parametrize("leave", ["d\n", "\x03"])
def test_leaving_the_view_leaves_the_run_alone(gated: Run, terminals: list[Terminal], leave: str) -> None:
    terminal = Terminal("status", "--watch")
    terminals.append(terminal)
    terminal.wait_for("receive  gate")

    if leave == "\x03":
        terminal.process.send_signal(signal.SIGINT)
    else:
        terminal.type(leave)

    assert terminal.end() == 0
    assert f"{gated.id} continues; 'bartack watch {gated.id}' returns to it" in terminal.screen()
    assert gated.state().status == "running"


@pytest.mark.requirement("any-run-is-watched")
def test_two_terminals_watch_one_run_and_one_answer_counts(gated: Run, terminals: list[Terminal]) -> None:
    terminals += [Terminal("watch"), Terminal("attach")]
    for terminal in terminals:
        terminal.wait_for("receive  gate")
    gated.send("gate", 1)
    for terminal in terminals:
        terminal.wait_for("? q1 main: Publish?")

    terminals[0].type("no\n")

    assert [terminal.end() for terminal in terminals] == [0, 0]
    assert "q1 was answered elsewhere" in terminals[1].screen()
    assert all("kept" in terminal.screen() for terminal in terminals)


@pytest.mark.requirement("any-run-is-watched")
def test_a_run_whose_process_is_killed_is_reported_as_interrupted(
    start: Start, terminals: list[Terminal]
) -> None:
    Path("printing.py").write_text(PRINTING)
    hub = start("run", "printing.py")
    wait_for(hub, "started")
    terminal = Terminal("watch")
    terminals.append(terminal)
    terminal.wait_for("receive  gate")

    hub.kill()

    assert terminal.end() == 130
    assert "was interrupted after" in terminal.screen()
    assert "  resume with: bartack resume run-" in terminal.screen()


@pytest.mark.requirement("any-run-is-watched")
@pytest.mark.parametrize(
    ("kind", "code", "shown"),
    [
        ("completed", 0, ["completed in 1.2 s, 4 steps", "details: bartack show run-"]),
        ("failed", 1, ["ValueError: it broke", "failed after 2.5 s, 2 steps", "bartack resume run-"]),
    ],
)
def test_of_a_run_that_is_over_the_end_is_shown(
    request: pytest.FixtureRequest, terminals: list[Terminal], kind: str, code: int, shown: list[str]
) -> None:
    request.getfixturevalue(kind)
    terminal = Terminal("watch")
    terminals.append(terminal)

    assert terminal.end() == code
    assert [text for text in shown if text not in terminal.screen()] == []


@pytest.mark.requirement("any-run-is-watched")
def test_the_question_of_a_run_that_no_process_runs_is_answered_and_the_answer_stored(
    asking: Story, terminals: list[Terminal]
) -> None:
    terminal = Terminal("watch", asking.id)
    terminals.append(terminal)

    terminal.wait_for("○ interrupted", "? q1 main: Publish?  yes or no")
    terminal.type("yes\n")

    assert terminal.end() == 3
    assert "its answer is stored" in terminal.screen()
    assert f"bartack resume {asking.id}" in terminal.screen()
    assert json.loads((asking.run.inbox / "q-q1.json").read_bytes())["value"] is True


def test_without_a_terminal_a_run_is_watched_in_plain_lines(gated: Run, start: Start, call: Call) -> None:
    watching = start("watch", gated.id)
    wait_for(watching, "watched")

    gated.send("gate", 1)
    err = wait_for(watching, " q1 VALUE")
    call("answer", gated.id, "q1", "no")
    out, rest = watching.communicate(timeout=60)

    assert (watching.returncode, out) == (0, "after\nkept\n")
    assert "main: ended\n" in rest
    asked = err[err.index("main: question q1: ") :].splitlines()
    assert asked[:2] == ["main: question q1: Publish?", f"question q1: bartack answer {gated.id} q1 VALUE"]


def test_a_run_is_watched_as_json(gated: Run, start: Start, call: Call) -> None:
    watching = start("watch", gated.id, "--view", "json")
    assert watching.stdout is not None
    assert json.loads(watching.stdout.readline())["event"] == "run"

    gated.send("gate", 1)
    gated.wait(60, until="waiting")
    call("answer", gated.id, "q1", "yes")
    out, _ = watching.communicate(timeout=60)

    events = [json.loads(line) for line in out.splitlines()]
    assert events[-1]["event"] == "result"
    assert events[-1]["value"] == "published"
    assert "output" in {event["event"] for event in events}


def test_a_run_that_is_not_there_cannot_be_watched(call: Call) -> None:
    assert call("watch").returncode == 7
