"""Every fault an agent can show, in every action: the call ends as it has to, in bounded time and with bounded output."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from tests.unit.agents.stage import ANSWERS, Stage, request_for

from bartack.agents.contract import AgentResult, CallNotice
from bartack.errors import AgentError

ACTIONS = pytest.mark.parametrize("action", ANSWERS)


class Expected(NamedTuple):
    """How a call ends in which a fault is shown once."""

    attempts: int = 1
    starts: int = 1
    cause: str = "first"


ONCE: dict[str, tuple[dict[str, object], Expected]] = {
    "crash before the work": ({"do": "crash", "at": "start"}, Expected(2, 2, "resend")),
    "crash during the work": ({"do": "crash", "at": "before"}, Expected(2, 2, "resend")),
    "crash before the answer": ({"do": "crash"}, Expected(2, 2, "resend")),
    "crash after the answer": ({"do": "crash", "at": "after_terminal"}, Expected()),
    "exit with 0": ({"do": "exit", "code": 0}, Expected(2, 2, "resend")),
    "hang": ({"do": "hang"}, Expected(2, 2, "resend")),
    "slow heartbeats": ({"do": "slow_heartbeats", "every_s": 45}, Expected(2, 2, "resend")),
    "no heartbeats": ({"do": "no_heartbeats"}, Expected()),
    "frozen activity": ({"do": "frozen_activity"}, Expected(2, 2, "resend")),
    "oversize beside": ({"do": "oversize"}, Expected()),
    "oversize instead": ({"do": "oversize", "instead": True}, Expected(2, 1, "rejected")),
    "malformed beside": ({"do": "malformed"}, Expected()),
    "malformed instead": ({"do": "malformed", "instead": True}, Expected(2, 1, "rejected")),
    "not UTF-8 instead": ({"do": "not_utf8", "instead": True}, Expected(2, 1, "rejected")),
    "null beside": ({"do": "null"}, Expected()),
    "blank beside": ({"do": "blank"}, Expected()),
    "torn, then newline": ({"do": "torn", "then": "newline"}, Expected(2, 1, "rejected")),
    "torn, then exit": ({"do": "torn", "then": "exit"}, Expected(2, 2, "resend")),
    "wrong key beside": ({"do": "wrong_key"}, Expected()),
    "wrong key instead": ({"do": "wrong_key", "instead": True}, Expected(2, 1, "rejected")),
    "wrong correlation beside": ({"do": "wrong_correlation"}, Expected()),
    "wrong correlation instead": ({"do": "wrong_correlation", "instead": True}, Expected(2, 1, "rejected")),
    "wrong sender beside": ({"do": "wrong_sender"}, Expected()),
    "wrong sender instead": ({"do": "wrong_sender", "instead": True}, Expected(2, 1, "rejected")),
    "wrong task beside": ({"do": "wrong_task"}, Expected()),
    "wrong task instead": ({"do": "wrong_task", "instead": True}, Expected(2, 1, "rejected")),
    "wrong version instead": ({"do": "wrong_version", "instead": True}, Expected(2, 1, "rejected")),
    "unknown kind": ({"do": "unknown_kind"}, Expected()),
    "unknown event": ({"do": "unknown_event"}, Expected()),
    "duplicate": ({"do": "duplicate", "count": 3}, Expected()),
    "log flood": ({"do": "log_flood", "count": 500}, Expected()),
    "stderr flood": ({"do": "stderr_flood", "bytes": 1_000_000}, Expected()),
}
HONOURS = pytest.mark.parametrize("dedupe", [True, False], ids=["honours keys", "ignores keys"])


def script_with(action: str, inject: dict[str, object], *, dedupe: bool = True) -> dict[str, object]:
    reply = {"inject": [inject], "events": [ANSWERS[action]]}
    return {"version": 1, "dedupe": dedupe, "responses": {action: reply}}


@ACTIONS
@HONOURS
@pytest.mark.parametrize("name", ONCE)
def test_a_fault_that_is_shown_once_costs_what_it_has_to(
    name: str, action: str, tmp_path: Path, *, dedupe: bool
) -> None:
    inject, expected = ONCE[name]
    stage = Stage(tmp_path, script_with(action, inject, dedupe=dedupe))

    result = stage.result(request_for(action, tmp_path))

    assert result.event.event == ANSWERS[action]["type"]
    assert (result.attempts, stage.starts) == (expected.attempts, expected.starts)
    sent = stage.commands()
    assert sent[-1].retry.cause == expected.cause
    assert len({(command.idempotency_key, command.correlation_id) for command in sent}) == 1
    assert len({command.message_id for command in sent}) == len(sent)
    assert len(stage.warnings) < 25


@ACTIONS
@pytest.mark.parametrize(
    ("inject", "reason", "within_s"),
    [
        ({"do": "crash"}, "agent_exited", 10),
        ({"do": "exit", "code": 3}, "agent_exited", 10),
        ({"do": "hang"}, "heartbeat_lost", 75),
        ({"do": "hang", "heartbeats": True}, "deadline_exceeded", 3700),
        ({"do": "frozen_activity"}, "stalled", 700),
        ({"do": "oversize", "instead": True}, "line_too_long", 110),
        ({"do": "malformed", "instead": True}, "malformed", 110),
        ({"do": "wrong_sender", "instead": True}, "wrong_sender", 110),
        ({"do": "wrong_correlation", "instead": True}, "wrong_correlation", 110),
        ({"do": "wrong_key", "instead": True}, "wrong_key", 110),
        ({"do": "wrong_task", "instead": True}, "wrong_task", 110),
        ({"do": "wrong_version", "instead": True}, "version_mismatch", 10),
    ],
)
def test_a_fault_that_is_shown_always_ends_the_call_with_its_name(
    inject: dict[str, object], reason: str, within_s: float, action: str, tmp_path: Path
) -> None:
    stage = Stage(tmp_path, script_with(action, {**inject, "times": 0}, dedupe=False))

    outcome = stage.ask(request_for(action, tmp_path))

    assert isinstance(outcome, AgentError)
    assert outcome.reason == reason
    assert stage.now() <= within_s
    assert len(stage.commands()) <= 3


@ACTIONS
def test_an_answer_that_comes_again_during_the_next_command_does_not_end_it(
    action: str, tmp_path: Path
) -> None:
    replies = [
        {"inject": [{"do": "late", "s": 0}], "events": [ANSWERS[action]]},
        {"delay_s": 5, "events": [{**ANSWERS[action], "usage": {"turns": 2}}]},
    ]
    stage = Stage(tmp_path, {"responses": {action: replies}})
    stage.result(request_for(action, tmp_path))

    second = stage.result(request_for(action, tmp_path, key="ik:" + "1" * 64, step=2))

    assert second.event.usage is not None
    noted = {event.case for event in stage.events if isinstance(event, CallNotice)}
    assert noted & {"late", "duplicate"}
    assert second.attempts == 1


def test_an_agent_that_honours_keys_does_its_work_once(tmp_path: Path) -> None:
    reply = {
        "write": [{"path": "count.txt", "content": "x", "append": True}],
        "inject": [{"do": "torn", "then": "exit"}],
        "events": [ANSWERS["implement"]],
    }
    honours = Stage(tmp_path, {"responses": {"implement": reply}})

    result = honours.result(request_for("implement", tmp_path))

    assert result.event.replayed is True
    assert (tmp_path / "count.txt").read_text() == "x"


def test_an_agent_that_ignores_keys_does_it_again_and_comes_to_the_same(tmp_path: Path) -> None:
    reply = {
        "write": [{"path": "week.txt", "content": "53"}],
        "inject": [{"do": "torn", "then": "exit"}],
        "events": [{**ANSWERS["implement"], "artifacts": [{"path": "week.txt"}]}],
    }
    results: list[AgentResult] = []
    for dedupe in (True, False):
        root = tmp_path / str(dedupe)
        root.mkdir()
        stage = Stage(root, {"dedupe": dedupe, "responses": {"implement": reply}})
        results.append(stage.result(request_for("implement", root)))

    honoured, ignored = results
    assert honoured.artifacts == ignored.artifacts != []
    assert (honoured.event.replayed, ignored.event.replayed) == (True, None)


@pytest.mark.parametrize("code", ["temporary_failure", "overloaded", "rate_limited", "made_up"])
def test_what_an_agent_says_is_final_is_no_passing_trouble(tmp_path: Path, code: str) -> None:
    error = {"code": code, "message": "no", "retryable": False}
    stage = Stage(tmp_path, {"responses": {"implement": {"error": error}}})

    outcome = stage.ask(request_for("implement", tmp_path))

    assert type(outcome) is AgentError
    assert (outcome.reason, outcome.retryable, len(stage.commands())) == (code, False, 1)
