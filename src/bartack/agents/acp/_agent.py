"""Agents that speak ACP: which process is started, with which session and bridge, and where both directions are copied to.

What a message means is decided in ``_dialect.py``; calls and processes are in ``program/_agent.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from bartack.agents.acp import _text_files as text_files
from bartack.agents.acp._dialect import AcpV1
from bartack.agents.acp._history import TOOL, History
from bartack.agents.acp._home import HOME, agent_environment, choose_home, make_home
from bartack.agents.acp._messages import stdio_server
from bartack.agents.acp._opening import Start
from bartack.agents.acp._step_tools import step_tools
from bartack.agents.bridge import Bridge, BridgeHost
from bartack.agents.contract import AgentCapabilities, AgentRequest, CallSink
from bartack.agents.conversation._conversation import Conversation
from bartack.agents.process._vitals import Vitals
from bartack.agents.process.process import Launch
from bartack.agents.program._agent import ProgramAgent, ProgramCall
from bartack.agents.program._checks import check_prompt
from bartack.agents.program._cli_adapter import CliAdapter
from bartack.agents.program._generations import GENERATIONS, generation_id, missing_parent
from bartack.agents.program._json_lines import JsonLines, JsonRead
from bartack.agents.program._stream import (
    MARKS,
    SENT,
    STARTED,
    Stream,
    load_session,
    save_session,
)
from bartack.agents.program._tool_results import store_result
from bartack.agents.program.adapter import Surroundings, call_environment
from bartack.agents.program_config import AcpConfig
from bartack.core.files import write_file
from bartack.errors import AgentCapabilityError, AgentExitedError

ABANDONED: Final = "abandoned"
"""The file in the directory of a conversation that cannot be continued."""


class AcpAdapter(CliAdapter[AcpConfig]):
    """See ``Adapter``."""

    kind = "acp"

    def __init__(
        self,
        name: str,
        config: AcpConfig,
        host: BridgeHost,
        surroundings: Surroundings,
        uniform: Callable[[float, float], float] | None = None,
    ) -> None:
        super().__init__(name, config, host.clock, surroundings, uniform=uniform)
        self.host = host

    @property
    def capabilities(self) -> AgentCapabilities:
        """See ``Adapter.capabilities``."""
        return AgentCapabilities(
            tools=True, resume=True, budget=True, cost=True, permissions=True, interrupt=True
        )

    def check(self, request: AgentRequest) -> None:
        """See ``Adapter.check``."""
        if request.action != "prompt":
            problem = f"it takes prompts, not the action {request.action}"
            raise AgentCapabilityError(self.name, problem, "no_actions")
        check_prompt(self.name, request)

    def open_call(self, request: AgentRequest, folder: Path) -> AcpCall:
        """See ``Adapter.open_call``."""
        return AcpCall(self, request, folder)


class AcpCall:
    """See ``OpenCall``; it is what ``AcpFiles`` asks for, too."""

    def __init__(self, adapter: AcpAdapter, request: AgentRequest, folder: Path) -> None:
        self.wake: Callable[[], None] = _nothing
        """Does what the conversation wants done; called when something came over the bridge."""
        self._adapter = adapter
        self._request = request
        self._agent_folder = folder
        self._bridge: Bridge | None = None
        self._token = b""
        self._counted = False
        self._speak = partial(
            AcpV1,
            config=adapter.config,
            permissions=adapter.permissions_of(request),
            files=self,
            redact=adapter.redact,
        )
        self.talk = adapter.converse(request, self._make_dialect, Vitals().look)
        self._stream = self._open_stream()

    @property
    def folder(self) -> Path:
        """See ``OpenCall.folder``."""
        return self._stream.folder

    def recover(self) -> JsonRead | None:
        """See ``OpenCall.recover``."""
        past = History(self._stream.read_forwards())
        if past.answer is None or bool(past.asked_for.get("anew")) != bool(self._request.rejected):
            return None
        self._dialect.take_past(past)
        self._count_past(past, with_newest=False)  # the answer says itself what it has used
        self.talk.usd_estimated |= past.lacks_title
        return past.answer

    def launch(self) -> Launch[JsonRead]:
        """See ``OpenCall.launch``."""
        adapter, request = self._adapter, self._request
        self._close_bridge()
        self._leave_abandoned()
        self._leave_stale()
        environ = adapter.surroundings.environ
        home = choose_home(adapter.config, environ, self.folder)
        session, parent = load_session(self.folder), ""
        if request.continues and not session:
            parent = self._parent_session()
        if home is not None:
            make_home(home, self._agent_folder / request.continues / HOME if parent else None)
        self._dialect.prepare(self._begin(session, parent))
        env = {
            **agent_environment(adapter.config, environ, home),
            **call_environment(adapter.surroundings, adapter.name, request),
        }
        self._stream.mark(STARTED, attempt=self.talk.attempts.made)
        # Agents made with the library for Python cannot write to a file.
        return Launch(
            adapter.config.argv, request.cwd, env, JsonLines(skip=MARKS), self._stream.path, relayed=True
        )

    def copy_in(self, read: JsonRead, case: str) -> None:
        """See ``OpenCall.copy_in``: what the program writes is copied to the stream before it is read."""

    def copy_out(self, line: bytes) -> None:
        """See ``OpenCall.copy_out``. The token of the bridge is left out."""
        self._stream.copy(line.replace(self._token, b"***") if self._token else line, "out")

    def save(self) -> None:
        """See ``OpenCall.save``: where an agent keeps its sessions in the home of a person, it does not say."""

    def close(self) -> None:
        """See ``OpenCall.close``."""
        self._close_bridge()
        self._stream.close()

    # What the conversation wants written down; see ``AcpFiles``.

    def save_session(self, session_id: str) -> None:
        """See ``AcpFiles.save_session``."""
        save_session(self.folder, session_id)

    def prompt_sent(self, attempt: int) -> None:
        """See ``AcpFiles.prompt_sent``."""
        self._stream.mark(SENT, attempt=attempt, anew=bool(self._request.rejected), step=self._step)

    def tool_ended(self, call_id: str, tool: str, text: str) -> None:
        """See ``AcpFiles.tool_ended``."""
        self._stream.mark(TOOL, id=call_id, tool=tool, text=text)

    def store_result(self, text: str) -> str:
        """See ``AcpFiles.store_result``."""
        return store_result(self.folder, text)

    def abandon(self, reason: str) -> None:
        """See ``AcpFiles.abandon``."""
        write_file(self.folder / ABANDONED, reason.encode() + b"\n")

    def resolve(self, path: str) -> str:
        """See ``TextFiles.resolve``."""
        return text_files.resolve(path)

    def read_text(self, path: str, line: int = 0, limit: int | None = None) -> str:
        """See ``TextFiles.read_text``."""
        return text_files.read_text(path, line, limit)

    def write_text(self, path: str, text: str) -> None:
        """See ``TextFiles.write_text``."""
        text_files.write_text(path, text)

    # Inside.

    def _make_dialect(self, talk: Conversation[JsonRead]) -> AcpV1:
        self._dialect = self._speak(talk)
        return self._dialect

    def _open_stream(self) -> Stream:
        """Take the newest conversation of the step that was not abandoned."""
        talk, request = self.talk, self._request
        while (self._agent_folder / talk.conversation / ABANDONED).exists():
            talk.generation += 1
            talk.conversation = generation_id(request, talk.generation)
        return Stream.open(self._adapter.name, self._agent_folder / talk.conversation, "acp")

    def _leave_abandoned(self) -> None:
        if not (self.folder / ABANDONED).exists():
            return
        old, self._stream = self._stream, self._open_stream()
        old.close()
        if self.talk.generation >= GENERATIONS:
            problem = f"{GENERATIONS} conversations could not be continued after their processes had ended"
            raise AgentExitedError(self._adapter.name, problem, "conversation_lost")

    def _leave_stale(self) -> None:
        """Begin another conversation if this one is in the home of a person, and its files were brought by a copy.

        It may be there, and then knows of changes that the files do not have. Where agents keep their sessions there, they do not
        say, so no copy has it.
        """
        around, home = self._adapter.surroundings, self._adapter.config
        is_brought = around.is_brought(self.folder)
        if (
            is_brought
            and load_session(self.folder)
            and choose_home(home, around.environ, self.folder) is None
        ):
            self.abandon("its session is not in the copy of the run")
            self._stream.close()
            self._stream = self._open_stream()

    def _parent_session(self) -> str:
        found = load_session(self._agent_folder / self._request.continues)
        if not found:
            raise missing_parent(self._adapter.name, self._request.continues)
        return found

    def _begin(self, session: str, parent: str) -> Start:
        """Open a bridge if there are tools, and put together what the process begins with."""
        history = History(self._stream.read_forwards() if session else ())
        self._count_past(history)
        # What a killed process has used up to its end is not known.
        self.talk.usd_estimated |= history.is_open or history.lacks_title
        if not step_tools(self._request):
            return Start([], _drop, session, parent, history)
        bridge = self._adapter.host.open_bridge(self._came, _nothing)
        self._bridge = bridge
        self._token = next(iter(bridge.env.values()), "").encode()
        return Start([stdio_server(bridge.argv, bridge.env)], bridge.send, session, parent, history)

    @property
    def _step(self) -> str:
        """The step that prompts are sent for: a later one with the same key pays for itself."""
        return f"{self._request.worker} {self._request.epoch} {self._request.step}"

    def _count_past(self, past: History, *, with_newest: bool = True) -> None:
        """Count what prompts of dead hubs have used, once."""
        if self._request.attempt > 1 and not self._counted:
            self._counted = True
            self.talk.attempts.used_before(past.spent(self._step, with_newest=with_newest))

    def _came(self, data: bytes) -> None:
        self._dialect.read_bridge(data)
        self.wake()

    def _close_bridge(self) -> None:
        bridge, self._bridge = self._bridge, None
        if bridge is not None:
            bridge.close()


class AcpAgent(ProgramAgent[JsonRead]):
    """An agent whose calls are woken by their bridges, too."""

    def start(self, request: AgentRequest, sink: CallSink) -> ProgramCall[JsonRead]:
        """See ``Agent.start``."""
        call = super().start(request, sink)
        if isinstance(call.opened, AcpCall):
            call.opened.wake = call.perform
        return call


def open_acp_agent(
    name: str,
    config: AcpConfig,
    host: BridgeHost,
    surroundings: Surroundings,
    *,
    uniform: Callable[[float, float], float] | None = None,
) -> AcpAgent:
    """An agent that is a program speaking ACP."""
    adapter = AcpAdapter(name, config, host, surroundings, uniform)
    return AcpAgent(name, adapter, host, surroundings, adapter.redact)


def _nothing() -> None:
    """Nothing is to be done."""


def _drop(data: bytes) -> None:
    """There is no bridge."""
