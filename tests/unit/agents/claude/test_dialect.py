from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.agents.claude.driver import IDLE, MODEL, Driver, reply, result, used

from bartack.agents._permissions import Permissions
from bartack.agents._tool_permissions import ToolPermissions
from bartack.agents.contract import (
    AgentAnswer,
    AgentResult,
    CallNotice,
    CallPermission,
    CallRateLimit,
    CallRetry,
    CallTool,
    ToolOutcome,
)
from bartack.agents.conversation._breaker import Breaker
from bartack.agents.program._json_lines import Json, object_of, text_of
from bartack.agents.program_config import ClaudeConfig
from bartack.agents.protocol.messages import Budget, ToolSpec
from bartack.agents.tool_use import ToolUse
from bartack.errors import (
    AgentAuthError,
    AgentBudgetError,
    AgentCancelledError,
    AgentConfigError,
    AgentError,
    AgentExitedError,
    AgentProtocolError,
    AgentRateLimitedError,
    AgentRequestError,
    AgentStalledError,
    AgentStartError,
    AgentTransientError,
    QuotaExhaustedError,
    ReplyInvalidError,
)

Start = Callable[..., Driver]
SCHEMA: Json = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOL = ToolSpec("do_1", "a block", {"type": "object", "additionalProperties": False})
API = {"is_error": True, "terminal_reason": "api_error"}


@pytest.fixture
def start(tmp_path: Path) -> Start:
    def begin(**options: object) -> Driver:
        return Driver(tmp_path, **options).begin()  # type: ignore[arg-type]  # - as its test gives them

    return begin


def answered(driver: Driver) -> AgentResult:
    assert isinstance(driver.outcome, AgentResult), driver.outcome
    return driver.outcome


def failed(driver: Driver) -> AgentError:
    assert isinstance(driver.outcome, AgentError), driver.outcome
    return driver.outcome


# The beginning.


