"""Calls of agents that are under way. Knows which agents there are, and when a reply is due."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING

import msgspec

from bartack.agents import Prompt, ScriptedAgent
from bartack.errors import AgentConfigError, AgentError
from bartack.runtime._ledger import StartPrompt
from bartack.runtime._steps import ThinkOutcome

if TYPE_CHECKING:
    from bartack.runtime._programs import Programs

Outcome = ThinkOutcome | AgentError


class Prompts:
    """Sends prompts to agents and keeps their replies until they are due."""

    def __init__(
        self,
        agents: Mapping[str, ScriptedAgent],
        default: str,
        cwd: str,
        now: Callable[[], float] = time.monotonic,
        programs: Programs | None = None,
        run_id: str = "",
    ) -> None:
        self._agents = agents
        self._default = default
        self._cwd = cwd
        self._run_id = run_id
        self._now = now
        self.programs = programs
        """Agents that are programs; a run in memory has none."""
        self._numbers = count()
        self._due: list[tuple[float, int, int, Outcome]] = []

    def start(self, action: StartPrompt) -> None:
        """Call an agent; its reply is there when it is due."""
        try:
            if self.programs is not None and self.programs.serves(self._name(action), action.args):
                self.programs.start(action, self._name(action))
                return
            delay, outcome = self._ask(action)
        except AgentError as error:
            delay, outcome = 0.0, error
        heapq.heappush(self._due, (self._now() + delay, next(self._numbers), action.token, outcome))

    def stop(self, token: int) -> None:
        """Give a call up; that is its outcome, at once, or as soon as nothing of a program's work is left."""
        if self.programs is not None and self.programs.stop(token):
            return
        self._due = [item for item in self._due if item[2] != token]
        cancelled = AgentError("", "the call was given up")
        self._due.append((self._now(), next(self._numbers), token, cancelled))
        heapq.heapify(self._due)

    def next_in_s(self) -> float | None:
        """Seconds until the next reply is due."""
        waits = [max(self._due[0][0] - self._now(), 0.0)] if self._due else []
        program = None if self.programs is None else self.programs.next_in_s()
        return min([*waits, program]) if program is not None else min(waits, default=None)

    def take_ready(self) -> list[tuple[int, Outcome]]:
        """The replies that are due."""
        ready: list[tuple[int, Outcome]] = [] if self.programs is None else self.programs.take_ready()
        while self._due and self._due[0][0] <= self._now():
            _, _, token, outcome = heapq.heappop(self._due)
            ready.append((token, outcome))
        return ready

    def _name(self, action: StartPrompt) -> str:
        return action.args.agent or self._default

    def _ask(self, action: StartPrompt) -> tuple[float, Outcome]:
        args = action.args
        name = self._name(action)
        agent = self._agents.get(name)
        if agent is None:
            known = ", ".join(sorted(self._agents)) or "none"
            raise AgentConfigError(name, f"there is no such agent (configured: {known})")
        text = f"{args.prompt}\n\n{_DECLINE}" if args.may_decline else args.prompt
        if args.command is not None:
            from bartack.agents import obey  # noqa: PLC0415 - only runs in memory need it
            from bartack.runtime._programs import make_outcome, make_request  # noqa: PLC0415 - likewise

            request = make_request(action, self._run_id, self._cwd)
            return 0.0, make_outcome(action, name, obey(agent, request))
        prompt = Prompt(action.key, args.name, text, self._cwd, wants_value=args.schema is not None)
        reply = agent.reply(prompt)
        if reply.failure:
            raise AgentError(name, reply.failure)
        value = None if args.schema is None else msgspec.Raw(msgspec.json.encode(reply.value))
        outcome = ThinkOutcome(
            key=action.key,
            agent=name,
            text=reply.text,
            value=value,
            declined=args.may_decline and reply.text.strip() == "CANNOT_DETERMINE",
            usd=reply.usd,
            tokens=reply.tokens,
        )
        return reply.delay_s, outcome


_DECLINE = "If this cannot be known, reply exactly: CANNOT_DETERMINE"
