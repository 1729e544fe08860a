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
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from bartack.agents import (
    DECLINE_REQUEST,
    Prompt,
    ReplyFaultsError,
    ScriptedAgent,
    ScriptedCall,
    ScriptedReply,
    read_reply,
    repair_request,
)
from bartack.errors import AgentCapabilityError, AgentConfigError, AgentError, ReplyInvalidError, ScriptError
from bartack.runtime._ledger import StartPrompt
from bartack.runtime._steps import CommandArgs, ThinkOutcome
from bartack.runtime._tool_desk import TalkBegins, ToolCall

if TYPE_CHECKING:
    from bartack.runtime._programs import Programs

Outcome = ThinkOutcome | AgentError


class Event(NamedTuple):
    """An agent calls a tool, begins anew, has replied, or could not."""

    token: int
    what: Outcome | ToolCall | TalkBegins


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
        self._calls: dict[int, _Call] = {}
        self._due: list[tuple[float, int, Event]] = []

    def start(self, action: StartPrompt) -> None:
        """Call an agent; what it does is there when it is due."""
        try:
            if self.programs is not None and self.programs.serves(self._name(action), action.args):
                self.programs.start(action, self._name(action))
            elif action.args.command is not None:
                self._end(action.token, self._obey(action, action.args.command))
            else:
                call = self._calls[action.token] = self._ask(action)
                self._go_on(call)
        except AgentError as error:
            self._end(action.token, error)

    def stop(self, token: int) -> None:
        """Give a call up; that is its outcome, at once, or as soon as nothing of a program's work is left."""
        if self.programs is not None and self.programs.stop(token):
            return
        self._due = [item for item in self._due if item[2].token != token]
        heapq.heapify(self._due)
        self._end(token, AgentError("", "the call was given up"))

    def answer(self, token: int, request: int, value: bytes, problem: str) -> None:
        """A tool that an agent called has ended."""
        if self.programs is not None and self.programs.answer(token, request, value, problem):
            return
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
        own = max(self._due[0][0] - self._now(), 0.0) if self._due else None
        program = None if self.programs is None else self.programs.next_in_s()
        return own if program is None else program if own is None else min(own, program)

    def take_ready(self) -> list[Event]:
        """What is due."""
        told = () if self.programs is None else self.programs.take_ready()
        ready = [Event(token, what) for token, what in told]
        while self._due and self._due[0][0] <= self._now():
            ready.append(heapq.heappop(self._due)[2])
        return ready

    def _name(self, action: StartPrompt) -> str:
        return action.args.agent or self._default

    def _obey(self, action: StartPrompt, command: CommandArgs) -> Outcome:
        """Have a scripted agent do what a command asks, without a process: runs in memory do."""
        from bartack.agents import obey  # noqa: PLC0415 - only runs in memory need it
        from bartack.runtime._programs import make_outcome, make_request  # noqa: PLC0415 - likewise

        name = self._name(action)
        request = make_request(action, self._run_id, command.cwd or self._cwd)
        return make_outcome(action, name, obey(self._agent(name), request))

    def _agent(self, name: str) -> ScriptedAgent:
        agent = self._agents.get(name)
        if agent is None:
            known = ", ".join(sorted(self._agents)) or "none"
            raise AgentConfigError(name, f"there is no such agent (configured: {known})")
        return agent

    def _ask(self, action: StartPrompt) -> _Call:
        args = action.args
        name = self._name(action)
        agent = self._agent(name)
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
            raise _charged(AgentError(call.name, call.reply.failure), call.reply)
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
                raise _charged(ReplyInvalidError(call.name, str(faults), reply.text), reply) from None
        try:
            return _read(call, mended, reply)
        except ReplyFaultsError as faults:
            error = ReplyInvalidError(call.name, str(faults), mended.text)
            raise _charged(error, reply, mended) from None

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
    read = read_reply(reply.text, args.schema, may_decline=args.may_decline)
    wanted = args.schema is not None and not read.declined
    return ThinkOutcome(
        key=call.action.key,
        agent=call.name,
        text=read.text,
        value=msgspec.Raw(read.text.encode()) if wanted else None,
        declined=read.declined,
        usd=reply.usd + (first.usd if first is not None else 0.0),
        tokens=reply.tokens + (first.tokens if first is not None else 0),
        turns=1 if first is None else 2,
    )


def _charged(error: AgentError, *replies: ScriptedReply) -> AgentError:
    """An error that costs what the replies did."""
    error.usd = sum(reply.usd for reply in replies)
    error.tokens = sum(reply.tokens for reply in replies)
    return error
