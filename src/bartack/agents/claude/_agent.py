"""Claude Code as an agent: which process is started for an attempt, with which home, and what earlier ones have left.

What its lines mean is decided in ``_dialect.py``; calls and processes are in ``program/_agent.py``. The files of a call are in
``agents/<name>/<conversation>/``: ``stream.ndjson`` with everything that the program wrote, ``system.txt``, ``stderr.txt``, its
home, and ``results`` of tools that are too long for the model.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from bartack.agents.claude._command import MAX_SCHEMA, Beginning, command_line, environment
from bartack.agents.claude._dialect import SETTLE_S, ClaudeDialect, DialectSettings
from bartack.agents.claude._home import Chosen, SessionHome, choose_home, find_parent
from bartack.agents.claude._lines import PROMPT
from bartack.agents.claude._own_tools import PREFIX
from bartack.agents.claude._past import SKIPPED, TOOL, Past
from bartack.agents.claude._schemas import schema_text
from bartack.agents.claude._spent import StreamUsage
from bartack.agents.claude._texts import prompt_text, rejection_text, resumed_text
from bartack.agents.contract import AgentCapabilities, AgentRequest, CallNotice
from bartack.agents.conversation._conversation import Conversation
from bartack.agents.process.process import Host, Launch
from bartack.agents.program._agent import ProgramAgent
from bartack.agents.program._checks import check_prompt
from bartack.agents.program._cli_adapter import CliAdapter
from bartack.agents.program._generations import (
    GENERATIONS,
    generation_id,
    missing_parent,
    newest_generation,
)
from bartack.agents.program._json_lines import JsonLines, JsonRead
from bartack.agents.program._stream import BEGUN, MARKS, SENT, STARTED, Stream
from bartack.agents.program._tool_results import store_result
from bartack.agents.program.adapter import Surroundings, call_environment
from bartack.agents.program.cli_facts import CLAUDE
from bartack.agents.program_config import ClaudeConfig
from bartack.core.files import write_file
from bartack.errors import AgentBudgetError, AgentExitedError, AgentRequestError


class ClaudeAdapter(CliAdapter[ClaudeConfig]):
    """See ``Adapter``."""

    kind = "claude"

    @property
    def capabilities(self) -> AgentCapabilities:
        """See ``Adapter.capabilities``."""
        return AgentCapabilities(
            schema=True, tools=True, resume=True, budget=True, cost=True, permissions=True, interrupt=True
        )

    def check(self, request: AgentRequest) -> None:
        """See ``Adapter.check``."""
        check_prompt(self.name, request)
        size = len(schema_text(request).encode()) if request.schema is not None else 0
        if size > MAX_SCHEMA:
            problem = f"the schema of its reply has {size} bytes, more than {MAX_SCHEMA}"
            raise AgentRequestError(self.name, problem, "context_too_long", "too_large")

    def open_call(self, request: AgentRequest, folder: Path) -> ClaudeCall:
        """See ``Adapter.open_call``."""
        return ClaudeCall(self, request, folder)


class ClaudeCall:
    """See ``OpenCall``."""

    def __init__(self, adapter: ClaudeAdapter, request: AgentRequest, folder: Path) -> None:
        self._adapter = adapter
        self._request = request
        self._agent_folder = folder
        config = adapter.config
        self._env = environment(config, adapter.surroundings.environ)
        self._home_kind: Chosen = choose_home(folder, config.home, self._env)
        settings = DialectSettings(
            permissions=adapter.permissions_of(request, tuple(PREFIX + tool.name for tool in request.tools)),
            asks=config.permissions.on_ask == "question",
            min_version=config.min_version,
            background_s=config.background_s if config.background else SETTLE_S,
            prices=adapter.surroundings.prices,
            clean=adapter.redact,
            home=self._hint(),
            store=lambda text: store_result(self.folder, text),
        )
        self.talk = adapter.converse(request, partial(self._speak, settings))
        self._enter(newest_generation(folder, request))
        if request.attempt == 1:
            self._stream.mark(BEGUN)
        self._noted: set[str] = set()
        """Tools whose results are in the stream."""
        self._turns = 0

    def _speak(self, settings: DialectSettings, talk: Conversation[JsonRead]) -> ClaudeDialect:
        self.dialect = ClaudeDialect(talk, settings)
        return self.dialect

    def _enter(self, generation: int) -> None:
        """Take the files of a generation for this process."""
        self.talk.generation = generation
        self.talk.conversation = generation_id(self._request, generation)
        self.folder = self._agent_folder / self.talk.conversation
        self._stream = Stream.open(self._adapter.name, self.folder, "claude")
        self._home = SessionHome(self.folder, self._home_kind, self._env)
        if self._adapter.surroundings.is_brought(self.folder):
            self._home.set_back(self.talk.conversation)

    # See ``OpenCall``.

    def recover(self) -> JsonRead | None:
        """See ``OpenCall.recover``: the answer that came, if one did, and what dead hubs have used."""
        for generation in range(self.talk.generation):
            self._count(
                self._read_past(self._agent_folder / generation_id(self._request, generation)).processes
            )
        past = self._read_past(self.folder)
        self.dialect.tools.finished.update(past.finished)
        self._noted = set(past.finished)
        answer = past.answer
        if answer is None or self.dialect.recover(answer) is None:
            self._count(past.processes)
            return None
        self._count(past.processes[:-1])
        if past.processes:
            self.dialect.recovered(past.processes[-1])
        if past.turns > 1:
            self.talk.was_repaired()
        return answer

    def launch(self) -> Launch[JsonRead]:
        """See ``OpenCall.launch``."""
        config, request = self._adapter.config, self._request
        beginning, text, delivered = self._begin()
        system = ""
        if request.system:
            write_file(self.folder / "system.txt", request.system.encode())
            system = str(self.folder / "system.txt")
        usd, turns = self._left()
        found = self._adapter.find_program(request, self._env.get("PATH", ""), CLAUDE.install)
        program = [found, *config.argv[1:]]
        argv = command_line(program, config, request, beginning, system=system, usd=usd, turns=turns)
        env = {
            **self._env,
            **self._home.prepare(),
            **call_environment(self._adapter.surroundings, self._adapter.name, request),
        }
        self._stream.mark(STARTED, attempt=self.talk.attempts.made)
        self._turns = 0
        self.dialect.begin_process(text, delivered)
        return Launch(argv, request.cwd, env, JsonLines(skip=MARKS), self._stream.path)

    def copy_in(self, read: JsonRead, case: str) -> None:
        """See ``OpenCall.copy_in``: the program itself writes to the stream."""

    def copy_out(self, line: bytes) -> None:
        """See ``OpenCall.copy_out``: marks where a prompt was sent, and the results of tools."""
        if line.startswith(PROMPT):
            self._turns += 1
            self._stream.mark(SENT, attempt=self.talk.attempts.number, turn=self._turns)
        finished = self.dialect.tools.finished
        for call_id in [one for one in finished if one not in self._noted]:
            self._noted.add(call_id)
            tool = finished[call_id]
            self._stream.mark(TOOL, id=tool.id, name=tool.name, text=tool.text)

    def save(self) -> None:
        """See ``OpenCall.save``."""
        self._home.save(self.talk.conversation)

    def close(self) -> None:
        """See ``OpenCall.close``."""
        self.save()
        self._stream.close()

    # Inside.

    def _begin(self) -> tuple[Beginning, str, frozenset[str]]:
        """How the next process begins, the text it gets, and which results of tools it has already."""
        self._home.save(self.talk.conversation)
        self._home.restore(self.talk.conversation)
        found = self._home.find_transcript(self.talk.conversation)
        if self.dialect.lost or (self.dialect.taken and found is None):
            self._abandon(self.dialect.lost or "its session exists, and cannot be found")
            found = None
        conversation, attempts = self.talk.conversation, self.talk.attempts
        text = prompt_text(self._request)
        if found is not None:
            finished = self.dialect.tools.finished.values()
            if attempts.cause == "rejected":
                text = rejection_text(attempts.why)
            elif finished or found.has(text):
                text = resumed_text(finished, found.results)
            return Beginning("resume", conversation), text, found.results
        if not self._request.continues:
            return Beginning("new", conversation), text, frozenset()
        parent = find_parent(self._adapter.surroundings.folder, self._request.continues)
        if parent is None:
            raise missing_parent(self._adapter.name, self._request.continues)
        return Beginning("fork", conversation, str(parent)), text, frozenset()

    def _abandon(self, reason: str) -> None:
        """The conversation cannot be resumed: begin another one."""
        generation = self.talk.generation + 1
        if generation >= GENERATIONS:
            raise AgentExitedError(self._adapter.name, reason, "agent_exited")
        self._stream.close()
        self._enter(generation)
        stamp = self.talk.actions.stamp()
        text = f"the conversation cannot be resumed; starting a new one: {reason}"
        self.talk.actions.report(CallNotice(**stamp, level="warn", text=text, case="generation"))

    def _left(self) -> tuple[float | None, int | None]:
        """What is left of the reserved money and replies: the program counts those of one process only."""
        budget, used = self._request.budget, self.talk.attempts.usage()
        usd = None if budget.usd is None else budget.usd - (used.cost_usd or 0.0)
        turns = None if budget.turns is None else budget.turns - (used.turns or 0)
        if (usd is not None and usd <= 0) or (turns is not None and turns <= 0):
            problem = "earlier attempts have used all that was reserved"
            raise AgentBudgetError(self._adapter.name, problem, "budget_exceeded")
        return usd, turns

    def _read_past(self, folder: Path) -> Past:
        spending = partial(StreamUsage, self._adapter.surroundings.prices, self._request.budget.usd)
        return Past(Stream(folder, -1).read_lines(SKIPPED), spending)

    def _count(self, processes: list[StreamUsage]) -> None:
        for spending in processes:
            self.talk.attempts.used_before(spending.usage)
            self.talk.usd_estimated |= spending.is_estimated

    def _hint(self) -> str:
        name = self._adapter.name
        where = "the configuration directory of the run" if self._home_kind == "run" else "your own home"
        return (
            f"it found no credentials in {where}. Set one of {', '.join(CLAUDE.credentials)} and list it in "
            f'agents.{name}.pass_env, or log in with the program and set agents.{name}.home = "user"'
        )


def open_claude_agent(
    name: str,
    config: ClaudeConfig,
    host: Host,
    surroundings: Surroundings,
    *,
    uniform: Callable[[float, float], float] | None = None,
) -> ProgramAgent[JsonRead]:
    """An agent that is Claude Code."""
    adapter = ClaudeAdapter(name, config, host.clock, surroundings, uniform=uniform)
    return ProgramAgent(name, adapter, host, surroundings, adapter.redact)
