"""Questions of agents on the command line: listed, answered, and the reason why a run stops."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.runs.stories import Begin, Call, Start, Story, started
from tests.cli.runs.test_run import PATIENCE_S, wait_for

from bartack import Run
from bartack.errors import QuestionAnsweredError, TypeMismatchError
from bartack.runtime.rundir.find import read_state
from bartack.runtime.state import entries as e

PROGRAM = """
from bartack import Context, worker

@worker
async def main(ctx: Context) -> str:
    return await ctx.think("Tidy up.")
"""
SCRIPT = """
[[prompts]]
text = "tidied up"

[prompts.ask]
question = "May the agent delete the old files?"
kind = "permission"
tool = "Bash"
input = { command = "rm -rf old" }
expect = "allow"
"""
CONFIG = '[agents.tidy]\nkind = "scripted"\nscript = "script.toml"\n'
USE = 'Bash {"command":"rm -rf old"}'


@pytest.fixture
def program() -> str:
    """A program whose agent asks whether it may use a tool."""
    Path("bartack.toml").write_text(CONFIG)
    Path("script.toml").write_text(SCRIPT)
    Path("tidy.py").write_text(PROGRAM)
    return "tidy.py"


@pytest.fixture
def permission(story: Begin) -> Story:
    """A run without a hub whose agent wants to use a tool, with a text that steers a terminal."""
    told = story("eeee0005")
    told.tell(started(1, "think", "tidy"))
    value = {
        "text": "May it?\x1b[2J",
        "options": ["allow", "deny"],
        "tool": "Bash",
        "input": {"a": "\x1b[31m" * 90},
    }
    asked = e.QuestionAsked(
        p="main", n=1, id="q1", ask="permission", agent="tidy", tool="Bash", fp="f", about="May it?"
    )
    told.tell(asked, json.dumps(value).encode())
    return told.tell(e.HubStopped(reason="waiting")).end()


@pytest.mark.requirement("waiting-run-stops")
def test_a_run_whose_agent_waits_for_a_permission_stops_and_continues_when_it_is_answered(
    bartack: Call, program: str
) -> None:
    done = bartack("run", program)
    run = done.stderr.split()[0]

    assert done.returncode == 3, done.stderr
    assert (
        f"question q1: agent tidy asks: May the agent delete the old files? [{USE}] (allow | deny)"
        in done.stderr
    )
    assert (
        "? May the agent delete the old files? (allow | deny)\n"
        f"  {USE} (asked by agent tidy for main)\n"
        f"  bartack answer {run} q1 allow|deny\n"
    ) in done.stderr
    status = bartack("status", run).stdout
    assert f"(allow | deny; asked by agent tidy for main)\n      {USE}\n" in status
    assert "waits for an answer: q1" in bartack("status").stdout
    assert "waits for an answer: q1" in bartack("ps", run).stdout
    assert bartack("answer", run, "q1", "maybe").returncode == 2
    assert bartack("answer", run, "q1", "allow").returncode == 0
    assert bartack("answer", run, "q1", "deny").returncode == 1
    resumed = bartack("resume")
    assert (resumed.returncode, resumed.stdout) == (0, "tidied up\n"), resumed.stderr
    notes = json.loads(bartack("show", run, "--json").stdout)["notes"]
    assert [note["text"] for note in notes if note["kind"] in {"asked", "answered"}] == [
        "q1: agent tidy may use Bash: May the agent delete the old files?",
        "q1: allow (by maria)",
    ]
    assert "q1: allow (by maria)" in bartack("show", run).stdout


def test_a_denied_permission_reaches_the_agent(bartack: Call, program: str) -> None:
    bartack("run", program)
    bartack("answer", "latest", "q1", "deny")

    failed = bartack("resume")

    assert failed.returncode == 1
    assert "is 'deny', and 'allow' was expected" in failed.stderr


def test_events_name_agent_tool_and_input(bartack: Call, program: str) -> None:
    done = bartack("run", program, "--json")

    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 3
    assert events[-1]["questions"] == [
        {
            "id": "q1",
            "worker": "main",
            "question": "May the agent delete the old files?",
            "type": "str",
            "options": ["allow", "deny"],
            "kind": "permission",
            "agent": "tidy",
            "tool": "Bash",
            "input": '{"command":"rm -rf old"}',
        }
    ]
    assert "question.asked" in {event["event"] for event in events}


def test_a_patient_run_takes_the_permission_from_elsewhere(start: Start, bartack: Call, program: str) -> None:
    process = start("run", program, "--wait")
    wait_for(process, "question q1")

    answered = bartack("answer", "latest", "q1", "allow")

    assert (answered.returncode, answered.stderr.startswith("answered q1 of run-")) == (0, True)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (0, "tidied up\n")


@pytest.mark.parametrize(("default", "code"), [("allow", 0), ("", 1)])
def test_without_input_an_agent_gets_the_default_or_the_reason(
    bartack: Call, program: str, default: str, code: int
) -> None:
    Path("script.toml").write_text(SCRIPT.replace("permission", "ask") + f'default = "{default}"\n')

    done = bartack("run", program, "--no-input")

    assert done.returncode == code, done.stderr
    assert "agent tidy asked: May the agent delete the old files?" in done.stderr
    assert ("the run takes no input, so no person can be asked" in done.stderr) == bool(code)


def test_without_input_a_permission_is_denied(bartack: Call, program: str) -> None:
    done = bartack("run", program, "--no-input")

    assert done.returncode == 1
    assert "is 'the run takes no input, so no person can be asked'" in done.stderr


def test_what_an_agent_wants_is_one_line_cut_and_does_not_steer_the_terminal(
    call: Call, permission: Story
) -> None:
    for words in (("answer",), ("status", permission.id), ("show", permission.id), ("ps", permission.id)):
        shown = call(*words).stdout
        assert "\x1b" not in shown
        assert max(map(len, shown.splitlines())) < 300
    assert f"    bartack answer {permission.id} q1 allow|deny\n" in call("answer").stdout


@pytest.mark.requirement("permissions-need-a-person")
def test_an_answer_to_an_agent_without_a_hub_is_in_the_journal_and_not_in_a_file(
    call: Call, permission: Story
) -> None:
    answered = call("answer", permission.id, "q1", "2")

    assert answered.returncode == 0, answered.stderr
    assert not list(permission.run.inbox.iterdir())
    state = read_state(permission.run)
    assert state.questions == {}
    settled = state.answers["q1"].settled
    assert settled is not None
    assert (settled.answer, settled.by) == ("deny", "maria")
    assert "No question is open." in call("answer", permission.id).stdout


@pytest.mark.requirement("first-answer-counts")
def test_programs_read_and_answer_the_questions_of_agents(permission: Story) -> None:
    run = Run(permission.run)
    [question] = run.questions()
    assert (question.kind, question.agent, question.tool) == ("permission", "tidy", "Bash")
    with pytest.raises(TypeMismatchError):
        run.answer("q1", "perhaps")

    run.answer("q1", "allow")

    with pytest.raises(QuestionAnsweredError):
        run.answer("q1", "deny")
