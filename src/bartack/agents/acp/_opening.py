"""From the start of a process to an open session: ``initialize``, a session that is new, continued or forked, and its model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from bartack._version import __version__
from bartack.agents._record import Link
from bartack.agents.acp import _messages as m
from bartack.agents.acp._history import History
from bartack.agents.acp._outcomes import failure_of
from bartack.agents.acp._session import SessionAbilities, find_model
from bartack.agents.acp._wire import Wire
from bartack.agents.conversation._conversation import Conversation
from bartack.agents.conversation._dialect import AgentFailure
from bartack.agents.program._bad_lines import BadLines
from bartack.agents.program._json_lines import Json, JsonRead, text_of
from bartack.agents.program._json_rpc import RpcFailure, RpcReply
from bartack.agents.program_config import AcpConfig
from bartack.errors import AgentCapabilityError, AgentConfigError

LONGEST_ID: Final = 1024


class SessionFiles(Protocol):
    """Where the id of a session is written down."""

    def save_session(self, session_id: str) -> None:
        """Remember the id of the session; it is durable when this returns."""
        ...

    def abandon(self, reason: str) -> None:
        """The session cannot be continued; the next attempt is a new conversation."""
        ...


class Start(NamedTuple):
    """What a new process begins with.

    Attributes:
        servers: The MCP servers that the agent is to start.
        send: Writes to the agent over its bridge.
        session: The session that it continues; empty for a new one.
        parent: The session that a new one is to be forked from; empty without one.
        history: What happened in the conversation before.
    """

    servers: list[Json]
    send: Callable[[bytes], None]
    session: str = ""
    parent: str = ""
    history: History = History()


class Opening:
    """Opens the session of one process after the other. ``ready`` is called when a prompt can be sent."""

    def __init__(
        self,
        talk: Conversation[JsonRead],
        config: AcpConfig,
        files: SessionFiles,
        wire: Wire,
        faults: BadLines,
        ready: Callable[[], None],
    ) -> None:
        self.session = ""
        """The open session; empty while there is none."""
        self._talk = talk
        self._config = config
        self._files = files
        self._wire = wire
        self._faults = faults
        self._ready = ready
        self._start = Start([], _drop)
        self._abilities = SessionAbilities({})

    @property
    def is_claude(self) -> bool:
        """See ``SessionAbilities.is_claude``."""
        return self._abilities.is_claude

    def prepare(self, start: Start) -> None:
        """A new process is about to be started."""
        self._start = start
        self.session = ""
        self._abilities = SessionAbilities({})

    def begin(self) -> None:
        """The process can be written to."""
        self._wire.request(m.INITIALIZE, m.introduction(__version__))

    def answered(self, link: Link, reply: RpcReply) -> None:
        """The agent has answered one of these requests."""
        match reply.method:
            case m.INITIALIZE:
                self._initialized(link, reply.result)
            case m.SET_OPTION:
                self._ready()
            case _:
                self._opened(link, reply.method, reply.result)

    def refused(self, failure: RpcFailure) -> None:
        """It has refused one of them."""
        talk, found = self._talk, failure_of(failure)
        if self.wants_login(failure):
            talk.fail(self.login_failure(failure))
        elif failure.method == m.INITIALIZE:
            talk.end_attempt("start_failed", f"it refused to begin: {found.message}")
        elif failure.method == m.RESUME and self._abilities.loads:
            self._open(m.LOAD, self._start.session)
        elif failure.method in {m.RESUME, m.LOAD}:
            self._lose(f"its session could not be continued: {found.message}")
        elif failure.method == m.SET_OPTION:
            problem = f"it does not take the model {self._config.model!r}: {found.message}"
            talk.end(AgentConfigError(talk.agent, problem), restart=True)
        else:
            talk.fail(found)

    def wants_login(self, failure: RpcFailure) -> bool:
        """Whether a request was refused because no one is logged in."""
        return failure_of(failure).code == "auth_failed" or self._abilities.is_about_login(failure.message)

    def login_failure(self, failure: RpcFailure) -> AgentFailure:
        """The same as a failure, with the ways to log in."""
        text = failure_of(failure).message
        ways = f"; {self._abilities.login_text}" if self._abilities.logins else ""
        return AgentFailure("auth_failed", f"{text}{ways}")

    def _initialized(self, link: Link, result: Json) -> None:
        talk = self._talk
        version = result.get("protocolVersion")
        if version is True or version != m.PROTOCOL:
            talk.end_attempt("start_failed", f"it speaks version {version} of ACP, not {m.PROTOCOL}")
            return
        self._abilities = SessionAbilities(result)
        link.introduction = self._abilities.program
        problem = self._abilities.too_old(self._config.min_version)
        if problem:
            talk.end_attempt("start_failed", problem)
        elif self._start.session:
            self._reopen()
        elif self._start.parent:
            self._fork()
        else:
            self._open(m.NEW)

    def _open(self, method: str, session_id: str = "") -> None:
        request, can = self._talk.request, self._abilities
        more = request.extra_dirs if can.takes_dirs else []
        params = m.session(request.cwd, self._start.servers, session_id, more, is_claude=can.is_claude)
        self._wire.request(method, params)

    def _fork(self) -> None:
        if self._abilities.forks:
            self._open(m.FORK, self._start.parent)
            return
        problem = "it cannot continue the conversation of another step: it has no session/fork"
        self._talk.end(AgentCapabilityError(self._talk.agent, problem, "no_fork"), restart=True)

    def _reopen(self) -> None:
        method = self._abilities.reopening
        if method is None:
            self._lose("it cannot continue a session")
        else:
            self._open(method, self._start.session)

    def _lose(self, reason: str) -> None:
        """The session cannot be continued: its conversation is abandoned, and the next attempt begins a new one."""
        self._files.abandon(reason)
        self._faults.notice(
            f"the conversation cannot be resumed; starting a new one: {reason}", "conversation_lost"
        )
        self._talk.attempts.excuse()
        self._talk.end_attempt("conversation_lost", reason)

    def _opened(self, link: Link, method: str, result: Json) -> None:
        is_new = method in {m.NEW, m.FORK}
        session = text_of(result, "sessionId") if is_new else self._start.session
        if not 0 < len(session) <= LONGEST_ID:
            self._faults.end("protocol_violation", f"its answer to {method} has no id of a session")
            return
        self.session = session
        if is_new:
            self._files.save_session(session)
        self._talk.watchdog.progress()
        self._choose_model(link, result)

    def _choose_model(self, link: Link, result: Json) -> None:
        model, wanted = find_model(result), self._config.model
        link.model = wanted or model.current
        if not wanted or wanted == model.current:
            self._ready()
        elif model.option:
            self._wire.request(m.SET_OPTION, m.option(self.session, model.option, wanted))
        else:
            problem = f"it has no choice of models; remove agents.{self._talk.agent}.model"
            self._talk.end(AgentConfigError(self._talk.agent, problem), restart=True)


def _drop(data: bytes) -> None:
    """There is no bridge yet."""
