"""How a turn of such an agent ends: stop reasons and errors, as tables.

The codes are those of ``protocol/codes.py``, which decides whether the agent is asked again.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from bartack.agents.acp._messages import AUTH_REQUIRED
from bartack.agents.conversation._dialect import AgentFailure
from bartack.agents.program._json_lines import text_of
from bartack.agents.program._json_rpc import NO_SUCH_METHOD, WRONG_PARAMS, RpcFailure

NOT_A_REQUEST: Final = -32600
DETAIL: Final = 2048
"""Characters of an agent's own message."""


class Stop(NamedTuple):
    """What a stop reason means: a code of the agent or of ours; empty if the turn was a success."""

    code: str
    problem: str
    is_own: bool = False
    """The code is one of ``OWN_CODES``."""


STOPS: Final[dict[str, Stop]] = {
    "end_turn": Stop("", ""),
    "max_tokens": Stop("budget_exceeded", "it reached its limit of tokens", is_own=True),
    "max_turn_requests": Stop(
        "budget_exceeded", "it reached its limit of model requests in one turn", is_own=True
    ),
    "refusal": Stop("refused", "it refused to do this"),
    "cancelled": Stop("cancelled", "it says that the turn was cancelled"),
}
"""The stop reasons of the protocol."""

KINDS: Final[dict[str, str]] = {
    "authentication_failed": "auth_failed",
    "auth_required": "auth_failed",
    "oauth_org_not_allowed": "auth_failed",
    "billing_error": "quota_exhausted",
    "budget_exhausted": "quota_exhausted",
    "rate_limit": "rate_limited",
    "overloaded": "overloaded",
    "server_error": "temporary_failure",
    "invalid_request": "invalid_inputs",
    "model_not_found": "not_found",
    "context_exhausted": "context_too_long",
    "max_output_tokens": "context_too_long",
}
"""The member ``errorKind`` that some agents add to an error."""

STATUSES: Final[dict[int, str]] = {
    400: "invalid_inputs",
    401: "auth_failed",
    402: "quota_exhausted",
    403: "auth_failed",
    404: "not_found",
    413: "context_too_long",
    422: "invalid_inputs",
    429: "rate_limited",
}
"""The status of a model server, where the text of an error has one."""

CODES: Final[dict[int, str]] = {
    AUTH_REQUIRED: "auth_failed",
    NOT_A_REQUEST: "invalid_inputs",
    NO_SUCH_METHOD: "invalid_inputs",
    WRONG_PARAMS: "invalid_inputs",
}
"""The codes of JSON-RPC that say more than that something failed."""

TOO_LARGE: Final = "Request too large"
"""What an invalid request is, where its error says so."""

_STATUS: Final = re.compile(r"API Error:\D{0,40}\b([45][0-9]{2})\b")


def failure_of(failure: RpcFailure) -> AgentFailure:
    """The error of a prompt, as what an agent reports."""
    text = failure.message[:DETAIL] or f"error {failure.code}"
    return AgentFailure(_code_of(failure), text)


def _code_of(failure: RpcFailure) -> str:
    code = CODES.get(failure.code) or KINDS.get(text_of(failure.data, "errorKind"))
    if code == "invalid_inputs" and TOO_LARGE in failure.message:
        return "context_too_long"
    if code:
        return code
    status = _STATUS.search(failure.message)
    return STATUSES.get(int(status[1]), "temporary_failure") if status else "temporary_failure"
