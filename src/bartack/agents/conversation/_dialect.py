"""How one kind of agent is spoken to: the seam between a conversation and what is on the wire.

``Conversation`` owns what is common to every agent: attempts, time limits, tools, answers, usage, the transcript. A ``Dialect``
owns the rest: it writes commands, reads what comes back, and calls the conversation with what that means.
``ndjson/_dialect.py`` is the one of the line protocol.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol, TypeVar

from bartack.agents._record import Link
from bartack.agents.contract import AgentAnswer
from bartack.agents.protocol.messages import Event, Reason, ToolProblem

R_contra = TypeVar("R_contra", contravariant=True)
"""One thing that is read from an agent of this kind."""


class AgentFailure(NamedTuple):
    """What an agent reports that failed.

    Attributes:
        code: One of ``AGENT_CODES``, or any other.
        message: The same in words.
        retryable: Whether the agent says that another attempt makes sense.
        until: The moment from which it can be asked again, as RFC 3339 text.
        after_s: The least time to wait before the next attempt.
    """

    code: str
    message: str
    retryable: bool | None = None
    until: str = ""
    after_s: float = 0.0


class SendAnswer(Protocol):
    """Sends the answer of a person to the agent."""

    def __call__(self, question_id: str, answer: AgentAnswer) -> None:
        """See the class."""
        ...


class SendResult(Protocol):
    """Sends the result of a tool to the agent, or why there is none."""

    def __call__(self, call_id: str, result: object, problem: ToolProblem | None) -> None:
        """See the class."""
        ...


class Dialect(Protocol[R_contra]):
    """Speaks for one conversation, over all its attempts. It adds ``Send`` actions and does no I/O.

    It decides which messages belong to the command, and passes on answers, failures and tool calls only while the conversation
    is ``running``, or ``cancelling`` if it counts them all the same. In any other state they are too late.
    """

    @property
    def command_id(self) -> str:
        """The id of the last command that was sent; empty before the first."""
        ...

    def send_command(self) -> bool:
        """Send the command for a new attempt; nothing of the last attempt counts any longer.

        Returns:
            Whether it was sent. If it was not, ``Conversation.end`` was called.
        """
        ...

    def send_cancel(self, reason: Reason) -> None:
        """Ask the agent to stop working on the command."""
        ...

    def send_result(self, call_id: str, result: object, problem: ToolProblem | None) -> None:
        """Send the result of a tool, or why there is none."""
        ...

    def send_answer(self, question_id: str, answer: AgentAnswer) -> None:
        """Send what a person has answered, or that none can be asked."""
        ...

    def read(self, link: Link, read: R_contra) -> str:
        """Call the conversation with what the agent wrote; returns what is wrong with it, empty if nothing is."""
        ...

    def recover(self, read: R_contra) -> Event | AgentFailure | None:
        """The answer to this command that an earlier process read, or the failure that it ended with; ``None`` if it is neither."""
        ...

    def refuse_answers(self) -> None:
        """An answer to the last command does not count any longer."""
        ...

    def delivered(self) -> Iterable[str]:
        """The ids of tool calls whose results the conversation has already, when a process begins to continue it."""
        ...

    def notes(self) -> list[str]:
        """What a person may want to know of the last attempt."""
        ...

    def close(self) -> None:
        """The conversation is over: report what was held back, and what was used and is not known yet."""
        ...
