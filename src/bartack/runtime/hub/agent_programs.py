"""Agents that are programs, in the loop of the hub: their processes, the calls to them, and the outcomes of those.

Everything about the protocol is decided in ``bartack.agents``; here a step becomes a request, and a result the outcome of a step.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, Protocol

import msgspec

from bartack.agents import (
    DECLINE_REQUEST,
    ROLES,
    AgentEvent,
    AgentRequest,
    AgentResult,
    Budget,
    CallRateLimit,
    CallRetry,
    CallStarted,
    ExpectedOutput,
    Host,
    NdjsonAgent,
    NdjsonCall,
    NdjsonConfig,
    ScriptedConfig,
    Surroundings,
    ToolOutcome,
    ToolSpec,
    Version,
    describe_retry,
    parse_moment,
    program_config,
    scripted_argv,
)
from bartack.agents import Outcome as AgentOutcome
from bartack.config.load import Config
from bartack.errors import AgentCancelledError, AgentError
from bartack.runtime.kernel.actions import StartPrompt
from bartack.runtime.kernel.tools import TalkBegins, TalkFails, TalkWaits, ToolCall
from bartack.runtime.protocol.steps import CommandArgs, ThinkArgs, ThinkOutcome

WIND_DOWN_S: Final = 2.0
"""How long agents that have nothing to do may take to end when the run does."""

IDLE_ELSEWHERE_S: Final = 2.0
"""How long an agent is kept that works outside of the workspace, and has nothing to do."""

WHY: Final = 300
"""Characters of why an attempt came to nothing, for people."""

Outcome = ThinkOutcome | AgentError
Ready = Outcome | ToolCall | TalkBegins | TalkWaits | TalkFails
"""What has become of a call, or happens during it."""


class AgentHost(Host, Protocol):
    """The loop that agents live in, and what else the end of a run needs of it."""

    @property
    def alive(self) -> bool:
        """Whether a process of an agent is left."""
        ...

    def show(self, channel: Literal["note"], worker: str, text: str, /) -> None:
        """Show people a note."""
        ...

    def pump(self, timeout_s: float) -> None:
        """Wait for agents only."""
        ...


class Programs:
    """The calls of such agents that are under way."""

    def __init__(
        self,
        config: Config,
        *,
        folder: Path,
        workspace: str,
        environment: Mapping[str, str],
        environ: Mapping[str, str] | None = None,
        memory: Path | None = None,
    ) -> None:
        self._config = config.agents
        self.strict = config.budget.strict
        """An agent that does not report its cost counts as having used all that was reserved."""
        self._surroundings = Surroundings(
            run=dict(environment),
            folder=folder,
            environ=dict(os.environ if environ is None else environ),
            protocol=config.protocol,
            secrets=config.redaction.rule,
            max_artifact_bytes=config.artifacts.max_bytes,
        )
        self._workspace = workspace
        self._memory = memory
        """Where programs keep what they have to remember, if they cannot write to the directory of the agents."""
        self._host: AgentHost | None = None
        self._agents: dict[tuple[str, str], NdjsonAgent] = {}
        """By name, and directory: a process that is kept stays where it works."""
        self._calls: dict[int, NdjsonCall] = {}
        self._queue: list[tuple[StartPrompt, str]] = []
        """What waits because too many calls are under way."""
        self._numbers = 0
        self._ready: list[tuple[int, Ready]] = []
        self._tools: dict[tuple[int, int], str] = {}
        """What each call of a tool is called by its agent: by prompt, and number of the call."""

    def attach(self, host: AgentHost) -> None:
        """From now on agents can be started."""
        self._host = host

    def serves(self, name: str, args: ThinkArgs) -> bool:
        """Whether this is for an agent that is a program. A scripted one answers prompts itself."""
        agent = self._config.named.get(name)
        acts = args.command is not None and not args.command.prompt
        return isinstance(agent, NdjsonConfig) or (agent is not None and acts)

    def start(self, action: StartPrompt, name: str) -> None:
        """Ask an agent, as soon as there is room for another call.

        Raises:
            AgentError: It cannot be asked.
        """
        if self._queue or not self._has_room():
            self._queue.append((action, name))
        else:
            self._begin(action, name)

    def _has_room(self) -> bool:
        """A call that waits for a tool does not count: the tool may have to ask an agent itself."""
        return len(self._calls) - len({token for token, _ in self._tools}) < self._config.max_parallel

    def _fill(self) -> None:
        """Begin what has waited, in order."""
        while self._queue and self._has_room():
            action, name = self._queue.pop(0)
            try:
                self._begin(action, name)
            except AgentError as error:
                self._ready.append((action.token, error))

    def _begin(self, action: StartPrompt, name: str) -> None:
        request = make_request(action, self._surroundings.run["BARTACK_RUN"], self._workspace)
        sink = _Sink(self, action, name)
        self._calls[action.token] = self._agent(name, request.cwd).start(request, sink)
        if sink.over:
            del self._calls[action.token]

    def stop(self, token: int) -> bool:
        """Cancel a call; ``False`` if there is none."""
        waiting = [item for item in self._queue if item[0].token != token]
        if len(waiting) < len(self._queue):
            self._queue = waiting
            self._ready.append((token, AgentCancelledError("", "the call was cancelled", "user")))
            return True
        call = self._calls.get(token)
        if call is None:
            return False
        call.cancel("deadline" if call.talk.deadline_in_s <= 1.0 else "session_failed")
        return True

    def next_in_s(self) -> float | None:
        """Seconds until something is due."""
        if self._ready or (self._queue and self._has_room()):
            return 0.0
        dues = [due for agent in self._agents.values() if (due := agent.next_due()) is not None]
        return max(min(dues) - self._now(), 0.0) if dues else None

    def take_ready(self) -> list[tuple[int, Ready]]:
        """Calls that have ended, and the tools that are called; timers of the other calls are advanced."""
        now = self._now() if self._agents else 0.0
        for agent in self._agents.values():
            due = agent.next_due()
            if due is not None and due <= now:
                agent.tick()
        self._fill()
        ready, self._ready = self._ready, []
        return ready

    def _now(self) -> float:
        assert self._host is not None
        return self._host.clock.monotonic_ns() / 1e9

    def done(self, token: int, outcome: Outcome) -> None:
        """A call has ended."""
        self._calls.pop(token, None)
        self._forget_tools(token)
        self._ready.append((token, outcome))

    def begin_again(self, token: int) -> None:
        """A command is sent once more: the tools that the agent called before are not waited for any longer."""
        self._forget_tools(token)
        self._ready.append((token, TalkBegins()))

    def wait(self, action: StartPrompt, name: str, event: CallRateLimit) -> None:
        """An agent is rate limited until a moment."""
        until = parse_moment(event.resets_at) or 0
        self._ready.append((action.token, TalkWaits(until, name, event.error, event.status)))
        self.show(action.path, f"agent {name} is rate limited until {event.resets_at}: {event.error}")

    def attempt_failed(self, action: StartPrompt, name: str, event: CallRetry) -> None:
        """An attempt came to nothing, and the agent is asked again."""
        what = "a prompt" if action.args.command is None else action.args.command.action
        text = describe_retry(event.attempt, what, event.code, event.error[:WHY])
        self._ready.append((action.token, TalkFails(name, event.attempt, event.code, text)))

    def _forget_tools(self, token: int) -> None:
        self._tools = {key: call_id for key, call_id in self._tools.items() if key[0] != token}

    def call_tool(self, token: int, call_id: str, name: str, arguments: dict[str, object]) -> None:
        """An agent calls a tool of its prompt."""
        self._numbers += 1
        self._tools[token, self._numbers] = call_id
        encoded = msgspec.json.encode(arguments, order="deterministic")
        self._ready.append((token, ToolCall(self._numbers, name, encoded, call_id)))

    def answer(self, token: int, request: int, value: bytes, problem: str) -> bool:
        """A tool has ended; ``False`` if none of these agents called it."""
        call_id = self._tools.pop((token, request), None)
        call = self._calls.get(token)
        if call_id is None or call is None:
            return call_id is not None
        outcome = (
            ToolOutcome(code="tool_failed", message=problem)
            if problem
            else ToolOutcome(result=msgspec.json.decode(value))
        )
        call.tool_ended(call_id, outcome)
        return True

    def pids(self) -> list[tuple[int, str]]:
        """The processes of agents, each with the agent's name."""
        return [(pid, name) for (name, _), agent in self._agents.items() for pid in agent.pids()]

    def wind_down(self) -> None:
        """Stop the agents, all at the same time, and then close them."""
        for agent in self._agents.values():
            agent.stop_all()
        until = time.monotonic() + WIND_DOWN_S
        while self._host is not None and self._host.alive and (left := until - time.monotonic()) > 0:
            self._host.pump(left)
        for agent in self._agents.values():
            agent.close()
        self._agents.clear()

    def show(self, worker: str, text: str) -> None:
        """Show people a note."""
        if self._host is not None:
            self._host.show("note", worker, text)

    def _agent(self, name: str, cwd: str) -> NdjsonAgent:
        agent = self._agents.get((name, cwd))
        if agent is None:
            assert self._host is not None
            config = self._config.named[name]
            settings = config if isinstance(config, NdjsonConfig) else self._scripted(name, config, cwd)
            kind = "ndjson" if isinstance(config, NdjsonConfig) else "scripted"
            if cwd != self._workspace:
                # Whether it will be needed there again is unknown, and the directory may be removed soon.
                idle_s = min(settings.idle_stop_s, IDLE_ELSEWHERE_S)
                settings = msgspec.structs.replace(settings, idle_stop_s=idle_s)
            agent = self._agents[name, cwd] = NdjsonAgent(
                name, settings, self._host, self._surroundings, kind=kind
            )
        return agent

    def _scripted(self, name: str, config: ScriptedConfig, cwd: str) -> NdjsonConfig:
        folder = self._surroundings.folder / name
        script = os.path.join(self._workspace, config.script)
        # One memory for each directory: side by side, processes would write over each other's.
        beside = os.path.relpath(cwd, self._workspace).replace(os.sep, "%")
        place = "" if cwd == self._workspace else f"-{beside}"
        memory = folder / f"state{place}.json"
        if self._memory is not None:
            memory = self._memory / f"{name}.state{place}.json"
        return program_config(scripted_argv(sys.executable, script, str(memory), config.permissions))


