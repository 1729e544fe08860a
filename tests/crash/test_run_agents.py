"""Agents that are programs, under a real hub: whoever is killed, each finished call was made once and the rest is made again."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
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
Begin = Callable[..., RealRun]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Makes a run whose agent has a script; nothing runs yet."""
    runs: list[RealRun] = []

    def create(worker: str, script: dict[str, object], config: str = "") -> RealRun:
        (tmp_path / "script.json").write_text(json.dumps(script))
        argv = [sys.executable, "-m", "bartack", "agents", "scripted", "--script", "script.json"]
        argv += ["--state", str(tmp_path / "state.json")]
        (tmp_path / "bartack.toml").write_text(
            f'[agents.stub]\nkind = "ndjson"\ncommand = {json.dumps(argv)}\nbackoff_initial_s = 0\n{config}'
        )
        runs.append(RealRun.create(tmp_path, "asking.py", worker))
        return runs[-1].__enter__()

    yield create
    for run in runs:
        run.__exit__(None, None, None)


def copies(run: RealRun) -> list[dict[str, object]]:
    """Everything that went over the wire, in both directions."""
    files = sorted((run.run.path / "agents").rglob("stream.ndjson"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def commands(run: RealRun) -> list[dict[str, dict[str, object]]]:
    lines = [copy["line"] for copy in copies(run) if copy["dir"] == "out"]
    return [line for line in lines if isinstance(line, dict) and line["kind"] == "command"]


def result_of(run: RealRun) -> object:
    return run.api.result()


def working(*inject: dict[str, object], dedupe: bool = True) -> dict[str, object]:
    reply = {"write": WORK, "inject": list(inject), "events": [ANSWER]}
    return {"dedupe": dedupe, "responses": {"implement": reply}}


def test_prompts_and_commands_reach_an_agent_of_the_project(begin: Begin) -> None:
    rules = [{"pattern": "Summarise", "text": "two fixes"}, {"value": 7}]
    run = begin("thinks", {"prompts": rules, **working()})

    code = run.finish()

    assert code == 0, run.story()
    assert result_of(run) == "two fixes 7"
    run.wait_nothing_left()


def test_a_hub_that_dies_while_an_agent_works_asks_again_under_the_same_key(begin: Begin) -> None:
    run = begin("commands", working({"do": "hang", "at": "start"}))
    run.start()
    wait_until(lambda: bool(commands(run)))
    wait_until((run.workspace / "state.json").exists)
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


def test_an_answer_that_no_journal_has_heard_of_is_found_and_nothing_is_asked_again(begin: Begin) -> None:
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
def test_a_killed_agent_is_started_again_and_the_run_goes_on(begin: Begin, *, dedupe: bool) -> None:
    run = begin("commands", working({"do": "hang", "at": "before"}, dedupe=dedupe))
    run.start()
    run.wait_effects(1)

    kill(*run.parts().commands.values())

    assert run.wait_hub() == 0, run.story()
    assert [command["retry"]["cause"] for command in commands(run)] == ["first", "resend"]
    assert run.effects() == ["done", "done"]


def test_an_agent_whose_keeper_was_killed_is_asked_again(begin: Begin) -> None:
    run = begin("commands", working({"do": "hang", "at": "before"}))
    run.start()
    run.wait_effects(1)

    kill(run.parts().keeper)

    assert run.wait_hub() == 0, run.story()
    assert len(commands(run)) == 2
    run.wait_nothing_left()


def test_a_failing_session_does_not_wait_for_an_agent_for_long(begin: Begin) -> None:
    run = begin("commands", working({"do": "hang", "at": "start"}), "cancel_grace_s = 0.1\n")
    run.start()
    wait_until(lambda: bool(commands(run)))

    run.api.cancel()

    assert run.hub is not None
    run.hub.wait(PATIENCE_S)
    run.wait_nothing_left()
