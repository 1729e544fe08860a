"""Tools and typed replies of agents that are programs, under a real hub; and the same when something is killed meanwhile."""

from __future__ import annotations

import sys
from typing import cast

import pytest
from tests.crash.asking import BeginAsking, commands, lines
from tests.crash.runs import RealRun, kill, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are told apart as on Linux")

COUNTING: dict[str, object] = {
    "prompts": [
        {
            "text": "counted",
            "call": [{"tool": "more", "expect": 1}, {"tool": "more", "id": "t2", "expect": 2}],
        }
    ]
}


@pytest.fixture
def run(begin_asking: BeginAsking) -> RealRun:
    """A run whose agent waits in its first call of a tool."""
    made = begin_asking("counts", COUNTING)
    made.start()
    made.wait_open("receive")
    return made


def finish(run: RealRun) -> None:
    """Let the tools go on, and see that each of them did everything once."""
    for word in ("a", "b"):
        run.api.send("go", word)
    assert run.wait_hub() == 0, run.story()
    assert run.api.result() == ["counted", 2, ["a", "b"]]
    assert run.effects() == ["more 0", "more 1"]
    assert run.count("tool.called") == run.count("tool.finished") == 2
    run.wait_nothing_left()


@pytest.mark.requirement("tools-run-in-the-worker")
def test_a_program_calls_tools_of_a_worker(run: RealRun) -> None:
    finish(run)

    (command,) = commands(run)
    assert [tool["name"] for tool in command["tools"]] == ["more"]  # type: ignore[index]  # - a list of objects
    assert [line["call_id"] for line in lines(run, "tool_call")] == ["call-1", "t2"]
    assert [(line["ok"], line["result"]) for line in lines(run, "tool_result")] == [(True, 1), (True, 2)]


@pytest.mark.requirement("tools-survive-crashes")
def test_a_worker_that_is_killed_in_a_tool_goes_on_in_it(run: RealRun) -> None:
    kill(run.parts().workers["counts"])

    finish(run)
    assert len(commands(run)) == 1


@pytest.mark.requirement("tools-are-told-again")
def test_an_agent_that_is_killed_in_a_tool_is_told_what_is_recorded(run: RealRun) -> None:
    run.api.send("go", "a")
    run.wait_entry(lambda entry: entry.data.get("step") == "receive" and entry.data["p"] == "counts/do:1.2")

    kill(*(pid for worker, pid in run.parts().commands.items() if worker == "counts"))
    wait_until(lambda: len(commands(run)) == 2)
    run.api.send("go", "b")

    assert run.wait_hub() == 0, run.story()
    assert run.api.result() == ["counted", 2, ["a", "b"]]
    assert run.effects() == ["more 0", "more 1"]
    assert run.count("tool.called") == 2
    assert [line["result"] for line in lines(run, "tool_result")] == [1, 1, 2]


@pytest.mark.requirement("tools-are-told-again")
def test_a_hub_that_is_killed_in_a_tool_tells_the_agent_what_is_recorded(run: RealRun) -> None:
    run.api.send("go", "a")
    run.wait_entry(lambda entry: entry.data.get("step") == "receive" and entry.data["p"] == "counts/do:1.2")
    run.kill_hub()
    run.start()
    run.wait_open("think", 2)
    run.api.send("go", "b")

    assert run.wait_hub() == 0, run.story()
    assert run.api.result() == ["counted", 2, ["a", "b"]]
    assert run.effects() == ["more 0", "more 1"]
    assert run.count("tool.called") == 2
    run.wait_nothing_left()


@pytest.mark.requirement("tools-run-in-the-worker")
def test_errors_unknown_tools_and_repeated_ids_are_answers_and_not_failures(
    begin_asking: BeginAsking,
) -> None:
    calls = [
        {"tool": "fail", "arguments": {"text": "no"}, "expect": "ValueError: no"},
        {"tool": "whisper", "expect": "there is no tool 'whisper'"},
        {"tool": "shout", "arguments": {"text": "a"}, "id": "s", "expect": "A"},
        {"tool": "shout", "arguments": {"text": "a"}, "id": "s", "expect": "A"},
    ]
    run = begin_asking("looks", {"prompts": [{"text": "looked", "call": calls}]})

    assert run.finish() == 0, run.story()
    assert run.api.result() == "looked"
    assert (run.count("tool.called"), run.count("tool.failed")) == (2, 1)
    told = lines(run, "tool_result")
    assert told[2] == told[3]
    assert [code_of(line) for line in told] == ["tool_failed", "unknown_tool", "", ""]


def code_of(result: dict[str, object]) -> object:
    error = result.get("error")
    return cast("dict[str, object]", error)["code"] if isinstance(error, dict) else ""


@pytest.mark.requirement("replies-are-read-alike")
def test_a_reply_of_a_program_is_mended_once_and_read_like_any_other(begin_asking: BeginAsking) -> None:
    rules = [
        {"pattern": "Rate it", "text": "about three", "usd": 1.0},
        {"pattern": "not what was asked for", "text": 'Here:\n```json\n{"risk": 3}\n```', "usd": 0.5},
        {"pattern": "Rate that", "text": "cannot_determine", "usd": 0.25},
    ]
    run = begin_asking("rates", {"prompts": rules})

    assert run.finish() == 0, run.story()
    assert run.api.result() == [{"risk": 3}, None, 1.75]
    first, second, _ = commands(run)
    assert first["conversation"] == second["conversation"]
    assert first["idempotency_key"] == second["idempotency_key"]
    assert (second["retry"]["cause"], second["retry"]["code"]) == ("rejected", "invalid_reply")
    assert "expected a JSON value, found about three" in str(second["retry"]["message"])


@pytest.mark.requirement("replies-are-read-alike", "failed-calls-are-paid")
def test_a_reply_of_a_program_that_is_not_mended_is_an_error_that_costs_what_it_did(
    begin_asking: BeginAsking,
) -> None:
    rules = [{"text": "about three", "usd": 1.0}, {"text": "or four", "usd": 0.5}]
    run = begin_asking("unrated", {"prompts": rules})

    assert run.finish() == 0, run.story()
    assert run.api.result() == ["or four", 1.5]
    assert len(commands(run)) == 2


@pytest.mark.requirement("calls-are-bounded")
def test_calls_wait_for_room_and_a_call_in_a_tool_leaves_its_own(begin_asking: BeginAsking) -> None:
    rules = [
        {"pattern": "Outer", "text": "o", "call": [{"tool": "ask", "expect": "i"}]},
        {"pattern": "Inner", "text": "i"},
        {"pattern": "Second", "text": "2"},
        {"pattern": "Third", "text": "3"},
    ]
    run = begin_asking("crowds", {"prompts": rules}, "[agents]\nmax_parallel = 1\n")

    assert run.finish() == 0, run.story()
    assert run.api.result() == ["o", "2", "3"]
    assert open_at_once(run) == 2


def open_at_once(run: RealRun) -> int:
    """How many processes served the prompts: as many as had to be there at the same time."""
    folder = run.run.path / "agents" / "stub"
    text = (folder / "transcript.ndjson").read_text()
    return len({line.split('"pid":')[1].partition(",")[0] for line in text.splitlines() if '"pid":' in line})