class _Sink:
    """Takes the events of one call."""

    def __init__(self, programs: Programs, action: StartPrompt, name: str) -> None:
        self.over = False
        self._begun = False
        self._waits = False
        """The agent is rate limited: that is shown already, and the attempt did not fail."""
        self._programs = programs
        self._action = action
        self._name = name

    def emit(self, event: AgentEvent) -> None:
        """See ``CallSink.emit``: the transcript has it already."""
        if isinstance(event, CallStarted):
            if self._begun:
                self._programs.begin_again(self._action.token)
            self._begun = True
        elif isinstance(event, CallRateLimit):
            self._waits = True
            self._programs.wait(self._action, self._name, event)
        elif isinstance(event, CallRetry) and not self._waits:
            self._programs.attempt_failed(self._action, self._name, event)
        elif isinstance(event, CallRetry):
            self._waits = False

    def warn(self, text: str) -> None:
        """See ``CallSink.warn``."""
        self._programs.show(self._action.path, text)

    def call_tool(self, call_id: str, name: str, arguments: dict[str, object]) -> None:
        """See ``CallSink.call_tool``."""
        self._programs.call_tool(self._action.token, call_id, name, arguments)

    def done(self, outcome: AgentOutcome) -> None:
        """See ``CallSink.done``."""
        self.over = True
        settled = outcome if isinstance(outcome, AgentError) else self._settle(outcome)
        self._programs.done(self._action.token, settled)

    def _settle(self, result: AgentResult) -> Outcome:
        """The outcome with its cost: what the agent reports, or what the settings count if it reports none."""
        made = make_outcome(self._action, self._name, result)
        reserved = self._action.reserved_usd
        if not reserved or result.usage.cost_usd is not None:
            return made
        counted = reserved if self._programs.strict else 0.0
        self.warn(f"agent {self._name} did not report its cost: {counted:.2f} USD are counted")
        return msgspec.structs.replace(made, usd=counted)


