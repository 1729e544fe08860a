"""What a conversation decides, fact by fact, with a clock that the test decides."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from tests.unit.agents.stage import ANSWERS, Stage, request_for

from bartack.agents import AgentResult, BadLine, Line, read_line
from bartack.agents._record import Link
from bartack.agents.config import ProtocolConfig
from bartack.agents.contract import CallFinished, CallNotice, CallRetry, ToolOutcome
from bartack.agents.conversation._breaker import Breaker
from bartack.agents.pauses import Pause
from bartack.agents.protocol.ids import moment
from bartack.agents.protocol.lines import write_line
from bartack.agents.protocol.messages import (
    Budget,
    Cancel,
    Command,
    Event,
    ExpectedOutput,
    Hello,
    Notice,
    Source,
    ToolCall,
    ToolResult,
    ToolSpec,
    Version,
)
from bartack.errors import (
    AgentAuthError,
    AgentBudgetError,
    AgentCancelledError,
    AgentDeadlineError,
    AgentError,
    AgentExitedError,
    AgentProtocolError,
    AgentRateLimitedError,
    AgentReplyError,
    AgentRequestError,
    AgentStalledError,
    AgentStartError,
    AgentTransientError,
    ArtifactMismatchError,
    LineTooLongError,
    PathEscapeError,
    QuotaExhaustedError,
    VersionMismatchError,
)


def script_of(action: str, *replies: Mapping[str, object]) -> dict[str, object]:
    return {"responses": {action: list(replies)}}


def silent(tmp_path: Path, **config: object) -> Stage:
    """A stage whose agent never answers by itself, but sends heartbeats."""
    hang = {"inject": [{"do": "hang", "heartbeats": True, "times": 0, "at": "start"}], "times": 0}
    return Stage(tmp_path, {"responses": {"implement": hang}}, config=config)


def event(stage: Stage, name: str = "builder.completed", **changes: object) -> Line:
    """An event of the command that was sent last, as the agent would send it."""
    command = stage.commands()[-1]
    made = Event(
        message_id=f"m{len(stage.heard)}-{len(stage.sent)}",
        correlation_id=command.correlation_id,
        in_reply_to=command.message_id,
        idempotency_key=command.idempotency_key,
        task_id=command.task_id,
        sender=Source("builder", "stub"),
        event=name,
        occurred_at=moment(stage.clock.now_us()),
    )
    read = read_line(write_line(msgspec.structs.replace(made, **changes)))
    assert isinstance(read, Line)
    return read


def finish(stage: Stage) -> AgentResult | AgentError:
    for _ in range(10_000):
        if stage.outcome is not None:
            return stage.outcome
        stage.turn()
    raise AssertionError("it does not end")


# Errors of the agent.


@pytest.mark.parametrize(
    ("code", "attempts", "kind"),
    [
        ("temporary_failure", 3, AgentTransientError),
        ("overloaded", 3, AgentTransientError),
        ("llm_call_failed", 3, AgentTransientError),
        ("command_failed", 3, AgentTransientError),
        ("internal_error", 2, AgentTransientError),
        ("never_heard_of", 2, AgentTransientError),
        ("rate_limited", 3, AgentRateLimitedError),
        ("quota_exhausted", 1, QuotaExhaustedError),
        ("invalid_inputs", 1, AgentRequestError),
        ("unsupported_action", 1, AgentRequestError),
        ("file_read_failed", 1, AgentRequestError),
        ("artifact_write_failed", 1, AgentRequestError),
        ("refused", 1, AgentRequestError),
        ("context_too_long", 1, AgentRequestError),
        ("auth_failed", 1, AgentAuthError),
        ("cancelled", 1, AgentCancelledError),
        ("version_mismatch", 3, VersionMismatchError),
    ],
)
@pytest.mark.requirement("terminal-errors-are-not-repeated")
def test_an_error_is_tried_again_as_its_code_says(
    code: str, attempts: int, kind: type[AgentError], tmp_path: Path
) -> None:
    stage = Stage(tmp_path, {"responses": {"implement": {"error": {"code": code, "message": "why"}}}})

    outcome = stage.ask(request_for("implement", tmp_path))

    assert isinstance(outcome, AgentError)
    assert type(outcome) is kind
    assert outcome.reason == code
    assert "why" in outcome.message
    sent = stage.commands()
    assert [command.retry.attempt for command in sent] == list(range(1, attempts + 1))
    assert [command.retry.cause for command in sent] == ["first", *["failed"] * (attempts - 1)]
    assert stage.starts == 1


@pytest.mark.parametrize(("retryable", "attempts"), [(True, 3), (False, 1)])
@pytest.mark.requirement("terminal-errors-are-not-repeated")
def test_an_agent_decides_about_codes_that_nobody_knows(
    tmp_path: Path, attempts: int, *, retryable: bool
) -> None:
    error = {"code": "odd", "retryable": retryable}
    stage = Stage(tmp_path, {"responses": {"implement": {"error": error}}})

    stage.ask(request_for("implement", tmp_path))

    assert len(stage.commands()) == attempts


@pytest.mark.requirement("terminal-errors-are-not-repeated")
def test_a_yes_of_the_agent_does_not_win_over_our_no_and_its_no_wins(tmp_path: Path) -> None:
    for code, retryable in (("auth_failed", True), ("overloaded", False)):
        stage = Stage(
            tmp_path, {"responses": {"implement": {"error": {"code": code, "retryable": retryable}}}}
        )

        stage.ask(request_for("implement", tmp_path))

        assert len(stage.commands()) == 1


def test_waits_grow_and_are_at_least_what_the_agent_asks_for(tmp_path: Path) -> None:
    errors: list[dict[str, object]] = [
        {"error": {"code": "overloaded"}},
        {"error": {"code": "overloaded", "retry_after_s": 40}},
        {"events": [ANSWERS["implement"]]},
    ]
    stage = Stage(tmp_path, script_of("implement", *errors))

    stage.result(request_for("implement", tmp_path))

    waits = [event.delay_s for event in stage.events if isinstance(event, CallRetry)]
    assert waits == [1.0, 40.0]
    assert stage.now() == pytest.approx(41.0)


def test_a_limit_that_ends_before_the_deadline_is_waited_for_and_is_no_failed_attempt(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"responses": {}}, config={"retries": 1})
    resets = moment(stage.clock.now_us() + 120_000_000)
    limited = {"error": {"code": "rate_limited", "resets_at": resets}}
    stage = Stage(
        tmp_path, script_of("implement", limited, {"events": [ANSWERS["implement"]]}), config={"retries": 1}
    )

    result = stage.result(request_for("implement", tmp_path))

    assert stage.now() == pytest.approx(120.0)
    assert result.attempts == 2


@pytest.mark.parametrize("code", ["rate_limited", "quota_exhausted"])
def test_a_limit_that_ends_behind_the_deadline_ends_the_call_at_once_and_names_the_time(
    code: str, tmp_path: Path
) -> None:
    error = {"code": code, "resets_at": "2027-01-01T00:00:00Z"}
    stage = Stage(tmp_path, {"responses": {"implement": {"error": error}}})

    outcome = stage.ask(request_for("implement", tmp_path))

    assert isinstance(outcome, AgentRateLimitedError)
    assert outcome.until == "2027-01-01T00:00:00Z"
    assert stage.now() < 1


HOUR_S = 3600.0


def limited_stage(root: Path, *waits_s: float, **config: object) -> Stage:
    """The agent is limited for these times, one after the other, and then answers. A pause is shared with other runs."""
    clock = Stage(root, {"responses": {}}).clock
    ends = list(itertools.accumulate(waits_s))
    limits = [
        {"error": {"code": "quota_exhausted", "resets_at": moment(clock.now_us() + int(end * 1e6))}}
        for end in ends
    ]
    script = script_of("implement", *limits, {"events": [ANSWERS["implement"]]})
    stage = Stage(root, script, config={"retries": 1, **config})
    stage.breaker = Breaker(stage.clock, Pause(root / "pauses" / "stub.json", stage.clock))
    return stage


@pytest.mark.requirement("a-limit-is-not-time-of-a-prompt")
@pytest.mark.parametrize("waits_s", [[5 * HOUR_S], [2 * HOUR_S, 3 * HOUR_S], [7 * 24 * HOUR_S]])
def test_a_limit_that_ends_after_the_default_deadline_is_waited_for(
    waits_s: list[float], tmp_path: Path
) -> None:
    stage = limited_stage(tmp_path, *waits_s)
    request = request_for("implement", tmp_path, limits_count=False, budget=Budget(wall_s=60))

    result = stage.result(request)

    assert stage.now() == pytest.approx(sum(waits_s))
    assert result.attempts == len(waits_s) + 1


def test_the_default_deadline_counts_on_after_a_limit(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"responses": {}})
    resets = moment(stage.clock.now_us() + int(5 * HOUR_S * 1e6))
    limit = {"error": {"code": "quota_exhausted", "resets_at": resets}}
    hang = {"inject": [{"do": "hang", "heartbeats": True, "times": 0, "at": "start"}], "times": 0}
    stage = Stage(tmp_path, script_of("implement", limit, hang), config={"stall_s": 0})

    outcome = stage.ask(request_for("implement", tmp_path, limits_count=False))

    assert isinstance(outcome, AgentDeadlineError)
    assert stage.now() == pytest.approx(6 * HOUR_S + stage.config.limits.cancel_grace_s)


@pytest.mark.parametrize(
    ("wait_s", "limits_count"),
    [(2 * HOUR_S, True), (9 * 24 * HOUR_S, False)],
    ids=["own deadline", "too long"],
)
def test_a_limit_that_is_not_waited_for_is_raised_at_once_and_other_runs_learn_of_it(
    wait_s: float, limits_count: bool, tmp_path: Path
) -> None:
    stage = limited_stage(tmp_path, wait_s)

    outcome = stage.ask(request_for("implement", tmp_path, limits_count=limits_count))

    assert isinstance(outcome, QuotaExhaustedError)
    assert stage.now() < 1
    assert stage.breaker is not None
    assert stage.breaker.wait_s() == pytest.approx(wait_s if limits_count else 0.0)


@pytest.mark.requirement("a-limit-is-not-time-of-a-prompt")
def test_a_limit_that_another_run_has_met_is_waited_for_though_it_ends_after_the_default_deadline(
    tmp_path: Path,
) -> None:
    stage = limited_stage(tmp_path)
    assert stage.breaker is not None
    stage.breaker.limited(5 * HOUR_S, "used up")

    result = stage.result(request_for("implement", tmp_path, limits_count=False))

    assert stage.now() == pytest.approx(5 * HOUR_S)
    assert result.attempts == 1


@pytest.mark.parametrize(("wait_s", "raised"), [(2 * HOUR_S, True), (0.5 * HOUR_S, False)])
def test_a_deadline_of_the_program_counts_while_it_waits_for_a_limit_of_another_run(
    wait_s: float, raised: bool, tmp_path: Path
) -> None:
    stage = limited_stage(tmp_path)
    assert stage.breaker is not None
    stage.breaker.limited(wait_s, "used up")

    outcome = stage.ask(request_for("implement", tmp_path))

    if raised:
        assert isinstance(outcome, AgentRateLimitedError)
        assert outcome.until == moment(stage.clock.now_us() + int(wait_s * 1e6))
        assert (stage.starts, "used up" in outcome.message) == (0, True)
    else:
        assert isinstance(outcome, AgentResult)
        assert stage.conversation is not None
        assert stage.conversation.deadline_in_s == pytest.approx(0.5 * HOUR_S)


# Watches.


@pytest.mark.parametrize(
    ("config", "inject", "reason", "at_s"),
    [
        ({"heartbeat_s": 4}, {"do": "hang"}, "heartbeat_lost", 12),
        ({"heartbeat_s": 10, "missed_heartbeats": 2}, {"do": "hang"}, "heartbeat_lost", 20),
        ({"stall_s": 50}, {"do": "frozen_activity"}, "stalled", 50),
        ({"heartbeat_s": 0, "stall_s": 70}, {"do": "hang"}, "stalled", 70),
    ],
)
@pytest.mark.requirement("silence-is-noticed")
def test_silence_is_noticed_when_it_has_lasted_too_long(
    config: dict[str, object], inject: dict[str, object], reason: str, at_s: float, tmp_path: Path
) -> None:
    reply = {"inject": [{**inject, "times": 0, "at": "start"}], "times": 0}
    stage = Stage(tmp_path, {"responses": {"implement": reply}}, config=config)

    stage.begin(request_for("implement", tmp_path))
    while not any(isinstance(event, CallRetry) for event in stage.events):
        stage.turn()

    (retry,) = [event for event in stage.events if isinstance(event, CallRetry)]
    assert retry.code == reason
    assert at_s <= stage.now() <= at_s + 1
    assert isinstance(finish(stage), AgentStalledError)


@pytest.mark.requirement("silence-is-noticed")
def test_an_agent_that_never_says_a_word_is_given_up(tmp_path: Path) -> None:
    stage = silent(tmp_path, start_s=7, retries=1)
    talk = stage.begin(request_for("implement", tmp_path))
    assert stage.process is not None
    stage.process.pipe.clear()
    stage.process.side.writer.beat_at = float("inf")
    assert talk.next_due() == 7.0

    outcome = finish(stage)

    assert isinstance(outcome, AgentExitedError)
    assert (outcome.reason, stage.now()) == ("start_timeout", 7.0)


@pytest.mark.requirement("silence-is-noticed")
def test_a_hub_that_was_stopped_itself_gives_nobody_up(tmp_path: Path) -> None:
    stage = silent(tmp_path, heartbeat_s=5)
    talk = stage.begin(request_for("implement", tmp_path, timeout_s=50.0))
    stage.turn()

    stage.clock.advance(40)
    talk.tick()

    assert (talk.state, len(stage.commands())) == ("running", 1)
    assert talk.deadline_in_s > 30


def test_log_lines_and_progress_are_progress(tmp_path: Path) -> None:
    slow = [{"type": "progress", "delay_s": 40, "payload": {"message": f"part {n}"}} for n in range(4)]
    reply = {"events": [*slow, {**ANSWERS["implement"], "delay_s": 40}]}
    stage = Stage(tmp_path, {"responses": {"implement": reply}}, config={"stall_s": 50})

    result = stage.result(request_for("implement", tmp_path))

    assert result.attempts == 1
    assert stage.now() == pytest.approx(200.0)


# Deadlines and cancels.


@pytest.mark.requirement("deadlines-bound-everything")
def test_an_agent_that_does_not_answer_a_cancel_is_ended(tmp_path: Path) -> None:
    stage = silent(tmp_path, cancel_grace_s=10)

    outcome = stage.ask(request_for("implement", tmp_path, timeout_s=30.0))

    assert isinstance(outcome, AgentDeadlineError)
    assert stage.now() == pytest.approx(40.0)
    assert [message.reason for message in stage.sent if isinstance(message, Cancel)] == ["deadline"]
    assert stage.process is None


@pytest.mark.requirement("deadlines-bound-everything")
def test_an_agent_that_answers_a_cancel_is_kept(tmp_path: Path) -> None:
    reply = {"delay_s": 100, "events": [ANSWERS["implement"]]}
    stage = Stage(tmp_path, {"responses": {"implement": reply}})

    outcome = stage.ask(request_for("implement", tmp_path, timeout_s=30.0))

    assert isinstance(outcome, AgentDeadlineError)
    assert stage.now() == pytest.approx(30.0)
    assert stage.process is not None


@pytest.mark.requirement("deadlines-bound-everything")
def test_the_deadline_also_bounds_the_waits_between_attempts(tmp_path: Path) -> None:
    error = {"error": {"code": "overloaded", "retry_after_s": 500}}
    stage = Stage(tmp_path, {"responses": {"implement": error}})

    outcome = stage.ask(request_for("implement", tmp_path, timeout_s=30.0))

    assert isinstance(outcome, AgentDeadlineError)
    assert stage.now() == pytest.approx(30.0)
    assert outcome.attempts == ("1 overloaded",)


@pytest.mark.parametrize(
    ("reason", "accepted"), [("deadline", True), ("user", False), ("session_failed", False)]
)
def test_an_answer_on_its_way_counts_after_the_deadline_only(
    reason: str, tmp_path: Path, *, accepted: bool
) -> None:
    stage = silent(tmp_path)
    talk = stage.begin(request_for("implement", tmp_path, timeout_s=30.0))
    if reason == "deadline":
        stage.clock.advance(30)
        talk.tick()
    else:
        talk.cancel("user" if reason == "user" else "session_failed")
    stage.perform()
    assert talk.state == "cancelling"

    stage.hear(event(stage))
    outcome = finish(stage)

    assert isinstance(outcome, AgentResult) is accepted
    if not accepted:
        assert isinstance(outcome, AgentCancelledError)
        assert outcome.reason == reason


def test_a_cancel_between_two_attempts_ends_the_call_at_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"responses": {"implement": {"error": "overloaded"}}})
    talk = stage.begin(request_for("implement", tmp_path))
    while talk.state != "waiting":
        stage.turn()

    talk.cancel("user")
    talk.cancel("deadline")
    stage.perform()

    assert isinstance(stage.outcome, AgentCancelledError)
    assert stage.outcome.reason == "user"


# Budget.


@pytest.mark.parametrize(
    ("budget", "usage"),
    [
        (Budget(usd=1.0), {"cost_usd": 1.5}),
        (Budget(tokens=100), {"input_tokens": 60, "output_tokens": 60}),
        (Budget(turns=3), {"turns": 4}),
    ],
)
@pytest.mark.requirement("budgets-end-calls")
def test_a_call_that_uses_more_than_reserved_is_cancelled(
    budget: Budget, usage: dict[str, object], tmp_path: Path
) -> None:
    events = [{"type": "progress", "usage": usage}, {**ANSWERS["implement"], "delay_s": 60}]
    stage = Stage(tmp_path, {"responses": {"implement": {"events": events}}})

    outcome = stage.ask(request_for("implement", tmp_path, budget=budget))

    assert isinstance(outcome, AgentBudgetError)
    assert [message.reason for message in stage.sent if isinstance(message, Cancel)] == ["budget"]
    assert stage.now() < 1


@pytest.mark.requirement("budgets-end-calls")
def test_wall_time_is_a_budget_too(tmp_path: Path) -> None:
    stage = silent(tmp_path)

    outcome = stage.ask(request_for("implement", tmp_path, budget=Budget(wall_s=20)))

    assert isinstance(outcome, AgentBudgetError)


@pytest.mark.requirement("budgets-end-calls")
def test_what_failed_attempts_have_used_counts_too(tmp_path: Path) -> None:
    used = {"type": "progress", "usage": {"cost_usd": 0.6}}
    first = {"events": [used], "error": "overloaded"}
    second = {"events": [used, {**ANSWERS["implement"], "delay_s": 60}]}
    stage = Stage(tmp_path, script_of("implement", first, second))

    outcome = stage.ask(request_for("implement", tmp_path, budget=Budget(usd=1.0)))

    assert isinstance(outcome, AgentBudgetError)
    assert "it used 1.2 USD, 1 were reserved" in str(outcome)


def test_what_all_attempts_used_is_added_up(tmp_path: Path) -> None:
    first = {
        "events": [{"type": "progress", "usage": {"cost_usd": 0.25, "input_tokens": 10}}],
        "error": "overloaded",
    }
    second = {"events": [{**ANSWERS["implement"], "usage": {"cost_usd": 0.5, "input_tokens": 20}}]}
    stage = Stage(tmp_path, script_of("implement", first, second))

    result = stage.result(request_for("implement", tmp_path, budget=Budget(usd=5.0)))

    assert (result.usage.cost_usd, result.usage.input_tokens) == (0.75, 30)
    assert stage.commands()[0].budget == Budget(usd=5.0)


# Bad lines.


@pytest.mark.requirement("bad-lines-are-borne")
def test_too_many_bad_lines_restart_the_agent(tmp_path: Path) -> None:
    stage = Stage(
        tmp_path,
        {"responses": {"implement": {"delay_s": 5, "events": [ANSWERS["implement"]]}}},
        protocol=ProtocolConfig(max_violations=20),
    )
    stage.begin(request_for("implement", tmp_path))
    for _ in range(21):
        stage.hear(BadLine("malformed", b"oops", 5, detail="no JSON"))

    outcome = finish(stage)

    assert isinstance(outcome, AgentResult)
    assert stage.starts == 2
    assert stage.commands()[-1].retry.code == "protocol_violation"
    assert stage.commands()[-1].retry.cause == "rejected"
    assert len([message for message in stage.sent if isinstance(message, Notice)]) == 1
    assert len(stage.warnings) == 1


@pytest.mark.requirement("bad-lines-are-borne")
def test_lines_that_may_come_from_a_newer_agent_are_not_counted(tmp_path: Path) -> None:
    stage = silent(tmp_path)
    talk = stage.begin(request_for("implement", tmp_path))

    for _ in range(100):
        stage.hear(BadLine("unknown_kind", b"{}", 3))

    assert talk.state == "running"
    assert not stage.warnings


def test_ten_thousand_log_lines_leave_the_console_readable(tmp_path: Path) -> None:
    logs = {"count": 10_000, "level": "warn", "bytes": 100}
    stage = Stage(tmp_path, {"responses": {"implement": {"logs": logs, "events": [ANSWERS["implement"]]}}})

    stage.result(request_for("implement", tmp_path))

    assert len(stage.warnings) == 20
    assert len([event for event in stage.events if isinstance(event, CallNotice)]) == 10_000


def test_a_result_names_its_command_also_if_the_agent_does_not(tmp_path: Path) -> None:
    stage = silent(tmp_path)
    stage.begin(request_for("implement", tmp_path))
    stage.hear(event(stage, in_reply_to=None))

    outcome = finish(stage)

    assert isinstance(outcome, AgentResult)
    assert outcome.event.in_reply_to is None
    assert outcome.command_id == stage.commands()[-1].message_id


def test_bad_lines_are_told_five_times_then_counted(tmp_path: Path) -> None:
    stage = silent(tmp_path)
    talk = stage.begin(request_for("implement", tmp_path))
    for _ in range(12):
        stage.hear(BadLine("not_an_object", b"null", 5, detail="null"))
        stage.clock.advance(1)
    stage.hear(event(stage))
    finish(stage)

    notices = [event.text for event in stage.events if isinstance(event, CallNotice)]
    assert len(notices) == 6
    assert notices[-1] == "7 more lines: not_an_object"
    assert stage.warnings[-1].endswith("(+9 more)")
    assert isinstance(stage.outcome, AgentResult)
    assert stage.outcome.notes == ["12 lines: not_an_object"]
    assert talk.state == "done"


def test_an_accepted_event_lifts_a_suspicion(tmp_path: Path) -> None:
    stage = silent(tmp_path)
    talk = stage.begin(request_for("implement", tmp_path))
    stage.hear(BadLine("malformed", b"{", 2, suspect=True, detail="torn"))
    due = talk.next_due()
    assert due is not None
    assert due <= 30.0

    stage.hear(event(stage, "progress"))

    due = talk.next_due()
    assert due is not None
    assert due >= 30.0


def test_an_answer_to_another_action_is_no_answer(tmp_path: Path) -> None:
    stage = silent(tmp_path, retries=1)
    stage.begin(request_for("implement", tmp_path))

    stage.hear(event(stage, "review.completed", status="approved"))
    outcome = finish(stage)

    assert isinstance(outcome, AgentProtocolError)
    assert outcome.reason == "unexpected_event"


def test_the_answer_to_a_refused_attempt_is_late(tmp_path: Path) -> None:
    stage = silent(tmp_path)
    stage.begin(request_for("implement", tmp_path))
    first = event(stage, message_id="the-first")
    stage.hear(event(stage, "error", payload={"code": "overloaded"}))
    while len(stage.commands()) < 2:
        stage.turn()

    stage.hear(first)

    assert stage.outcome is None
    assert [notice.case for notice in stage.events if isinstance(notice, CallNotice)] == ["late"]


# Answers.


@pytest.mark.parametrize(
    ("action", "answer"),
    [
        ("review", {"type": "review.completed", "status": "fine"}),
        ("review", {"type": "review.completed", "status": "changes_requested"}),
        (
            "review",
            {
                "type": "review.completed",
                "status": "changes_requested",
                "payload": {"findings": [{"message": " "}]},
            },
        ),
        ("update_spec", {"type": "spec.changes_requested", "payload": {"findings": []}}),
        ("intake", {"type": "orchestration.proposed_tasks", "payload": {"plan_candidates": []}}),
        (
            "intake",
            {
                "type": "orchestration.proposed_tasks",
                "payload": {"plan_candidates": [{"path": "a", "confidence": 2}]},
            },
        ),
        ("intake", {"type": "orchestration.needs_clarification", "payload": {"questions": [" "]}}),
        ("task_discovery", {"type": "orchestration.plan_conflict", "payload": {"conflicts": []}}),
        ("prompt", {"type": "prompt.completed", "payload": {}}),
    ],
)
def test_an_answer_that_says_too_little_is_refused_and_asked_for_again(
    action: str, answer: dict[str, object], tmp_path: Path
) -> None:
    stage = Stage(tmp_path, script_of(action, {"events": [answer]}, {"events": [ANSWERS[action]]}))

    result = stage.result(request_for(action, tmp_path))

    assert result.attempts == 2
    assert (stage.commands()[1].retry.cause, stage.commands()[1].retry.code) == ("rejected", "invalid_reply")

    always = Stage(tmp_path, {"dedupe": False, "responses": {action: {"events": [answer]}}}, remembers=False)
    assert isinstance(always.ask(request_for(action, tmp_path)), AgentReplyError)


def test_changes_requested_with_an_artifact_alone_is_an_answer(tmp_path: Path) -> None:
    (tmp_path / "review.md").write_text("see here")
    answer = {
        "type": "review.completed",
        "status": "changes_requested",
        "artifacts": [{"path": "review.md"}],
    }
    stage = Stage(tmp_path, {"responses": {"review": {"events": [answer]}}})

    assert stage.result(request_for("review", tmp_path)).artifacts[0].path == "review.md"


@pytest.mark.parametrize(
    ("pinning", "observed", "good"),
    [
        ("strict", "echo", True),
        ("strict", "omit", True),
        ("strict", {"snapshot_id": "snap-other"}, False),
        ("require", "omit", False),
        ("require", "echo", True),
        ("warn", {"snapshot_id": "snap-other"}, True),
    ],
)
def test_an_answer_must_have_seen_the_files_it_was_asked_about(
    pinning: str, observed: object, tmp_path: Path, *, good: bool
) -> None:
    answer = {**ANSWERS["implement"], "observed_version": observed}
    stage = Stage(tmp_path, {"dedupe": False, "responses": {"implement": {"events": [answer]}}})

    outcome = stage.ask(request_for("implement", tmp_path, version=Version("snap-1"), pinning=pinning))

    assert isinstance(outcome, AgentResult if good else VersionMismatchError)


def test_a_file_that_is_not_as_said_is_asked_for_again(tmp_path: Path) -> None:
    wrong = {**ANSWERS["implement"], "artifacts": [{"path": "a.txt", "size": 99}]}
    right = {**ANSWERS["implement"], "artifacts": [{"path": "a.txt"}]}
    write = [{"path": "a.txt", "content": "x"}]
    stage = Stage(tmp_path, script_of("implement", {"write": write, "events": [wrong]}, {"events": [right]}))

    result = stage.result(request_for("implement", tmp_path))

    assert stage.commands()[1].retry.code == "artifact_mismatch"
    assert "reported 99 bytes, found 1" in (stage.commands()[1].retry.message or "")
    assert [artifact.path for artifact in result.artifacts] == ["a.txt"]


def with_files(stage: Stage, name: str, *artifacts: object) -> Line | BadLine:
    """An event that names files, as a reader takes it."""
    made = event(stage, name)
    members: dict[str, object] = msgspec.json.decode(made.raw)
    return read_line(msgspec.json.encode({**members, "artifacts": artifacts}))


@pytest.mark.requirement("artifacts-are-verified")
@pytest.mark.parametrize(
    ("artifact", "told"),
    [
        ({"path": "a.txt", "size": 1}, "artifacts[0] (a.txt): sha256 is missing"),
        ({"path": "a.txt", "size": 1, "sha256": "ab"}, 'artifacts[0] (a.txt): sha256 is "ab", and has to be'),
        ({"path": "a.txt", "size": -1, "sha256": f"sha256:{0:064}"}, "size is -1, and has to be"),
        ({"path": "a.txt"}, "sha256 is missing (sha256: and 64 hex digits in lower case"),
        ({"sha256": f"sha256:{0:064}", "size": 1}, "artifacts[0]: path is missing"),
        ("a.txt", 'artifacts[0] is an object with path, sha256 and size, not "a.txt"'),
    ],
)
def test_an_answer_whose_files_have_no_sums_is_refused_at_once(
    artifact: object, told: str, tmp_path: Path
) -> None:
    stage = silent(tmp_path, retries=2)
    talk = stage.begin(request_for("implement", tmp_path))

    stage.hear(with_files(stage, "builder.completed", artifact))

    assert talk.state == "waiting", "for the next attempt, and not for a better line"
    assert told in stage.warnings[0]
    finish(stage)
    assert [command.retry.cause for command in stage.commands()] == ["first", "rejected"]
    assert stage.commands()[1].retry.code == "artifact_mismatch"
    assert told in (stage.commands()[1].retry.message or "")


@pytest.mark.requirement("artifacts-are-verified")
def test_thousands_of_wrong_files_are_one_readable_error(tmp_path: Path) -> None:
    stage = silent(tmp_path, retries=2)
    stage.begin(request_for("implement", tmp_path))

    stage.hear(with_files(stage, "builder.completed", *({"path": f"{n:04}.txt"} for n in range(2000))))

    assert "2000 artifacts are wrong: artifacts[0] (0000.txt): sha256 is missing" in stage.warnings[0]
    assert "artifacts[2] (0002.txt)" in stage.warnings[0]
    assert "artifacts[3]" not in stage.warnings[0]
    assert len(stage.warnings[0]) < 1024


def test_an_agent_that_never_gives_sums_is_blamed_for_that(tmp_path: Path) -> None:
    stage = silent(tmp_path, retries=1)
    stage.begin(request_for("implement", tmp_path))

    stage.hear(with_files(stage, "builder.completed", {"path": "a.txt"}, "b.txt"))

    assert isinstance(stage.outcome, ArtifactMismatchError)
    assert stage.outcome.reason == "artifact_mismatch"
    assert "artifacts[0] (a.txt): sha256 is missing" in str(stage.outcome)
    assert "artifacts[1] is an object" in str(stage.outcome)


def test_files_without_sums_that_end_nothing_are_only_told_of(tmp_path: Path) -> None:
    stage = silent(tmp_path)
    talk = stage.begin(request_for("implement", tmp_path))

    stage.hear(with_files(stage, "artifact.produced", {"path": "a.txt"}))

    assert talk.state == "running"
    notice = stage.sent[-1]
    assert isinstance(notice, Notice)
    assert (notice.code, notice.message[:24]) == ("schema", "artifacts[0] (a.txt): sh")
    due = talk.next_due()
    assert due is not None
    assert due > 30.0, "nobody waits for a better line"
    stage.hear(event(stage, "builder.completed"))
    assert isinstance(stage.outcome, AgentResult)


def test_an_error_that_names_files_without_sums_is_an_error(tmp_path: Path) -> None:
    stage = silent(tmp_path, retries=1)
    stage.begin(request_for("implement", tmp_path))
    made = event(stage, "error", payload={"code": "refused", "message": "no"})
    members: dict[str, object] = msgspec.json.decode(made.raw)

    stage.hear(read_line(msgspec.json.encode({**members, "artifacts": [{}]})))

    assert isinstance(stage.outcome, AgentRequestError)


@pytest.mark.parametrize("change", [{"task_id": "T-2"}, {"correlation_id": "corr-other"}])
def test_files_without_sums_of_another_command_refuse_nothing(
    change: dict[str, object], tmp_path: Path
) -> None:
    stage = silent(tmp_path)
    talk = stage.begin(request_for("implement", tmp_path))
    members: dict[str, object] = msgspec.json.decode(event(stage, "builder.completed").raw)

    stage.hear(read_line(msgspec.json.encode({**members, **change, "artifacts": [{}]})))

    assert talk.state == "running"
    due = talk.next_due()
    assert due is not None
    assert due <= 30.0, "it may have been the answer"


def test_the_last_word_about_a_file_counts(tmp_path: Path) -> None:
    early = {"type": "artifact.produced", "artifacts": [{"path": "a.txt", "size": 99}]}
    stage = Stage(
        tmp_path,
        {
            "responses": {
                "implement": {
                    "write": [{"path": "a.txt", "content": "x"}, {"path": "b.txt", "content": "y"}],
                    "events": [
                        early,
                        {"type": "artifact.produced", "artifacts": [{"path": "b.txt"}]},
                        {**ANSWERS["implement"], "artifacts": [{"path": "a.txt"}]},
                    ],
                }
            }
        },
    )

    result = stage.result(request_for("implement", tmp_path))

    assert sorted(artifact.path for artifact in result.artifacts) == ["a.txt", "b.txt"]


@pytest.mark.parametrize(
    ("path", "kind", "attempts"), [("../x", PathEscapeError, 1), ("gone", ArtifactMismatchError, 3)]
)
def test_a_path_that_leads_out_is_not_asked_for_again(
    path: str, kind: type[AgentError], attempts: int, tmp_path: Path
) -> None:
    answer = {**ANSWERS["implement"], "artifacts": [{"path": path, "size": 0}]}
    stage = Stage(tmp_path, {"dedupe": False, "responses": {"implement": {"events": [answer]}}})

    outcome = stage.ask(request_for("implement", tmp_path))

    assert type(outcome) is kind
    assert len(stage.commands()) == attempts


def test_an_expected_file_must_be_there(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"dedupe": False, "responses": {"implement": {"events": [ANSWERS["implement"]]}}})
    wanted = [ExpectedOutput("SPEC.md", required=True)]

    outcome = stage.ask(request_for("implement", tmp_path, expected_outputs=wanted))

    assert isinstance(outcome, ArtifactMismatchError)
    assert outcome.reason == "artifact_missing"


# Processes.


@pytest.mark.requirement("restarts-are-bounded")
def test_a_process_is_not_started_again_and_again(tmp_path: Path) -> None:
    crash = {"inject": [{"do": "crash", "at": "start", "times": 0}]}
    stage = Stage(tmp_path, {"responses": {"implement": crash}}, config={"retries": 9, "max_restarts": 2})

    outcome = stage.ask(request_for("implement", tmp_path))

    assert isinstance(outcome, AgentExitedError)
    assert stage.starts == 3
    assert "started again too often" in outcome.message
    assert outcome.stderr_tail == ("last words",)


@pytest.mark.parametrize("status", [126, 127])
def test_a_program_that_is_no_program_is_not_tried_again(status: int, tmp_path: Path) -> None:
    stage = silent(tmp_path)
    talk = stage.begin(request_for("implement", tmp_path))
    stage.process = None

    talk.exited(status)
    stage.perform()

    assert isinstance(stage.outcome, AgentStartError)


def test_a_program_that_speaks_another_version_is_not_tried_again(tmp_path: Path) -> None:
    stage = silent(tmp_path)
    stage.begin(request_for("implement", tmp_path))

    stage.hear(read_line(write_line(Hello(protocol=[2, 3], name="new", version="9"))))
    outcome = finish(stage)

    assert isinstance(outcome, AgentStartError)
    assert "2, 3" in outcome.message
    assert stage.process is None


def test_without_keep_a_process_is_gone_before_the_call_is_over(tmp_path: Path) -> None:
    stage = Stage(
        tmp_path, {"responses": {"implement": {"events": [ANSWERS["implement"]]}}}, config={"keep": False}
    )

    stage.result(request_for("implement", tmp_path))

    assert stage.process is None


def test_with_keep_a_process_serves_the_next_command(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"responses": {"implement": {"events": [ANSWERS["implement"]]}}})
    stage.result(request_for("implement", tmp_path))

    stage.result(request_for("implement", tmp_path, key="ik:" + "2" * 64, step=2))

    assert stage.starts == 1
    assert len({command.correlation_id for command in stage.commands()}) == 2


def test_a_command_that_is_too_long_is_not_sent(tmp_path: Path) -> None:
    stage = silent(tmp_path)

    outcome = stage.ask(request_for("implement", tmp_path, inputs={"goal": "x" * 300_000}))

    assert isinstance(outcome, LineTooLongError)
    assert not stage.sent


# After the death of a hub.


@pytest.mark.requirement("answers-are-found-or-asked-for-again")
def test_another_hub_sends_the_same_command_again_and_the_agent_answers_from_its_memory(
    tmp_path: Path,
) -> None:
    script: dict[str, object] = {
        "responses": {
            "implement": {
                "write": [{"path": "n.txt", "content": "x", "append": True}],
                "events": [ANSWERS["implement"]],
            }
        }
    }
    first = Stage(tmp_path, script)
    first.result(request_for("implement", tmp_path))
    second = Stage(tmp_path, script)

    result = second.result(request_for("implement", tmp_path, attempt=2))

    (command,) = second.commands()
    assert (command.retry.attempt, command.retry.cause) == (2, "resend")
    assert command.idempotency_key == first.commands()[0].idempotency_key
    assert command.correlation_id == first.commands()[0].correlation_id
    assert command.inputs == first.commands()[0].inputs
    assert result.event.replayed is True
    assert (tmp_path / "n.txt").read_text() == "x"


@pytest.mark.requirement("answers-are-found-or-asked-for-again")
def test_attempts_of_dead_hubs_do_not_use_up_the_others(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"responses": {"implement": {"error": "overloaded"}}})

    stage.ask(request_for("implement", tmp_path, attempt=5))

    assert [command.retry.attempt for command in stage.commands()] == [5, 6, 7]
    assert {command.retry.max_attempts for command in stage.commands()} == {7}


@pytest.mark.requirement("answers-are-found-or-asked-for-again")
def test_an_answer_that_was_found_is_taken_without_starting_anything(tmp_path: Path) -> None:
    first = Stage(tmp_path, {"responses": {"implement": {"events": [ANSWERS["implement"]]}}})
    first.result(request_for("implement", tmp_path))
    found = read_line(first.heard[-1])
    assert isinstance(found, Line)
    second = Stage(tmp_path, {"responses": {}})

    outcome = second.ask(request_for("implement", tmp_path, attempt=2), found)

    assert isinstance(outcome, AgentResult)
    assert outcome.harvested is True
    assert second.starts == 0


@pytest.mark.requirement("answers-are-found-or-asked-for-again")
def test_an_answer_that_was_found_but_is_not_true_is_asked_for_again(tmp_path: Path) -> None:
    write = [{"path": "a.txt", "content": "x"}]
    answer = {**ANSWERS["implement"], "artifacts": [{"path": "a.txt"}]}
    script: dict[str, object] = {"responses": {"implement": {"write": write, "events": [answer]}}}
    first = Stage(tmp_path, script)
    first.result(request_for("implement", tmp_path))
    (tmp_path / "a.txt").unlink()
    found = read_line(first.heard[-1])
    assert isinstance(found, Line)
    second = Stage(tmp_path, script)

    outcome = second.ask(request_for("implement", tmp_path, attempt=2), found)

    assert isinstance(outcome, AgentResult)
    assert outcome.harvested is False
    assert second.commands()[0].retry.cause == "rejected"


# Tools.


def call(stage: Stage, call_id: str = "c1", name: str = "do_1") -> Line:
    made = ToolCall(
        message_id=f"t{len(stage.sent)}",
        correlation_id=stage.commands()[-1].correlation_id,
        call_id=call_id,
        name=name,
        arguments={"n": 1},
        timestamp=moment(stage.clock.now_us()),
    )
    read = read_line(write_line(made))
    assert isinstance(read, Line)
    return read


def with_tools(tmp_path: Path, **config: object) -> Stage:
    stage = silent(tmp_path, **config)
    stage.begin(
        request_for(
            "implement", tmp_path, timeout_s=60.0, tools=[ToolSpec("do_1", "does it", {"type": "object"})]
        )
    )
    return stage


def results(stage: Stage) -> list[ToolResult]:
    return [message for message in stage.sent if isinstance(message, ToolResult)]


def test_a_tool_is_called_once_and_the_same_call_gets_the_same_bytes(tmp_path: Path) -> None:
    stage = with_tools(tmp_path)
    called: list[str] = []

    def run(out: object) -> ToolOutcome:
        called.append(str(out))
        return ToolOutcome({"value": 3})

    stage.tools = run
    stage.hear(call(stage))
    stage.hear(call(stage))

    assert len(called) == 1
    assert stage.lines[-1] == stage.lines[-2]
    assert [(result.ok, result.result) for result in results(stage)] == [(True, {"value": 3})] * 2


@pytest.mark.parametrize(
    ("name", "outcome", "code"),
    [
        ("do_9", ToolOutcome(), "unknown_tool"),
        ("do_1", ToolOutcome(code="invalid_arguments", message="n is missing"), "invalid_arguments"),
        ("do_1", ToolOutcome("x" * 300_000), "result_too_large"),
    ],
)
def test_a_tool_that_fails_does_not_fail_the_command(
    name: str, outcome: ToolOutcome, code: str, tmp_path: Path
) -> None:
    stage = with_tools(tmp_path)
    stage.tools = lambda _: outcome

    stage.hear(call(stage, name=name))

    (result,) = results(stage)
    assert result.ok is False
    assert result.error is not None
    assert result.error.code == code
    assert stage.outcome is None


def test_no_clock_runs_while_a_tool_does(tmp_path: Path) -> None:
    stage = with_tools(tmp_path, stall_s=20, heartbeat_s=5)
    stage.tools = lambda _: None
    stage.hear(call(stage))
    talk = stage.conversation
    assert talk is not None
    assert talk.next_due() is None

    stage.clock.advance(1000)
    talk.tick()
    talk.tool_ended("c1", ToolOutcome("at last"))
    stage.perform()

    assert talk.state == "running"
    assert talk.deadline_in_s == pytest.approx(60.0)
    assert len(results(stage)) == 1


def test_a_tool_call_of_another_command_is_dropped(tmp_path: Path) -> None:
    stage = with_tools(tmp_path)
    made = call(stage).message
    assert isinstance(made, ToolCall)
    foreign = read_line(write_line(msgspec.structs.replace(made, correlation_id="other")))

    stage.hear(foreign)

    assert not results(stage)
    assert [notice.case for notice in stage.events if isinstance(notice, CallNotice)] == ["wrong_correlation"]


# What is told.


def test_happenings_are_numbered_and_end_with_the_end(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"responses": {"implement": {"events": [ANSWERS["implement"]]}}})

    stage.result(request_for("implement", tmp_path))

    assert [happening.n for happening in stage.events] == list(range(1, len(stage.events) + 1))
    last = stage.events[-1]
    assert isinstance(last, CallFinished)
    assert last.reason == "completed"


def test_the_deadline_is_told_as_a_moment_and_moves_with_no_attempt(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"responses": {"implement": {"error": "overloaded"}}})

    stage.ask(request_for("implement", tmp_path, timeout_s=100.0))

    deadlines = {command.deadline[:19] for command in stage.commands()}
    assert deadlines == {moment(1_767_225_600_000_000 + 100_000_000)[:19]}


def test_a_new_process_has_said_nothing() -> None:
    assert (Link().has_written, Link().beats) == (False, False)


def test_a_command_has_everything_an_agent_needs(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"responses": {"implement": {"events": [ANSWERS["implement"]]}}})
    stage.result(request_for("implement", tmp_path))

    (command,) = stage.commands()

    assert isinstance(command, Command)
    assert (command.to.agent_id, command.to.agent_type, command.protocol) == ("stub", "builder", 1)
    assert (command.retry.attempt, command.retry.max_attempts, command.priority) == (1, 3, 5)
