"""What is particular to one kind of agents that are programs. ``_agent.py`` has what all of them have in common.

An ``Adapter`` belongs to one agent of a run; it opens an ``OpenCall`` for each call. The call owns the conversation, which decides,
and the files of the call; it says which process to start for an attempt. Processes are started by ``_agent.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec

from bartack.agents._record import Link
from bartack.agents.artifacts import MAX_BYTES
from bartack.agents.config import ProtocolConfig
from bartack.agents.contract import AgentCapabilities, AgentRequest
from bartack.agents.conversation._breaker import Breaker
from bartack.agents.conversation._conversation import Conversation
from bartack.agents.guard.policy import GuardPolicy
from bartack.agents.pauses import Pause, pause_name
from bartack.agents.process.process import Launch
from bartack.agents.program_config import Price
from bartack.core.clock import Clock
from bartack.core.redact import Redactor, SecretRule

R = TypeVar("R")
"""One thing that is read from an agent of this kind."""

ACCOUNTS: Final = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CODEX_API_KEY",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
)
"""Variables that say whose account is used, and with which provider."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What agents of a run have in common.

    Attributes:
        run: What every process of the run finds in its environment.
        folder: The directory ``agents`` of the run.
        environ: The variables of the hub, from which some are passed on.
        protocol: How many bad lines are accepted.
        secrets: Which variables have values that must not be shown.
        max_artifact_bytes: How large a file may be that an agent leaves.
        breakers: What holds back the calls of each agent, by its name, after it has failed again and again.
        pauses: Where the pauses are that all runs of the user share; ``None``: none are shared.
        prices: What models cost, by the beginning of their names: those of the settings.
        guard: What no agent may do, in any mode.
        travels: Whether the run may be continued on another machine, with files and conversations of one moment: what its folder
            has of a conversation counts then, and not what is found in the home of a person.
        opened: The directories of conversations that this process has opened: it has them as they are since then.
    """

    run: dict[str, str]
    folder: Path
    environ: dict[str, str]
    protocol: ProtocolConfig = msgspec.field(default_factory=ProtocolConfig)
    secrets: SecretRule = SecretRule()
    max_artifact_bytes: int = MAX_BYTES
    prices: dict[str, Price] = {}
    guard: GuardPolicy = GuardPolicy()
    breakers: dict[str, Breaker] = {}
    pauses: Path | None = None
    travels: bool = False
    opened: set[Path] = msgspec.field(default_factory=set[Path])

    def is_brought(self, conversation: Path) -> bool:
        """Whether a conversation comes from a copy of the run: it may, and this is the first that this process has of it."""
        is_first = conversation not in self.opened
        self.opened.add(conversation)
        return self.travels and is_first


class OpenCall(Protocol[R]):
    """One call: its conversation and its files, which it has taken for this process."""

    @property
    def talk(self) -> Conversation[R]:
        """Decides what happens next."""
        ...

    @property
    def folder(self) -> Path:
        """Where its files are; another one after a conversation was abandoned."""
        ...

    def recover(self) -> R | None:
        """What an earlier process wrote that may be the answer, if there is any."""
        ...

    def launch(self) -> Launch[R]:
        """What is to be started for the next attempt.

        Raises:
            AgentError: There is no sense in another attempt; it ends the call.
            OSError: The files that the process needs cannot be made.
        """
        ...

    def copy_in(self, read: R, case: str) -> None:
        """Something came from the agent; ``case`` says what was wrong with it."""
        ...

    def copy_out(self, line: bytes) -> None:
        """A line goes to the agent."""
        ...

    def save(self) -> None:
        """Copy into the run what is elsewhere of the conversation: the run is about to be copied.

        Raises:
            OSError: That is not possible now.
        """
        ...

    def close(self) -> None:
        """Close the files, and release the conversation."""
        ...


class Adapter(Protocol[R]):
    """One kind of agents."""

    @property
    def kind(self) -> str:
        """What it is called in the settings."""
        ...

    @property
    def capabilities(self) -> AgentCapabilities:
        """What such agents can do."""
        ...

    @property
    def program(self) -> str:
        """What is started, for messages."""
        ...

    @property
    def keep_s(self) -> float | None:
        """How long a process is kept that has nothing to do; ``None`` if each attempt has a process of its own."""
        ...

    @property
    def env(self) -> Mapping[str, str]:
        """Variables that its settings name."""
        ...

    def check(self, request: AgentRequest) -> None:
        """Check whether the agent can do what is asked; nothing is started or written.

        Raises:
            AgentError: It cannot.
        """
        ...

    def open_call(self, request: AgentRequest, folder: Path) -> OpenCall[R]:
        """Open a call; ``folder`` is the directory of the agent.

        Raises:
            AgentError: It cannot be asked.
            OSError: Its files cannot be opened.
        """
        ...

    def idle_line(self, link: Link, read: R) -> None:
        """A process wrote something that serves no call."""
        ...


def call_environment(surroundings: Surroundings, agent: str, request: AgentRequest) -> dict[str, str]:
    """The variables by which every process of a call finds its run, and by which it is found."""
    return {
        **surroundings.run,
        "BARTACK_WORKER": request.worker,
        "BARTACK_STEP": request.key,
        "BARTACK_AGENT": agent,
        "BARTACK_ROLE": request.role,
        "BARTACK_WORKSPACE": request.cwd,
        **({"TRACEPARENT": request.trace} if request.trace else {}),
    }


def secrets_of(surroundings: Surroundings, env: Mapping[str, str]) -> Callable[[bytes], bytes]:
    """Takes the secrets of the environment, and of an agent's own variables, out of lines."""
    return Redactor({**surroundings.environ, **env}, surroundings.secrets).hide_lines


def shared_pause(
    agent: str, env: Mapping[str, str], surroundings: Surroundings, clock: Clock
) -> Pause | None:
    """The pause of an agent with those of other runs that have the same account; ``None`` if none are shared.

    Args:
        agent: What is the same for all of them: a kind and its program.
        env: Variables that the settings of this one name.
        surroundings: What the agents of a run have in common.
        clock: What time it is.
    """
    if surroundings.pauses is None:
        return None
    name = pause_name(agent, {**surroundings.environ, **env}, ACCOUNTS)
    return Pause(surroundings.pauses / name, clock)