def test_the_prompt_is_sent_when_the_first_request_was_answered(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    driver.opening = "/help @secret.txt"
    driver.talk.begin()
    driver.perform()

    (first,) = driver.sent
    hooks = object_of(first, "request", "hooks")
    driver.greet()

    assert hooks == {
        "PreToolUse": [{"matcher": "*", "hookCallbackIds": ["decide"], "timeout": 30, "onFailure": "block"}]
    }
    assert driver.prompts == ["/help @secret.txt"]
    assert driver.sent[-1]["client_composed"] is True


@pytest.mark.parametrize(
    ("about", "lacks"),
    [
        ({"hooks_applied": True, "claude_code_version": "2.0.1"}, "Claude Code 2.0.1 lacks blocking"),
        ({"hook_on_failure_supported": True}, "Claude Code (unknown version) lacks decisions"),
        (
            {"hooks_applied": True, "hook_on_failure_supported": True, "claude_code_version": "2.1.247"},
            "2.1.247 is too old; version 2.1.248 or newer",
        ),
        (
            {"hooks_applied": True, "hook_on_failure_supported": True, "claude_code_version": "2.1.325"},
            "2.1.325 is too old; version 3.0 or newer",
        ),
    ],
)
def test_a_program_that_cannot_do_what_is_needed_is_refused_before_it_gets_a_prompt(
    tmp_path: Path, about: Json, lacks: str
) -> None:
    wanted = "3.0" if "3.0" in lacks else ""
    driver = Driver(tmp_path, settings={"min_version": wanted})
    driver.talk.begin()
    driver.perform()

    driver.answer_greeting(about)

    assert isinstance(driver.outcome, AgentStartError)
    assert lacks in str(driver.outcome)
    assert driver.prompts == []


def test_a_program_that_refuses_the_first_request_is_refused(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    driver.talk.begin()
    driver.perform()

    driver.answer_greeting({}, "error")

    assert isinstance(driver.outcome, AgentStartError)


# The end of a turn.


@pytest.mark.parametrize("lines", [(result(), IDLE), (IDLE, result())])
def test_a_result_counts_when_the_program_is_idle(start: Start, lines: tuple[Json, Json]) -> None:
    driver = start()

    driver.write(lines[0])
    assert driver.outcome is None
    driver.write(lines[1])

    assert answered(driver).text == "fine"
    assert driver.stops == 1


def test_a_program_that_never_says_that_it_is_idle_is_waited_for_a_while(start: Start) -> None:
    driver = start()

    driver.write(result())
    driver.advance(9)
    assert driver.outcome is None
    driver.advance(2)

    assert answered(driver).text == "fine"


def test_a_result_counts_when_the_process_ends_before_it_is_idle(start: Start) -> None:
    driver = start()

    driver.write(result())
    driver.exit(0)

    assert answered(driver).text == "fine"


TASK: Json = {"type": "system", "subtype": "task_started", "task_id": "a1", "task_type": "local_agent"}
SHELL: Json = {"type": "system", "subtype": "task_started", "task_id": "b1", "task_type": "local_bash"}


def test_a_later_result_replaces_that_of_a_turn_with_a_subagent_in_the_background(start: Start) -> None:
    driver = start(settings={"background_s": 600.0})

    driver.write(TASK, result(result="early"), IDLE)
    assert driver.outcome is None
    driver.write({"type": "system", "subtype": "task_notification", "task_id": "a1", "status": "completed"})
    driver.write(result(result="late"), IDLE)

    assert answered(driver).text == "late"
    assert answered(driver).usage.cost_usd == 0.5


def test_a_subagent_in_the_background_is_waited_for_as_long_as_the_settings_say(start: Start) -> None:
    driver = start(settings={"background_s": 200.0})

    driver.write(TASK, result(), IDLE)
    driver.advance(199)
    assert driver.outcome is None
    driver.advance(2)

    assert answered(driver).text == "fine"


def test_a_shell_in_the_background_is_not_waited_for(start: Start) -> None:
    driver = start()

    driver.write(SHELL, result(), IDLE)

    assert answered(driver).text == "fine"


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ({"is_error": True, "subtype": "error_max_budget_usd"}, AgentBudgetError),
        ({"is_error": True, "subtype": "error_max_turns"}, AgentBudgetError),
        ({"is_error": True, "subtype": "error_max_structured_output_retries"}, ReplyInvalidError),
        ({**API, "api_error_status": 401}, AgentAuthError),
        ({**API, "api_error_status": 402}, QuotaExhaustedError),
        ({**API, "api_error_status": 404}, AgentRequestError),
        ({**API, "stop_reason": "refusal"}, AgentRequestError),
        ({"is_error": True, "subtype": "odd"}, AgentConfigError),
    ],
)
def test_a_terminal_end_is_not_tried_again(start: Start, members: Json, error: type[AgentError]) -> None:
    driver = start()

    driver.write(result(**members), IDLE)
    driver.advance(100)

    assert type(failed(driver)) is error
    assert driver.starts == 1
    assert failed(driver).usd == 0.25


def test_a_failed_login_names_the_home_and_what_to_set(start: Start) -> None:
    driver = start()

    driver.write(result(**API, result="Not logged in"), IDLE)

    assert "log in" in str(failed(driver))


def test_a_refused_credential_ends_the_call_at_its_first_retry(start: Start) -> None:
    driver = start()

    driver.write({"type": "system", "subtype": "api_retry", "error_status": 401, "error": "x", "attempt": 1})

    assert isinstance(driver.outcome, AgentAuthError)


def test_a_temporary_failure_is_tried_again_until_the_attempts_are_used_up(start: Start) -> None:
    driver = start()

    for _ in range(3):
        driver.write(result(**API, api_error_status=529), IDLE)
        driver.advance(5)
        if driver.alive:
            driver.greet()

    assert type(failed(driver)) is AgentTransientError
    assert driver.starts == 3
    assert failed(driver).usd == 0.75


