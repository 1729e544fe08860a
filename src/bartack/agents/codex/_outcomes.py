"""How a turn of Codex can end badly: its structured errors, as codes of ours. ``protocol/codes.py`` says what follows."""

from __future__ import annotations

from typing import Final

from bartack.agents.conversation._dialect import AgentFailure
from bartack.agents.program._json_lines import Json, count_of, member, object_of, text_of

TEXT: Final = 2048
"""Characters of what Codex says about a failure."""

BY_KIND: Final = {
    "unauthorized": "auth_failed",
    "usageLimitExceeded": "quota_exhausted",
    "rateLimitExceeded": "rate_limited",
    "contextWindowExceeded": "context_too_long",
    "cyberPolicy": "refused",
    "misalignmentPolicyViolation": "refused",
    "badRequest": "bad_request",
    "sessionBudgetExceeded": "budget_exceeded",
    "sandboxError": "misconfigured",
}
"""Kinds of errors that mean the same whatever their text is. All others are temporary."""

BY_STATUS: Final = {
    400: "bad_request",
    401: "auth_failed",
    402: "quota_exhausted",
    403: "auth_failed",
    404: "not_found",
    413: "context_too_long",
    422: "bad_request",
    429: "rate_limited",
}
"""Statuses of HTTP that mean the same whatever failed with them."""

TOO_LONG: Final = ("context_length_exceeded", "max_output_tokens")
"""Words of errors of another kind: the prompt, or the reply, is longer than the model can take or give."""

HOPELESS: Final = frozenset(
    {"auth_failed", "bad_request", "not_found", "context_too_long", "quota_exhausted"}
)
"""Failures that Codex repeats although the same request fails again."""

TEMPORARY: Final = "temporary_failure"


def classify(error: Json, until: str = "") -> AgentFailure:
    """What the error of a turn means. ``until`` is when an exhausted quota is renewed, if that is known."""
    text = text_of(error, "message") or text_of(error, "additionalDetails") or "the turn failed"
    code = _code(error, text)
    return AgentFailure(code, text[:TEXT], until=until if code == "quota_exhausted" else "")


def classify_repeat(error: Json) -> AgentFailure:
    """What an error means that Codex is about to repeat its request after."""
    details = text_of(error, "additionalDetails") or text_of(error, "message")
    return AgentFailure(_code(error, details), (details or "a request failed")[:TEXT])


def _code(error: Json, text: str) -> str:
    status = _status(error)
    if status in BY_STATUS:
        return BY_STATUS[status]
    kind = _kind(error)
    if kind in BY_KIND:
        return BY_KIND[kind]
    if any(words in text for words in TOO_LONG):
        return "context_too_long"
    # The API refused the request, and Codex passes its answer on as it is.
    return "bad_request" if kind == "other" and text.lstrip().startswith("{") else TEMPORARY


def _kind(error: Json) -> str:
    info = member(error, "codexErrorInfo")
    return info if isinstance(info, str) else next(iter(object_of(error, "codexErrorInfo")), "")


def _status(error: Json) -> int:
    info = object_of(error, "codexErrorInfo")
    return next((count_of(info, kind, "httpStatusCode") for kind in info), 0)
