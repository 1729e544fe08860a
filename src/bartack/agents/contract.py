"""What every kind of agent promises: a request in, events meanwhile, a result or an error out.

A call never blocks its caller: ``Agent.start`` returns at once, and ``done`` is called once, in a later turn of the loop that the
agent was given. Kinds are listed in ``config.py``.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, Protocol, cast

import msgspec
from msgspec import Meta

from bartack.agents._permissions import Denial
from bartack.agents.protocol.ids import NO_SNAPSHOT
from bartack.agents.protocol.messages import (
    Budget,
    Event,
    ExpectedOutput,
    Id,
    Moment,
    Role,
    ToolSpec,
    Usage,
    Version,
)
from bartack.errors import AgentError

Pinning = Literal["strict", "require", "warn"]


class AgentRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an agent is asked, for one step.

    Attributes:
        run_id: The run.
        key: The key of the step: the same on every attempt.
        worker: The path of the worker that asks.
        step: The number of the step in its worker.
        epoch: Which history of the worker the number is of.
        action: What is to be done.
        role: The role in which the agent does it.
        task_id: For which task; the worker's path where there is none.
        inputs: What it needs for that; nothing that differs between two attempts.
        expected_outputs: Which files it is to leave.
        version: On which files it works.
        pinning: If an answer saw other files, ``strict`` refuses it, ``require`` also one that does not say, ``warn`` notes it.
        cwd: Where it works: an absolute directory.
        name: What the prompt is called, for scripts and messages.
        tools: What it may call meanwhile.
        budget: What was reserved for it.
        timeout_s: Seconds until its deadline, counted while the hub is alive.
        limits_count: Whether the time in which its provider takes no calls counts against ``timeout_s``.
        attempt: 1, and one more after each death of a hub during the step.
        refused_paths: Below which paths of ``cwd`` it must not leave anything.
        rejected: Why an earlier answer to the same key was refused, where one was: a code.
        rejected_because: The same in words, for the agent.
        attempts_before: How many attempts at the same key there were in earlier steps.
        command: The action that the prompt describes, for an agent that takes no actions: its reply is the event of that action.
        may_decline: The prompt explains how to reply that the answer cannot be known.
        system: Instructions that are added to the agent's own.
        may_ask: It may ask people.
        extra_dirs: Absolute directories that it may use beside ``cwd``.
        continues: The conversation of a finished step that it continues; empty if it begins anew.
        trace: The step's place in its trace, as ``TRACEPARENT`` has it; empty if it is not traced.
    """

    run_id: str
    key: str
    worker: str
    step: int = 0
    epoch: int = 0
    action: str = "prompt"
    role: Role = "general"
    task_id: str = ""
    inputs: dict[str, object] = {}
    expected_outputs: list[ExpectedOutput] = []
    version: Version = Version(NO_SNAPSHOT)
    pinning: Pinning = "strict"
    cwd: str
    name: str = ""
    tools: list[ToolSpec] = []
    budget: Budget = Budget()
    timeout_s: float = 3600.0
    limits_count: bool = True
    attempt: int = 1
    refused_paths: list[str] = []
    rejected: str = ""
    rejected_because: str = ""
    attempts_before: int = 0
    command: str = ""
    may_decline: bool = False
    system: str = ""
    may_ask: bool = False
    extra_dirs: list[str] = []
    continues: str = ""
    trace: str = ""

    @property
    def schema(self) -> dict[str, object] | None:
        """What the reply to a prompt has to be; ``None`` for text."""
        wanted = self.inputs.get("result_schema") if self.action == "prompt" else None
        return cast("dict[str, object]", wanted) if isinstance(wanted, dict) else None


