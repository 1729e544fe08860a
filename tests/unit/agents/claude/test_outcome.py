from __future__ import annotations

import pytest
from tests.unit.agents.claude.driver import result

from bartack.agents.claude._outcome import TurnFacts, judge, judge_exit
from bartack.agents.program._json_lines import Json
from bartack.agents.protocol.codes import AGENT_CODES, OWN_CODES
from bartack.errors import AgentAuthError, AgentRequestError, AgentTransientError

API = {"is_error": True, "terminal_reason": "api_error"}

ROWS: list[tuple[Json, str]] = [
    ({}, ""),
    ({"is_error": True, "subtype": "error_max_budget_usd"}, "budget_exceeded"),
    ({"is_error": True, "subtype": "error_max_turns"}, "budget_exceeded"),
    ({"is_error": True, "subtype": "error_max_structured_output_retries"}, "schema_unmet"),
    ({**API, "api_error_status": 401}, "auth_failed"),
    ({**API, "api_error_status": 403}, "auth_failed"),
    ({**API, "api_error_status": None, "result": "Not logged in · Please run /login"}, "auth_failed"),
    ({**API, "api_error_status": 429}, "rate_limited"),
    ({**API, "api_error_status": 402}, "quota_exhausted"),
    ({**API, "api_error_status": 400, "result": "Your credit balance is too low"}, "quota_exhausted"),
    ({**API, "api_error_status": 400, "result": "You have reached your usage limit"}, "quota_exhausted"),
    ({**API, "api_error_status": 404}, "not_found"),
    ({**API, "api_error_status": 413}, "context_too_long"),
    ({**API, "api_error_status": 400, "result": "invalid"}, "bad_request"),
    ({**API, "api_error_status": 422}, "bad_request"),
    ({**API, "api_error_status": None, "stop_reason": "refusal"}, "refused"),
    ({**API, "result": "exceeded the 32000 output token maximum"}, "context_too_long"),
    ({**API, "api_error_status": 408}, "temporary_failure"),
    ({**API, "api_error_status": 409}, "temporary_failure"),
    ({**API, "api_error_status": 500}, "temporary_failure"),
    ({**API, "api_error_status": 529}, "temporary_failure"),
    ({**API, "api_error_status": None}, "temporary_failure"),
    ({"is_error": True, "subtype": "error_during_execution"}, "interrupted"),
    (
        {
            "is_error": True,
            "subtype": "error_during_execution",
            "errors": ["No conversation found with session ID: 1"],
        },
        "conversation_lost",
    ),
    ({"is_error": True, "subtype": "error_of_tomorrow", "errors": ["bad settings"]}, "misconfigured"),
    ({"is_error": None}, "misconfigured"),
]


@pytest.mark.parametrize(("members", "code"), ROWS)
def test_each_end_of_a_turn_has_its_code(members: Json, code: str) -> None:
    assert judge(result(**members)).code == code


def test_what_was_seen_before_the_result_decides_where_the_result_says_nothing() -> None:
    silent = result(**{**API, "api_error_status": None})

    assert judge(silent, TurnFacts(rate_limited=True)).code == "rate_limited"
    assert judge(silent, TurnFacts(refused=True)).code == "refused"


def test_only_a_rate_limit_has_an_end() -> None:
    facts = TurnFacts(until="2026-01-01T00:00:00Z")

    limited = judge(result(**API, api_error_status=429), facts)
    broken = judge(result(**API, api_error_status=500), facts)

    assert (limited.until, broken.until) == ("2026-01-01T00:00:00Z", "")


def test_the_reason_is_the_first_error_or_the_text() -> None:
    assert judge(result(is_error=True, subtype="x", errors=["one", "two"])).message == "one"
    assert judge(result(is_error=True, subtype="x", result="in words")).message == "in words"
    assert judge(result(is_error=True, subtype="x", result="")).message == "it ended with x"


def test_the_codes_lead_to_the_errors_that_are_promised() -> None:
    assert AGENT_CODES["auth_failed"].error is AgentAuthError
    assert AGENT_CODES["temporary_failure"].error is AgentTransientError
    causes = {code: AGENT_CODES[code].request_cause for code in ("not_found", "bad_request", "refused")}
    assert causes == {"not_found": "not_found", "bad_request": "bad_request", "refused": "refused"}
    assert AGENT_CODES["context_too_long"][:2] == (AgentRequestError, "no")
    assert OWN_CODES["misconfigured"].again == "no"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("Error: Session ID 1 is already in use.", "session_taken"),
        ("No conversation found with session ID: 1", "conversation_lost"),
        ("Error: --json-schema is not a valid JSON Schema: x", "bad_request"),
        ("error: unknown option '--forward-subagent-text'", "start_failed"),
    ],
)
def test_stderr_explains_an_end_without_a_result(line: str, code: str) -> None:
    judged = judge_exit(("something else", line))

    assert judged is not None
    assert judged.code == code
    assert judge_exit(("Killed",)) is None