def make_request(action: StartPrompt, run_id: str, workspace: str) -> AgentRequest:
    """What an agent is asked for a step."""
    args, command = action.args, action.args.command
    # Where there is a budget, what is reserved is all that the call may cost, whatever it asked for.
    budget = Budget(usd=action.reserved_usd or args.max_usd, turns=args.max_turns)
    if command is None:
        return AgentRequest(
            run_id=run_id,
            key=action.key,
            worker=action.p or action.path,
            step=action.n,
            epoch=action.epoch,
            inputs=_prompt_inputs(action),
            tools=[ToolSpec(tool.name, tool.description, tool.schema) for tool in args.tools],
            cwd=workspace,
            name=args.name,
            budget=budget,
            timeout_s=action.timeout_s,
            attempt=action.attempt,
            may_decline=args.may_decline,
            trace=action.trace,
            rejected=action.rejected[0],
            rejected_because=action.rejected[1],
        )
    return AgentRequest(
        run_id=run_id,
        key=command.key or action.key,
        worker=action.p or action.path,
        step=action.n,
        epoch=action.epoch,
        action=command.action,
        role=command.role or ROLES.get(command.action, "general"),
        task_id=command.task_id,
        inputs=command.inputs,
        expected_outputs=_outputs(command),
        version=Version(command.snapshot_id, command.specs_hash or None),
        pinning=command.pinning,
        cwd=os.path.normpath(os.path.join(workspace, command.cwd)) if command.cwd else workspace,
        name=args.name,
        budget=_command_budget(action, command, budget),
        timeout_s=action.timeout_s,
        attempt=action.attempt,
        refused_paths=command.refused_paths,
        rejected=command.rejected or action.rejected[0],
        rejected_because=command.rejected_because or action.rejected[1],
        attempts_before=command.attempts_before,
        trace=action.trace,
    )


