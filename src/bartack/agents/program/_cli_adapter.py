"""What the adapters of programs for coding have in common; see ``Adapter`` for what each member promises."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from bartack.agents._record import AgentRecord, Link
from bartack.agents._tool_permissions import ToolPermissions
from bartack.agents.contract import AgentRequest
from bartack.agents.conversation._breaker import Breaker
from bartack.agents.conversation._conversation import Conversation
from bartack.agents.conversation._dialect import Dialect
from bartack.agents.pauses import Pause
from bartack.agents.process._vitals import Activity
from bartack.agents.program._json_lines import JsonRead
from bartack.agents.program.adapter import Surroundings, secrets_of, shared_pause
from bartack.agents.program.find import explain_missing, find_program
from bartack.agents.program_config import CliConfig
from bartack.core.clock import Clock
from bartack.errors import AgentStartError

C = TypeVar("C", bound=CliConfig)
"""The settings of this kind."""


class CliAdapter(Generic[C]):
    """An agent that is started anew for each attempt, and asked for permission.

    Args:
        name: Its name in the settings.
        config: Its settings.
        clock: What time it is.
        surroundings: What the agents of a run have in common.
        uniform: Where the randomness of waits comes from; by default the one of ``Conversation``.
    """

    kind: str

    def __init__(
        self,
        name: str,
        config: C,
        clock: Clock,
        surroundings: Surroundings,
        *,
        uniform: Callable[[float, float], float] | None = None,
    ) -> None:
        self.name = name
        self.config = config
        self.clock = clock
        self.surroundings = surroundings
        self.record = AgentRecord(name)
        self.breaker = surroundings.breakers.setdefault(name, Breaker(clock, self._pause()))
        self.redact = secrets_of(surroundings, config.env)
        self.uniform = uniform

    def _pause(self) -> Pause | None:
        """The pause that this agent shares with those of other runs that have the same account."""
        program = os.path.basename(self.program)
        return shared_pause(f"{self.kind}-{program}", self.config.env, self.surroundings, self.clock)

    @property
    def program(self) -> str:
        """See ``Adapter.program``."""
        return self.config.argv[0]

    @property
    def keep_s(self) -> float | None:
        """See ``Adapter.keep_s``: each attempt has a process of its own."""
        return None

    @property
    def env(self) -> Mapping[str, str]:
        """See ``Adapter.env``."""
        return self.config.env

    def idle_line(self, link: Link, read: JsonRead) -> None:
        """See ``Adapter.idle_line``: no process serves a second call."""

    def converse(
        self,
        request: AgentRequest,
        speak: Callable[[Conversation[JsonRead]], Dialect[JsonRead]],
        look: Callable[[int], Activity] | None = None,
    ) -> Conversation[JsonRead]:
        """The conversation of a call; see ``Conversation`` for ``speak`` and ``look``."""
        return Conversation(
            self.name,
            request,
            self.config.limits,
            self.record,
            speak,
            clock=self.clock,
            look=look,
            uniform=random.uniform if self.uniform is None else self.uniform,
            breaker=self.breaker,
        )

    def find_program(self, request: AgentRequest, path: str, install: tuple[str, ...]) -> str:
        """The program to start, looked for in ``path``; ``install`` says how to get it.

        Raises:
            AgentStartError: It is not there.
        """
        name, place = self.config.argv[0], Path(request.cwd)
        found = find_program(name, place, path)
        if not found:
            raise AgentStartError(
                self.name, explain_missing(self.name, name, place, path, install), "start_failed"
            )
        return found

    def permissions_of(self, request: AgentRequest, own_tools: tuple[str, ...] = ()) -> ToolPermissions:
        """Decides about the tools of a call; ``own_tools`` are ours, as the agent calls them."""
        return ToolPermissions(
            self.config.permissions,
            request.role,
            request.cwd,
            extra_dirs=request.extra_dirs,
            refused_paths=request.refused_paths,
            policy=self.surroundings.guard,
            own_tools=own_tools,
        )
