"""Agents that speak the line protocol, in the loop of a hub: their conversations, processes and files.

Owns which process serves which call. What a call does next is decided in ``conversation/_conversation.py``, what a line means in
``_dialect.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from bartack.agents._artifacts import MAX_BYTES
from bartack.agents._config import NdjsonConfig, ProtocolConfig
from bartack.agents._contract import (
    AgentCapabilities,
    AgentRequest,
    CallSink,
    Outcome,
    ToolOutcome,
    Verdict,
)
from bartack.agents._files import CallFiles
from bartack.agents._permissions import Permissions
from bartack.agents._process import AgentProcess, Host
from bartack.agents._record import AgentRecord
from bartack.agents._transcript import AgentTranscript
from bartack.agents._verification import verify_in_loop
from bartack.agents._vitals import Vitals
from bartack.agents.conversation._actions import (
    Action,
    CallOut,
    Done,
    Judge,
    NeedProcess,
    ReleaseProcess,
    Report,
    Send,
    StopProcess,
    Warn,
)
from bartack.agents.conversation._conversation import Conversation
from bartack.agents.ndjson._dialect import open_line_conversation
from bartack.agents.protocol._lines import MAX_LINE, BadLine, Read
from bartack.agents.protocol._messages import Heartbeat, Hello, Reason
from bartack.core import Redactor, SecretRule, is_disk_trouble
from bartack.errors import AgentStartError

REASONS: Final[dict[str, Reason]] = {
    "user": "user",
    "deadline": "deadline",
    "stalled": "stalled",
    "budget": "budget",
    "session_failed": "session_failed",
    "superseded": "superseded",
}


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What agents of a run have in common.

    Attributes:
        run: What every process of the run finds in its environment.
        folder: The directory ``agents`` of the run.
        environ: The variables of the hub, from which some are passed on.
        protocol: How many bad lines are accepted.
        secrets: Which variables have values that must not be shown.
        max_artifact_bytes: How large a file may be that an agent leaves.
    """

    run: dict[str, str]
    folder: Path
    environ: dict[str, str]
    protocol: ProtocolConfig = msgspec.field(default_factory=ProtocolConfig)
    secrets: SecretRule = SecretRule()
    max_artifact_bytes: int = MAX_BYTES


