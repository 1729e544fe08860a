"""How an attempt can end badly: each code, whether another attempt makes sense, and the error it becomes.

The codes of agents come in ``error`` events; the others are ours. This table alone decides what is tried again:
``payload.retryable: false`` of an agent always wins over a yes, and ``true`` never over a no.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from bartack.errors import (
    AgentAuthError,
    AgentBudgetError,
    AgentCancelledError,
    AgentConfigError,
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
    PathEscapeError,
    QuotaExhaustedError,
    VersionMismatchError,
)

Again = Literal["yes", "once", "no"]
CauseOfRetry = Literal["resend", "failed", "rejected"]


class Code(NamedTuple):
    """What a code means.

    Attributes:
        error: The error of a call that ends with this code.
        again: Whether another attempt is made.
        cause: The cause of the next attempt, as its command has it.
        restart: Whether its process is stopped first.
        request_cause: What is wrong with the request, where that is the error.
    """

    error: type[AgentError]
    again: Again = "yes"
    cause: CauseOfRetry = "failed"
    restart: bool = False
    request_cause: str = ""


_TRANSIENT: Final = Code(AgentTransientError)
_BAD_REQUEST: Final = Code(AgentRequestError, "no", request_cause="bad_request")
_LINE: Final = Code(AgentProtocolError, cause="rejected")
_ARTIFACT: Final = Code(ArtifactMismatchError, cause="rejected")

AGENT_CODES: Final[dict[str, Code]] = {
    "temporary_failure": _TRANSIENT,
    "overloaded": _TRANSIENT,
    "llm_call_failed": _TRANSIENT,
    "command_failed": _TRANSIENT,
    "rate_limited": Code(AgentRateLimitedError),
    "quota_exhausted": Code(QuotaExhaustedError, "no"),
    "invalid_inputs": _BAD_REQUEST,
    "unsupported_action": _BAD_REQUEST,
    "file_read_failed": _BAD_REQUEST,
    "artifact_write_failed": _BAD_REQUEST,
    "bad_request": _BAD_REQUEST,
    "not_found": Code(AgentRequestError, "no", request_cause="not_found"),
    "refused": Code(AgentRequestError, "no", request_cause="refused"),
    "context_too_long": Code(AgentRequestError, "no", request_cause="too_large"),
    "sandbox_failed": Code(AgentConfigError, "no"),
    "auth_failed": Code(AgentAuthError, "no"),
    "cancelled": Code(AgentCancelledError, "no"),
    "version_mismatch": Code(VersionMismatchError),
}
"""What an agent may say in an ``error`` event."""

OTHER_AGENT_CODE: Final = Code(AgentTransientError, "once")
"""Any code that is not in the table."""

OWN_CODES: Final[dict[str, Code]] = {
    "agent_exited": Code(AgentExitedError, cause="resend", restart=True),
    "start_timeout": Code(AgentExitedError, cause="resend", restart=True),
    "conversation_lost": Code(AgentExitedError, "once", "resend", restart=True),
    "start_failed": Code(AgentStartError, "no", restart=True),
    "misconfigured": Code(AgentConfigError, "no", restart=True),
    "heartbeat_lost": Code(AgentStalledError, "once", "resend", restart=True),
    "stalled": Code(AgentStalledError, "once", "resend", restart=True),
    "deadline_exceeded": Code(AgentDeadlineError, "no"),
    "budget_exceeded": Code(AgentBudgetError, "no"),
    "line_too_long": _LINE,
    "malformed": _LINE,
    "schema": _LINE,
    "unexpected_event": _LINE,
    "wrong_correlation": _LINE,
    "wrong_sender": _LINE,
    "wrong_key": _LINE,
    "wrong_task": _LINE,
    "protocol_violation": Code(AgentProtocolError, cause="rejected", restart=True),
    "invalid_reply": Code(AgentReplyError, cause="rejected"),
    "version_mismatch": Code(VersionMismatchError, cause="rejected"),
    "artifact_missing": _ARTIFACT,
    "artifact_mismatch": _ARTIFACT,
    "artifact_too_large": _ARTIFACT,
    "path_escape": Code(PathEscapeError, "no", "rejected"),
}
"""Failures that Bartack finds itself."""


def judge_agent_code(code: str, *, retryable: bool | None) -> Code:
    """What to do about an ``error`` event."""
    found = AGENT_CODES.get(code)
    if found is None:
        found = OTHER_AGENT_CODE._replace(again="yes") if retryable else OTHER_AGENT_CODE
    if retryable is not False:
        return found
    # An agent that forbids another attempt does not report a temporary failure, whatever its code usually means.
    passing = issubclass(found.error, AgentTransientError) or found.error is AgentRateLimitedError
    return found._replace(again="no", error=AgentError if passing else found.error)


def describe_retry(attempt: int, action: str, code: str, problem: str) -> str:
    """One line about an attempt that failed, and what follows."""
    kind = OWN_CODES.get(code, _TRANSIENT)
    ended = "refused" if kind.cause == "rejected" else "failed"
    then = "asked again in a new process" if kind.restart else "asked again"
    return f"attempt {attempt} of {action} {ended}: {' '.join(problem.split())}; {then}"


def make_error(
    code: str,
    kind: Code,
    agent: str,
    problem: str,
    *,
    until: str = "",
    stderr_tail: tuple[str, ...] = (),
    attempts: tuple[str, ...] = (),
) -> AgentError:
    """The error of a call that ended with a code."""
    if issubclass(kind.error, AgentRateLimitedError):
        return kind.error(agent, problem, code, until)
    if issubclass(kind.error, AgentRequestError):
        return kind.error(agent, problem, code, kind.request_cause)
    return kind.error(agent, problem, code, stderr_tail, attempts)
