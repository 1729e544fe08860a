"""The course of a call of Codex: handshake, thread, turn, answers found after a crash, cancels, limits."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.agents.codex.stage import KEY, RUN, SECRET, THREAD, TURN, Stage, budget, request_for, usage

from bartack.agents._permissions import Permissions
from bartack.agents.contract import (
    AgentResult,
    CallNotice,
    CallRetry,
    CallStarted,
    CallText,
    CallUsage,
    ToolOutcome,
)
from bartack.agents.program._continuation import CONTINUE
from bartack.agents.program._generations import GENERATIONS
from bartack.agents.program._json_lines import member, objects_of, text_of
from bartack.agents.program_config import CodexConfig
from bartack.agents.protocol.ids import conversation_id
from bartack.agents.protocol.lines import BadLine
from bartack.errors import (
    AgentAuthError,
    AgentBudgetError,
    AgentCancelledError,
    AgentDeadlineError,
    AgentError,
    AgentExitedError,
    AgentProtocolError,
    AgentRateLimitedError,
    AgentRequestError,
    AgentStalledError,
    AgentStartError,
    AgentTransientError,
)

NUMBER: dict[str, object] = {"text": "how many?", "result_schema": {"type": "integer"}}


def result_of(stage: Stage) -> AgentResult:
    stage.exit()
    assert isinstance(stage.outcome, AgentResult)
    return stage.outcome


def error_of(stage: Stage) -> AgentError:
    if stage.stopping:
        stage.exit()
    assert isinstance(stage.outcome, AgentError)
    return stage.outcome


def turn(
    client_id: str, status: str = "completed", text: str = "found", *more: dict[str, object]
) -> dict[str, object]:
    items = [{"type": "userMessage", "clientId": client_id}, *more, {"type": "agentMessage", "text": text}]
    return {"id": "old", "status": status, "items": items}


def resumed(stage: Stage, *turns: dict[str, object]) -> None:
    stage.begin()
    stage.greet()
    assert stage.last["method"] == "thread/resume"
    stage.reply({"thread": {"id": THREAD, "turns": list(turns)}, "model": "gpt-5"})


# The course of a call.


def test_the_handshake_comes_before_the_thread_and_the_thread_before_the_prompt() -> None:
    stage = Stage()
    stage.open_turn()

    assert [message.get("method") for message in stage.sent] == [
        "initialize", "initialized", "thread/start", "turn/start",
    ]  # fmt: skip
    assert stage.thread.id == THREAD
    assert stage.last["params"] == {
        "threadId": THREAD,
        "input": [{"type": "text", "text": "do it"}],
        "clientUserMessageId": f"{KEY}#1",
    }


def test_the_last_message_of_the_turn_is_the_answer() -> None:
    stage = Stage()
    stage.open_turn()
    stage.say("first")
    stage.say("second")
    stage.say("of a subagent", thread="other")
    stage.end_turn()

    assert result_of(stage).text == "second"
    assert [(e.text, e.parent) for e in stage.events if isinstance(e, CallText)] == [
        ("first", ""), ("second", ""), ("of a subagent", "other"),
    ]  # fmt: skip


def test_the_end_of_another_turn_is_not_the_end_of_this_one() -> None:
    stage = Stage()
    stage.open_turn()
    stage.say("mine")
    stage.end_turn(thread="of a subagent")
    stage.end_turn(turn="older")

    assert stage.talk.state == "running"


def test_a_fork_names_the_thread_that_it_continues() -> None:
    stage = Stage(request_for(continues="c"), parent="parent-thread")
    stage.begin()
    stage.greet()

    assert stage.last["method"] == "thread/fork"
    assert text_of(stage.last, "params", "threadId") == "parent-thread"


def test_an_older_version_than_required_is_not_asked() -> None:
    stage = Stage(min_version="0.200")
    stage.begin()
    stage.greet("0.163.0")

    assert isinstance(error_of(stage), AgentStartError)
    assert stage.prompts() == []


@pytest.mark.parametrize("step", ["initialize", "thread/start"])
def test_a_version_that_refuses_the_handshake_cannot_be_started(step: str) -> None:
    stage = Stage()
    stage.begin()
    if step == "thread/start":
        stage.greet()
    stage.refuse("unknown field dynamicTools")

    error = error_of(stage)
    assert isinstance(error, AgentStartError)
    assert "dynamicTools" in str(error)


def test_a_login_comes_before_the_thread_and_one_that_fails_says_where_it_looked() -> None:
    stage = Stage()
    stage.dialect.credential, stage.dialect.hint = "k", "its home is /h"
    stage.begin()
    stage.greet()
    assert stage.last["method"] == "account/login/start"
    stage.reply({"type": "apiKey"})
    assert text_of(stage.last, "method") == "thread/start"

    failed = Stage()
    failed.dialect.credential, failed.dialect.hint = "k", "its home is /h"
    failed.begin()
    failed.greet()
    failed.refuse("no such key")
    error = error_of(failed)
    assert isinstance(error, AgentAuthError)
    assert "no such key; its home is /h" in str(error)


# After a crash.


@pytest.mark.requirement("codex-harvest")
def test_an_answer_in_the_thread_is_taken_and_nothing_is_asked() -> None:
    stage = Stage(request_for(attempt=2), thread=THREAD)
    resumed(stage, turn("ik:0#1", text="of another step"), turn(f"{KEY}#1"))

    result = result_of(stage)
    assert (result.text, result.harvested) == ("found", True)
    assert stage.prompts() == []


def test_a_value_in_the_thread_is_taken_from_the_tool_that_got_it() -> None:
    stage = Stage(request_for(attempt=2, inputs=NUMBER), thread=THREAD)
    call: dict[str, object] = {
        "type": "dynamicToolCall", "tool": "answer", "success": True, "arguments": {"value": 7},
    }  # fmt: skip
    resumed(stage, turn(f"{KEY}#1", "completed", "done", call))

    assert result_of(stage).value == 7


@pytest.mark.parametrize("status", ["interrupted", "failed", "inProgress"])
def test_a_turn_that_was_not_finished_is_continued(status: str) -> None:
    stage = Stage(request_for(attempt=2), thread=THREAD)
    resumed(stage, turn(f"{KEY}#1", status))

    assert stage.prompts() == [CONTINUE]


def test_a_thread_without_a_turn_of_this_step_gets_the_whole_prompt() -> None:
    stage = Stage(request_for(attempt=2), thread=THREAD)
    resumed(stage, turn("ik:10#1"), turn("denied:x"))

    assert stage.prompts() == ["do it"]


def test_an_answer_that_was_refused_is_not_found_again() -> None:
    refused = request_for(rejected="artifact_missing", rejected_because="a.txt is missing", attempts_before=1)
    stage = Stage(refused, thread=THREAD)
    resumed(stage, turn(f"{KEY}#1"))

    (text,) = stage.prompts()
    assert "a.txt is missing" in text
    assert text_of(stage.last, "params", "clientUserMessageId") == f"{KEY}#2"


@pytest.mark.requirement("codex-continues")
def test_a_conversation_that_is_lost_begins_anew_once() -> None:
    stage = Stage(request_for(attempt=2), thread=THREAD)
    stage.begin()
    stage.greet()
    stage.refuse("no rollout found for thread id thread-1")
    stage.exit()
    stage.tick()
    stage.greet()

    assert stage.talk.generation == 1
    assert stage.talk.conversation == conversation_id(RUN, KEY, 1)
    assert stage.last["method"] == "thread/start"
    stage.reply({"thread": {"id": "thread-2"}})
    assert stage.prompts() == ["do it"]


@pytest.mark.requirement("codex-continues")
def test_a_conversation_that_is_lost_again_in_another_hub_ends_the_call() -> None:
    stage = Stage(request_for(attempt=3), thread="thread-2")
    stage.talk.generation = GENERATIONS - 1
    stage.begin()
    stage.greet()
    stage.refuse("no rollout found for thread id thread-2")

    error = error_of(stage)
    assert isinstance(error, AgentExitedError)
    assert error.reason == "conversation_lost"
    assert (stage.talk.generation, stage.processes) == (GENERATIONS - 1, 1)


@pytest.mark.requirement("codex-continues")
def test_a_conversation_that_is_lost_again_ends_the_call() -> None:
    stage = Stage(request_for(attempt=2), thread=THREAD)
    stage.begin()
    stage.greet()
    stage.refuse("no rollout found for thread id thread-1")
    stage.exit()
    stage.tick()
    stage.greet()
    stage.reply({"thread": {"id": "thread-2"}})
    stage.exit(-9)
    stage.tick()
    stage.greet()
    stage.refuse("no rollout found for thread id thread-2")

    error = error_of(stage)
    assert isinstance(error, AgentExitedError)
    assert error.reason == "conversation_lost"
    assert (stage.talk.generation, stage.processes) == (GENERATIONS - 1, 3)


def test_a_process_that_dies_is_replaced_in_the_same_thread() -> None:
    stage = Stage()
    stage.open_turn()
    stage.exit(-9)
    stage.tick()
    stage.greet()

    assert stage.processes == 2
    assert stage.last["method"] == "thread/resume"


def test_an_end_without_an_answer_is_never_a_success() -> None:
    stage = Stage(config=CodexConfig(retries=1))
    stage.open_turn()
    stage.say("nearly")
    stage.exit(0)

    assert isinstance(error_of(stage), AgentExitedError)


# Values.


@pytest.mark.requirement("codex-values")
def test_a_value_comes_by_the_tool_and_a_wrong_one_is_refused() -> None:
    stage = Stage(request_for(inputs=NUMBER))
    stage.open_turn()
    assert "calling the tool answer" in stage.prompts()[0]
    stage.ask("item/tool/call", {"callId": "c1", "tool": "answer", "arguments": {"value": "x"}})
    wrong = stage.last["result"]
    stage.ask("item/tool/call", {"callId": "c2", "tool": "answer", "arguments": {"value": 7}})
    right = stage.last["result"]
    stage.say("done")
    stage.end_turn()

    assert wrong == {
        "success": False,
        "contentItems": [{"type": "inputText", "text": '$: expected integer, found "x"'}],
    }
    assert right == {"success": True, "contentItems": [{"type": "inputText", "text": "recorded"}]}
    assert result_of(stage).value == 7


def test_a_missing_value_is_asked_for_once_more_in_the_same_process() -> None:
    stage = Stage(request_for(inputs=NUMBER))
    stage.open_turn()
    stage.say("seven")
    stage.end_turn()
    stage.tick()

    assert stage.processes == 1
    assert len(stage.prompts()) == 2
    assert "integer" in stage.prompts()[1]
    stage.start_turn("turn-2")
    stage.say("7")
    stage.end_turn(turn="turn-2")
    assert result_of(stage).value == 7


# What the agent may do, its tools and its questions.


@pytest.mark.requirement("codex-permissions")
def test_a_denied_command_is_declined_and_the_model_learns_why() -> None:
    stage = Stage(permissions=Permissions(mode="auto", deny=["Bash(rm*)"]))
    stage.open_turn()
    stage.ask("item/commandExecution/requestApproval", {"itemId": "i", "command": "bash -lc 'rm a'"}, 5)
    steer, reply = stage.sent[-2:]
    stage.say("ok")
    stage.end_turn()

    assert steer["method"] == "turn/steer"
    assert "Bartack did not allow Bash rm a: deny Bash(rm*)." in msgspec.json.encode(steer).decode()
    assert (reply["id"], reply["result"]) == (5, {"decision": "decline"})
    assert [(d.tool, d.input) for d in result_of(stage).denials] == [("Bash", "rm a")]


@pytest.mark.requirement("codex-permissions")
def test_questions_and_denials_have_no_secrets() -> None:
    rules = Permissions(mode="ask", deny=["Bash(rm*)"])
    stage = Stage(permissions=rules)
    stage.open_turn()
    wants: dict[str, object] = {"itemId": "i", "command": f"bash -lc 'rm {SECRET}'"}
    stage.ask("item/commandExecution/requestApproval", wants, 5)
    wants = {"itemId": "j", "command": f"curl -H {SECRET} x", "reason": f"it needs {SECRET}"}
    stage.ask("item/commandExecution/requestApproval", wants, 6)
    (question,) = stage.questions
    stage.answer(refused="no")
    stage.say("ok")
    stage.end_turn()

    assert SECRET not in question.text
    assert "it needs $env:TOKEN" in question.text
    assert question.input == {"command": "curl -H $env:TOKEN x"}
    assert [d.input for d in result_of(stage).denials] == ["rm $env:TOKEN", "curl -H $env:TOKEN x"]


def test_an_allowed_command_is_accepted() -> None:
    stage = Stage()
    stage.open_turn()
    stage.ask("item/commandExecution/requestApproval", {"itemId": "i", "command": "make"}, 5)

    assert stage.last == {"jsonrpc": "2.0", "id": 5, "result": {"decision": "accept"}}


@pytest.mark.parametrize(("text", "decision"), [("allow", "accept"), ("deny", "decline")])
def test_a_person_decides_where_the_mode_is_to_ask(text: str, decision: str) -> None:
    stage = Stage(permissions=Permissions(mode="ask"))
    stage.open_turn()
    stage.ask("item/commandExecution/requestApproval", {"itemId": "i", "command": "make"}, 5)
    assert [(q.kind, q.tool, q.options) for q in stage.questions] == [
        ("permission", "Bash", ["allow", "deny"])
    ]
    stage.tick(100_000)
    stage.answer(text)

    assert stage.last == {"jsonrpc": "2.0", "id": 5, "result": {"decision": decision}}


def test_an_approval_after_the_end_is_declined() -> None:
    stage = Stage()
    stage.open_turn()
    stage.cancel()
    stage.ask("item/commandExecution/requestApproval", {"itemId": "i", "command": "make"}, 5)

    assert stage.last["result"] == {"decision": "decline"}


def test_a_file_change_is_decided_by_the_files_that_were_announced() -> None:
    stage = Stage(permissions=Permissions(mode="edit"))
    stage.open_turn()
    for number, path in enumerate(["/ws/a", "/etc/a"]):
        item = {
            "type": "fileChange",
            "id": f"f{number}",
            "changes": [{"path": path, "kind": {"type": "add"}}],
        }
        stage.note("item/started", {"threadId": THREAD, "turnId": TURN, "item": item})
        stage.ask("item/fileChange/requestApproval", {"itemId": f"f{number}"}, number)

    answers = [message["result"] for message in stage.sent if "result" in message]
    assert answers == [{"decision": "accept"}, {"decision": "decline"}]


TOOL = {"name": "double", "description": "d", "input_schema": {"type": "object"}}


@pytest.mark.requirement("codex-tools")
def test_a_tool_of_ours_is_called_and_its_result_is_sent() -> None:
    stage = Stage(request_for(tools=[TOOL]))
    stage.open_turn()
    stage.ask("item/tool/call", {"callId": "c", "tool": "double", "arguments": {"n": 4}}, 9)
    stage.tick(100_000)
    stage.end_tool(ToolOutcome(result={"b": 1, "a": 2}))

    assert [(call.call_id, call.name, call.arguments) for call in stage.calls] == [("c", "double", {"n": 4})]
    assert stage.last["id"] == 9
    assert stage.last["result"] == {
        "success": True,
        "contentItems": [{"type": "inputText", "text": '{"a":2,"b":1}'}],
    }


@pytest.mark.parametrize(
    ("result", "success", "text"),
    [
        ("x" * 70_000, True, '"' + "x" * 32_767 + "\n[70002 characters; all of them are in /stored.json]"),
        (float("nan"), False, "the result cannot be written as JSON"),
    ],
)
def test_a_result_that_the_model_cannot_read_whole_is_stored_or_refused(
    result: object, success: bool, text: str
) -> None:
    stage = Stage(request_for(tools=[TOOL]))
    stage.open_turn()
    stage.ask("item/tool/call", {"callId": "c", "tool": "double", "arguments": {}}, 9)
    stage.end_tool(ToolOutcome(result=result))

    assert len(stage.stored) == success
    assert member(stage.last, "result", "success") is success
    assert text_of(objects_of(stage.last, "result", "contentItems")[0], "text").startswith(text)


def test_results_that_the_model_may_not_have_got_are_named_when_the_thread_is_continued() -> None:
    stage = Stage(request_for(tools=[TOOL]))
    stage.open_turn()
    for call_id in ("c", "d"):
        stage.ask("item/tool/call", {"callId": call_id, "tool": "double", "arguments": {}}, 9)
        stage.end_tool(ToolOutcome(result=f"of {call_id}"))
    item = {"type": "dynamicToolCall", "id": "c", "tool": "double", "status": "completed"}
    stage.note("item/completed", {"threadId": THREAD, "turnId": TURN, "item": item})
    stage.exit(-9)
    stage.tick()
    stage.greet()
    stage.reply({"thread": {"id": THREAD, "turns": [turn(f"{KEY}#1", "interrupted")]}})

    assert [event.delivered for event in stage.events if isinstance(event, CallStarted)] == [[], ["c"]]
    assert stage.prompts()[1].startswith(CONTINUE)
    assert stage.prompts()[1].endswith('\n- double: "of d"')


def test_a_tool_that_failed_or_is_unknown_is_reported_as_such() -> None:
    stage = Stage(request_for(tools=[TOOL]))
    stage.open_turn()
    stage.ask("item/tool/call", {"callId": "c", "tool": "double", "arguments": {}}, 1)
    stage.end_tool(ToolOutcome(code="tool_failed", message="ValueError: no"))
    failed = stage.last["result"]
    stage.ask("item/tool/call", {"callId": "d", "tool": "triple", "arguments": {}}, 2)

    assert failed == {"success": False, "contentItems": [{"type": "inputText", "text": "ValueError: no"}]}
    assert member(stage.last, "result", "success") is False


def test_a_tool_that_is_called_after_the_end_is_not_run() -> None:
    stage = Stage(request_for(tools=[TOOL]))
    stage.open_turn()
    stage.cancel()
    stage.ask("item/tool/call", {"callId": "c", "tool": "double", "arguments": {}}, 1)

    assert stage.calls == []
    assert "this step has ended" in msgspec.json.encode(stage.last).decode()


@pytest.mark.requirement("codex-tools")
@pytest.mark.parametrize(("refused", "success"), [("", True), ("there is no person to ask", False)])
def test_a_question_of_the_agent_goes_to_a_person(refused: str, success: bool) -> None:
    stage = Stage(may_ask=True)
    stage.open_turn()
    given = {"question": "Which?", "options": ["a", "b"], "default": "a"}
    stage.ask("item/tool/call", {"callId": "c", "tool": "ask", "arguments": given}, 1)
    (question,) = stage.questions
    stage.answer("" if refused else "b", refused)

    assert (question.kind, question.text, question.options, question.default) == (
        "ask",
        "Which?",
        ["a", "b"],
        "a",
    )
    text = refused or "b"
    assert stage.last["result"] == {"success": success, "contentItems": [{"type": "inputText", "text": text}]}


def test_several_questions_at_once_are_answered_together() -> None:
    stage = Stage(may_ask=True)
    stage.open_turn()
    first = {"id": "x", "header": "h", "question": "A?", "options": [{"label": "yes", "description": ""}]}
    second = {"id": "y", "header": "h", "question": "B?"}
    stage.ask("item/tool/requestUserInput", {"itemId": "i", "questions": [first, second]}, 3)
    for question, text in zip(list(stage.questions), ["yes", "blue"], strict=True):
        stage.questions.append(question)
        stage.answer(text)

    assert stage.last["id"] == 3
    assert stage.last["result"] == {"answers": {"x": {"answers": ["yes"]}, "y": {"answers": ["blue"]}}}


def test_every_other_request_is_refused() -> None:
    stage = Stage()
    stage.open_turn()
    stage.ask("account/chatgptAuthTokens/refresh", {}, 4)

    assert member(stage.last, "error", "code") == -32601


# Money and time.


def test_tokens_are_those_of_the_replies_of_this_process() -> None:
    stage = Stage()
    stage.open_turn()
    stage.note("thread/tokenUsage/updated", usage(999, turn="older"))
    stage.note("thread/tokenUsage/updated", usage(100, cached=40))
    stage.note("turn/started", {"threadId": "other", "turn": {"id": "t2"}})
    stage.note("thread/tokenUsage/updated", usage(50, turn="t2", thread="other"))
    stage.say("done")
    stage.end_turn()

    result = result_of(stage)
    used = result.usage
    assert (used.input_tokens, used.cache_read_tokens, used.output_tokens, used.turns) == (110, 40, 20, 2)
    assert used.cost_usd == pytest.approx((110 * 1.25 + 40 * 0.125 + 20 * 10) / 1e6)
    assert result.usd_estimated
    assert len([event for event in stage.events if isinstance(event, CallUsage)]) == 2


def test_a_call_over_its_budget_is_interrupted_between_replies() -> None:
    stage = Stage(request_for(budget=budget(tokens=50)))
    stage.open_turn()
    stage.note("thread/tokenUsage/updated", usage(100))
    interrupt = stage.last
    stage.end_turn("interrupted")

    assert interrupt["method"] == "turn/interrupt"
    assert interrupt["params"] == {"threadId": THREAD, "turnId": TURN}
    assert isinstance(error_of(stage), AgentBudgetError)


def test_a_last_reply_over_the_budget_is_paid_and_counts() -> None:
    stage = Stage(request_for(budget=budget(tokens=50)))
    stage.open_turn()
    stage.say("done")
    stage.note("thread/tokenUsage/updated", usage(100))
    stage.end_turn()

    assert result_of(stage).text == "done"


def test_a_cancel_interrupts_the_turn() -> None:
    stage = Stage()
    stage.open_turn()
    stage.cancel()
    assert stage.last["method"] == "turn/interrupt"
    stage.end_turn("interrupted")

    assert isinstance(error_of(stage), AgentCancelledError)


def test_a_cancel_before_the_turn_has_an_id_interrupts_it_then() -> None:
    stage = Stage()
    stage.begin()
    stage.greet()
    stage.reply({"thread": {"id": THREAD}})
    stage.cancel()
    assert len(stage.prompts()) == 1
    stage.reply({"turn": {"id": TURN}})

    assert stage.last["method"] == "turn/interrupt"


def test_a_cancel_before_the_turn_ends_the_call_at_once() -> None:
    stage = Stage()
    stage.begin()
    stage.cancel()

    assert isinstance(error_of(stage), AgentCancelledError)
    assert stage.prompts() == []


def test_an_answer_after_a_cancel_does_not_count_and_one_after_the_deadline_does() -> None:
    cancelled, late = Stage(), Stage(request_for(timeout_s=10))
    for stage in (cancelled, late):
        stage.open_turn()
        stage.say("done")
    cancelled.cancel()
    late.tick(4)
    late.tick(6.5)
    assert isinstance(late.talk.verdict, AgentDeadlineError)
    cancelled.end_turn()
    late.end_turn()

    assert isinstance(error_of(cancelled), AgentCancelledError)
    assert result_of(late).text == "done"


def test_a_turn_that_somebody_else_interrupts_is_tried_again() -> None:
    stage = Stage(config=CodexConfig(retries=1))
    stage.open_turn()
    stage.end_turn("interrupted")

    assert isinstance(error_of(stage), AgentTransientError)


@pytest.mark.parametrize(
    ("info", "wanted"),
    [
        ("unauthorized", AgentAuthError),
        ("badRequest", AgentRequestError),
        ("sessionBudgetExceeded", AgentBudgetError),
        ("internalServerError", AgentTransientError),
    ],
)
def test_a_failed_turn_ends_the_call_with_its_error(info: str, wanted: type[AgentError]) -> None:
    stage = Stage(config=CodexConfig(retries=1))
    stage.open_turn()
    stage.end_turn("failed", {"message": "no", "codexErrorInfo": info})

    assert type(error_of(stage)) is wanted


def test_a_quota_that_is_renewed_in_time_is_waited_for() -> None:
    stage = Stage()
    stage.open_turn()
    resets_at = stage.clock.now_us() // 1_000_000 + 60
    limits = {"primary": {"usedPercent": 100, "resetsAt": resets_at}, "secondary": {"usedPercent": 3}}
    stage.note("account/rateLimits/updated", {"rateLimits": limits})
    stage.end_turn("failed", {"message": "used up", "codexErrorInfo": "usageLimitExceeded"})
    stage.exit()
    assert stage.outcome is None
    stage.tick(61)

    assert stage.processes == 2


def test_a_rate_limit_without_an_end_is_waited_for() -> None:
    stage = Stage(request_for(timeout_s=30))
    stage.open_turn()
    stage.end_turn("failed", {"message": "slow down", "codexErrorInfo": "rateLimitExceeded"})

    assert isinstance(error_of(stage), AgentRateLimitedError)


def test_a_repetition_is_a_sign_of_life_and_no_progress() -> None:
    stage = Stage(request_for(timeout_s=7200), config=CodexConfig(retries=1))
    stage.open_turn()
    for _ in range(150):
        if stage.outcome is None and not stage.stopping:
            error = {"message": "Reconnecting... 1/5", "codexErrorInfo": "serverOverloaded"}
            stage.note("error", {"threadId": THREAD, "turnId": TURN, "error": error, "willRetry": True})
            stage.tick(4.5)

    assert type(error_of(stage)) is AgentTransientError
    own = [event for event in stage.events if isinstance(event, CallRetry) and event.own]
    assert {(event.code, event.attempt) for event in own} == {("temporary_failure", 1)}


def test_a_hopeless_repetition_ends_the_call_at_once() -> None:
    stage = Stage()
    stage.open_turn()
    info = {"responseStreamDisconnected": {"httpStatusCode": 401}}
    error = {"message": "Reconnecting... 1/5", "codexErrorInfo": info}
    stage.note("error", {"threadId": THREAD, "turnId": TURN, "error": error, "willRetry": True})

    assert isinstance(error_of(stage), AgentAuthError)


def test_silence_ends_the_attempt_and_a_running_tool_has_longer() -> None:
    stage = Stage(config=CodexConfig(retries=1, stall_s=60, tool_s=600))
    stage.open_turn()
    item = {"type": "commandExecution", "id": "i", "command": "make", "status": "inProgress"}
    stage.note("item/started", {"threadId": THREAD, "turnId": TURN, "item": item})
    for _ in range(30):
        stage.tick(4)
    assert not stage.stopping
    stage.note(
        "item/completed", {"threadId": THREAD, "turnId": TURN, "item": {**item, "status": "completed"}}
    )
    for _ in range(16):
        stage.tick(4)

    assert isinstance(error_of(stage), AgentStalledError)


# Lines that cannot be used.


def test_lines_that_are_not_messages_are_ignored() -> None:
    stage = Stage()
    stage.open_turn()

    assert stage.write_line(b"not JSON") == "malformed"
    assert stage.write({"id": 77, "result": {}}) == "unexpected_reply"
    assert stage.write({"method": "something/new", "params": {"a": 1}}) == ""
    assert stage.talk.state == "running"


def test_too_many_of_them_end_the_call() -> None:
    stage = Stage()
    stage.open_turn()
    for _ in range(101):
        stage.write_line(b"not JSON")

    assert isinstance(error_of(stage), AgentProtocolError)


def test_a_line_that_is_too_long_ends_the_call() -> None:
    stage = Stage()
    stage.open_turn()
    stage.write_bad(BadLine("line_too_long", b"", 20_000_000, detail="more than 16 MiB"))

    assert isinstance(error_of(stage), AgentProtocolError)


def test_printed_text_is_a_notice_without_secrets_and_each_process_may_print_some() -> None:
    stage = Stage()
    stage.open_turn()
    for _ in range(2):
        for _ in range(60):
            stage.write_line(f"warning: {SECRET}".encode())
        stage.write_bad(BadLine("torn", b"{", 1))
        stage.exit(-9)
        stage.tick()

    notices = [event.text for event in stage.events if isinstance(event, CallNotice)]
    assert notices.count("warning: $env:TOKEN") == 120
    assert stage.outcome is None