def _command_budget(action: StartPrompt, command: CommandArgs, budget: Budget) -> Budget:
    """What a command may use: what was reserved for it, where the hub knows how many are given at a time."""
    reserved = action.reserved
    if not command.share:
        return msgspec.structs.replace(budget, tokens=command.max_tokens)
    return Budget(
        usd=budget.usd,
        tokens=reserved.tokens or command.max_tokens,
        turns=reserved.turns or budget.turns,
        wall_s=reserved.wall_s or None,
    )


def _outputs(command: CommandArgs) -> list[ExpectedOutput]:
    return [
        ExpectedOutput(output.path, output.required, output.description or None)
        for output in command.expected_outputs
    ]


def _prompt_inputs(action: StartPrompt) -> dict[str, object]:
    args = action.args
    text = f"{args.prompt}\n\n{DECLINE_REQUEST}" if args.may_decline else args.prompt
    context: dict[str, object] = {"name": args.name}
    if args.system:
        context["system"] = args.system
    inputs: dict[str, object] = {
        "text": text,
        "iteration": {"epoch": action.epoch, "step": action.n},
        "context": context,
    }
    if args.schema is not None:
        inputs["result_schema"] = args.schema
    return inputs


def make_outcome(action: StartPrompt, name: str, result: AgentResult) -> ThinkOutcome:
    """The outcome of a step whose agent has answered."""
    args = action.args
    wanted = args.schema is not None and args.command is None and not result.declined
    return ThinkOutcome(
        key=action.key,
        agent=name,
        text=result.text if args.command is None else "",
        value=msgspec.Raw(_json(result.value)) if wanted else None,
        declined=result.declined,
        conversation=result.conversation,
        usd=result.usage.cost_usd or 0.0,
        tokens=result.usage.tokens,
        turns=result.usage.turns or 1,
        result=None if args.command is None else msgspec.Raw(_json(result)),
    )


def _json(value: object) -> bytes:
    return msgspec.json.encode(value)
