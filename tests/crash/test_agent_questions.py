"""Questions of agents survive the death of their hub: at every point the agent gets the one answer, once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.crash.runs import RealRun

from bartack.errors import BartackError
from bartack.journal import Entry

pytestmark = pytest.mark.requirement("agents-questions-survive-crashes")

PROGRAM = """
from bartack import Context, worker

@worker
async def main(ctx: Context) -> str:
    text = await ctx.think("Tidy up.")
    await ctx.shell("/bin/sh", "-c", "echo tidied >> effects.txt")
    return text
"""
PERMISSION = {
    "question": "May it?",
    "kind": "permission",
    "tool": "Bash",
    "input": {"command": "rm x"},
    "expect": "allow",
}
SCRIPT = {"prompts": [{"text": "tidied up", "ask": [PERMISSION]}]}


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RealRun]:
    """A run whose agent asks whether it may use a tool; nothing runs yet."""
    (tmp_path / "tidy.py").write_text(PROGRAM)
    (tmp_path / "script.json").write_text(json.dumps(SCRIPT))
    (tmp_path / "bartack.toml").write_text('[agents.tidy]\nkind = "scripted"\nscript = "script.json"\n')
    with RealRun.create_from(tmp_path, "tidy.py", "main") as made:
        yield made


def asked(entry: Entry) -> bool:
    return entry.kind == "question.asked"


def check_end(run: RealRun) -> None:
    """The agent got the one answer, and everything happened once."""
    assert run.wait_hub() == 0, run.story()
    assert run.api.result() == "tidied up"
    assert run.effects() == ["tidied"]
    assert (run.count("question.asked"), run.count("question.settled")) == (1, 1), run.story()
    run.wait_nothing_left()


def test_an_answer_that_is_given_while_no_hub_runs_reaches_the_agent(run: RealRun) -> None:
    run.start()
    run.wait_entry(asked)
    run.kill_hub()
    assert run.api.state().questions[0].id == "q1"

    run.api.answer("q1", "allow")
    assert run.api.questions() == []
    run.start()

    check_end(run)


def test_a_question_that_was_open_is_answered_after_the_run_was_resumed(run: RealRun) -> None:
    run.start()
    run.wait_entry(asked)
    run.kill_hub()
    run.start()
    run.wait_entry(lambda entry: entry.kind == "step.started" and entry.data.get("attempt") == 2)

    run.api.answer("q1", "allow")

    check_end(run)


@pytest.mark.parametrize("point", ["before:person_asked", "after:person_asked"])
def test_a_hub_that_dies_before_a_question_is_durable_asks_it_as_the_first_one(
    run: RealRun, point: str
) -> None:
    run.start_doomed(point)
    assert run.wait_hub() < 0
    assert run.count("question.asked") == 0
    run.start()
    run.wait_entry(asked)

    run.api.answer("q1", "allow")

    check_end(run)


@pytest.mark.parametrize("point", ["before:AnswerQuestion", "after:AnswerQuestion"])
def test_a_hub_that_dies_with_a_durable_answer_gives_it_to_the_agent_that_asks_again(
    run: RealRun, point: str
) -> None:
    run.start_doomed(point)
    run.wait_entry(asked)
    with suppress(BartackError):  # the hub is gone before it replies
        run.api.answer("q1", "allow")
    assert run.wait_hub() < 0
    assert run.count("question.settled") == 1

    run.start()

    check_end(run)


def test_an_agent_that_asks_something_else_afterwards_does_not_use_an_old_permission(run: RealRun) -> None:
    run.start()
    run.wait_entry(asked)
    run.kill_hub()
    run.api.answer("q1", "allow")
    other = {"prompts": [{"text": "tidied up", "ask": [{**PERMISSION, "input": {"command": "rm y"}}]}]}
    (run.workspace / "script.json").write_text(json.dumps(other))
    run.start()

    second = run.wait_entry(lambda entry: asked(entry) and entry.data["id"] == "q2")
    assert second.data["drops"] == ["q1"]
    run.api.answer("q2", "deny")

    assert run.wait_hub() == 1, run.story()
    assert run.effects() == []