class NdjsonAgent:
    """An agent that is a program speaking the line protocol."""

    def __init__(
        self,
        name: str,
        config: NdjsonConfig,
        host: Host,
        surroundings: Surroundings,
        *,
        kind: str = "ndjson",
        uniform: Callable[[float, float], float] | None = None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.config = config
        self.host = host
        self.surroundings = surroundings
        self.folder = surroundings.folder / name
        self.record = AgentRecord(name)
        self.redact = Redactor({**surroundings.environ, **config.env}, surroundings.secrets).hide_lines
        self.transcript = AgentTranscript(self.folder, self.redact)
        self._uniform = uniform
        self._calls: list[NdjsonCall] = []
        self._processes: list[AgentProcess] = []

    @property
    def capabilities(self) -> AgentCapabilities:
        """See ``Agent.capabilities``."""
        return AgentCapabilities(schema=False, tools=True, resume=True, budget=True, cost=True, actions=True)

    def start(self, request: AgentRequest, sink: CallSink) -> NdjsonCall:
        """See ``Agent.start``."""
        try:
            call = NdjsonCall(self, request, sink, self._uniform)
        except OSError as error:
            if is_disk_trouble(error):
                raise
            raise AgentStartError(self.name, f"its files cannot be opened: {error}", "start_failed") from None
        self._calls.append(call)
        call.begin()
        return call

    # Time.

    def next_due(self) -> float | None:
        """When ``tick`` is to be called, in seconds of the monotonic clock."""
        dues = [call.talk.next_due() for call in self._calls]
        dues += [process.next_due() for process in self._processes]
        dues += [self._idle_end(process) for process in self._processes]
        return min((due for due in dues if due is not None), default=None)

    def tick(self) -> None:
        """Time has passed."""
        for call in list(self._calls):
            call.tick()
        now = self.host.clock.monotonic_ns() / 1e9
        for process in list(self._processes):
            process.tick()
            due = self._idle_end(process)
            if due is not None and due <= now:
                process.idle_since = None
                process.stop()

    def stop_all(self) -> None:
        """Stop every process."""
        for process in self._processes:
            process.idle_since = None
            process.stop()

    def close(self) -> None:
        """Close everything; the host stops the processes."""
        for process in self._processes:
            process.close()
        for call in self._calls:
            call.files.close()
        self._processes.clear()
        self._calls.clear()
        self.transcript.close()

    def pids(self) -> list[int]:
        """The processes that live."""
        return [process.link.pid for process in self._processes if process.link.pid and not process.over]

    # Processes.

    def attach(self, call: NdjsonCall) -> AgentProcess:
        """A process for a call: a kept one that is idle, else a new one."""
        for process in self._processes:
            if process.idle_since is not None and not process.over:
                process.idle_since = None
                return process
        process = AgentProcess(
            self.host, self, self.config.argv, call.request.cwd, self._environment(call), self.redact
        )
        self._processes.append(process)
        return process

    def line_came(self, process: AgentProcess, read: Read) -> None:
        """See ``ProcessOwner.line_came``."""
        call = next((call for call in self._calls if call.process is process), None)
        if call is not None:
            call.line_came(read)
        elif not isinstance(read, BadLine):
            # No call is under way: whatever it is, it is too late or too early.
            process.link.has_written = True
            if isinstance(read.message, Heartbeat):
                process.link.take_heartbeat(read.message)
            elif isinstance(read.message, Hello):
                process.link.take_hello(read.message)

    def started(self, process: AgentProcess) -> None:
        """See ``ProcessOwner.started``."""
        for call in self._calls:
            if call.process is process:
                call.talk.announce()
                call.perform()

    def ended(self, process: AgentProcess, status: int | None) -> None:
        """See ``ProcessOwner.ended``."""
        self._forget(process, lambda talk: talk.exited(status, process.stderr_log.tail()))

    def not_started(self, process: AgentProcess, reason: str) -> None:
        """See ``ProcessOwner.not_started``."""
        path = self.surroundings.environ.get("PATH", "")
        problem = (
            f"{self.config.argv[0]!r} could not be started: {reason}; looked for in {path}; "
            f"set agents.{self.name}.command"
        )
        self._forget(process, lambda talk: talk.start_failed(problem))

    def _forget(self, process: AgentProcess, notify: Callable[[Conversation[Read]], None]) -> None:
        if process in self._processes:
            self._processes.remove(process)
        for call in list(self._calls):
            if call.process is process:
                call.process = None
                notify(call.talk)
                call.perform()

    def over(self, call: NdjsonCall) -> None:
        """A call is over."""
        self._calls.remove(call)
        call.files.close()

    def _idle_end(self, process: AgentProcess) -> float | None:
        return None if process.idle_since is None else process.idle_since + self.config.idle_stop_s

    def _environment(self, call: NdjsonCall) -> dict[str, str]:
        request, given = call.request, self.surroundings
        return {
            **self.config.environment(given.environ),
            **given.run,
            "BARTACK_WORKER": request.worker,
            "BARTACK_STEP": request.key,
            "BARTACK_PROTOCOL": "1",
            "BARTACK_AGENT": self.name,
            "BARTACK_ROLE": request.role,
            "BARTACK_WORKSPACE": request.cwd,
            "BARTACK_MAX_LINE": str(MAX_LINE),
            "BARTACK_HEARTBEAT_S": f"{self.config.heartbeat_s:g}",
            **({"TRACEPARENT": request.trace} if request.trace else {}),
        }


class NdjsonCall:
    """One call of such an agent."""

    def __init__(
        self,
        agent: NdjsonAgent,
        request: AgentRequest,
        sink: CallSink,
        uniform: Callable[[float, float], float] | None,
    ) -> None:
        self.request = request
        self.process: AgentProcess | None = None
        self._agent = agent
        self._sink = sink
        given = {} if uniform is None else {"uniform": uniform}
        self.talk = open_line_conversation(
            agent.name,
            request,
            agent.config,
            agent.surroundings.protocol,
            agent.record,
            clock=agent.host.clock,
            look=Vitals().look,
            **given,
        )
        folder = agent.folder / self.talk.conversation
        self.files = CallFiles.open(agent.name, folder, agent.host.clock, agent.redact)

    def begin(self) -> None:
        """Begin, with the answer that may be there already."""
        # A first attempt was never sent before: what is there belongs to a step that failed or was refused.
        again = self.request.attempt > 1
        self.talk.begin(self.files.find_answer(anew=bool(self.request.rejected)) if again else None)
        self.perform()

    def cancel(self, reason: str) -> None:
        """See ``Call.cancel``."""
        self.talk.cancel(REASONS.get(reason, "user"))
        self.perform()

    def tool_ended(self, call_id: str, outcome: ToolOutcome) -> None:
        """See ``Call.tool_ended``."""
        self.talk.tool_ended(call_id, outcome)
        self.perform()

    def line_came(self, read: Read) -> None:
        """Its process wrote a line."""
        case = self.talk.line(read)
        self.files.copy_in(read, case)
        self.perform()

    def tick(self) -> None:
        """Time has passed."""
        self.talk.tick()
        self.perform()

    def perform(self) -> None:
        """Do what the conversation wants done."""
        while actions := self.talk.take():
            for action in actions:
                self._do(action)

    def _do(self, action: Action) -> None:
        match action:
            case NeedProcess():
                self._attach()
            case Send(line=line, message=message):
                self.files.copy_out(line)
                if self.process is not None:
                    self.process.send(line, message)
            case StopProcess():
                if self.process is not None:
                    self.process.stop()
            case ReleaseProcess():
                self._release()
            case Judge(artifacts=artifacts):
                most = self._agent.surroundings.max_artifact_bytes
                verify_in_loop(self._agent.host, self.request, artifacts, most, self._judged)
            case _:
                self._pass_on(action)

    def _pass_on(self, action: Action) -> None:
        match action:
            case CallOut(call_id=call_id, name=name, arguments=arguments):
                self._sink.call_tool(call_id, name, arguments)
            case Report(event=event):
                self._agent.transcript.add(event)
                self._sink.emit(event)
            case Warn(text=text):
                self._sink.warn(text)
            case Done(outcome=outcome):
                self._finish(outcome)
            case _:
                return

    def _attach(self) -> None:
        try:
            self.process = self._agent.attach(self)
            self.process.stderr_log.store_in(self.files.folder)
        except OSError as error:
            if is_disk_trouble(error):
                raise
            self.talk.start_failed(f"no process can be started now: {error.strerror or error}")
            return
        self.talk.attached(self.process.link)

    def _release(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.rest()

    def _finish(self, outcome: Outcome) -> None:
        self._agent.over(self)
        left_out = self._agent.transcript.take_left_out()
        if left_out:
            self._sink.warn(
                f"agent {self._agent.name}: its transcript is full, {left_out} lines are not in it"
            )
        self._sink.done(outcome)

    def _judged(self, verdict: Verdict) -> None:
        self.talk.judged(verdict)
        self.perform()


def scripted_argv(python: str, script: str, state: str, permissions: Permissions | None = None) -> list[str]:
    """The command of the scripted agent as a program."""
    argv = [python, "-m", "bartack", "agents", "scripted", "--script", script, "--state", state]
    if permissions is None or permissions == Permissions():
        return argv
    return [*argv, "--permissions", msgspec.json.encode(permissions).decode()]


def program_config(argv: list[str], given: Mapping[str, object] | None = None) -> NdjsonConfig:
    """The settings of a program that speaks the line protocol, where none are given."""
    return msgspec.convert({"kind": "ndjson", "command": argv, **(given or {})}, type=NdjsonConfig)