def test_after_many_temporary_failures_calls_wait_and_do_not_fail(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    breaker = Breaker(driver.clock)
    driver = Driver(tmp_path, clock=driver.clock, breaker=breaker, config=ClaudeConfig(start_s=1e6))
    for _ in range(4):
        breaker.failed()
    driver.begin()

    for _ in range(4):
        driver.write(result(**API, api_error_status=529), IDLE)
        driver.advance(290)
        driver.greet()
    driver.write(result(), IDLE)

    assert answered(driver).text == "fine"
    assert driver.starts == 5, "more than the three attempts that count"
    held = [event.status for event in driver.events if isinstance(event, CallRateLimit)]
    assert set(held) == {"unavailable"}
    assert not breaker.is_open


def test_an_interrupt_that_was_not_ours_is_temporary(start: Start) -> None:
    driver = start()

    driver.write(result(is_error=True, subtype="error_during_execution"))
    driver.exit(0)
    driver.advance(3)
    driver.greet()
    driver.write(result(), IDLE)

    assert answered(driver).failed == ["1 temporary_failure"]


@pytest.mark.parametrize("status", [0, 1, -9, -15, 137, 143, None])
def test_a_process_without_a_result_is_never_a_success(start: Start, status: int | None) -> None:
    driver = start()

    driver.exit(status, "bye")
    driver.advance(3)
    driver.greet()
    driver.exit(status)
    driver.advance(5)
    driver.greet()
    driver.exit(status, "bye")

    assert isinstance(driver.outcome, AgentExitedError)


@pytest.mark.parametrize("status", [126, 127])
def test_a_program_that_cannot_be_started_is_said_to_be_missing(tmp_path: Path, status: int) -> None:
    driver = Driver(tmp_path)
    driver.talk.begin()
    driver.perform()

    driver.exit(status)

    assert isinstance(driver.outcome, AgentStartError)


def test_a_schema_that_the_program_does_not_take_is_a_bad_request(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    driver.talk.begin()
    driver.perform()

    driver.exit(1, "Error: --json-schema is not a valid JSON Schema")

    assert isinstance(driver.outcome, AgentRequestError)
    assert driver.outcome.cause == "bad_request"


def test_a_lost_conversation_does_not_count_as_an_attempt(start: Start) -> None:
    driver = start(config=ClaudeConfig(retries=1))

    driver.write(
        result(
            is_error=True,
            subtype="error_during_execution",
            errors=["No conversation found with session ID: 1"],
        )
    )
    driver.exit(1)

    assert driver.dialect.lost
    driver.advance(3)
    assert driver.starts == 2


# Rate limits.


def test_a_rate_limit_with_an_end_is_waited_for(start: Start) -> None:
    driver = start()
    reset_s = driver.clock.now_us() // 1_000_000 + 120
    info = {"status": "rejected", "resetsAt": reset_s}

    driver.write({"type": "rate_limit_event", "rate_limit_info": info})
    driver.write(result(**API, api_error_status=429), IDLE)
    (limited,) = [event for event in driver.events if isinstance(event, CallRateLimit)]
    driver.advance(119)
    assert driver.starts == 1
    driver.advance(2)

    assert driver.starts == 2
    assert limited.resets_at == "2026-01-01T00:02:00.000000Z"


def test_a_warning_about_a_limit_means_nothing(start: Start) -> None:
    driver = start()
    info = {"status": "allowed_warning", "resetsAt": driver.clock.now_us() // 1_000_000 + 120}

    driver.write({"type": "rate_limit_event", "rate_limit_info": info})
    driver.write(result(**API, api_error_status=429), IDLE)
    driver.advance(59)
    assert driver.starts == 1
    driver.advance(2)

    assert driver.starts == 2, "60 s are waited if the end is unknown"


def test_a_rate_limit_that_ends_after_the_deadline_is_reported_at_once(start: Start) -> None:
    driver = start(timeout_s=60.0)
    info = {"status": "rejected", "resetsAt": driver.clock.now_us() // 1_000_000 + 3600}

    driver.write({"type": "rate_limit_event", "rate_limit_info": info})
    driver.write(result(**API, api_error_status=429), IDLE)

    assert isinstance(driver.outcome, AgentRateLimitedError)
    assert driver.outcome.until == "2026-01-01T01:00:00.000000Z"


# Schemas.


def test_a_value_is_validated_and_a_wrong_one_is_repaired_once_in_the_same_process(start: Start) -> None:
    driver = start(inputs={"text": "do it", "result_schema": SCHEMA})

    driver.write(result(structured_output={"a": "x"}), IDLE)
    driver.advance(1)
    assert driver.starts == 1
    assert len(driver.prompts) == 2
    assert "$.a" in driver.prompts[1]
    driver.write(result(structured_output={"a": 2}), IDLE)

    assert answered(driver).value == {"a": 2}
    assert answered(driver).usage.cost_usd == 0.5


def test_an_agent_may_decline_to_give_a_value(start: Start) -> None:
    driver = start(inputs={"text": "do it", "result_schema": SCHEMA}, may_decline=True)

    driver.write(result(result="CANNOT_DETERMINE"), IDLE)

    assert answered(driver).declined


def test_a_success_without_a_value_is_not_one(start: Start) -> None:
    driver = start(inputs={"text": "do it", "result_schema": SCHEMA})

    driver.write(result(result="never"), IDLE)
    driver.advance(1)
    driver.write(result(result="never"), IDLE)

    assert isinstance(driver.outcome, ReplyInvalidError)
    assert len(driver.prompts) == 2


def test_a_value_that_is_not_an_object_is_taken_out_of_one(start: Start) -> None:
    driver = start(inputs={"text": "do it", "result_schema": {"type": "integer"}})

    driver.write(result(structured_output={"value": 7}), IDLE)

    assert answered(driver).value == 7


# Decisions.


def test_every_tool_call_is_decided(start: Start) -> None:
    driver = start(tools=[TOOL])

    verdicts = [
        driver.decide("Read", file_path="a.txt"),
        driver.decide("Write", file_path="a.txt"),
        driver.decide("Bash", command="ls"),
        driver.decide("mcp__bartack__do_1"),
        driver.decide("Task", prompt="x"),
        driver.decide("Unheard", of="x"),
    ]

    assert verdicts == ["allow", "allow", "deny", "allow", "allow", "deny"]
    assert [denial.tool for denial in driver.talk.denials] == ["Bash", "Unheard"]
    reported = [event.decision for event in driver.events if isinstance(event, CallPermission)]
    assert reported == ["deny", "deny"], "what a mode allows is not reported"


def test_a_decision_that_fails_denies(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(self: ToolPermissions, use: ToolUse) -> object:
        raise RuntimeError("boom")

    driver = start(permissions=Permissions(mode="all"))
    assert driver.decide("Bash", command="ls") == "allow"
    monkeypatch.setattr(ToolPermissions, "decide", break_down)

    assert driver.decide("Bash", command="ls") == "deny"


def test_what_a_person_has_to_decide_is_a_question(start: Start) -> None:
    driver = start(permissions=Permissions(mode="ask"))

    assert driver.decide("Bash", command="make") == "ask"
    asked: Json = {"tool_name": "Bash", "input": {"command": "make"}, "tool_use_id": "t1"}
    assert driver.ask("p1", subtype="can_use_tool", **asked) == {}
    (question,) = driver.questions
    driver.talk.answered(question.id, AgentAnswer(text="allow", number="q1"))
    driver.perform()

    assert (question.kind, question.tool, question.options) == ("permission", "Bash", ["allow", "deny"])
    response = object_of(driver.sent[-1], "response")
    assert response["request_id"] == "p1"
    assert response["response"] == {"behavior": "allow", "updatedInput": {"command": "make"}}


@pytest.mark.parametrize(
    "answer", [AgentAnswer(text="deny"), AgentAnswer(refused="there is no person to ask")]
)
def test_a_permission_that_is_not_given_is_denied(start: Start, answer: AgentAnswer) -> None:
    driver = start(permissions=Permissions(mode="ask"))

    driver.ask("p1", subtype="can_use_tool", tool_name="Bash", input={"command": "x"}, tool_use_id="t1")
    driver.talk.answered("t1", answer)
    driver.perform()

    assert text_of(driver.sent[-1], "response", "response", "behavior") == "deny"
    assert [denial.tool for denial in driver.talk.denials] == ["Bash"]


def test_where_no_person_is_asked_a_question_of_the_program_is_denied(start: Start) -> None:
    driver = start(permissions=Permissions(mode="all", on_ask="deny"))

    sent = driver.ask(
        "p1", subtype="can_use_tool", tool_name="Bash", input={"command": "x"}, tool_use_id="t1"
    )

    assert text_of(sent, "response", "response", "behavior") == "deny"
    assert driver.questions == []


ASKED: Json = {
    "questions": [
        {"question": "Which?", "options": [{"label": "A"}, {"label": "B"}]},
        {"question": "When?", "options": []},
    ]
}


def test_questions_of_the_agent_are_answered_together(start: Start) -> None:
    driver = start(may_ask=True)

    assert driver.decide("AskUserQuestion", **ASKED) == "allow"
    driver.ask("p1", subtype="can_use_tool", tool_name="AskUserQuestion", input=ASKED, tool_use_id="t1")
    first, second = driver.questions
    driver.talk.answered(second.id, AgentAnswer(text="now"))
    driver.talk.answered(first.id, AgentAnswer(text="B"))
    driver.perform()

    assert (first.text, first.options, first.kind) == ("Which?", ["A", "B"], "ask")
    updated = object_of(driver.sent[-1], "response", "response", "updatedInput")
    assert updated == {**ASKED, "answers": {"When?": "now", "Which?": "B"}}


def test_an_agent_that_must_not_ask_is_refused(start: Start) -> None:
    driver = start(may_ask=False)

    assert driver.decide("AskUserQuestion", **ASKED) == "deny"


def test_a_question_that_is_withdrawn_is_not_answered(start: Start) -> None:
    driver = start(permissions=Permissions(mode="ask"))

    driver.ask("p1", subtype="can_use_tool", tool_name="Bash", input={"command": "x"}, tool_use_id="t1")
    driver.write({"type": "control_cancel_request", "request_id": "p1"})
    before = len(driver.sent)
    driver.talk.answered("t1", AgentAnswer(text="allow"))
    driver.perform()

    assert len(driver.sent) == before
    assert driver.withdrawn == ["t1"]


def test_a_question_of_a_program_that_we_stop_stays_open_for_its_next_attempt(start: Start) -> None:
    driver = start(permissions=Permissions(mode="ask"))
    driver.ask("p1", subtype="can_use_tool", tool_name="Bash", input={"command": "x"}, tool_use_id="t1")

    driver.talk.cancel("user")
    driver.write({"type": "control_cancel_request", "request_id": "p1"})
    driver.perform()

    assert driver.withdrawn == []


def test_an_unknown_request_gets_an_error(start: Start) -> None:
    driver = start()

    sent = driver.ask("x1", subtype="of_tomorrow")

    assert object_of(sent, "response")["subtype"] == "error"


# Tools of the step.


def mcp(driver: Driver, number: int, method: str, **params: object) -> Json:
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    sent = driver.ask(f"m{number}", subtype="mcp_message", server_name="bartack", message=message)
    return object_of(sent, "response", "response", "mcp_response")


def test_tools_of_the_step_are_served_over_the_control_channel(start: Start) -> None:
    driver = start(tools=[TOOL])

    hello = mcp(driver, 0, "initialize", protocolVersion="2025-11-25")
    listed = mcp(driver, 1, "tools/list")
    meta = {"claudecode/toolUseId": "t1"}
    assert mcp(driver, 2, "tools/call", name="do_1", arguments={}, _meta=meta) == {}
    assert driver.calls == [("t1", "do_1", {})]
    driver.advance(10_000)
    driver.talk.tool_ended("t1", ToolOutcome(result=42))
    driver.perform()

    assert object_of(hello, "result")["protocolVersion"] == "2025-11-25"
    assert "do_1" in str(listed)
    answer = object_of(driver.sent[-1], "response", "response", "mcp_response", "result")
    assert answer["structuredContent"] == {"value": 42}
    assert driver.outcome is None, "no limit passes while a tool of ours runs"


def test_a_notification_is_acknowledged(start: Start) -> None:
    driver = start(tools=[TOOL])
    message = {"jsonrpc": "2.0", "method": "notifications/initialized"}

    sent = driver.ask("m1", subtype="mcp_message", server_name="bartack", message=message)

    assert "mcp_response" in object_of(sent, "response", "response")


def test_a_tool_that_is_called_after_the_end_of_the_step_does_not_run(start: Start) -> None:
    driver = start(tools=[TOOL])
    mcp(driver, 0, "initialize", protocolVersion="2025-11-25")
    driver.talk.cancel("user")
    driver.perform()

    late = mcp(driver, 2, "tools/call", name="do_1", arguments={}, _meta={"claudecode/toolUseId": "t1"})

    assert object_of(late, "result")["isError"] is True
    assert "this step has ended" in str(late)
    assert driver.calls == []


def test_a_large_result_is_stored_and_its_beginning_sent(start: Start) -> None:
    driver = start(tools=[TOOL])
    mcp(driver, 0, "initialize", protocolVersion="2025-11-25")
    mcp(driver, 2, "tools/call", name="do_1", arguments={}, _meta={"claudecode/toolUseId": "t1"})

    driver.talk.tool_ended("t1", ToolOutcome(result="x" * 100_000))
    driver.perform()

    answer = object_of(driver.sent[-1], "response", "response", "mcp_response", "result")
    assert "structuredContent" not in answer
    assert len(str(answer)) < 40_000
    assert "all of them are in /stored.json" in str(answer)
    assert [len(text) for text in driver.stored] == [100_002]


# Watchdogs.


def test_silence_is_given_up_and_resumed_once(start: Start) -> None:
    driver = start(config=ClaudeConfig(stall_s=10.0))

    driver.advance(20)
    driver.greet()
    driver.advance(30)

    assert isinstance(driver.outcome, AgentStalledError)
    assert driver.starts == 2


def test_a_tool_of_its_own_may_take_longer_than_a_silence(start: Start) -> None:
    driver = start(config=ClaudeConfig(stall_s=10.0, tool_s=100.0, retries=1))
    driver.write(reply("m1", {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "make"}}))

    driver.advance(50)
    driver.write({"type": "tool_progress", "tool_use_id": "t1"})
    assert driver.outcome is None
    driver.advance(51)

    assert isinstance(driver.outcome, AgentStalledError), "a sign of life is not progress"


def test_a_program_that_only_repeats_its_requests_is_given_up(start: Start) -> None:
    driver = start(config=ClaudeConfig(retry_s=100.0, retries=1))
    again: Json = {"type": "system", "subtype": "api_retry", "error_status": 529, "error": "overloaded"}

    for _ in range(3):
        driver.write(again)
        driver.advance(40)

    assert type(failed(driver)) is AgentTransientError
    own = [event for event in driver.events if isinstance(event, CallRetry) and event.own]
    assert len(own) == 3


@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [(529, "overloaded", "temporary_failure"), (429, "rate_limit", "rate_limited")],
)
def test_by_default_the_last_status_of_its_repeats_decides_not_a_stall(
    start: Start, status: int, error: str, expected: str
) -> None:
    driver = start(timeout_s=7200.0)
    again: Json = {"type": "system", "subtype": "api_retry", "error_status": status, "error": error}

    for _ in range(13):
        driver.write(again)
        driver.advance(50)
        if driver.stops:
            break

    ends = [event for event in driver.events if isinstance(event, CallRetry) and not event.own]
    assert [(event.code, driver.clock.monotonic_ns() // 10**9) for event in ends] == [(expected, 600)]


def test_an_agent_that_repeated_and_went_on_can_stall_again(start: Start) -> None:
    driver = start(config=ClaudeConfig(retries=1), timeout_s=7200.0)
    driver.write({"type": "system", "subtype": "api_retry", "error_status": 529, "error": "overloaded"})
    driver.advance(550)
    driver.write(reply("m1", {"type": "text", "text": "so"}))

    driver.advance(299)
    assert driver.outcome is None
    driver.advance(2)

    assert isinstance(driver.outcome, AgentStalledError)


def test_the_error_of_a_killed_program_has_what_the_kernel_says(start: Start) -> None:
    driver = start(config=ClaudeConfig(retries=1))

    driver.talk.exited(-9, (), (), "; meanwhile the kernel has killed processes for lack of memory")
    driver.perform()

    assert isinstance(driver.outcome, AgentExitedError)
    assert "its process was killed by signal 9; meanwhile the kernel has killed processes" in str(
        driver.outcome
    )


def test_a_cancel_interrupts_and_the_first_reason_counts(start: Start) -> None:
    driver = start()

    driver.talk.cancel("user")
    driver.talk.cancel("deadline")
    driver.perform()
    assert object_of(driver.sent[-1], "request") == {"subtype": "interrupt"}
    driver.write(result(is_error=True, subtype="error_during_execution"), IDLE)

    assert isinstance(driver.outcome, AgentCancelledError)
    assert driver.outcome.reason == "user"
    assert driver.outcome.usd == 0.25


def test_an_interrupt_that_is_not_answered_stops_the_process(start: Start) -> None:
    driver = start()

    driver.talk.cancel("user")
    driver.perform()
    driver.advance(4)

    assert isinstance(driver.outcome, AgentCancelledError)
    assert driver.stops == 1


# Money.


def test_a_reply_is_counted_once_although_it_has_several_lines(start: Start) -> None:
    driver = start()
    text: Json = {"type": "text", "text": "x"}

    driver.write(reply("m1", text), reply("m1", text), reply("m2", text), result(), IDLE)

    assert answered(driver).usage.turns == 2
    assert answered(driver).usage.cost_usd == 0.25
    assert not answered(driver).usd_estimated


def test_what_a_killed_process_had_used_is_estimated(start: Start) -> None:
    driver = start()

    driver.write(reply("m1"), reply("m1"))
    driver.exit(-9)
    driver.advance(3)
    driver.greet()
    driver.write(reply("m2"), result(), IDLE)

    spent = (1000 * 5 + 100 * 25) / 1e6
    assert answered(driver).usage.cost_usd == pytest.approx(0.25 + spent)
    assert answered(driver).usd_estimated


def test_a_reply_that_was_cut_off_is_charged_although_the_result_does_not_count_it(start: Start) -> None:
    driver = start(budget=Budget(usd=0.01))
    counted = {"inputTokens": 1000, "outputTokens": 100, "costUSD": 0.0075, "costBasis": "list"}

    driver.write(reply("m1"), reply("m2"))
    cut = {"subtype": "error_during_execution", "is_error": True, "terminal_reason": "aborted_streaming"}
    driver.write(result(**cut, model_usage_since_last_result={MODEL: counted}), IDLE)
    driver.exit(0)

    assert failed(driver).usd == pytest.approx(0.015)
    assert failed(driver).usd_estimated


def test_a_model_without_a_price_counts_as_all_that_was_reserved(start: Start) -> None:
    driver = start(budget=Budget(usd=2.0), config=ClaudeConfig(retries=1))

    driver.write(reply("m1", model="unheard-of"))
    driver.exit(-9)

    assert failed(driver).usd == 2.0


def test_a_cost_that_is_not_at_list_prices_is_estimated(start: Start) -> None:
    driver = start()

    driver.write(result(model_usage_since_last_result={MODEL: used(1.0, "custom")}), IDLE)

    assert answered(driver).usd_estimated


# Lines.


def test_unknown_lines_are_ignored(start: Start) -> None:
    driver = start()

    driver.write({"type": "of_tomorrow"}, {"subtype": "x"}, result(), IDLE)

    assert answered(driver).text == "fine"


def test_printed_text_is_a_notice_and_too_much_of_it_is_not_the_protocol(start: Start) -> None:
    from bartack.agents.program._json_lines import read_json_line  # noqa: PLC0415 - one test needs it

    driver = start()

    for _ in range(101):
        driver.talk.line(read_json_line(b"warning: x"))
        driver.perform()

    assert isinstance(driver.outcome, AgentProtocolError)
    assert len([event for event in driver.events if isinstance(event, CallNotice)]) == 100


def test_tools_of_its_own_are_in_the_transcript(start: Start) -> None:
    driver = start()
    block = {"type": "tool_result", "tool_use_id": "t1", "is_error": True}

    driver.write(reply("m1", {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}))
    driver.advance(2)
    driver.write({"type": "user", "message": {"content": [block]}})

    began, ended = [event for event in driver.events if isinstance(event, CallTool)]
    assert (began.phase, began.tool, began.input) == ("started", "Bash", '{"command":"ls"}')
    assert (ended.phase, ended.duration_s) == ("failed", 2.0)
