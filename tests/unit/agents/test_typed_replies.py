"""Replies of a type, and tools: a conversation and a scripted agent face to face."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.unit.agents.stage import Stage, request_for

from bartack.agents import AgentRequest, Line, read_line
from bartack.agents.contract import CallStarted, ToolOutcome
from bartack.agents.conversation._actions import CallOut
from bartack.agents.protocol.messages import ToolSpec
from bartack.errors import AgentDeadlineError, AgentRequestError, ReplyInvalidError

pytestmark = pytest.mark.requirement("replies-are-read-alike")
NUMBER: dict[str, object] = {"type": "integer"}
RISK: dict[str, object] = {"type": "object", "properties": {"risk": NUMBER}, "required": ["risk"]}


def asking(root: Path, schema: dict[str, object] | None = None, **changes: object) -> AgentRequest:
    inputs: dict[str, object] = {"text": "Rate it.", "iteration": {"epoch": 0, "step": 1}}
    if schema is not None:
        inputs["result_schema"] = schema
    return request_for("prompt", root, inputs=inputs, **changes)


def replying(
    *payloads: dict[str, object], usage: dict[str, object] | None = None, **more: object
) -> dict[str, object]:
    events = [{"type": "prompt.completed", "payload": payload, "usage": usage} for payload in payloads]
    return {"responses": {"prompt": [{"events": [event], **more} for event in events]}}


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        ({"result": {"risk": 3, "mood": "good"}}, {"risk": 3}),
        ({"result": '{"risk": 3}'}, {"risk": 3}),
        ({"text": 'So:\n```json\n{"risk": 3}\n```'}, {"risk": 3}),
        ({"result": "see the text", "text": '{"risk": 3.0}'}, {"risk": 3}),
    ],
)
def test_a_value_is_found_wherever_it_stands_without_what_nobody_asked_for(
    payload: dict[str, object], value: object, tmp_path: Path
) -> None:
    stage = Stage(tmp_path, replying(payload))

    result = stage.result(asking(tmp_path, RISK))

    assert (result.value, result.text, result.attempts) == (value, '{"risk":3}', 1)


@pytest.mark.parametrize(
    "payload", [{"result": "fine"}, {"text": " fine \n"}, {"text": "```text\nfine\n```"}]
)
def test_text_is_read_without_what_stands_around_it(payload: dict[str, object], tmp_path: Path) -> None:
    assert Stage(tmp_path, replying(payload)).result(asking(tmp_path)).text == "fine"


def test_a_reply_is_mended_once_at_once_and_that_is_no_attempt(tmp_path: Path) -> None:
    stage = Stage(tmp_path, replying({"result": "three"}, {"result": 3}), config={"retries": 1})
    began = stage.now()

    result = stage.result(asking(tmp_path, NUMBER))

    assert result.value == 3
    first, second = stage.commands()
    assert stage.now() == began
    assert (first.conversation, first.idempotency_key) == (second.conversation, second.idempotency_key)
    assert (second.retry.cause, second.retry.code) == ("rejected", "invalid_reply")
    assert '{"type": "integer"}' in str(second.retry.message)


def test_a_second_reply_that_does_not_fit_is_an_error_that_has_it_and_its_cost(tmp_path: Path) -> None:
    usage: dict[str, object] = {"cost_usd": 0.5, "output_tokens": 7}
    stage = Stage(tmp_path, replying({"result": "three"}, {"result": "four"}, usage=usage))

    error = stage.ask(asking(tmp_path, NUMBER))

    assert isinstance(error, ReplyInvalidError)
    assert (error.reply, error.usd, error.tokens) == ("four", 1.0, 14)
    assert len(stage.commands()) == 2


def test_declining_counts_only_where_it_is_allowed(tmp_path: Path) -> None:
    payload: dict[str, object] = {"text": "cannot_determine"}

    allowed = Stage(tmp_path, replying(payload), remembers=False).result(
        asking(tmp_path, NUMBER, may_decline=True)
    )
    refused = Stage(tmp_path, replying(payload, payload), remembers=False).ask(asking(tmp_path, NUMBER))

    assert (allowed.declined, allowed.value) == (True, None)
    assert isinstance(refused, ReplyInvalidError)


def test_a_bad_reply_that_came_before_a_hub_died_is_mended_all_the_same(tmp_path: Path) -> None:
    request = asking(tmp_path, NUMBER)
    before = Stage(tmp_path, replying({"result": "three"}, {"result": 3}))
    talk = before.begin(request)
    while not any(b"prompt.completed" in line for line in before.heard):
        before.turn()
    answer = next(line for line in before.heard if b"prompt.completed" in line)
    assert talk.state == "waiting"
    after = Stage(tmp_path, replying({"result": "three"}, {"result": 3}))

    read = read_line(answer)
    assert isinstance(read, Line)
    outcome = after.ask(msgspec.structs.replace(request, attempt=2), read)

    assert not isinstance(outcome, Exception)
    assert outcome.value == 3
    assert [command.retry.cause for command in after.commands()] == ["rejected"]


def test_a_reply_that_does_not_fit_is_not_mended_behind_the_deadline(tmp_path: Path) -> None:
    script = replying({"result": "three"}, inject=[{"do": "stop_reading", "at": "start"}], delay_s=61)
    stage = Stage(tmp_path, script, config={"stall_s": 0})

    assert isinstance(stage.ask(asking(tmp_path, NUMBER, timeout_s=60.0)), AgentDeadlineError)
    assert len(stage.commands()) == 1


# Tools.


def test_a_rule_calls_tools_and_minds_what_they_return(tmp_path: Path) -> None:
    call = [{"tool": "add", "arguments": {"n": 1}, "expect": 2}, {"tool": "add", "expect": "no more"}]
    stage = Stage(tmp_path, {"prompts": [{"text": "done", "call": call}]})
    made: list[tuple[str, dict[str, object]]] = []

    def add(out: CallOut) -> ToolOutcome:
        made.append((out.call_id, out.arguments))
        return ToolOutcome(2) if out.arguments else ToolOutcome(code="tool_failed", message="no more")

    stage.tools = add

    assert stage.result(asking(tmp_path, tools=[ToolSpec("add", "", {})])).text == "done"
    assert made == [("call-1", {"n": 1}), ("call-2", {})]


def test_a_tool_that_returns_something_else_is_an_error_of_the_script(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"prompts": [{"text": "done", "call": [{"tool": "add", "expect": 3}]}]})
    stage.tools = lambda _: ToolOutcome(2)

    error = stage.ask(asking(tmp_path, tools=[ToolSpec("add", "", {})]))

    assert isinstance(error, AgentRequestError)
    assert "add returned 2, and 3 was expected" in error.problem


# What is told.


def test_a_start_is_told_with_the_process_as_soon_as_that_is_known(tmp_path: Path) -> None:
    stage = Stage(tmp_path, replying({"result": "fine"}))
    talk = stage.begin(asking(tmp_path))
    assert stage.process is not None
    early = Stage(tmp_path, replying({"result": "fine"}), remembers=False)
    late = early.begin(asking(tmp_path))
    assert early.process is not None
    early.process.link.pid = 0
    late._unannounced = True
    early.events.clear()

    early.process.link.pid = 99
    late.announce()
    late.announce()
    early.perform()

    assert [event.pid for event in stage.events if isinstance(event, CallStarted)] == [17]
    assert [event.pid for event in early.events if isinstance(event, CallStarted)] == [99]
    assert talk.state == "running"
