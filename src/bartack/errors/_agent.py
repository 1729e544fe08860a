"""The errors of agents: BT800 to BT822. How errors are declared: ``_root.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bartack.errors._root import BartackError, message

if TYPE_CHECKING:
    from dataclasses import KW_ONLY


@message()
class AgentError(BartackError, code="BT800"):
    """An agent could not do what it was asked.

    ``outcome`` says in a word what becomes of it: transient, rate-limited, terminal or cancelled. ``reason`` is the code of
    the line protocol, where there is one.
    """

    outcome: ClassVar[str] = "terminal"
    agent: str
    problem: str
    reason: str = ""
    stderr_tail: tuple[str, ...] = ()
    attempts: tuple[str, ...] = ()
    _: KW_ONLY
    usd: float = 0.0
    """What the call cost all the same, as far as it is known; so are the next two."""
    turns: int = 0
    tokens: int = 0
    remedy = "Read the reason; the call is recorded as failed, and 'bartack resume RUN' makes it anew."

    def describe(self) -> str:
        told = [
            f"agent {self.agent!r}: {self.problem}" if self.agent else f"the agent: {self.problem}",
            f" [{self.reason}]" if self.reason else "",
            f"; attempts: {', '.join(self.attempts)}" if self.attempts else "",
            f"; stderr: {' | '.join(self.stderr_tail)}" if self.stderr_tail else "",
        ]
        return "".join(told)


class AgentConfigError(AgentError, code="BT801"):
    """An agent is not configured, or not as it must be."""

    remedy = "Correct the agent's section in bartack.toml, or name an agent that it has; 'bartack agents doctor' checks them."


class ScriptError(AgentError, code="BT802"):
    """The script of a scripted agent has no reply to a prompt, or cannot be read."""

    remedy = "Correct the script that the message names, or its path in bartack.toml; add a rule for a prompt that none matches."


class ReplyInvalidError(AgentError, code="BT803"):
    """An agent's reply is not of the type that was asked for, also after it was asked to mend it."""

    remedy = "Say in the prompt what is wanted, or ask for a wider type."

    def __init__(self, agent: str, problem: str, reply: str = "") -> None:
        reply = reply[:2000]
        super().__init__(agent, problem)
        self.reply = reply
        self.message = f"{self.message}; it replied: {reply}"


class AgentCapabilityError(AgentError, code="BT804"):
    """An agent is asked for something that it cannot do; nothing was sent to it."""

    remedy = "Give the prompt to an agent that can do it, or ask for less."


class AgentTransientError(AgentError, code="BT805", retryable=True):
    """An agent failed for a reason that may be gone at the next attempt: it was busy, or its connection broke."""

    outcome = "transient"
    remedy = "It was tried again already. Look at the agent's own report, then resume the run."


class AgentExitedError(AgentTransientError, code="BT806"):
    """The program of an agent ended, or never said a word, before it gave an answer."""

    remedy = (
        "Read the last lines of its stderr in the error; 'bartack agents doctor NAME' checks the program."
    )


class AgentStalledError(AgentTransientError, code="BT807"):
    """An agent stopped showing signs of life while it was at work."""

    remedy = "Look at the agent's transcript. Raise stall_s or heartbeat_s of the agent if its work takes that long."


class AgentRateLimitedError(AgentError, code="BT808", retryable=True):
    """An agent may not be asked again before some time; ``until`` says when, if it is known."""

    outcome = "rate-limited"
    remedy = "Wait until the time that the message names, then resume the run."

    def __init__(self, agent: str, problem: str, reason: str = "", until: str = "") -> None:
        super().__init__(agent, f"{problem}; possible again at {until}" if until else problem, reason)
        self.problem = problem
        self.until = until


class QuotaExhaustedError(AgentRateLimitedError, code="BT809"):
    """The quota or the credit of an agent is used up."""

    remedy = "Wait for the quota to be renewed, or raise it with the agent's provider, then resume the run."


class AgentAuthError(AgentError, code="BT810"):
    """An agent has no credentials, or they were refused. This is never tried again by itself."""

    remedy = "Log in to the agent, or put the variable with its credentials into the environment, then resume the run."


class AgentStartError(AgentError, code="BT811"):
    """The program of an agent could not be started, or does not speak a version of the protocol that we know."""

    remedy = "Correct the agent's command in bartack.toml; 'bartack agents doctor NAME' says what is found."


class AgentRequestError(AgentError, code="BT812"):
    """An agent refused what it was asked; ``cause`` is bad_request, too_large, refused or not_found."""

    remedy = "Change what is asked; the same request is refused again."

    def __init__(self, agent: str, problem: str, reason: str = "", cause: str = "bad_request") -> None:
        super().__init__(agent, f"{problem} ({cause})", reason)
        self.problem = problem
        self.cause = cause


class AgentProtocolError(AgentError, code="BT813"):
    """What an agent wrote is not the protocol that it has to speak."""

    remedy = "Look at stream.ndjson in the agent's directory of the run; the line with a case is the one that was refused."


class AgentReplyError(AgentError, code="BT814"):
    """An agent's answer does not have the form that was asked for."""

    remedy = "Look at the answer in the agent's transcript; make the request clearer, or mend the agent."


class AgentBusyError(AgentError, code="BT815", retryable=True):
    """Another process uses this conversation of the agent. Nothing was started."""

    remedy = "Wait for the other process to end; 'bartack ps' shows who runs."


class AgentCancelledError(AgentError, code="BT816"):
    """A call of an agent was given up: ``reason`` says by whom or why."""

    outcome = "cancelled"
    remedy = "Nothing has to be mended; the call is made anew when the run is resumed."


class AgentDeadlineError(AgentCancelledError, code="BT817"):
    """An agent did not answer within the time that was given."""

    remedy = "Give the call more time with timeout_s, or the action in the section timeouts of bartack.toml."


class VersionMismatchError(AgentError, code="BT818"):
    """The files changed under an agent: it saw another snapshot than the one it was told of."""

    remedy = "Find out who else writes to the workspace, then resume the run."


class ArtifactMismatchError(AgentError, code="BT819"):
    """A file that an agent says it has left is missing, too large, or differs from what it says."""

    remedy = (
        "The message lists every path with what was expected and what was found; look at them, then resume."
    )


class PathEscapeError(ArtifactMismatchError, code="BT820"):
    """An agent named a path that leads out of the workspace, or into a part of it that is not for agents."""

    remedy = "Paths of artifacts are relative to the workspace, with '/' between names and no '..'."


class AgentBudgetError(AgentError, code="BT821"):
    """An agent used more than was reserved for the call: ``reason`` names what of."""

    remedy = "Raise the budget of the call or of the agent, then resume the run."


class LineTooLongError(AgentError, ValueError, code="BT822"):
    """A message to an agent takes more bytes than a line of the protocol may have. Nothing was sent."""

    remedy = "Put large inputs into a file of the workspace and name it in the inputs."

    def __init__(self, agent: str, size: int, limit: int) -> None:
        self.size = size
        self.limit = limit
        super().__init__(agent, f"a message would take {size} bytes, more than {limit}", "line_too_long")
