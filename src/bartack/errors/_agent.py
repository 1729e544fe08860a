"""The errors of agents: BT800 to BT823. How errors are declared: ``_root.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bartack.errors._root import BartackError, message

if TYPE_CHECKING:
    from dataclasses import KW_ONLY


@message()
class AgentError(BartackError, code="BT800"):
    """A call of an agent failed.

    ``outcome`` classifies the failure: transient, rate-limited, terminal or cancelled. ``reason`` is the code of the line
    protocol, if there is one.
    """

    outcome: ClassVar[str] = "terminal"
    agent: str
    problem: str
    reason: str = ""
    stderr_tail: tuple[str, ...] = ()
    attempts: tuple[str, ...] = ()
    _: KW_ONLY
    usd: float = 0.0
    """What the failed call cost, as far as it is known; this and the next two."""
    turns: int = 0
    tokens: int = 0
    usd_estimated: bool = False
    """The cost was computed from a table of prices, or in part."""
    usd_unknown: bool = False
    """The agent used a model, and what that cost is unknown; ``usd`` is 0 then."""
    remedy = "Read the reason. The call is recorded as failed; 'bartack resume RUN' repeats it."

    def describe(self) -> str:
        parts = [
            f"agent {self.agent!r}: {self.problem}" if self.agent else f"the agent: {self.problem}",
            f" [{self.reason}]" if self.reason else "",
            f"; attempts: {', '.join(self.attempts)}" if self.attempts else "",
            f"; stderr: {' | '.join(self.stderr_tail)}" if self.stderr_tail else "",
        ]
        return "".join(parts)


class AgentConfigError(AgentError, code="BT801"):
    """An agent is not configured, or its configuration is invalid."""

    remedy = "Correct the agent's section in bartack.toml, or name a configured agent; 'bartack agents doctor' checks them."


class ScriptError(AgentError, code="BT802"):
    """The script of a scripted agent has no reply to a prompt, or cannot be read."""

    remedy = "Correct the script that the message names, or its path in bartack.toml. Add a rule for a prompt that no rule matches."


class ReplyInvalidError(AgentError, code="BT803"):
    """An agent's reply does not have the requested type, even after the agent was asked to correct it."""

    remedy = "Describe the expected reply in the prompt, or ask for a wider type."

    def __init__(self, agent: str, problem: str, reply: str = "") -> None:
        reply = reply[:2000]
        super().__init__(agent, problem)
        self.reply = reply
        self.message = f"{self.message}; it replied: {reply}"


class AgentCapabilityError(AgentError, code="BT804"):
    """An agent lacks a capability that the call needs. Nothing was sent to it."""

    remedy = "Send the prompt to an agent with that capability, or ask for less."


class AgentTransientError(AgentError, code="BT805", retryable=True):
    """An agent failed for a temporary reason: it was busy, or its connection broke."""

    outcome = "transient"
    remedy = "The call was already retried. Check the agent's own report, then resume the run."


class AgentExitedError(AgentTransientError, code="BT806"):
    """The program of an agent exited before it answered, or never wrote anything."""

    remedy = (
        "Read the last lines of its stderr in the message; 'bartack agents doctor NAME' checks the program."
    )


class AgentStalledError(AgentTransientError, code="BT807"):
    """An agent stopped sending heartbeats, or made no progress, during a call."""

    remedy = (
        "Read the agent's transcript. Raise stall_s or heartbeat_s of the agent if its work takes that long."
    )


class AgentRateLimitedError(AgentError, code="BT808", retryable=True):
    """An agent is rate-limited; ``until`` is the time of the next possible call, if it is known."""

    outcome = "rate-limited"
    remedy = "Wait until the time that the message names, then resume the run."

    def __init__(self, agent: str, problem: str, reason: str = "", until: str = "") -> None:
        super().__init__(agent, f"{problem}; possible again at {until}" if until else problem, reason)
        self.problem = problem
        self.until = until


class QuotaExhaustedError(AgentRateLimitedError, code="BT809"):
    """The quota or the credit of an agent is used up."""

    remedy = "Wait until the quota is renewed, or raise it with the agent's provider, then resume the run."


class AgentAuthError(AgentError, code="BT810"):
    """An agent has no credentials, or they were refused. The call is not retried."""

    remedy = "Log in to the agent, or put the variable with its credentials into the environment, then resume the run."


class AgentStartError(AgentError, code="BT811"):
    """The program of an agent could not be started, or supports no known version of the protocol."""

    remedy = (
        "Correct the agent's command in bartack.toml; 'bartack agents doctor NAME' reports what it finds."
    )


class AgentRequestError(AgentError, code="BT812"):
    """An agent refused the request; ``cause`` is bad_request, too_large, refused or not_found."""

    remedy = "Change the request; the same request is refused again."

    def __init__(self, agent: str, problem: str, reason: str = "", cause: str = "bad_request") -> None:
        super().__init__(agent, f"{problem} ({cause})", reason)
        self.problem = problem
        self.cause = cause


class AgentProtocolError(AgentError, code="BT813"):
    """An agent wrote a line that does not follow the protocol."""

    remedy = (
        "Check that the agent's command starts a program of its kind: 'bartack agents doctor NAME' checks it. "
        "What the program wrote is in stream.ndjson in the agent's directory of the run."
    )


class AgentReplyError(AgentError, code="BT814"):
    """An agent's answer does not have the requested form."""

    remedy = "Read the answer in the agent's transcript. Make the request clearer, or fix the agent."


class AgentBusyError(AgentError, code="BT815", retryable=True):
    """Another process is using this conversation of the agent. Nothing was started."""

    remedy = "Wait until the other process ends; 'bartack ps RUN' shows the processes of a run."


class AgentCancelledError(AgentError, code="BT816"):
    """A call of an agent was cancelled; ``reason`` names the cause."""

    outcome = "cancelled"
    remedy = "Nothing needs to be fixed. The call is repeated when the run is resumed."


class AgentDeadlineError(AgentCancelledError, code="BT817"):
    """An agent did not answer within its time limit."""

    remedy = "Give the call more time with timeout_s, or raise the limit of the action in the section timeouts of bartack.toml."


class VersionMismatchError(AgentError, code="BT818"):
    """Files changed during a call: the agent saw another snapshot than the one in its request."""

    remedy = "Find out which other process writes to the workspace, then resume the run."


class ArtifactMismatchError(AgentError, code="BT819"):
    """A file that an agent reported is missing, too large, or differs from the report."""

    remedy = (
        "Check the paths in the message, each with its expected and its actual state, then resume the run."
    )


class PathEscapeError(ArtifactMismatchError, code="BT820"):
    """An agent named a path that leads out of the workspace, or into a part of it that agents must not use."""

    remedy = "Give paths of artifacts relative to the workspace, with '/' between names and no '..'."


class AgentBudgetError(AgentError, code="BT821"):
    """An agent used more than was reserved for the call; ``reason`` names the resource."""

    remedy = "Raise the budget of the call or of the agent, then resume the run."


class LineTooLongError(AgentError, ValueError, code="BT822"):
    """A message to an agent is longer than the longest line of the protocol. Nothing was sent."""

    remedy = "Put large inputs into a file of the workspace and name it in the inputs."

    def __init__(self, agent: str, size: int, limit: int) -> None:
        self.size = size
        self.limit = limit
        super().__init__(agent, f"a message would take {size} bytes, more than {limit}", "line_too_long")


class AgentPlaceError(AgentError, code="BT823"):
    """A directory that a call of an agent needs does not exist or cannot be written: its working directory, or its home."""

    remedy = "Restore the directory or its permissions, then resume the run."
