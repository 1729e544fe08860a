"""Calls of agents that are under way. Knows which agents there are, what they still do, and when a reply is due.

A reply is read as what was asked for here, in one place for all agents: what does not fit is worth one more request in the same
conversation, then it is an error. Both are one step.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Mapping
from itertools import count
from typing import NamedTuple

import msgspec

from bartack.agents import (
    DECLINE_REQUEST,
    Prompt,
    ReplyFaultsError,
    Schema,
    ScriptedAgent,
    ScriptedCall,
    ScriptedReply,
    is_declined,
    read_text,
    read_value,
    repair_request,
)
from bartack.errors import AgentCapabilityError, AgentConfigError, AgentError, ReplyInvalidError, ScriptError
from bartack.runtime._ledger import StartPrompt
from bartack.runtime._steps import ThinkArgs, ThinkOutcome
from bartack.runtime._tool_desk import ToolCall

Outcome = ThinkOutcome | AgentError


class Event(NamedTuple):
    """An agent calls a tool, has replied, or could not."""

    token: int
    what: Outcome | ToolCall


class _Call:
    """One prompt on its way."""

    def __init__(self, action: StartPrompt, agent: ScriptedAgent, name: str, reply: ScriptedReply) -> None:
        self.action = action
        self.agent = agent
        self.name = name
        self.reply = reply
        self.left = deque(reply.calls)
        self.current: ScriptedCall | None = None
        self.requests = 0


class Prompts:
    """Sends prompts to agents, passes the tools on that they call, and keeps their replies until they are due."""

    def __init__(
        self,
        agents: Mapping[str, ScriptedAgent],
        default: str,
        cwd: str,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._agents = agents
        self._default = default
        self._cwd = cwd
        self._now = now
        self._numbers = count()
        self._calls: dict[int, _Call] = {}
        self._due: list[tuple[float, int, Event]] = []

    def start(self, action: StartPrompt) -> None:
        """Call an agent; what it does is there when it is due."""
        try:
            call = self._calls[action.token] = self._ask(action)
            self._go_on(call)
        except AgentError as error:
            self._end(action.token, error)

    def stop(self, token: int) -> None:
        """Give a call up; that is its outcome, at once."""
        self._due = [item for item in self._due if item[2].token != token]
        heapq.heapify(self._due)
        self._end(token, AgentError("", "the call was given up"))

    def answer(self, token: int, request: int, value: bytes, problem: str) -> None:
        """A tool that an agent called has ended."""
        call = self._calls.get(token)
        if call is None or call.current is None or request != call.requests:
            return
        try:
            _check_answer(call, value, problem)
            self._go_on(call)
        except AgentError as error:
            self._end(token, error)

    def next_in_s(self) -> float | None:
        """Seconds until the next thing is due."""
        return max(self._due[0][0] - self._now(), 0.0) if self._due else None

    def take_ready(self) -> list[Event]:
        """What is due."""
        ready: list[Event] = []
        while self._due and self._due[0][0] <= self._now():
            ready.append(heapq.heappop(self._due)[2])
        return ready

    def _ask(self, action: StartPrompt) -> _Call:
        args = action.args
        name = args.agent or self._default
        agent = self._agents.get(name)
        if agent is None:
            known = ", ".join(sorted(self._agents)) or "none"
            raise AgentConfigError(name, f"there is no such agent (configured: {known})")
        if args.tools and not agent.capabilities.tools:
            raise AgentCapabilityError(name, "it cannot call tools")
        text = f"{args.prompt}\n\n{DECLINE_REQUEST}" if args.may_decline else args.prompt
        return _Call(action, agent, name, agent.reply(Prompt(action.key, args.name, text, self._cwd)))

    def _go_on(self, call: _Call) -> None:
        """The next call of a tool, or the reply."""
        token = call.action.token
        if call.left:
            call.current = call.left.popleft()
            call.requests += 1
            arguments = msgspec.json.encode(call.current.arguments, order="deterministic")
            self._put(token, ToolCall(call.requests, call.current.tool, arguments, call.current.id))
        elif call.reply.failure:
            raise AgentError(call.name, call.reply.failure)
        else:
            self._end(token, self._conclude(call), call.reply.delay_s)

    def _conclude(self, call: _Call) -> Outcome:
        """The reply as what was asked for. One that does not fit is to be mended, once."""
        args, reply = call.action.args, call.reply
        try:
            return _read(call, reply)
        except ReplyFaultsError as faults:
            assert args.schema is not None
            mended = None if reply.exact else self._mend(call, repair_request(faults.faults, args.schema))
            if mended is None:
                raise ReplyInvalidError(call.name, str(faults), reply.text) from None
        try:
            return _read(call, mended, reply)
        except ReplyFaultsError as faults:
            raise ReplyInvalidError(call.name, str(faults), mended.text) from None

    def _mend(self, call: _Call, request: str) -> ScriptedReply | None:
        """What the agent says to the faults of its reply; ``None`` if its script says nothing to that."""
        prompt = Prompt(f"{call.action.key}:repair", call.action.args.name, request, self._cwd)
        try:
            return call.agent.reply(prompt)
        except ScriptError:
            return None

    def _end(self, token: int, outcome: Outcome, delay_s: float = 0.0) -> None:
        self._calls.pop(token, None)
        self._put(token, outcome, delay_s)

    def _put(self, token: int, what: Outcome | ToolCall, delay_s: float = 0.0) -> None:
        heapq.heappush(self._due, (self._now() + delay_s, next(self._numbers), Event(token, what)))


def _check_answer(call: _Call, value: bytes, problem: str) -> None:
    """What a tool returned must be what the script expects, if it says."""
    made, call.current = call.current, None
    assert made is not None
    if made.expect is msgspec.UNSET:
        return
    found: object = problem or msgspec.json.decode(value)
    if found != made.expect:
        raise ScriptError(call.name, f"{made.tool} returned {found!r}, and {made.expect!r} was expected")


def _read(call: _Call, reply: ScriptedReply, first: ScriptedReply | None = None) -> ThinkOutcome:
    args = call.action.args
    declined = args.may_decline and is_declined(reply.text)
    text, value = (reply.text, None) if declined else _read_reply(args, reply.text)
    return ThinkOutcome(
        key=call.action.key,
        agent=call.name,
        text=text,
        value=value,
        declined=declined,
        usd=reply.usd + (first.usd if first is not None else 0.0),
        tokens=reply.tokens + (first.tokens if first is not None else 0),
        turns=1 if first is None else 2,
    )


def _read_reply(args: ThinkArgs, text: str) -> tuple[str, msgspec.Raw | None]:
    schema: Schema | None = args.schema
    if schema is None:
        return read_text(text), None
    encoded = msgspec.json.encode(read_value(text, schema))
    return encoded.decode(), msgspec.Raw(encoded)
