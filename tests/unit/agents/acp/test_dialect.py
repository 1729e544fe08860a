"""The Agent Client Protocol in one conversation: the handshake, the session, the prompt and how it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
import pytest
from tests.unit.agents.acp.acp_stage import SESSION, Stage

from bartack.agents.acp._history import History
from bartack.agents.contract import AgentResult, CallNotice, CallStarted, CallText, CallTool, CallUsage
from bartack.agents.program._continuation import CONTINUE
from bartack.agents.program._json_lines import JsonLine
from bartack.agents.protocol.lines import BadLine
from bartack.agents.protocol.messages import Budget, ToolSpec
from bartack.errors import (
    AgentAuthError,
    AgentBudgetError,
    AgentCancelledError,
    AgentCapabilityError,
    AgentConfigError,
    AgentExitedError,
    AgentProtocolError,
    AgentRateLimitedError,
    AgentRequestError,
    AgentStartError,
    AgentTransientError,
    QuotaExhaustedError,
    ReplyInvalidError,
)

TOOL = ToolSpec("do_1", "Does it.", {"type": "object", "properties": {}, "additionalProperties": False})
RESUMES: dict[str, object] = {"sessionCapabilities": {"resume": {}}}
LOADS: dict[str, object] = {"loadSession": True}


def past(*tools: tuple[str, str, str]) -> History:
    """A conversation in which a prompt was sent and tools of ours have ended."""
    marks: list[dict[str, object]] = [{"type": "bartack.sent", "attempt": 1}]
    for call, name, text in tools:
        marks.append({"type": "bartack.tool", "id": call, "tool": name, "text": text})
    return History(JsonLine(mark, b"") for mark in marks)


@pytest.mark.requirement("acp-permissions")
@pytest.mark.parametrize("session", ["", SESSION], ids=["new", "continued"])
def test_claude_code_is_told_to_ask_before_each_tool_call(tmp_path: Path, session: str) -> None:
    stage = Stage(tmp_path, session=session)
    stage.initialize({**RESUMES, "_meta": {"claudeCode": {"promptQueueing": True}}})
    (opened,) = stage.heard()

    asked = opened["params"]["_meta"]["claudeCode"]["options"]["settings"]["permissions"]["ask"]
    assert {"Read", "Bash", "Write", "Edit", "WebSearch"} <= set(asked)


@pytest.mark.requirement("acp-agents-answer")
def test_a_session_is_opened_and_its_id_is_saved_before_the_prompt(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    hello = stage.initialize()
    opened = stage.reply({"sessionId": SESSION})
    prompt = stage.heard()[-1]

    assert (hello["method"], hello["params"]["protocolVersion"]) == ("initialize", 1)
    assert hello["params"]["clientCapabilities"]["terminal"] is False
    assert (opened["method"], opened["params"]) == ("session/new", {"cwd": str(tmp_path), "mcpServers": []})
    assert stage.files.session == SESSION
    assert stage.files.sent == [1]
    assert prompt["params"] == {"sessionId": SESSION, "prompt": [{"type": "text", "text": "Do it."}]}


@pytest.mark.requirement("acp-agents-answer")
def test_the_reply_is_what_was_said_since_the_last_tool_call(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.open()
    stage.text("I will ")
    stage.text("look.")
    stage.tool("tool_call", "t1", title="ls", kind="execute", status="pending", rawInput={"command": "ls"})
    stage.tool("tool_call_update", "t1", status="completed")
    stage.text("All ")
    stage.text("fine.")
    stage.update("usage_update", used=10, size=100, cost={"amount": 0.25, "currency": "USD"})
    stage.end(usage={"inputTokens": 7, "outputTokens": 2, "cachedReadTokens": 1, "totalTokens": 10})

    assert stage.result.text == "All fine."
    usage = stage.result.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) == (7, 2, 1)
    assert (usage.turns, usage.cost_usd) == (2, 0.25)
    texts = [event.text for event in stage.events if isinstance(event, CallText)]
    assert texts == ["I will look.", "All fine."]
    tools = [(event.tool, event.phase) for event in stage.events if isinstance(event, CallTool)]
    assert tools == [("Bash", "started"), ("Bash", "finished")]
    assert stage.stopped == 1


def test_text_before_the_last_tool_call_counts_if_nothing_was_said_since(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.open()
    stage.text("The reply.")
    stage.tool("tool_call", "t1", title="notes", kind="other", name="TodoWrite")
    stage.tool("tool_call_update", "t1", status="completed")
    stage.end()

    assert stage.result.text == "The reply."


def test_what_a_subagent_says_is_not_the_reply(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.open()
    stage.text("Mine.")
    stage.text("Its.", _meta={"claudeCode": {"parentToolUseId": "t9"}})
    stage.end()

    assert stage.result.text == "Mine."
    assert [event.parent for event in stage.events if isinstance(event, CallText)] == ["", "t9"]


@pytest.mark.parametrize("version", [2, 0, None, "1", True])
def test_any_other_version_of_the_protocol_is_refused(tmp_path: Path, version: object) -> None:
    stage = Stage(tmp_path)
    stage.reply({"protocolVersion": version, "agentCapabilities": {}})

    assert "version" in str(stage.error(AgentStartError))
    assert stage.heard() == []


def test_a_version_below_the_least_one_is_refused(tmp_path: Path) -> None:
    stage = Stage(tmp_path, config={"min_version": "1.10"})
    stage.initialize(agentInfo={"name": "zed", "version": "1.9.3"})

    assert "zed 1.9.3" in str(stage.error(AgentStartError))


@pytest.mark.parametrize(
    "error",
    [
        {"code": -32000, "message": "Authentication required"},
        {"code": -32603, "message": "Please log in first"},
    ],
)
def test_an_agent_that_wants_a_login_names_the_ways_to_log_in(
    tmp_path: Path, error: dict[str, object]
) -> None:
    stage = Stage(tmp_path)
    stage.initialize(authMethods=[{"id": "oauth", "name": "Log in with X", "description": None}])
    stage.reply(error=error)

    assert "Log in with X" in str(stage.error(AgentAuthError))


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        ("max_tokens", AgentBudgetError),
        ("max_turn_requests", AgentBudgetError),
        ("refusal", AgentRequestError),
        ("cancelled", AgentCancelledError),
        ("something_else", AgentProtocolError),
    ],
)
def test_a_stop_reason_says_how_the_turn_ended(tmp_path: Path, reason: str, error: type[Exception]) -> None:
    stage = Stage(tmp_path)
    stage.open()
    stage.text("Some text.")
    stage.end(reason)

    stage.error(error)


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        ({"code": -32000, "message": "Authentication required"}, AgentAuthError),
        ({"code": -32602, "message": "bad"}, AgentRequestError),
        ({"code": -32603, "message": "x", "data": {"errorKind": "billing_error"}}, QuotaExhaustedError),
        ({"code": -32603, "message": "x", "data": {"errorKind": "invalid_request"}}, AgentRequestError),
        ({"code": -32603, "message": "x", "data": {"errorKind": "model_not_found"}}, AgentRequestError),
        ({"code": -32603, "message": "x", "data": {"errorKind": "authentication_failed"}}, AgentAuthError),
        ({"code": -32603, "message": "Internal error: API Error: 413 too long"}, AgentRequestError),
        ({"code": -32603, "message": "Internal error: API Error: Request rejected (401)"}, AgentAuthError),
    ],
)
def test_a_refused_prompt_is_classified(
    tmp_path: Path, failure: dict[str, object], error: type[Exception]
) -> None:
    stage = Stage(tmp_path)
    prompt = stage.open()
    stage.say({"id": prompt["id"], "error": failure})

    stage.error(error)


@pytest.mark.parametrize(
    ("text", "cause"), [("Request too large (max 32MB).", "too_large"), ("x", "bad_request")]
)
def test_an_invalid_request_that_is_too_large_says_so(tmp_path: Path, text: str, cause: str) -> None:
    stage = Stage(tmp_path)
    prompt = stage.open()
    failure = {"code": -32603, "message": f"Internal error: {text}", "data": {"errorKind": "invalid_request"}}
    stage.say({"id": prompt["id"], "error": failure})

    error = stage.error(AgentRequestError)
    assert isinstance(error, AgentRequestError)
    assert error.cause == cause


def test_a_temporary_failure_is_tried_again_until_the_attempts_are_used_up(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    for _ in range(3):
        prompt = stage.open()
        stage.say({"id": prompt["id"], "error": {"code": -32603, "message": "API Error: 500"}})
        stage.pass_time(61)

    stage.error(AgentTransientError)


def test_a_rate_limit_is_waited_for(tmp_path: Path) -> None:
    stage = Stage(tmp_path, timeout_s=100.0)
    prompt = stage.open()
    limited: dict[str, object] = {"code": -32603, "message": "x", "data": {"errorKind": "rate_limit"}}
    stage.say({"id": prompt["id"], "error": limited})
    assert not stage.outcomes
    stage.pass_time(61)
    prompt = stage.open()
    stage.say({"id": prompt["id"], "error": limited})

    stage.error(AgentRateLimitedError)


def test_an_end_of_the_process_without_an_answer_is_never_a_success(tmp_path: Path) -> None:
    stage = Stage(tmp_path, config={"retries": 1})
    stage.open()
    stage.text("Nearly done.")
    stage.talk.exited(0)
    stage.go()

    stage.error(AgentExitedError)


# Continuing a session.


@pytest.mark.requirement("acp-sessions-continue")
def test_a_session_is_resumed_with_the_text_of_the_continuation(tmp_path: Path) -> None:
    stage = Stage(tmp_path, session=SESSION, history=past(("t1", "do_1", "42")), attempt=2, tools=[TOOL])
    stage.initialize(RESUMES)
    opened = stage.reply({})
    prompt = stage.heard()[-1]

    assert (opened["method"], opened["params"]["sessionId"]) == ("session/resume", SESSION)
    text = prompt["params"]["prompt"][0]["text"]
    assert text.startswith(CONTINUE)
    assert "do_1: 42" in text


@pytest.mark.requirement("acp-sessions-continue")
@pytest.mark.parametrize(
    ("update", "begins"),
    [
        (None, "Do it."),
        ("usage_update", "Do it."),
        ("agent_message_chunk", CONTINUE),
        ("tool_call", CONTINUE),
    ],
)
def test_an_agent_killed_before_it_has_begun_gets_the_task_again(
    tmp_path: Path, update: str | None, begins: str
) -> None:
    """Its session may not have the prompt, and a continuation alone would continue something else."""
    came: dict[str, object] = {"method": "session/update", "params": {"update": {"sessionUpdate": update}}}
    lines: list[dict[str, object]] = [
        {"type": "bartack.sent", "attempt": 1},
        {"type": "bartack.line", "dir": "out", "line": {"id": 3, "method": "session/prompt"}},
        {"type": "bartack.line", "dir": "in", "line": came},
    ]
    history = History(JsonLine(line, b"") for line in lines[: 3 if update else 2])
    stage = Stage(tmp_path, session=SESSION, history=history, attempt=2)
    stage.initialize(RESUMES)
    stage.reply({})

    assert stage.heard()[-1]["params"]["prompt"][0]["text"].startswith(begins)


@pytest.mark.requirement("acp-sessions-continue")
def test_what_a_loaded_session_tells_again_is_neither_text_nor_cost(tmp_path: Path) -> None:
    stage = Stage(tmp_path, session=SESSION, history=past(), attempt=2)
    stage.initialize(LOADS)
    stage.text("An old reply.")
    stage.tool("tool_call", "t1", title="x", kind="execute", status="completed")
    stage.update("usage_update", used=1, size=2, cost={"amount": 3.0, "currency": "USD"})
    opened = stage.reply(None)
    prompt = stage.heard()[-1]
    stage.text("New.")
    stage.say({"id": prompt["id"], "result": {"stopReason": "end_turn"}})

    assert opened["method"] == "session/load"
    assert stage.result.text == "New."
    assert stage.result.usage.cost_usd is None
    assert [event.text for event in stage.events if isinstance(event, CallText)] == ["New."]
    assert not [event for event in stage.events if isinstance(event, CallTool)]


def test_a_session_that_cannot_be_resumed_is_loaded(tmp_path: Path) -> None:
    stage = Stage(tmp_path, session=SESSION, history=past(), attempt=2)
    stage.initialize({**RESUMES, **LOADS})
    stage.reply(error={"code": -32002, "message": "not found"})

    assert stage.reply({})["method"] == "session/load"


@pytest.mark.parametrize("capabilities", [{}, RESUMES, LOADS])
@pytest.mark.requirement("acp-sessions-continue")
def test_a_lost_session_is_abandoned_and_the_task_begins_anew(
    tmp_path: Path, capabilities: dict[str, object]
) -> None:
    stage = Stage(tmp_path, session=SESSION, history=past(), attempt=2)
    stage.restart_with()
    stage.initialize(capabilities)
    if capabilities:
        stage.reply(error={"code": -32002, "message": "no such session"})
    stage.pass_time(61)
    prompt = stage.open()

    assert len(stage.files.abandoned) == 1
    assert prompt["params"]["prompt"][0]["text"] == "Do it."
    assert [e.case for e in stage.events if isinstance(e, CallNotice)] == ["conversation_lost"]


def test_cost_counts_from_what_the_session_had_cost_before(tmp_path: Path) -> None:
    history = past()
    history.cost_usd = 2.0
    stage = Stage(tmp_path, session=SESSION, history=history, attempt=2)
    stage.initialize(RESUMES)
    stage.reply({})
    prompt = stage.heard()[-1]
    stage.update("usage_update", used=1, size=2, cost={"amount": 2.5, "currency": "USD"})
    stage.say({"id": prompt["id"], "result": {"stopReason": "end_turn"}})

    assert stage.result.usage.cost_usd == 0.5


def test_a_step_that_continues_another_one_forks_its_session(tmp_path: Path) -> None:
    stage = Stage(tmp_path, parent="p-1")
    stage.initialize({"sessionCapabilities": {"fork": {}}})
    opened = stage.reply({"sessionId": SESSION})

    assert (opened["method"], opened["params"]["sessionId"]) == ("session/fork", "p-1")
    assert stage.files.session == SESSION


def test_an_agent_without_forks_cannot_continue_another_step(tmp_path: Path) -> None:
    stage = Stage(tmp_path, parent="p-1")
    stage.initialize(LOADS)

    stage.error(AgentCapabilityError)


def update_line(kind: str, **facts: object) -> dict[str, object]:
    update = {"sessionUpdate": kind, **facts}
    return {
        "type": "bartack.line",
        "dir": "in",
        "line": {"method": "session/update", "params": {"update": update}},
    }


CLAUDE: Final[dict[str, object]] = {"_meta": {"claudeCode": {}}}


@pytest.mark.requirement("acp-costs-are-honest")
@pytest.mark.parametrize(
    ("capabilities", "titles", "is_estimated"),
    [(CLAUDE, 0, True), (CLAUDE, 1, False), ({}, 0, False)],
    ids=["not-yet", "came", "other-agent"],
)
def test_a_cost_that_may_lack_that_of_a_title_is_marked_as_estimated(
    tmp_path: Path, capabilities: dict[str, object], titles: int, *, is_estimated: bool
) -> None:
    stage = Stage(tmp_path)
    stage.open(capabilities)
    for _ in range(titles):
        stage.update("session_info_update", title="Work")
    stage.update("usage_update", used=1, size=2, cost={"amount": 0.5, "currency": "USD"})
    stage.end()

    (outcome,) = stage.outcomes
    assert isinstance(outcome, AgentResult)
    assert (outcome.usage.cost_usd, outcome.usd_estimated) == (0.5, is_estimated)


@pytest.mark.requirement("acp-costs-are-honest")
@pytest.mark.parametrize("is_titled", [True, False])
def test_the_past_says_whether_a_cost_may_lack_that_of_a_title(*, is_titled: bool) -> None:
    titled = [update_line("session_info_update", title="Work")] if is_titled else []
    greeted: dict[str, object] = {"id": 1, "result": {"agentCapabilities": CLAUDE}}
    prompted: dict[str, object] = {
        "type": "bartack.line",
        "dir": "out",
        "line": {"id": 3, "method": "session/prompt"},
    }
    lines: list[dict[str, object]] = [
        {"type": "bartack.started", "attempt": 1},
        greeted,
        {"type": "bartack.sent", "attempt": 1},
        prompted,
        *titled,
        {"id": 3, "result": {"stopReason": "end_turn"}},
    ]

    assert History(JsonLine(line, b"") for line in lines).lacks_title is not is_titled
    again: list[dict[str, object]] = [
        *lines,
        {"type": "bartack.started", "attempt": 2},
        greeted,
        {"type": "bartack.sent", "attempt": 2},
        prompted,
    ]
    assert History(JsonLine(line, b"") for line in [*again, lines[-1]]).lacks_title


PROMPTED: Final[list[dict[str, object]]] = [
    {"type": "bartack.sent", "attempt": 1},
    {"type": "bartack.line", "dir": "out", "line": {"id": 3, "method": "session/prompt"}},
]
ENDED: Final[list[dict[str, object]]] = [
    {"type": "bartack.tool", "id": "t1", "tool": "do_1", "text": "1"},
    update_line("tool_call_update", toolCallId="t1", status="completed"),
]
SAYS: Final = update_line("agent_message_chunk", content={"type": "text", "text": "Next."})


def test_calls_after_which_the_model_has_gone_on_are_delivered(tmp_path: Path) -> None:
    again: dict[str, object] = {"type": "bartack.tool", "id": "t2", "tool": "do_1", "text": "2"}
    history = History(JsonLine(line, b"") for line in [*PROMPTED, *ENDED, SAYS, again])
    stage = Stage(tmp_path, session=SESSION, history=history, attempt=2, tools=[TOOL])

    assert [event.delivered for event in stage.events if isinstance(event, CallStarted)] == [["t1"]]
    assert [end.id for end in history.undelivered] == ["t2"]


def test_a_call_that_the_agent_may_not_have_written_down_yet_is_not_delivered(tmp_path: Path) -> None:
    """It reports the end of a call before it writes its session, and may be killed between the two."""
    history = History(JsonLine(line, b"") for line in [*PROMPTED, *ENDED])
    stage = Stage(tmp_path, session=SESSION, history=history, attempt=2, tools=[TOOL])

    assert [event.delivered for event in stage.events if isinstance(event, CallStarted)] == [[]]
    assert [end.id for end in history.undelivered] == ["t1"]


def test_a_call_that_the_continuation_has_listed_is_delivered() -> None:
    history = History(JsonLine(line, b"") for line in [*PROMPTED, *ENDED, *PROMPTED, SAYS])

    assert history.delivered == ["t1"]


# The model.


def test_the_model_of_the_settings_is_chosen(tmp_path: Path) -> None:
    options: list[dict[str, object]] = [
        {
            "id": "m",
            "name": "Model",
            "category": "model",
            "type": "select",
            "currentValue": "a",
            "options": [],
        }
    ]
    stage = Stage(tmp_path, config={"model": "b"})
    stage.initialize()
    stage.reply({"sessionId": SESSION, "configOptions": options})
    chosen = stage.reply({"configOptions": options})

    assert chosen["method"] == "session/set_config_option"
    assert chosen["params"] == {"sessionId": SESSION, "configId": "m", "value": "b"}
    assert stage.heard()[-1]["method"] == "session/prompt"


def test_what_is_reported_before_the_prompt_is_not_the_reply(tmp_path: Path) -> None:
    options: list[dict[str, object]] = [
        {"id": "m", "name": "Model", "category": "model", "type": "select", "currentValue": "a"}
    ]
    stage = Stage(tmp_path, config={"model": "b"})
    stage.initialize()
    stage.reply({"sessionId": SESSION, "configOptions": options})
    stage.text("Welcome!")
    stage.reply({})
    prompt = stage.heard()[-1]
    stage.text("Done.")
    stage.say({"id": prompt["id"], "result": {"stopReason": "end_turn"}})

    assert stage.result.text == "Done."
    assert [event.text for event in stage.events if isinstance(event, CallText)] == ["Done."]


def test_a_model_that_cannot_be_chosen_is_an_error_of_the_settings(tmp_path: Path) -> None:
    stage = Stage(tmp_path, config={"model": "b"})
    stage.initialize()
    stage.reply({"sessionId": SESSION})

    assert "agents.zed.model" in str(stage.error(AgentConfigError))


# Lines that cannot be used.


def test_a_hundred_lines_that_are_not_messages_are_notices_and_one_more_is_the_end(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    for number in range(100):
        stage.say_raw(b"debug: %d" % number)
    assert len([event for event in stage.events if isinstance(event, CallNotice)]) == 100
    assert not stage.outcomes
    stage.say_raw(b"debug: 100")

    stage.error(AgentProtocolError)


def test_a_line_that_is_too_long_ends_the_call(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.say_raw(BadLine("line_too_long", b"{", 20_000_000, detail="20 MB"))

    stage.error(AgentProtocolError)


def test_an_answer_that_comes_twice_counts_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.initialize()
    stage.say({"id": 1, "result": {"protocolVersion": 1}})
    stage.reply({"sessionId": SESSION})
    stage.say({"id": 2, "result": {"sessionId": "other"}})

    assert stage.files.session == SESSION
    assert [message["method"] for message in stage.heard()] == ["session/prompt"]


def test_a_session_without_an_id_is_not_the_protocol(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.initialize()
    stage.reply({})

    stage.error(AgentProtocolError)


def test_a_method_that_the_client_does_not_have_is_refused(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.open()
    stage.say({"id": "x", "method": "terminal/create", "params": {}})

    assert stage.heard()[-1]["error"]["code"] == -32601


# Cancelling, limits and money.


@pytest.mark.requirement("acp-permissions")
def test_a_cancel_is_sent_and_open_requests_for_permissions_are_answered(tmp_path: Path) -> None:
    stage = Stage(tmp_path, config={"permissions": {"mode": "ask"}})
    stage.open()
    assert stage.ask_permission({"toolCallId": "t1", "kind": "execute", "rawInput": {"command": "ls"}}) == {}
    stage.talk.cancel("user")
    stage.go()
    heard = stage.heard()
    stage.end("cancelled")

    assert heard[0] == {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": SESSION}}
    assert heard[1]["result"] == {"outcome": {"outcome": "cancelled"}}
    stage.error(AgentCancelledError)


def test_a_cancel_before_the_prompt_ends_the_process_at_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.heard()
    stage.talk.cancel("user")
    stage.go()

    assert stage.heard() == []
    stage.error(AgentCancelledError)


def test_a_cancel_that_is_not_answered_ends_with_the_process(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.open()
    stage.talk.cancel("user")
    stage.go()
    stage.pass_time(3.1)

    stage.error(AgentCancelledError)


def test_a_call_over_its_money_is_cancelled(tmp_path: Path) -> None:
    stage = Stage(tmp_path, budget=Budget(usd=1.0))
    stage.open()
    stage.update("usage_update", used=1, size=2, cost={"amount": 1.5, "currency": "USD"})
    assert [message["method"] for message in stage.heard()] == ["session/cancel"]
    stage.end("cancelled")

    stage.error(AgentBudgetError)


def test_a_call_over_its_turns_is_cancelled(tmp_path: Path) -> None:
    stage = Stage(tmp_path, budget=Budget(turns=1))
    stage.open()
    stage.text("One.")
    stage.tool("tool_call", "t1", title="x", kind="read", status="completed")
    stage.text("Two.")
    assert [message["method"] for message in stage.heard()] == ["session/cancel"]
    stage.end("cancelled")

    stage.error(AgentBudgetError)


@pytest.mark.parametrize("amount", [-1, float("nan"), float("inf"), True, "1", None])
def test_a_cost_that_makes_no_sense_is_ignored(tmp_path: Path, amount: object) -> None:
    stage = Stage(tmp_path)
    stage.open()
    stage.update("usage_update", used=1, size=2, cost={"amount": amount, "currency": "USD"})
    stage.end()

    assert stage.result.usage.cost_usd is None


def test_a_cost_in_another_currency_is_not_money_of_ours(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.open()
    stage.update("usage_update", used=1, size=2, cost={"amount": 1, "currency": "EUR"})
    stage.end()

    assert stage.result.usage.cost_usd is None
    assert [event.usage.cost_usd for event in stage.events if isinstance(event, CallUsage)] == [None]


def test_an_own_tool_of_the_agent_has_its_own_limit(tmp_path: Path) -> None:
    stage = Stage(tmp_path, config={"stall_s": 10, "tool_s": 100, "retries": 1})
    stage.open()
    stage.tool("tool_call", "t1", title="make", kind="execute", status="in_progress")
    stage.pass_time(50)
    assert not stage.outcomes
    stage.tool("tool_call_update", "t1", status="completed")
    stage.pass_time(11)

    assert stage.outcomes


# Values.


SCHEMA: dict[str, object] = {"text": "How many?", "result_schema": {"type": "integer"}}


@pytest.mark.requirement("acp-values")
def test_a_value_is_given_with_the_tool_answer(tmp_path: Path) -> None:
    stage = Stage(tmp_path, inputs=SCHEMA)
    prompt = stage.open()
    assert "'answer'" in prompt["params"]["prompt"][0]["text"]
    wrong = stage.call("answer", {"value": "seven"})
    right = stage.call("answer", {"value": 7}, 2)
    stage.text("Given.")
    stage.end()

    assert wrong[0]["result"]["isError"] is True
    assert "$.value" in wrong[0]["result"]["content"][0]["text"]
    assert right[0]["result"]["content"][0]["text"] == "recorded"
    assert stage.result.value == 7
    assert stage.files.tools[-1][1:] == ("", "7")


@pytest.mark.requirement("acp-values")
def test_without_that_tool_the_value_in_the_text_counts_after_one_repair(tmp_path: Path) -> None:
    stage = Stage(tmp_path, inputs=SCHEMA)
    stage.open()
    stage.text("I do not know.")
    stage.end()
    stage.pass_time(0.1)
    repair = stage.heard()[-1]
    stage.text("```json\n7\n```")
    stage.say({"id": repair["id"], "result": {"stopReason": "end_turn"}})

    assert repair["method"] == "session/prompt"
    assert "$" in repair["params"]["prompt"][0]["text"]
    assert stage.result.value == 7
    assert stage.stopped == 1


@pytest.mark.requirement("acp-values")
def test_a_second_reply_without_the_value_ends_the_call(tmp_path: Path) -> None:
    stage = Stage(tmp_path, inputs=SCHEMA)
    stage.open()
    stage.end()
    stage.pass_time(0.1)
    repair = stage.heard()[-1]
    stage.say({"id": repair["id"], "result": {"stopReason": "end_turn"}})

    stage.error(ReplyInvalidError)


def test_an_answer_of_a_dead_hub_is_recovered_with_its_text_and_value(tmp_path: Path) -> None:
    chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "Given."}}
    lines: list[dict[str, object]] = [
        {"type": "bartack.sent", "attempt": 1},
        {"type": "bartack.line", "dir": "out", "line": {"id": 3, "method": "session/prompt"}},
        {"type": "bartack.tool", "id": "t1", "tool": "", "text": "7"},
        {
            "type": "bartack.line",
            "dir": "in",
            "line": {"method": "session/update", "params": {"update": chunk}},
        },
        {"type": "bartack.line", "dir": "in", "line": {"id": 3, "result": {"stopReason": "end_turn"}}},
    ]
    history = History(JsonLine(line, b"") for line in lines)
    stage = Stage(tmp_path, inputs=SCHEMA)
    stage.dialect.take_past(history)
    assert history.answer is not None
    event = stage.dialect.recover(history.answer)

    assert event is not None
    assert msgspec.to_builtins(event)["payload"] == {"text": "Given.", "result": 7}


def test_what_prompts_of_dead_hubs_have_used_is_found_by_their_step() -> None:
    def asked(step: str, number: int) -> list[dict[str, object]]:
        cost = {"amount": float(number), "currency": "USD"}
        update = {"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": cost}
        usage = {"inputTokens": 10 * number, "outputTokens": 1}
        return [
            {"type": "bartack.sent", "attempt": 1, "step": step},
            {"type": "bartack.line", "dir": "out", "line": {"id": number, "method": "session/prompt"}},
            {
                "type": "bartack.line",
                "dir": "in",
                "line": {"method": "session/update", "params": {"update": update}},
            },
            {"type": "bartack.line", "dir": "in", "line": {"id": number, "result": {"usage": usage}}},
        ]

    lines = [*asked("main 0 1", 1), *asked("main 0 2", 2), *asked("main 0 2", 3)]
    history = History(JsonLine(line, b"") for line in lines)

    assert (history.spent("main 0 2").input_tokens, history.spent("main 0 2").cost_usd) == (50, 2.0)
    assert history.spent("main 0 2", with_newest=False).cost_usd == 1.0
    assert not history.is_open
    assert History(JsonLine(line, b"") for line in lines[:-1]).is_open
