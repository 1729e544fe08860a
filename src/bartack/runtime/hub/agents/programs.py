"""Agents that are programs, in the loop of the hub: their processes, and the calls to them.

Everything about an agent is decided in ``bartack.agents``; ``requests.py`` translates steps and results.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Literal, Protocol

import msgspec

from bartack.agents import Agent, AgentEvent, AgentQuestion, AgentResult, Call, open_agent
from bartack.agents import Outcome as AgentOutcome
from bartack.agents.bridge import BridgeHost
from bartack.agents.config import ScriptedConfig
from bartack.agents.contract import CallRateLimit, CallRetry, CallStarted, ToolOutcome
from bartack.agents.ndjson.agent import program_config, scripted_argv
from bartack.agents.program.adapter import Surroundings
from bartack.agents.program.cli_facts import read_in_project
from bartack.agents.program.daily_budget import DailyBudget
from bartack.agents.program.extra_dirs import find_bad_dirs, resolve_dirs
from bartack.agents.program_config import ClaudeConfig, CliConfig, CodexConfig, NdjsonConfig, ProgramConfig
from bartack.agents.protocol.codes import describe_retry
from bartack.agents.protocol.ids import parse_moment
from bartack.agents.scripted.talk import ScriptedTalk, ScriptedTranscripts
from bartack.agents.usage import is_unpriced
from bartack.config.load import Config
from bartack.core.clock import Clock
from bartack.core.user_home import user_home
from bartack.errors import AgentCancelledError, AgentConfigError, AgentError
from bartack.runtime.hub.agents.events import About, to_telemetry
from bartack.runtime.hub.agents.requests import as_answer, in_words, make_outcome, make_request
from bartack.runtime.kernel.actions import AnswerQuestion, StartPrompt
from bartack.runtime.kernel.tools import TalkAsks, TalkBegins, TalkFails, TalkWaits, TalkWithdraws, ToolCall
from bartack.runtime.protocol.steps import ThinkArgs, ThinkOutcome
from bartack.telemetry import NO_TELEMETRY, Telemetry

WIND_DOWN_S: Final = 2.0
"""How long agents that have nothing to do may take to end when the run does."""

IDLE_ELSEWHERE_S: Final = 2.0
"""How long an agent is kept that works outside of the workspace, and has nothing to do."""

WHY: Final = 300
"""Characters of why an attempt came to nothing, for people."""

SAME_LIMIT_US: Final = 60_000_000
"""Calls of an agent that wait until almost the same moment wait for the same limit."""

Outcome = ThinkOutcome | AgentError
Ready = Outcome | ToolCall | TalkAsks | TalkWithdraws | TalkBegins | TalkWaits | TalkFails
"""What has become of a call, or happens during it."""


class AgentHost(BridgeHost, Protocol):
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


# Long because all that a call waits for decides about the room for the next one: a queue, tools, people, limits, the day.
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
        telemetry: Telemetry = NO_TELEMETRY,
        from_wall_us: Callable[[int], int] = int,
        travels: bool = False,
    ) -> None:
        self._telemetry = telemetry
        self._from_wall_us = from_wall_us
        """What the clock of the run shows at a moment of the clock on the wall, which agents go by."""
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
            prices=config.agents.prices,
            guard=config.guard.policy,
            pauses=user_home() / "pauses",
            travels=travels,
        )
        self._budget = config.budget
        self._state_dir = config.directory
        self._transcripts: ScriptedTranscripts | None = None
        """Those of agents that answer prompts from a script, without a process."""
        self._daily: DailyBudget | None = None
        """What all runs of the user share; ``None``: each run for itself."""
        self._workspace = workspace
        self._memory = memory
        """Where programs keep what they have to remember, if they cannot write to the directory of the agents."""
        self._host: AgentHost | None = None
        self._agents: dict[tuple[str, str], Agent] = {}
        """By name, and directory: a process that is kept stays where it works."""
        self._calls: dict[int, Call] = {}
        self._queue: list[tuple[StartPrompt, str]] = []
        """What waits because too many calls are under way."""
        self._limited: dict[int, str] = {}
        """Calls that wait for the end of a limit, each with its agent."""
        self._limits: dict[str, TalkWaits] = {}
        """The last limit of each agent."""
        self._numbers = 0
        self._asking: set[tuple[int, str]] = set()
        """Questions of agents that wait for people: by prompt, and the agent's own id."""
        self._ready: list[tuple[int, Ready]] = []
        self._tools: dict[tuple[int, int], str] = {}
        """What each call of a tool is called by its agent: by prompt, and number of the call."""

    def attach(self, host: AgentHost) -> None:
        """From now on agents can be started."""
        self._host = host
        limit, begins = self._budget.daily_usd, self._budget.day_begins
        if limit is not None:
            run, folder = self._surroundings.run["BARTACK_RUN"], user_home() / "spending"
            self._daily = DailyBudget(folder, limit, run, host.clock, begins)

    def serves(self, name: str, args: ThinkArgs) -> bool:
        """Whether this is for an agent that is a program. A scripted one answers prompts itself."""
        agent = self._config.named.get(name)
        acts = args.command is not None and not args.command.prompt
        return isinstance(agent, ProgramConfig) or (agent is not None and acts)

    def start(self, action: StartPrompt, name: str) -> None:
        """Ask an agent, as soon as there is room for another call.

        Raises:
            AgentError: It cannot be asked.
        """
        if not self._has_room(name) or any(name == other for _, other in self._queue):
            self._queue.append((action, name))
            limit = self._limits.get(name)
            if limit is not None and limit.until > self._from_wall_us(self._now_us()):
                self._ready.append((action.token, limit))
        else:
            self._begin(action, name)

    def _has_room(self, name: str) -> bool:
        """Whether there is room for another call of an agent.

        A call that waits does not count: its tool may have to ask an agent itself, and a person may take days. One that waits for
        the end of a limit counts for the same agent only: at that moment all of these begin.
        """
        waiting = {token for token, _ in self._tools} | {token for token, _ in self._asking}
        waiting |= {token for token, limited in self._limited.items() if limited != name}
        return len(self._calls.keys() - waiting) < self._config.max_parallel

    def _next_queued(self) -> int | None:
        """The place of the first call in the queue that there is room for."""
        return next((place for place, (_, name) in enumerate(self._queue) if self._has_room(name)), None)

    def _fill(self) -> None:
        """Begin what has waited, in order."""
        while (place := self._next_queued()) is not None:
            action, name = self._queue.pop(place)
            try:
                self._begin(action, name)
            except AgentError as error:
                self._ready.append((action.token, error))

    def _begin(self, action: StartPrompt, name: str) -> None:
        request = make_request(action, self._surroundings.run["BARTACK_RUN"], self._workspace)
        config = self._config.named[name]
        if isinstance(config, CliConfig):
            request = in_words(action, request, may_ask=config.ask)
            request = msgspec.structs.replace(request, extra_dirs=self._extra_dirs(name, config))
            self._show_read(action.path, name, config, request.cwd)
        if self._daily is not None:
            self._daily.reserve(name, action.key, action.reserved_usd or self._budget.reserve_usd)
        sink = _Sink(self, action, name)
        try:
            self._calls[action.token] = self._agent(name, request.cwd).start(request, sink)
        except (AgentError, OSError):
            self._settle_day(action.key, 0.0)
            raise
        if sink.over:
            del self._calls[action.token]

    def _extra_dirs(self, name: str, config: CliConfig) -> list[str]:
        """The directories of its settings; they were checked before the run, and may have gone."""
        workspace = Path(self._workspace)
        for problem in find_bad_dirs(config, workspace, self._state_dir):
            raise AgentConfigError(name, problem)
        return resolve_dirs(config, workspace)

    def _show_read(self, worker: str, name: str, config: CliConfig, cwd: str) -> None:
        """Show once what an agent reads in the project besides its prompts."""
        read = [] if (name, cwd) in self._agents else read_in_project(config, Path(cwd))
        if read:
            self.show(worker, f"agent {name}: {'; '.join(read)}")

    def save_conversations(self) -> None:
        """Copy into the directory of the agents what belongs to conversations under way and is elsewhere."""
        for agent in self._agents.values():
            agent.save()

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
        call.cancel("deadline" if call.deadline_in_s <= 1.0 else "session_failed")
        return True

    def next_in_s(self) -> float | None:
        """Seconds until something is due."""
        if self._ready or self._next_queued() is not None:
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

    def _now_us(self) -> int:
        assert self._host is not None
        return self._host.clock.now_us()

    def done(self, token: int, key: str, outcome: Outcome) -> None:
        """A call has ended."""
        self._settle_day(key, outcome.usd)
        self._calls.pop(token, None)
        self._limited.pop(token, None)
        self._forget_waits(token)
        self._ready.append((token, outcome))

    def _settle_day(self, key: str, usd: float) -> None:
        """A call has cost this much of the day. If that cannot be kept, the call counts all the same: it is paid."""
        try:
            if self._daily is not None:
                self._daily.settle(key, usd)
        except OSError as error:
            assert self._daily is not None
            self.show("", f"{self._daily.unkept(error)}; what was reserved for the call counts")

    def as_answer(self, action: StartPrompt, name: str, result: AgentResult) -> AgentResult:
        """The result of a call. What an agent replied that was given a command in words is the event that it replied with."""
        command = action.args.command
        if command is None or not command.prompt:
            return result
        request = make_request(action, self._surroundings.run["BARTACK_RUN"], self._workspace)
        return as_answer(request, name, result)

    def reserved_usd(self, action: StartPrompt) -> float:
        """What was reserved for a call; 0: its cost is not limited."""
        daily = self._budget.reserve_usd if self._daily is not None else 0.0
        return action.reserved_usd or action.args.max_usd or daily

    def explain_unpriced(self, name: str) -> str:
        """Why the cost of an agent that has used a model is unknown."""
        if isinstance(self._config.named.get(name), CodexConfig | ClaudeConfig):
            return "used a model without a known price (agents.prices can have it)"
        return "did not report its cost"

    def publish(self, action: StartPrompt, name: str, event: AgentEvent) -> None:
        """Something happened during a call."""
        about: About = {
            "run": self._surroundings.run["BARTACK_RUN"],
            "worker": action.path,
            "key": event.key,
            "agent": name,
        }
        self._telemetry.emit(to_telemetry(event, about))

    def transcribe(self, action: StartPrompt, name: str, clock: Clock) -> ScriptedTalk:
        """The transcript of a call of an agent that answers from a script: its events are published, too."""
        if self._transcripts is None:
            around = self._surroundings
            self._transcripts = ScriptedTranscripts(around.folder, around.environ, around.secrets)
        publish = partial(self.publish, action, name)
        return ScriptedTalk(self._transcripts.of(name), action.key, clock, publish)

    def begin_again(self, token: int, delivered: Sequence[str]) -> None:
        """A command is sent once more: what the agent waited for before is not waited for any longer."""
        self._forget_waits(token)
        self._ready.append((token, TalkBegins(tuple(delivered))))

    def wait(self, action: StartPrompt, name: str, event: CallRateLimit) -> None:
        """An agent is rate limited until a moment."""
        until = parse_moment(event.resets_at)
        due = 0 if until is None else self._from_wall_us(until)
        limit = TalkWaits(due, name, event.error, event.status)
        self._limited[action.token] = name
        self._ready.append((action.token, limit))
        known = self._limits.get(name)
        if known is None or limit.until > known.until + SAME_LIMIT_US:
            # Those in the queue wait for it, too: their time does not count, and a run may rest that only waits.
            self._limits[name] = limit
            self._ready += [(queued.token, limit) for queued, other in self._queue if other == name]
        self.show(action.path, f"agent {name} is rate limited until {event.resets_at}: {event.error}")

    def limit_ended(self, token: int) -> None:
        """A call has a process again: it does not wait for the end of a limit."""
        self._limited.pop(token, None)

    def attempt_failed(self, action: StartPrompt, name: str, event: CallRetry) -> None:
        """An attempt came to nothing, and the agent is asked again."""
        what = "a prompt" if action.args.command is None else action.args.command.action
        text = describe_retry(event.attempt, what, event.code, event.error[:WHY])
        self._ready.append((action.token, TalkFails(name, event.attempt, event.code, text)))

    def _forget_waits(self, token: int) -> None:
        self._asking = {asked for asked in self._asking if asked[0] != token}
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

    def ask(self, token: int, question: AgentQuestion) -> None:
        """An agent asks a person."""
        self._asking.add((token, question.id))
        self._ready.append((token, TalkAsks(question)))

    def withdraw(self, token: int, question_id: str) -> None:
        """An agent does not wait for an answer any longer."""
        if (token, question_id) in self._asking:
            self._asking.remove((token, question_id))
            self._ready.append((token, TalkWithdraws(question_id)))

    def answered(self, action: AnswerQuestion) -> bool:
        """A person has answered; ``False`` if none of these agents asked."""
        asked = (action.token, action.question)
        if asked not in self._asking:
            return action.token in self._calls
        self._asking.remove(asked)
        call = self._calls.get(action.token)
        if call is not None:
            call.answered(action.question, action.answer)
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
        if self._transcripts is not None:
            self._transcripts.close()

    def show(self, worker: str, text: str) -> None:
        """Show people a note."""
        if self._host is not None:
            self._host.show("note", worker, text)

    def _agent(self, name: str, cwd: str) -> Agent:
        agent = self._agents.get((name, cwd))
        if agent is None:
            assert self._host is not None
            config = self._config.named[name]
            settings = self._scripted(name, config, cwd) if isinstance(config, ScriptedConfig) else config
            if cwd != self._workspace:
                # Whether it will be needed there again is unknown, and the directory may be removed soon.
                settings = settings.kept_at_most(IDLE_ELSEWHERE_S)
            kind = "scripted" if isinstance(config, ScriptedConfig) else "ndjson"
            agent = open_agent(name, settings, self._host, self._surroundings, kind=kind)
            self._agents[name, cwd] = agent
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
        self._programs.publish(self._action, self._name, event)
        if isinstance(event, CallStarted):
            self._programs.limit_ended(self._action.token)
            if self._begun or event.delivered:
                self._programs.begin_again(self._action.token, event.delivered)
            self._begun = True
        elif isinstance(event, CallRateLimit):
            self._waits = event.status != "unavailable"
            self._programs.wait(self._action, self._name, event)
        elif isinstance(event, CallRetry) and event.own:
            return
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

    def ask(self, question: AgentQuestion) -> None:
        """See ``CallSink.ask``."""
        self._programs.ask(self._action.token, question)

    def withdraw(self, question_id: str) -> None:
        """See ``CallSink.withdraw``."""
        self._programs.withdraw(self._action.token, question_id)

    def done(self, outcome: AgentOutcome) -> None:
        """See ``CallSink.done``."""
        self.over = True
        settled = self._settle_failed(outcome) if isinstance(outcome, AgentError) else self._settle(outcome)
        self._programs.done(self._action.token, self._action.key, settled)

    def _settle(self, result: AgentResult) -> Outcome:
        """The outcome with its cost: what the agent reports, or what the settings count if it reports none."""
        made = make_outcome(
            self._action, self._name, self._programs.as_answer(self._action, self._name, result)
        )
        if result.usage.cost_usd is not None:
            return made
        if is_unpriced(result.usage):
            counted = self._count_reserved()
        else:
            reserved = self._programs.reserved_usd(self._action)
            counted = reserved if self._programs.strict else 0.0
            if reserved:
                self.warn(f"agent {self._name} did not report its cost: {counted:.2f} USD are counted")
        return msgspec.structs.replace(made, usd=counted, usd_estimated=counted > 0)

    def _settle_failed(self, error: AgentError) -> AgentError:
        """The same for a call that has failed: its agent may have used a model before."""
        if error.usd_unknown and (counted := self._count_reserved()):
            error.usd, error.usd_estimated = counted, True
        return error

    def _count_reserved(self) -> float:
        """A model was used at an unknown price: where money is limited, all that was reserved counts as spent."""
        counted = self._programs.reserved_usd(self._action)
        if counted:
            why = self._programs.explain_unpriced(self._name)
            self.warn(f"agent {self._name} {why}: {counted:.2f} USD are counted, all that was reserved")
        return counted
