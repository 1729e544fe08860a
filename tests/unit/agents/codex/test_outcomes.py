"""Every kind of error that Codex reports, and the error of ours that it becomes."""

from __future__ import annotations

import pytest

from bartack.agents.codex._outcomes import HOPELESS, classify, classify_repeat
from bartack.agents.protocol.codes import AGENT_CODES, OWN_CODES
from bartack.errors import (
    AgentAuthError,
    AgentBudgetError,
    AgentConfigError,
    AgentError,
    AgentRateLimitedError,
    AgentRequestError,
    AgentTransientError,
    QuotaExhaustedError,
)


def http(kind: str, status: int | None) -> dict[str, object]:
    return {kind: {"httpStatusCode": status}}


ROWS: list[tuple[object, str, type[AgentError], str]] = [
    ("unauthorized", "no", AgentAuthError, ""),
    (http("httpConnectionFailed", 401), "no", AgentAuthError, ""),
    (http("responseStreamConnectionFailed", 403), "no", AgentAuthError, ""),
    ("usageLimitExceeded", "no", QuotaExhaustedError, ""),
    (http("httpConnectionFailed", 402), "no", QuotaExhaustedError, ""),
    ("rateLimitExceeded", "no", AgentRateLimitedError, ""),
    (http("responseTooManyFailedAttempts", 429), "no", AgentRateLimitedError, ""),
    ("contextWindowExceeded", "no", AgentRequestError, "too_large"),
    ("other", "it says context_length_exceeded", AgentRequestError, "too_large"),
    ("other", "Incomplete response returned, reason: max_output_tokens", AgentRequestError, "too_large"),
    (http("httpConnectionFailed", 413), "no", AgentRequestError, "too_large"),
    ("cyberPolicy", "no", AgentRequestError, "refused"),
    ("misalignmentPolicyViolation", "no", AgentRequestError, "refused"),
    ("badRequest", "no", AgentRequestError, "bad_request"),
    ("other", '{"type":"error","error":{"message":"bad"}}', AgentRequestError, "bad_request"),
    (http("httpConnectionFailed", 422), "no", AgentRequestError, "bad_request"),
    (http("httpConnectionFailed", 404), "no", AgentRequestError, "not_found"),
    ("sessionBudgetExceeded", "no", AgentBudgetError, ""),
    ("sandboxError", "no", AgentConfigError, ""),
    ("internalServerError", "no", AgentTransientError, ""),
    ("serverOverloaded", "no", AgentTransientError, ""),
    ("other", "stream disconnected before completion", AgentTransientError, ""),
    (http("responseStreamDisconnected", None), "no", AgentTransientError, ""),
    ("somethingNew", "no", AgentTransientError, ""),
    ({"somethingNew": 3}, "no", AgentTransientError, ""),
    (None, "no", AgentTransientError, ""),
]


@pytest.mark.requirement("codex-errors")
@pytest.mark.parametrize(("info", "text", "wanted", "cause"), ROWS)
def test_an_error_of_a_turn_is_one_of_ours(
    info: object, text: str, wanted: type[AgentError], cause: str
) -> None:
    failure = classify({"message": text, "codexErrorInfo": info})

    code = {**OWN_CODES, **AGENT_CODES}[failure.code]
    assert code.error is wanted
    assert code.request_cause == cause
    assert failure.message == text


def test_only_an_exhausted_quota_waits_for_its_renewal() -> None:
    until = "2026-03-01T10:15:00Z"

    assert classify({"codexErrorInfo": "usageLimitExceeded"}, until).until == until
    assert classify({"codexErrorInfo": "serverOverloaded"}, until).until == ""


def test_an_error_without_a_text_has_one() -> None:
    assert classify({}).message == "the turn failed"


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413])
def test_a_request_that_cannot_succeed_is_not_worth_a_repetition(status: int) -> None:
    error: dict[str, object] = {
        "message": "Reconnecting... 1/5",
        "additionalDetails": f"unexpected status {status}",
        "codexErrorInfo": http("responseStreamDisconnected", status),
    }

    failure = classify_repeat(error)

    assert failure.code in HOPELESS
    assert failure.message == f"unexpected status {status}"
    assert classify_repeat({"codexErrorInfo": http("responseStreamDisconnected", None)}).code not in HOPELESS
