"""What the commands and events of line protocol version 1 carry: ``inputs`` by action, ``payload`` by event.

The schemas of ``command`` and ``event`` are made of these types. A payload is checked by ``replies.py``; these types never refuse
what it accepts: a member that nothing depends on has any type.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from bartack.agents.protocol.messages import Count, Finding, Part, Sum

Text = Annotated[object, Meta(description="Text for people.")]

# Inputs of commands.


class FindingsFile(Part, frozen=True):
    """A file with findings that are too long for a line; the path is relative to BARTACK_RUN_DIR."""

    path: str
    sha256: Sum
    size: Count


class Iteration(Part, frozen=True, kw_only=True):
    """Which round of an action this is, why there is one, and what it has to fix."""

    round: Annotated[int, Meta(ge=1)]
    cause: Literal["start", "tests", "review", "spec", "conflict", "clarification", "more", "resume"]
    findings: list[Finding]
    findings_file: FindingsFile | None = None


class Clarification(Part, frozen=True):
    """A question of the orchestration agent, and what a person answered."""

    question: str
    answer: str


class ImplementInputs(Part, frozen=True, kw_only=True):
    """What a builder gets."""

    goal: str
    task_files: list[str]
    clarifications: list[Clarification]
    conflict_resolutions: list[str]
    task_title: str | None = None
    instruction: str | None = None
    approved_plan: str | None = None
    iteration: Iteration


class ReviewInputs(ImplementInputs, frozen=True, kw_only=True):
    """What a reviewer gets."""

    changed_files: list[str]
    changed_files_more: Count | None = None


class UpdateSpecInputs(ReviewInputs, frozen=True, kw_only=True):
    """What a spec maintainer gets."""

    spec_file: str
    editable_sections: list[str]


class PlanFile(Part, frozen=True):
    """A file of the workspace that may hold the plan."""

    path: str
    score: float
    reason: str
    headings: list[str]


class Discovery(Part, frozen=True):
    """The files that may hold the plan, the likeliest first."""

    strategy: str
    candidates: list[PlanFile]


class IntakeInputs(Part, frozen=True, kw_only=True):
    """What an orchestration agent gets."""

    user_instruction: str
    discovery: Discovery
    clarifications: list[Clarification]
    conflict_resolutions: list[str]
    iteration: Iteration


class TaskDiscoveryInputs(IntakeInputs, frozen=True, kw_only=True):
    """What an orchestration agent gets whose proposal was not wanted."""

    request_more_candidates: Literal[True]


class PromptIteration(Part, frozen=True):
    """Which step of its worker a prompt is."""

    epoch: Count
    step: Count


class PromptInputs(Part, frozen=True, kw_only=True):
    """What a prompt of a program says."""

    text: str
    iteration: PromptIteration
    context: Annotated[object, Meta(description="Values that the program sends with the text.")] = None
    result_schema: Annotated[
        dict[str, object] | None, Meta(description="The JSON Schema of the value that is wanted.")
    ] = None


# Payloads of events.


class ProgressPayload(Part, frozen=True):
    """How far the agent is; everything in it is optional."""

    stage: Text = None
    fraction: Annotated[object, Meta(description="A number from 0 to 1.")] = None
    message: Annotated[object, Meta(description="Text for people, kept in the transcript of the agent.")] = (
        None
    )


class ProducedPayload(Part, frozen=True):
    """Empty: the files are in the artifacts of the event."""


class BuilderPayload(Part, frozen=True):
    """What a builder has done."""

    tests: Annotated[
        object,
        Meta(
            description="An object with status (pass, fail or skipped) and perhaps summary, command and allowed_failures."
        ),
    ] = None
    summary: Text = None


class ReviewPayload(Part, frozen=True):
    """What a reviewer wants changed."""

    findings: list[Finding | str] | None = None
    summary: str | None = None


class SpecPayload(Part, frozen=True):
    """What a spec maintainer has changed."""

    summary: Text = None


class NoSpecChangesPayload(Part, frozen=True):
    """Why the spec is right as it is."""

    reason: Text = None


class PlanCandidate(Part, frozen=True):
    """A file that may be the plan."""

    path: str
    confidence: Annotated[float, Meta(ge=0, le=1)] | None = None
    reason: str | None = None


class DerivedTask(Part, frozen=True):
    """A task that the agent proposes."""

    id: str
    title: Annotated[str, Meta(max_length=256)]
    files: list[str] | None = None
    depends_on: list[str] | None = None
    goal: str | None = None


class ProposalPayload(Part, frozen=True):
    """Plans and tasks that a person may choose from."""

    plan_candidates: Annotated[list[PlanCandidate], Meta(min_length=1)]
    derived_tasks: list[DerivedTask] | None = None


class QuestionsPayload(Part, frozen=True):
    """What a person is asked."""

    questions: Annotated[list[Annotated[str, Meta(pattern=r"\S")]], Meta(min_length=1, max_length=32)]


class Conflict(Part, frozen=True):
    """Plans that contradict each other."""

    paths: list[str]
    reason: str


class ConflictsPayload(Part, frozen=True):
    """What a person has to resolve."""

    conflicts: Annotated[list[Conflict], Meta(min_length=1)]
    suggested_resolution: Text = None


class PromptPayload(Part, frozen=True):
    """The answer to a prompt: result, text, or both."""

    result: Annotated[object, Meta(description="The value, any JSON.")] = None
    text: str | None = None


class ErrorPayload(Part, frozen=True):
    """Why a command failed."""

    code: Annotated[
        object, Meta(description="A name such as overloaded, auth_failed, quota_exhausted, invalid_inputs.")
    ] = None
    message: Text = None
    retryable: Annotated[object, Meta(description="false: the command is not sent again.")] = None
    retry_after_s: Annotated[object, Meta(description="Seconds to wait before the next attempt.")] = None
    resets_at: Annotated[object, Meta(description="RFC 3339, UTC: when the agent may be asked again.")] = None
    details: Annotated[object, Meta(description="Any JSON value.")] = None


INPUTS: Final[dict[str, type[Part]]] = {
    "implement": ImplementInputs,
    "implement_changes": ImplementInputs,
    "review": ReviewInputs,
    "update_spec": UpdateSpecInputs,
    "intake": IntakeInputs,
    "task_discovery": TaskDiscoveryInputs,
    "prompt": PromptInputs,
}
"""What the inputs of each action are."""

PAYLOADS: Final[dict[str, type[Part]]] = {
    "progress": ProgressPayload,
    "builder.progress": ProgressPayload,
    "artifact.produced": ProducedPayload,
    "builder.completed": BuilderPayload,
    "review.completed": ReviewPayload,
    "spec.updated": SpecPayload,
    "spec.no_changes_needed": NoSpecChangesPayload,
    "spec.changes_requested": ReviewPayload,
    "orchestration.proposed_tasks": ProposalPayload,
    "orchestration.needs_clarification": QuestionsPayload,
    "orchestration.plan_conflict": ConflictsPayload,
    "prompt.completed": PromptPayload,
    "error": ErrorPayload,
}
"""What the payload of each event is."""

REQUIRED_PAYLOAD: Final = frozenset(
    {"orchestration.proposed_tasks", "orchestration.needs_clarification", "orchestration.plan_conflict"}
)
"""Events that mean nothing without their payload."""
