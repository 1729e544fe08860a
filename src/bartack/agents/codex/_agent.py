"""Codex as an agent: which process is started for an attempt, with which home and variables, and where both directions are copied.

What is said is decided in ``_dialect.py``; calls and processes are in ``program/_agent.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from bartack.agents._permissions import READING, Mode, Permissions
from bartack.agents._tool_permissions import decide_or_deny
from bartack.agents.codex._command import command_line, toml
from bartack.agents.codex._dialect import CodexDialect
from bartack.agents.codex._home import HOME, CodexHome, bring_rollout, codex_home, pattern_of
from bartack.agents.codex._messages import CodexPlan
from bartack.agents.codex._rollout import read_replies
from bartack.agents.codex._schema import plan_value
from bartack.agents.codex._stream import CodexStream
from bartack.agents.codex._thread import CodexThread
from bartack.agents.codex._tokens import priced
from bartack.agents.contract import AgentCapabilities, AgentRequest
from bartack.agents.process._vitals import Vitals
from bartack.agents.process.process import Host, Launch
from bartack.agents.program._agent import ProgramAgent
from bartack.agents.program._checks import check_prompt
from bartack.agents.program._cli_adapter import CliAdapter
from bartack.agents.program._generations import generation_id, missing_parent, newest_generation
from bartack.agents.program._home_files import COPIES, HomeFiles
from bartack.agents.program._json_lines import JsonLines, JsonRead
from bartack.agents.program._stream import load_session, save_session
from bartack.agents.program._tool_results import store_result
from bartack.agents.program.adapter import Surroundings, call_environment
from bartack.agents.program.cli_facts import CODEX
from bartack.agents.program_config import CodexConfig
from bartack.agents.protocol.messages import Usage
from bartack.agents.tool_use import ToolUse
from bartack.agents.usage import total_usage
from bartack.errors import AgentCapabilityError


class CodexAdapter(CliAdapter[CodexConfig]):
    """See ``Adapter``."""

    kind = "codex"

    @property
    def capabilities(self) -> AgentCapabilities:
        """See ``Adapter.capabilities``."""
        return AgentCapabilities(
            schema=True, tools=True, resume=True, budget=True, cost=True, permissions=True, interrupt=True
        )

    def check(self, request: AgentRequest) -> None:
        """See ``Adapter.check``."""
        check_prompt(self.name, request)
        if request.continues and request.tools:
            problem = "a conversation of Codex that continues another one cannot get tools of its own"
            raise AgentCapabilityError(self.name, problem, "no_tools")

    def open_call(self, request: AgentRequest, folder: Path) -> CodexCall:
        """See ``Adapter.open_call``."""
        return CodexCall(self, request, folder)


class CodexCall:
    """See ``OpenCall``."""

    def __init__(self, adapter: CodexAdapter, request: AgentRequest, folder: Path) -> None:
        self._adapter = adapter
        self._request = request
        self._agent_folder = folder
        self._permissions = adapter.permissions_of(request)
        thread = CodexThread()
        config = adapter.config
        permissions = config.permissions.for_role(request.role)
        plan = CodexPlan(
            request=request,
            value=plan_value(
                request.schema, may_decline=request.may_decline, has_tools=not request.continues
            ),
            mode=_sandboxed(permissions),
            model=config.model,
            effort=config.effort,
            may_ask=request.may_ask and config.ask and not request.continues,
        )
        self._dialect: CodexDialect | None = None
        speak = partial(
            CodexDialect,
            plan=plan,
            thread=thread,
            permissions=self._permissions,
            store=lambda text: store_result(self.folder, text),
            min_version=config.min_version or CODEX.oldest,
            prices=adapter.surroundings.prices,
            clean=adapter.redact,
        )
        self.talk = adapter.converse(
            request, lambda talk: self._keep(speak(talk, settle=self._settle)), Vitals().look
        )
        self._thread = thread
        self.talk.generation = newest_generation(folder, request)
        self.talk.conversation = generation_id(request, self.talk.generation)
        self.folder: Path = folder / self.talk.conversation
        self._stream = CodexStream.open(adapter.name, self.folder, adapter.kind)
        self._saved = load_session(self.folder)
        thread.id = self._saved
        self._set_back()
        self._settled: Counter[str] = Counter()
        """How many replies of each turn were counted although Codex has not reported all of them."""
        if request.attempt == 1:
            self._stream.begin_step()
        else:
            before = self._stream.read_past(adapter.surroundings.prices)
            thread.finished, thread.delivered = before.finished, before.delivered
            self.talk.attempts.used_before(before.usage)
            self.talk.usd_estimated = before.usage.cost_usd is not None

    def _keep(self, dialect: CodexDialect) -> CodexDialect:
        self._dialect = dialect
        return dialect

    def recover(self) -> JsonRead | None:
        """See ``OpenCall.recover``: an answer is found in the thread, which only Codex can read."""
        return None

    def launch(self) -> Launch[JsonRead]:
        """See ``OpenCall.launch``."""
        assert self._dialect is not None
        adapter, request = self._adapter, self._request
        config, environ = adapter.config, adapter.surroundings.environ
        self._follow_generation()
        home = codex_home(config, environ, self.folder)
        self._find_parent(home)
        self._dialect.credential, self._dialect.hint = home.credential, home.hint(adapter.name)
        self._dialect.begin_process()
        self._settle()
        env = {
            **config.environment(environ),
            **home.variables(),
            **call_environment(adapter.surroundings, adapter.name, request),
        }
        argv = self._argv(env.get("PATH", ""), logs_in=bool(home.credential))
        return Launch(argv, request.cwd, env, JsonLines())

    def _settle(self) -> None:
        """Count the replies that Codex has written down and not reported: its process has ended, and not by itself."""
        if not self._thread.id:
            return
        surroundings = self._adapter.surroundings
        past = self._stream.read_past(surroundings.prices)
        home = codex_home(self._adapter.config, surroundings.environ, self.folder)
        written = read_replies(home.path, set(past.turns.values()))
        new: list[Usage] = []
        for turn in past.turns:
            replies = written.get(turn, [])
            new += replies[max(past.reported[turn], self._settled[turn]) :]
            self._settled[turn] = len(replies)
        if new:
            usage = priced(total_usage(new), past.model, surroundings.prices)
            self.talk.attempts.used_before(usage)
            self.talk.usd_estimated = self.talk.usd_estimated or usage.cost_usd is not None

    def _follow_generation(self) -> None:
        folder = self._agent_folder / self.talk.conversation
        if folder == self.folder:
            return
        self._stream.close()
        self.folder = folder
        self._stream = CodexStream.open(self._adapter.name, folder, self._adapter.kind)
        self._thread.id = self._saved = load_session(folder)
        self._set_back()

    def _find_parent(self, home: CodexHome) -> None:
        """Where the conversation is that this one continues."""
        parent = self._request.continues
        if not parent or self._thread.id:
            return
        folder = self._agent_folder / parent
        thread = load_session(folder)
        if not thread:
            raise missing_parent(self._adapter.name, parent)
        self._thread.parent = thread
        for place in (HOME, COPIES):
            bring_rollout(folder / place, home.path, thread)

    def _argv(self, path: str, *, logs_in: bool) -> list[str]:
        config = self._adapter.config
        program = self._adapter.find_program(self._request, path, CODEX.install)
        return command_line(program, config, self._own_settings(), logs_in=logs_in)

    def _own_settings(self) -> Iterable[str]:
        if not self._may_search():
            yield 'web_search="disabled"'
        if self._request.extra_dirs:
            roots = ", ".join(toml(place) for place in self._request.extra_dirs)
            yield f"sandbox_workspace_write.writable_roots=[{roots}]"

    def _may_search(self) -> bool:
        """Decided before the start: the search runs on the servers of the model, where nothing can ask us."""
        return decide_or_deny(self._permissions, ToolUse("WebSearch")).decision == "allow"

    def copy_in(self, read: JsonRead, case: str) -> None:
        """See ``OpenCall.copy_in``. A thread that has begun is durable before its first prompt is sent."""
        self._stream.copy_in(read, case)
        if self._thread.id and self._thread.id != self._saved:
            save_session(self.folder, self._thread.id)
            self._saved = self._thread.id

    def copy_out(self, line: bytes) -> None:
        """See ``OpenCall.copy_out``."""
        self._stream.copy_out(line)

    def save(self) -> None:
        """See ``OpenCall.save``."""
        files = self._session_files()
        if files is not None:
            files.save()

    def _set_back(self) -> None:
        if self._adapter.surroundings.is_brought(self.folder) and (files := self._session_files()):
            files.set_back()

    def _session_files(self) -> HomeFiles | None:
        """The files of the thread, if it may travel and is in the home of a person."""
        around = self._adapter.surroundings
        if not self._thread.id or not around.travels:
            return None
        home = codex_home(self._adapter.config, around.environ, self.folder)
        if home.is_own:
            return None
        return HomeFiles(home.path, self.folder / COPIES, pattern_of(self._thread.id))

    def close(self) -> None:
        """See ``OpenCall.close``."""
        self.save()
        self._stream.close()


def _sandboxed(permissions: Permissions) -> Mode:
    """The mode whose sandbox Codex gets. A command that a rule allows can write nothing in the sandbox of those that only look."""
    mode = permissions.mode or "edit"
    return "edit" if mode == "read" and set(permissions.allowed_tools) - READING else mode


def open_codex_agent(
    name: str,
    config: CodexConfig,
    host: Host,
    surroundings: Surroundings,
    *,
    uniform: Callable[[float, float], float] | None = None,
) -> ProgramAgent[JsonRead]:
    """An agent that is Codex."""
    adapter = CodexAdapter(name, config, host.clock, surroundings, uniform=uniform)
    return ProgramAgent(name, adapter, host, surroundings, adapter.redact)