class VerifiedArtifact(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that was found as the agent says; ``found`` if it was expected and the agent did not name it."""

    path: str
    sha256: str
    size: int
    found: bool = False


class Rejection(NamedTuple):
    """Why an answer cannot be used: a code, and the same in words."""

    code: str
    message: str


Verdict = list[VerifiedArtifact] | Rejection
"""What verifying the files of an answer found: the files, or why the answer is refused."""


class AgentResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an agent answered.

    Attributes:
        event: The event that ended the command.
        text: The reply to a prompt.
        value: The same as the value that was asked for, if one was.
        declined: The agent says that it cannot know.
        artifacts: The files it left, verified.
        usage: What it used, as far as it says.
        usd_estimated: Its cost was computed from a table of prices, or in part.
        conversation: The id of its session.
        generation: How many conversations were abandoned before this one because they could not be resumed.
        attempts: How many attempts it took, those of dead hubs included.
        harvested: The answer had come before a hub died, and was recovered.
        notes: What a person may want to know about it.
        denials: What it wanted to do and was not allowed to.
        command_id: The id of its command; empty if a dead hub sent that.
        took_s: Seconds that it took while a hub was alive; the hub measures it.
        failed: The attempts before it that failed, each with its code; ``usage`` counts them.
    """

    event: Event
    text: str = ""
    value: object = None
    declined: bool = False
    artifacts: list[VerifiedArtifact] = []
    usage: Usage = Usage()
    usd_estimated: bool = False
    conversation: str = ""
    generation: int = 0
    attempts: int = 1
    harvested: bool = False
    notes: list[str] = []
    denials: list[Denial] = []
    command_id: str = ""
    took_s: float = 0.0
    failed: list[str] = []

    @property
    def payload(self) -> dict[str, object]:
        """What the answer says."""
        return self.event.payload or {}


Outcome = AgentResult | AgentError


class CallEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event"):
    """Something that happened during a call: a line of the agent's transcript."""

    key: Id
    at: Moment
    n: Annotated[int, Meta(ge=1)]


class CallStarted(CallEvent, frozen=True, kw_only=True, tag="agent.started"):
    """A process got the command."""

    pid: int
    conversation: str
    attempt: int
    version: str = ""
    generation: int = 0
    model: str = ""
    delivered: list[str] = []
    """The ids of tool calls whose results it has already, if it continues a conversation."""


class CallText(CallEvent, frozen=True, kw_only=True, tag="agent.text"):
    """The agent reported its progress, or said something. ``parent`` is the tool call of the subagent that said it."""

    text: str
    parent: str = ""


class CallTool(CallEvent, frozen=True, kw_only=True, tag="agent.tool"):
    """A tool was called, or a call of it ended. ``input`` is JSON, without secrets and cut."""

    id: str
    tool: str
    phase: Literal["started", "finished", "failed"]
    input: str = ""
    duration_s: float = 0.0


class CallPermission(CallEvent, frozen=True, kw_only=True, tag="agent.permission"):
    """It was decided whether the agent may use one of its own tools. What its mode allows is not reported.

    Attributes:
        id: The agent's id of the tool call.
        tool: The tool.
        decision: What was decided.
        by: ``rule``, ``mode``, ``guard`` or ``question``, and which.
    """

    id: str
    tool: str
    decision: Literal["allow", "deny", "asked"]
    by: str


class CallUsage(CallEvent, frozen=True, kw_only=True, tag="agent.usage"):
    """What the call has used so far."""

    usage: Usage


class CallRetry(CallEvent, frozen=True, kw_only=True, tag="agent.retry"):
    """An attempt ended, and another follows; ``own``: the agent repeats a request of its own, within the attempt."""

    code: str
    error: str
    attempt: int
    delay_s: float
    own: bool = False


class CallRateLimit(CallEvent, frozen=True, kw_only=True, tag="agent.rate_limit"):
    """The agent cannot be asked again before a certain moment; the call waits for it."""

    status: str
    resets_at: str
    error: str = ""


class CallNotice(CallEvent, frozen=True, kw_only=True, tag="agent.notice"):
    """Something a person may want to read: a log line, or a line that could not be used."""

    level: Literal["debug", "info", "warn", "error"]
    text: str
    case: str = ""


class CallFinished(CallEvent, frozen=True, kw_only=True, tag="agent.finished"):
    """The call is over."""

    reason: str
    duration_s: float


AgentEvent = (
    CallStarted
    | CallText
    | CallTool
    | CallPermission
    | CallUsage
    | CallRetry
    | CallRateLimit
    | CallNotice
    | CallFinished
)


class AgentQuestion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an agent wants a person to decide, during a call.

    Two questions of one call are the same if they have the same kind, text, tool and input. The ids of both may differ: after a
    crash a resumed agent asks again, and gets the answer that was given meanwhile.

    Attributes:
        id: The agent's own id of it, unique among the open questions of its call.
        kind: ``ask``: a question of the agent; ``permission``: whether it may use a tool. A permission has the options ``allow``
            and ``deny``.
        text: The question, for people.
        options: What can be answered; empty: any text.
        tool: With ``permission``: the tool.
        input: With ``permission``: what it is to be used with, without secrets.
        default: What counts as the answer if there is no person to ask; empty: there is none.
    """

    id: str
    kind: Literal["ask", "permission"] = "ask"
    text: str
    options: list[str] = []
    tool: str = ""
    input: dict[str, object] = {}
    default: str = ""


class AgentAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was answered to an agent's question.

    Attributes:
        text: The answer: one of the options, where there are some.
        number: The number of the question, such as ``q4``; empty if no person was asked.
        by: Who answered.
        refused: Why no person can be asked; ``text`` is empty then.
    """

    text: str = ""
    number: str = ""
    by: str = ""
    refused: str = ""


class ToolOutcome(msgspec.Struct, frozen=True):
    """What became of a tool call: a result, or the code and the message of a problem."""

    result: object = None
    code: str = ""
    message: str = ""


class AgentCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What agents of a kind can do."""

    schema: bool = False
    tools: bool = False
    resume: bool = False
    budget: bool = False
    cost: bool = False
    actions: bool = False
    """It takes the actions of the pipeline, not only prompts."""
    permissions: bool = False
    """What its own tools may do is decided by Bartack."""
    interrupt: bool = False


class CallSink(Protocol):
    """Is notified of a call. All of it is called from the loop that drives the agent."""

    def emit(self, event: AgentEvent) -> None:
        """Something happened."""
        ...

    def warn(self, text: str) -> None:
        """Something happened that a person should see now; seldom enough for a terminal."""
        ...

    def call_tool(self, call_id: str, name: str, arguments: dict[str, object]) -> None:
        """The agent calls a tool; the outcome goes to ``Call.tool_ended``."""
        ...

    def ask(self, question: AgentQuestion) -> None:
        """The agent asks a person; the answer goes to ``Call.answered``, perhaps days later."""
        ...

    def withdraw(self, question_id: str) -> None:
        """The agent does not wait for the answer to a question any longer."""
        ...

    def done(self, outcome: Outcome) -> None:
        """The call is over; nothing else comes."""
        ...


class Call(Protocol):
    """A call under way."""

    @property
    def deadline_in_s(self) -> float:
        """Seconds left until its deadline, of those that count."""
        ...

    def cancel(self, reason: str) -> None:
        """Give it up; ``CallSink.done`` is called when nothing of it is left. A second cancel changes nothing."""
        ...

    def tool_ended(self, call_id: str, outcome: ToolOutcome) -> None:
        """A tool that the agent called has ended."""
        ...

    def answered(self, question_id: str, answer: AgentAnswer) -> None:
        """A question of the agent was answered; one that is not open any longer is ignored."""
        ...


class Agent(Protocol):
    """An agent that can be called from a loop. It never blocks, and has neither a thread nor a loop of its own."""

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        ...

    @property
    def kind(self) -> str:
        """How it is reached."""
        ...

    @property
    def capabilities(self) -> AgentCapabilities:
        """What it can do."""
        ...

    def start(self, request: AgentRequest, sink: CallSink) -> Call:
        """Ask it.

        Raises:
            AgentError: It cannot be asked; nothing was started.
        """
        ...

    def next_due(self) -> float | None:
        """When ``tick`` is to be called at the latest, in seconds of the monotonic clock."""
        ...

    def tick(self) -> None:
        """Time has passed."""
        ...

    def stop_all(self) -> None:
        """Stop every process, in an orderly way."""
        ...

    def close(self) -> None:
        """Close everything; the host stops what is left of the processes."""
        ...

    def save(self) -> None:
        """Copy into the run what its open conversations have elsewhere, if that is possible now: the run is about to be copied."""
        ...

    def pids(self) -> list[int]:
        """Its processes that live."""
        ...
