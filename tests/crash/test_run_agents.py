"""Agents that are programs, under a real hub: whoever is killed, each finished call was made once and the rest is made again."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from tests.crash.asking import BeginAsking, commands
from tests.crash.runs import PATIENCE_S, RealRun, kill, wait_until

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="processes are told apart as on Linux"),
    pytest.mark.requirement("answers-are-found-or-asked-for-again"),
]
DEAF_HUB = Path(__file__).with_name("deaf_hub.py")
ANSWER: dict[str, object] = {
    "type": "builder.completed",
    "payload": {"tests": {"status": "pass"}},
    "artifacts": [{"path": "week.txt"}],
}
WORK = [{"path": "week.txt", "content": "53"}, {"path": "effects.txt", "content": "done\n", "append": True}]


@pytest.fixture
def begin(begin_asking: BeginAsking) -> BeginAsking:
    return begin_asking


def result_of(run: RealRun) -> object:
    return run.api.result()


def hangs(run: RealRun) -> bool:
    """Whether the agent hangs, and remembers that it need not do so again."""
    state = run.workspace / "state.json"
    return bool(commands(run)) and state.exists() and "inject 0" in state.read_text()


def working(*inject: dict[str, object], dedupe: bool = True) -> dict[str, object]:
    reply = {"write": WORK, "inject": list(inject), "events": [ANSWER]}
    return {"dedupe": dedupe, "responses": {"implement": reply}}


def test_prompts_and_commands_reach_an_agent_of_the_project(begin: BeginAsking) -> None:
    rules = [{"pattern": "Summarise", "text": "two fixes"}, {"value": 7}]
    run = begin("thinks", {"prompts": rules, **working()})

    code = run.finish()

    assert code == 0, run.story()
    assert result_of(run) == "two fixes 7"
    run.wait_nothing_left()


def test_a_hub_that_dies_while_an_agent_works_asks_again_under_the_same_key(begin: BeginAsking) -> None:
    run = begin("commands", working({"do": "hang", "at": "start"}))
    run.start()
    wait_until(lambda: hangs(run))
    run.kill_hub()

    code = run.finish()

    assert code == 0, run.story()
    first, second = commands(run)
    assert second["idempotency_key"] == first["idempotency_key"]
    assert second["correlation_id"] == first["correlation_id"]
    assert second["inputs"] == first["inputs"]
    assert (second["retry"]["attempt"], second["retry"]["cause"]) == (2, "resend")
    assert run.effects() == ["done"]
    run.wait_nothing_left()


def test_an_answer_that_no_journal_has_heard_of_is_found_and_nothing_is_asked_again(
    begin: BeginAsking,
) -> None:
    run = begin("commands", working(dedupe=False))
    run.start(module=[str(DEAF_HUB)])
    assert run.wait_hub() == -signal.SIGKILL

    code = run.finish()

    assert code == 0, run.story()
    assert result_of(run) == {
        "event": "builder.completed",
        "artifacts": ["week.txt"],
        "harvested": True,
        "attempts": 2,
    }
    assert (len(commands(run)), run.effects()) == (1, ["done"])


@pytest.mark.parametrize("dedupe", [True, False], ids=["honours keys", "ignores keys"])
def test_a_killed_agent_is_started_again_and_the_run_goes_on(begin: BeginAsking, *, dedupe: bool) -> None:
    run = begin("commands", working({"do": "hang", "at": "before"}, dedupe=dedupe))
    run.start()
    run.wait_effects(1)

    kill(*run.parts().commands.values())

    assert run.wait_hub() == 0, run.story()
    assert [command["retry"]["cause"] for command in commands(run)] == ["first", "resend"]
    assert run.effects() == ["done", "done"]


def test_an_agent_whose_keeper_was_killed_is_asked_again(begin: BeginAsking) -> None:
    run = begin("commands", working({"do": "hang", "at": "before"}))
    run.start()
    run.wait_effects(1)

    kill(run.parts().keeper)

    assert run.wait_hub() == 0, run.story()
    assert len(commands(run)) == 2
    run.wait_nothing_left()


def test_a_failing_session_does_not_wait_for_an_agent_for_long(begin: BeginAsking) -> None:
    run = begin("commands", working({"do": "hang", "at": "start"}), "cancel_grace_s = 0.1\n")
    run.start()
    wait_until(lambda: bool(commands(run)))

    run.api.cancel()

    assert run.hub is not None
    run.hub.wait(PATIENCE_S)
    run.wait_nothing_left()
