"""Calls of agents that are under way: which agents are configured, what they still do, and when a reply is due.

Replies are checked here against what was asked for, in one place for all agents. An invalid reply leads to one more request in the
same conversation, a second one is an error. Both requests are one step. Agents that are programs are in ``programs.py``.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from bartack.agents import AgentAnswer, AgentQuestion, ScriptedAgent
from bartack.agents.in_words import reply_schema
from bartack.agents.protocol.messages import ROLES, Role
from bartack.agents.reply import DECLINE_REQUEST, ReplyFaultsError, read_reply, repair_request
from bartack.agents.scripted.scripted import Prompt, ScriptedAsk, ScriptedCall, ScriptedReply
from bartack.core.clock import Clock, SystemClock
from bartack.errors import (
    AgentCapabilityError,
    AgentConfigError,
    AgentError,
    BartackError,
    ReplyInvalidError,
    ScriptError,
)
from bartack.runtime.kernel.actions import AnswerQuestion, StartPrompt
from bartack.runtime.kernel.tools import TalkAsks, TalkBegins, TalkFails, TalkWaits, TalkWithdraws, ToolCall
from bartack.runtime.protocol.steps import CommandArgs, ThinkOutcome, UsageFacts

if TYPE_CHECKING:
    from bartack.agents import Usage
    from bartack.agents.scripted.talk import ScriptedTalk
    from bartack.runtime.hub.agents.programs import Programs

Outcome = ThinkOutcome | AgentError


class Event(NamedTuple):
    """An agent calls a tool, asks a person, withdraws a question, begins anew, is asked again, has replied, or could not."""

    token: int
    what: Outcome | ToolCall | TalkAsks | TalkWithdraws | TalkBegins | TalkWaits | TalkFails


class _Call:
    """One prompt on its way."""

    def __init__(self, action: StartPrompt, agent: ScriptedAgent, name: str, reply: ScriptedReply) -> None:
        self.action = action
        self.agent = agent
        self.name = name
        self.reply = reply
        command = action.args.command
        self.schema = action.args.schema if command is None else reply_schema(command.action)
        """What the reply has to be."""
        self.asks = deque(reply.asks)
        self.asked: ScriptedAsk | None = None
        """The question that waits for its answer."""
        self.left = deque(reply.calls)
        self.current: ScriptedCall | None = None
        self.requests = 0
        """How many questions it has asked and tools it has called."""


class Prompts:
    """Sends prompts to agents, passes on their tool calls, and keeps their replies until they are due."""

    def __init__(
        self,
        agents: Mapping[str, ScriptedAgent],
        default: str,
        cwd: str,
        clock: Clock | None = None,
        programs: Programs | None = None,
        run_id: str = "",
    ) -> None:
        self._agents = agents
        self._default = default
        self._cwd = cwd
        self._run_id = run_id
        self._clock = clock or SystemClock()
        self.programs = programs
        """Agents that are programs; a run in memory has none."""
        self._numbers = count()
        self._calls: dict[int, _Call] = {}
        self._due: list[tuple[float, int, Event]] = []
        self._later: list[tuple[float, int, StartPrompt]] = []
        """Prompts to agents that are rate limited, and when they are sent again."""
        self._talks: dict[int, ScriptedTalk] = {}
        """The transcripts of calls of scripted agents that are under way."""

    def start(self, action: StartPrompt) -> None:
        """Call an agent; ``take_ready`` returns what it does when it is due."""
        try:
            self._check(action)
            if self.programs is not None and self.programs.serves(self._name(action), action.args):
                self.programs.start(action, self._name(action))
            elif action.args.command is not None and not action.args.command.prompt:
                self._end(action.token, self._obey(action, action.args.command))
            else:
                call = self._calls[action.token] = self._ask(action)
                self._continue(call)
        except AgentError as error:
            self._end(action.token, error)

    def _check(self, action: StartPrompt) -> None:
        if action.args.schema is not None or action.args.tools:
            from bartack.runtime.hub.agents.requests import check_schemas  # noqa: PLC0415 - most prompts want text

            check_schemas(self._name(action), action.args)

    def save_conversations(self) -> None:
        """See ``Programs.save_conversations``."""
        if self.programs is not None:
            self.programs.save_conversations()

    def stop(self, token: int) -> None:
        """Cancel a call; that is its outcome, at once, or when the processes of a program have ended."""
        if self.programs is not None and self.programs.stop(token):
            return
        self._due = [item for item in self._due if item[2].token != token]
        self._later = [item for item in self._later if item[2].token != token]
        heapq.heapify(self._due)
        heapq.heapify(self._later)
        self._end(token, AgentError("", "the call was cancelled"))

    def answer(self, token: int, request: int, value: bytes, problem: str) -> None:
        """A tool that an agent called has ended."""
        if self.programs is not None and self.programs.answer(token, request, value, problem):
            return
        call = self._calls.get(token)
        if call is None or call.current is None or request != call.requests:
            return
        if token in self._talks:
            self._talks[token].tool_ended(failed=bool(problem))
        try:
            _check_answer(call, value, problem)
            self._continue(call)
        except AgentError as error:
            self._end(token, error)

    def answer_question(self, action: AnswerQuestion) -> None:
        """A question of an agent was answered."""
        if self.programs is not None and self.programs.answered(action):
            return
        call = self._calls.get(action.token)
        if call is None or call.asked is None or action.question != f"ask-{call.requests}":
            return
        try:
            _check_reply(call, action.answer)
            self._continue(call)
        except AgentError as error:
            self._end(action.token, error)

    def next_in_s(self) -> float | None:
        """Seconds until the next thing is due."""
        if self._is_idle():
            return None
        dues = [queue[0][0] for queue in (self._due, self._later) if queue]
        own = max(min(dues) - self._now(), 0.0) if dues else None
        program = None if self.programs is None else self.programs.next_in_s()
        return own if program is None else program if own is None else min(own, program)

    def take_ready(self) -> list[Event]:
        """What is due."""
        if self._is_idle():
            return []
        of_programs = () if self.programs is None else self.programs.take_ready()
        ready = [Event(token, what) for token, what in of_programs]
        self._start_due()
        while self._due and self._due[0][0] <= self._now():
            event = heapq.heappop(self._due)[2]
            if event.token in self._talks and isinstance(event.what, Outcome):
                self._talks.pop(event.token).finished(event.what)
            ready.append(event)
        return ready

    def _is_idle(self) -> bool:
        """Whether nothing can become due. This is asked in every turn."""
        return self.programs is None and not self._due and not self._later

    def unused(self) -> list[str | BartackError]:
        """Reports of rules of scripts that were never used: texts, or errors where a script requires that all are used."""
        found: list[str | BartackError] = []
        for name, agent in self._agents.items():
            strict = agent.script.strict_unused
            if agent.unused and (strict or agent.is_used):
                text = f"rules of its script that were never used: {', '.join(map(str, agent.unused))}"
                found.append(ScriptError(name, text) if strict else f"agent {name}: {text}")
        return found

    def _name(self, action: StartPrompt) -> str:
        return action.args.agent or self._default

    def _obey(self, action: StartPrompt, command: CommandArgs) -> Outcome:
        """Have a scripted agent execute a command without a process, as runs in memory do."""
        from bartack.agents.scripted.call import obey  # noqa: PLC0415 - only runs in memory need it
        from bartack.runtime.hub.agents.requests import make_outcome, make_request  # noqa: PLC0415 - likewise

        name = self._name(action)
        request = make_request(action, self._run_id, command.cwd or self._cwd)
        return make_outcome(action, name, obey(self._agent(name), request))

    def _agent(self, name: str) -> ScriptedAgent:
        agent = self._agents.get(name)
        if agent is None:
            known = ", ".join(sorted(self._agents)) or "none"
            error = AgentConfigError(name, f"there is no such agent (configured: {known})")
            if not self._agents:
                error.remedy = (
                    "Add a section [agents.NAME] to bartack.toml, or have one written: bartack init --example"
                )
            raise error
        return agent

    def _ask(self, action: StartPrompt) -> _Call:
        args = action.args
        name = self._name(action)
        agent = self._agent(name)
        if args.tools and not agent.capabilities.tools:
            raise AgentCapabilityError(name, "it cannot call tools")
        text = f"{args.prompt}\n\n{DECLINE_REQUEST}" if args.may_decline else args.prompt
        key, cwd = action.key, self._cwd
        role: Role = "general"
        if args.command is not None:
            role = args.command.role or ROLES.get(args.command.action, "general")
            text, key, cwd = args.command.prompt, args.command.key or key, args.command.cwd or cwd
            if args.command.rejected:
                key = f"{key}:{action.p}:{action.n}"  # its answer under this key was refused
                from bartack.runtime.hub.agents.requests import refusal  # noqa: PLC0415 - most answers are not refused

                text = f"{text}\n\n{refusal(args.command)}" if args.command.rejected_because else text
        if action.rejected[0]:
            # The key of the step is another one than before, but that of a command is its own.
            key = f"{key}:{action.key}"
            text = f"{text}\n\nYour last answer was refused: {action.rejected[1]}"
        while (before := agent.recall(key)) is not None and before.until_s:
            key = f"{key}:again"  # its answer under this key was that it is rate limited
        talk = self._transcribe(action, name)
        reply = agent.reply(Prompt(key, args.name, text, cwd, role))
        if args.command is None and self.programs is not None:
            for denied in reply.denials:
                self.programs.show(action.path, f"agent {name}: {denied}")
                if talk is not None:
                    talk.notice(str(denied))
        return _Call(action, agent, name, reply)

    def _transcribe(self, action: StartPrompt, name: str) -> ScriptedTalk | None:
        """The transcript of a call that begins, or begins again; a run in memory has none."""
        if self.programs is None:
            return None
        talk = self._talks.get(action.token)
        if talk is None:
            talk = self._talks[action.token] = self.programs.transcribe(action, name, self._clock)
        talk.started(action.attempt)
        return talk

    def _continue(self, call: _Call) -> None:
        """The next question, the next call of a tool, or the reply."""
        token = call.action.token
        if call.asks:
            call.asked = call.asks.popleft()
            call.requests += 1
            self._put(token, TalkAsks(_question(call.asked, f"ask-{call.requests}")))
        elif call.left:
            call.current = call.left.popleft()
            call.requests += 1
            arguments = msgspec.json.encode(call.current.arguments, order="deterministic")
            if token in self._talks:
                own_id = call.current.id or f"call-{call.requests}"
                self._talks[token].tool_called(own_id, call.current.tool, arguments.decode())
            self._put(token, ToolCall(call.requests, call.current.tool, arguments, call.current.id))
        elif call.reply.until_s:
            self._wait(call)
        elif call.reply.failure:
            raise _charged(AgentError(call.name, call.reply.failure), call.reply)
        else:
            self._end(token, self._conclude(call), call.reply.delay_s)

    def _wait(self, call: _Call) -> None:
        """The agent is rate limited: it is asked again when the limit ends."""
        action, reply = call.action, call.reply
        until = self._clock.now_us() + int(reply.until_s * 1e6)
        self._calls.pop(action.token, None)
        if action.token in self._talks:
            self._talks[action.token].limited(until, reply.failure)
        self._put(action.token, TalkWaits(until, call.name, reply.failure))
        again = (self._now() + reply.until_s, next(self._numbers), action)
        heapq.heappush(self._later, again)

    def _start_due(self) -> None:
        while self._later and self._later[0][0] <= self._now():
            self.start(heapq.heappop(self._later)[2])

    def _conclude(self, call: _Call) -> Outcome:
        """The reply as what was asked for. The agent may correct an invalid one, once."""
        reply = call.reply
        self._said(call, reply)
        try:
            return self._read(call, reply)
        except ReplyFaultsError as faults:
            assert call.schema is not None
            repaired = None if reply.exact else self._repair(call, repair_request(faults.faults, call.schema))
            if repaired is None:
                raise _charged(ReplyInvalidError(call.name, str(faults), reply.text), reply) from None
            if call.action.token in self._talks:
                self._talks[call.action.token].retried("invalid_reply", str(faults))
        self._said(call, repaired)
        try:
            return self._read(call, repaired, reply)
        except ReplyFaultsError as faults:
            error = ReplyInvalidError(call.name, str(faults), repaired.text)
            raise _charged(error, reply, repaired) from None

    def _said(self, call: _Call, reply: ScriptedReply) -> None:
        if call.action.token in self._talks:
            self._talks[call.action.token].said(reply.text, _usage_of(reply))

    def _read(self, call: _Call, reply: ScriptedReply, first: ScriptedReply | None = None) -> ThinkOutcome:
        args = call.action.args
        read = read_reply(reply.text, call.schema, may_decline=args.may_decline)
        wanted = call.schema is not None and not read.declined
        outcome = ThinkOutcome(
            key=call.action.key,
            agent=call.name,
            text=read.text,
            value=msgspec.Raw(read.text.encode()) if wanted else None,
            declined=read.declined,
            usd=reply.usd + (first.usd if first is not None else 0.0),
            tokens=reply.tokens + (first.tokens if first is not None else 0),
            turns=1 if first is None else 2,
            usage=_usage_facts(*([reply] if first is None else [first, reply])),
        )
        return outcome if args.command is None else self._answer(call, outcome, read.value)

    def _answer(self, call: _Call, outcome: ThinkOutcome, value: object) -> ThinkOutcome:
        """A reply to the text of a command, as the answer to the command."""
        from bartack.agents import AgentResult, Usage  # noqa: PLC0415 - most prompts are not commands
        from bartack.agents.in_words import answer_event  # noqa: PLC0415 - most prompts are not commands
        from bartack.runtime.hub.agents.requests import make_request  # noqa: PLC0415 - likewise

        request = make_request(call.action, self._run_id, self._cwd)
        usage = Usage(input_tokens=outcome.tokens, turns=outcome.turns, cost_usd=outcome.usd)
        event = answer_event(request, call.name, value, usage, self._clock.now_us())
        denials = list(call.reply.denials)
        result = AgentResult(
            event=event,
            usage=usage,
            attempts=call.action.attempt,
            notes=[str(denied) for denied in denials],
            denials=denials,
        )
        encoded = msgspec.Raw(msgspec.json.encode(result))
        return msgspec.structs.replace(outcome, text="", value=None, result=encoded)

    def _repair(self, call: _Call, request: str) -> ScriptedReply | None:
        """The reply of the agent to the faults of its first one; ``None`` if its script has no rule for that."""
        prompt = Prompt(f"{call.action.key}:repair", call.action.args.name, request, self._cwd)
        try:
            return call.agent.reply(prompt)
        except ScriptError:
            return None

    def _now(self) -> float:
        return self._clock.monotonic_ns() / 1e9

    def _end(self, token: int, outcome: Outcome, delay_s: float = 0.0) -> None:
        self._calls.pop(token, None)
        self._put(token, outcome, delay_s)

    def _put(self, token: int, what: Outcome | ToolCall | TalkAsks | TalkWaits, delay_s: float = 0.0) -> None:
        heapq.heappush(self._due, (self._now() + delay_s, next(self._numbers), Event(token, what)))


def _check_answer(call: _Call, value: bytes, problem: str) -> None:
    """Raise if a tool did not return what the script expects of it."""
    made, call.current = call.current, None
    assert made is not None
    if made.expect is msgspec.UNSET:
        return
    found: object = problem or msgspec.json.decode(value)
    if found != made.expect:
        raise ScriptError(call.name, f"{made.tool} returned {found!r}, and {made.expect!r} was expected")


def _question(asked: ScriptedAsk, own_id: str) -> AgentQuestion:
    return AgentQuestion(
        id=own_id,
        kind=asked.kind,
        text=asked.question,
        options=asked.options,
        tool=asked.tool,
        input=asked.input,
        default=asked.default,
    )


def _check_reply(call: _Call, answer: AgentAnswer) -> None:
    """Raise if the answer to a question is not what the script expects."""
    made, call.asked = call.asked, None
    assert made is not None
    found = answer.refused or answer.text
    if made.expect is not msgspec.UNSET and found != made.expect:
        raise ScriptError(
            call.name, f"the answer to {made.question!r} is {found!r}, and {made.expect!r} was expected"
        )


def _usage_of(reply: ScriptedReply) -> Usage:
    from bartack.agents.scripted.talk import scripted_usage  # noqa: PLC0415 - only runs with scripted agents need it

    return scripted_usage(reply.by_kind, 1, reply.usd)


def _usage_facts(*replies: ScriptedReply) -> UsageFacts | None:
    from bartack.agents.usage import total_usage  # noqa: PLC0415 - only runs with scripted agents need it
    from bartack.runtime.hub.agents.requests import usage_facts  # noqa: PLC0415 - likewise

    return usage_facts(total_usage([_usage_of(reply) for reply in replies]))


def _charged(error: AgentError, *replies: ScriptedReply) -> AgentError:
    """An error that costs what the replies did."""
    error.usd = sum(reply.usd for reply in replies)
    error.tokens = sum(reply.tokens for reply in replies)
    return error
