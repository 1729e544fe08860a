"""What the end of a turn means: the table from the ``result`` line of Claude Code to a code.

The first row that fits counts. ``subtype`` alone says nothing: a failed request is a "success" with ``is_error``. The codes are
those of ``protocol/codes.py``, and a few that ``_dialect.py`` alone knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, cast

from bartack.agents.program._json_lines import Json, member, text_of

SUCCESS: Final = ""
"""The code of a turn that ended well."""
LOST: Final = "conversation_lost"
"""The conversation cannot be resumed."""
UNMET: Final = "schema_unmet"
"""The agent itself has given up to answer as the schema wants."""
INTERRUPTED: Final = "interrupted"
"""The turn was interrupted, by us or by a signal."""
WORDS: Final = 2048
"""Characters of a message."""
NO_CONVERSATION: Final = "No conversation found with session ID"


class TurnFacts(NamedTuple):
    """What was seen in a turn besides its result.

    Attributes:
        rate_limited: The last request that the agent repeated was rate limited.
        refused: The model has refused, and no other one was asked.
        until: When a rate limit ends, as RFC 3339 text; empty if that is unknown.
    """

    rate_limited: bool = False
    refused: bool = False
    until: str = ""


class Judgement(NamedTuple):
    """What a turn comes to: a code, the reason in words, and the end of a rate limit."""

    code: str
    message: str = ""
    until: str = ""


class _Seen(NamedTuple):
    subtype: str
    failed: bool
    status: int | None
    text: str
    stop_reason: str
    terminal_reason: str
    facts: TurnFacts

    def says(self, *words: str) -> bool:
        text = self.text.lower()
        return any(word in text for word in words)


_ROWS: Final[tuple[tuple[Callable[[_Seen], bool], str], ...]] = (
    (lambda seen: not seen.failed and seen.subtype == "success", SUCCESS),
    (lambda seen: NO_CONVERSATION in seen.text, LOST),
    (lambda seen: seen.subtype == "error_max_budget_usd", "budget_exceeded"),
    (lambda seen: seen.subtype == "error_max_turns", "budget_exceeded"),
    (lambda seen: seen.subtype == "error_max_structured_output_retries", UNMET),
    (lambda seen: seen.status in {401, 403}, "auth_failed"),
    (lambda seen: seen.status is None and seen.says("not logged in"), "auth_failed"),
    (lambda seen: seen.status == 429, "rate_limited"),
    (lambda seen: seen.status == 402, "quota_exhausted"),
    (lambda seen: seen.status == 400 and seen.says("credit balance", "usage limit"), "quota_exhausted"),
    (lambda seen: seen.status == 404, "not_found"),
    (lambda seen: seen.status == 413, "context_too_long"),
    (lambda seen: seen.status in {400, 422}, "bad_request"),
    (lambda seen: seen.status is None and (seen.stop_reason == "refusal" or seen.facts.refused), "refused"),
    (lambda seen: seen.status is None and seen.says("output token maximum"), "context_too_long"),
    (lambda seen: seen.status is None and seen.facts.rate_limited, "rate_limited"),
    (lambda seen: seen.status in {408, 409} or (seen.status or 0) >= 500, "temporary_failure"),
    (lambda seen: seen.status is None and seen.terminal_reason == "api_error", "temporary_failure"),
    (lambda seen: seen.subtype == "error_during_execution", INTERRUPTED),
)
_ELSE: Final = "misconfigured"


NO_FACTS: Final = TurnFacts()


def judge(result: Json, facts: TurnFacts = NO_FACTS) -> Judgement:
    """What a turn comes to that ended with this line."""
    status = member(result, "api_error_status")
    seen = _Seen(
        subtype=text_of(result, "subtype"),
        failed=result.get("is_error") is not False,
        status=status if isinstance(status, int) and not isinstance(status, bool) else None,
        text=_text(result),
        stop_reason=text_of(result, "stop_reason"),
        terminal_reason=text_of(result, "terminal_reason"),
        facts=facts,
    )
    code = next((code for fits, code in _ROWS if fits(seen)), _ELSE)
    message = seen.text.strip()[:WORDS] or f"it ended with {seen.subtype or 'an empty result'}"
    limited = code in {"rate_limited", "quota_exhausted"}
    return Judgement(code, message, facts.until if limited else "")


def _text(result: Json) -> str:
    """What the line says in words: the first of its errors, else its result."""
    errors = member(result, "errors")
    found = cast("list[object]", errors) if isinstance(errors, list) else []
    first = next((error for error in found if isinstance(error, str)), "")
    return first or text_of(result, "result")


class ExitRow(NamedTuple):
    """What stderr says when the program ends without a result, and the code of that."""

    words: str
    code: str


TAKEN: Final = "session_taken"
"""A conversation with this id exists already."""

EXITS: Final = (
    ExitRow("is already in use", TAKEN),
    ExitRow(NO_CONVERSATION, LOST),
    ExitRow("--json-schema is not a valid JSON Schema", "bad_request"),
    ExitRow("unknown option", "start_failed"),
)


def judge_exit(stderr_tail: tuple[str, ...]) -> Judgement | None:
    """What the end of a program without a result means, where its stderr says more than its status."""
    for row in EXITS:
        line = next((line for line in stderr_tail if row.words in line), "")
        if line:
            return Judgement(row.code, line[:WORDS])
    return None
