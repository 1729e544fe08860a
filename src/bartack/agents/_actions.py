"""What a conversation wants done: see ``_conversation.py``."""

from __future__ import annotations

from typing import NamedTuple

from bartack.agents._contract import AgentEvent, Outcome, VerifiedArtifact
from bartack.agents.protocol._messages import Artifact, ToAgent, ToolCall


class NeedProcess(NamedTuple):
    """Attach a process: a kept one that is idle, or a new one."""


class Send(NamedTuple):
    """Write a line to the process."""

    line: bytes
    message: ToAgent


class StopProcess(NamedTuple):
    """End the process with its whole tree; ``Conversation.exited`` is told."""


class ReleaseProcess(NamedTuple):
    """The process is not needed any more, and may serve other commands."""


class Judge(NamedTuple):
    """Look at the files that an answer names; ``Conversation.judged`` is told."""

    artifacts: list[Artifact]


class CallOut(NamedTuple):
    """The agent calls a tool; ``Conversation.tool_ended`` is told."""

    call: ToolCall


class Tell(NamedTuple):
    """Something happened."""

    event: AgentEvent


class Warn(NamedTuple):
    """A person should see this."""

    text: str


class Done(NamedTuple):
    """The call is over."""

    outcome: Outcome


Action = NeedProcess | Send | StopProcess | ReleaseProcess | Judge | CallOut | Tell | Warn | Done


class Rejection(NamedTuple):
    """Files are not as an answer says."""

    code: str
    message: str


Verdict = list[VerifiedArtifact] | Rejection
