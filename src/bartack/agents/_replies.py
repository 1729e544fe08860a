"""Whether an answer says what its event has to say. Facts only: what becomes of a bad answer is decided elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from bartack.agents._contract import AgentRequest
from bartack.agents._messages import Event, Finding, Version
from bartack.agents._reply import ReadReply, read_reply


class _Candidate(msgspec.Struct):
    path: str
    confidence: float | None = None
    reason: str | None = None


class _DerivedTask(msgspec.Struct):
    id: str
    title: str
    files: list[str] | None = None
    depends_on: list[str] | None = None
    goal: str | None = None


class _Conflict(msgspec.Struct):
    paths: list[str]
    reason: str


class _Review(msgspec.Struct):
    findings: list[Finding] | None = None
    summary: str | None = None


class _Proposal(msgspec.Struct):
    plan_candidates: list[_Candidate]
    derived_tasks: list[_DerivedTask] | None = None


class _Questions(msgspec.Struct):
    questions: list[str]


class _Conflicts(msgspec.Struct):
    conflicts: list[_Conflict]


class _PromptReply(msgspec.Struct):
    result: object = msgspec.UNSET
    text: str | None = None


def check_reply(event: Event) -> str:
    """What is wrong with an event that ends a command; empty if nothing is."""
    check = _CHECKS.get(event.event)
    if check is None:
        return ""
    try:
        return check(event)
    except msgspec.ValidationError as error:
        return f"{event.event}: {error}"


def reply_text(event: Event) -> str:
    """What an answer to a prompt says, in words."""
    payload = event.payload or {}
    text = payload.get("text")
    if isinstance(text, str):
        return text
    value = payload.get("result")
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def read_prompt(event: Event, request: AgentRequest) -> ReadReply:
    """An answer to a prompt as what was asked for.

    Raises:
        ReplyFaultsError: It is something else.
    """
    given = (event.payload or {}).get("result", msgspec.UNSET)
    return read_reply(reply_text(event), request.schema, may_decline=request.may_decline, given=given)


def findings_of(event: Event) -> list[Finding]:
    """What an answer wants changed; an artifact alone is the one finding.

    Raises:
        ValidationError: The findings have another form.
    """
    found = msgspec.convert(event.payload or {}, type=_Review).findings or []
    if not found and event.artifacts:
        return [Finding(message=f"see {event.artifacts[0].path}", path=event.artifacts[0].path)]
    return found


def check_version(event: Event, wanted: Version, *, required: bool) -> str:
    """What is wrong with the files that an answer saw; empty if nothing is."""
    seen = event.observed_version
    if seen is None:
        return (
            f"the answer does not say which files it saw ({wanted.snapshot_id} was asked)" if required else ""
        )
    if seen.snapshot_id != wanted.snapshot_id:
        return f"the answer saw {seen.snapshot_id}, {wanted.snapshot_id} was asked"
    return ""


def _review(event: Event) -> str:
    if event.status not in {"approved", "changes_requested"}:
        return f"review.completed: status is {event.status!r}, not approved or changes_requested"
    if not findings_of(event) and event.status == "changes_requested":
        return "review.completed: changes_requested without a finding"
    return ""


def _changes(event: Event) -> str:
    return "" if findings_of(event) else "spec.changes_requested without a finding"


def _proposed(event: Event) -> str:
    proposal = msgspec.convert(event.payload or {}, type=_Proposal)
    wrong = [c for c in proposal.plan_candidates if c.confidence is not None and not 0 <= c.confidence <= 1]
    if wrong:
        return f"{event.event}: confidence {wrong[0].confidence} is not between 0 and 1"
    return "" if proposal.plan_candidates else f"{event.event}: plan_candidates is empty"


def _clarify(event: Event) -> str:
    questions = msgspec.convert(event.payload or {}, type=_Questions).questions
    good = questions and all(question.strip() for question in questions)
    return "" if good else f"{event.event}: questions are missing or blank"


def _conflict(event: Event) -> str:
    found = msgspec.convert(event.payload or {}, type=_Conflicts).conflicts
    return "" if found else f"{event.event}: conflicts is empty"


def _prompt(event: Event) -> str:
    reply = msgspec.convert(event.payload or {}, type=_PromptReply)
    missing = reply.result is msgspec.UNSET and reply.text is None
    return "prompt.completed: the payload has neither result nor text" if missing else ""


_CHECKS: Final[dict[str, Callable[[Event], str]]] = {
    "review.completed": _review,
    "spec.changes_requested": _changes,
    "orchestration.proposed_tasks": _proposed,
    "orchestration.needs_clarification": _clarify,
    "orchestration.plan_conflict": _conflict,
    "prompt.completed": _prompt,
}
