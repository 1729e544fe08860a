"""What a conversation wants done, as values; ``_conversation.py`` decides, and the agent of each kind performs.

``ActionQueue`` collects them in order and numbers the events of the transcript. It performs nothing.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypedDict

from bartack.agents.contract import AgentEvent, AgentQuestion, Outcome
from bartack.agents.protocol.ids import moment
from bartack.agents.protocol.messages import Artifact
from bartack.core.clock import Clock

State = Literal["new", "starting", "running", "judging", "cancelling", "stopping", "waiting", "done"]
"""Where a conversation is: see the picture in ``_conversation.py``."""


class NeedProcess(NamedTuple):
    """Attach a process: an idle one that was kept, or a new one."""


class Send(NamedTuple):
    """Write a line to the process. One that ``may_drop`` is left out if the process does not read what it has."""

    line: bytes
    may_drop: bool = False


class StopProcess(NamedTuple):
    """Stop the process with its whole tree, then call ``Conversation.exited``."""


class ReleaseProcess(NamedTuple):
    """The conversation no longer needs the process; it may serve other commands."""


class JudgeFiles(NamedTuple):
    """Verify the files that an answer names, then call ``Conversation.judged``."""

    artifacts: list[Artifact]


class CallOut(NamedTuple):
    """Run a tool for the agent, then call ``Conversation.tool_ended``."""

    call_id: str
    name: str
    arguments: dict[str, object]


class AskOut(NamedTuple):
    """Ask a person for the agent, then call ``Conversation.answered``."""

    question: AgentQuestion


class WithdrawOut(NamedTuple):
    """The agent does not wait for the answer to a question any longer."""

    question_id: str


class Report(NamedTuple):
    """Add an event to the transcript, and pass it on."""

    event: AgentEvent


class Warn(NamedTuple):
    """Show this to a person."""

    text: str


class Done(NamedTuple):
    """The call is over."""

    outcome: Outcome


Action = (
    NeedProcess
    | Send
    | StopProcess
    | ReleaseProcess
    | JudgeFiles
    | CallOut
    | AskOut
    | WithdrawOut
    | Report
    | Warn
    | Done
)


class Stamp(TypedDict):
    """The members that every event of the transcript has."""

    key: str
    at: str
    n: int


class ActionQueue:
    """The actions of one conversation, in the order in which they are to be performed.

    ``take`` returns each action once. The events of one call are numbered from 1 without gaps.
    """

    def __init__(self, key: str, clock: Clock) -> None:
        self._key = key
        self._clock = clock
        self._actions: list[Action] = []
        self._n = 0

    def add(self, action: Action) -> None:
        """Have something done."""
        self._actions.append(action)

    def report(self, event: AgentEvent) -> None:
        """Have an event added to the transcript; it is made with ``stamp``."""
        self._actions.append(Report(event))

    def stamp(self) -> Stamp:
        """The members of the next event that say which call it belongs to, and when it happened."""
        self._n += 1
        return {"key": self._key, "at": moment(self._clock.now_us()), "n": self._n}

    def take(self) -> list[Action]:
        """All actions since the last call."""
        actions, self._actions = self._actions, []
        return actions
