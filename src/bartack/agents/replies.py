"""Whether an answer has what its event requires. What follows from a bad answer is decided in ``conversation/_conversation.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from bartack.agents.contract import AgentRequest
from bartack.agents.protocol._sound import find_unsound
from bartack.agents.protocol.messages import Event, Finding, Version
from bartack.agents.reply import ReadReply, read_reply
from bartack.core import typed

MOST_QUESTIONS: Final = 32
"""Questions to a person in one answer."""
QUESTIONS_BYTES: Final = 16 * 1024
"""All questions of one answer together: they are part of every later command."""
TASK_BYTES: Final = 64 * 1024
"""A proposed task with its goal and files: they are part of every command for it, which is one line."""
TITLE: Final = 256
"""Characters of the title of a proposed task: it is part of messages of commits."""


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
    findings: list[object] | None = None
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
    """What is wrong with an event that ends a command; empty if nothing is.

    What passes here is taken in: it can be stored, and what it adds to later commands can be keyed and sent.
    """
    # The reply to a prompt is a value of the program, not part of a later command.
    unsound = find_unsound(event.payload or {}, keyed=event.event != "prompt.completed", place="payload")
    if unsound:
        return f"{event.event}: {unsound}"
    check = _CHECKS.get(event.event)
    if check is None:
        return ""
    try:
        return check(event)
    except msgspec.ValidationError as error:
        return f"{event.event}: {error}"


def reply_text(event: Event) -> str:
    """The text of an answer to a prompt."""
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
    """What an answer wants changed; a text is the message of a finding, and an artifact alone is the one finding.

    Raises:
        ValidationError: The findings have another form.
    """
    given = typed.convert(event.payload or {}, type=_Review).findings or []
    found = [_finding(place, one) for place, one in enumerate(given)]
    if not found and event.artifacts:
        return [Finding(message=f"see {event.artifacts[0].path}", path=event.artifacts[0].path)]
    return found


def _finding(place: int, given: object) -> Finding:
    if not isinstance(given, str | dict):
        raise msgspec.ValidationError(f"findings[{place}] must be an object with a message, or a text")
    try:
        return typed.convert({"message": given} if isinstance(given, str) else given, type=Finding)
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(f"findings[{place}]: {error}") from None


def check_version(event: Event, wanted: Version, *, required: bool) -> str:
    """What is wrong with the files that an answer saw; empty if nothing is."""
    seen = event.observed_version
    if seen is None:
        return (
            f"the answer does not say which files it saw ({wanted.snapshot_id} was asked)" if required else ""
        )
    if seen.snapshot_id != wanted.snapshot_id:
        return f"the answer is for snapshot {seen.snapshot_id}; the request was for {wanted.snapshot_id}"
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
    proposal = typed.convert(event.payload or {}, type=_Proposal)
    wrong = [c for c in proposal.plan_candidates if c.confidence is not None and not 0 <= c.confidence <= 1]
    if wrong:
        return f"{event.event}: confidence {wrong[0].confidence} is not between 0 and 1"
    for task in proposal.derived_tasks or ():
        problem = _task_problem(task)
        if problem:
            return f"{event.event}: task {task.id[:64]!r}: {problem}"
    return "" if proposal.plan_candidates else f"{event.event}: plan_candidates is empty"


def _task_problem(task: _DerivedTask) -> str:
    """Why commands for a proposed task could not be sent, or its work not be committed."""
    if len(task.title) > TITLE or any(ord(letter) < 32 or ord(letter) == 127 for letter in task.title):
        return f"its title has control characters or more than {TITLE} characters"
    size = len(msgspec.json.encode(task))
    return f"it takes {size} bytes, more than {TASK_BYTES}" if size > TASK_BYTES else ""


def _clarify(event: Event) -> str:
    questions = typed.convert(event.payload or {}, type=_Questions).questions
    if not questions or not all(question.strip() for question in questions):
        return f"{event.event}: questions are missing or blank"
    size = len(msgspec.json.encode(questions))
    if len(questions) > MOST_QUESTIONS or size > QUESTIONS_BYTES:
        most = f"at most {MOST_QUESTIONS} questions with {QUESTIONS_BYTES} bytes"
        return f"{event.event}: {len(questions)} questions with {size} bytes, {most}"
    return ""


def _conflict(event: Event) -> str:
    found = typed.convert(event.payload or {}, type=_Conflicts).conflicts
    return "" if found else f"{event.event}: conflicts is empty"


def _prompt(event: Event) -> str:
    reply = typed.convert(event.payload or {}, type=_PromptReply)
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
