"""Agents that speak the line protocol, in the loop of a hub: conversations, their processes and their files put together."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from bartack.agents._actions import (
    Action,
    CallOut,
    Done,
    Judge,
    NeedProcess,
    ReleaseProcess,
    Send,
    StopProcess,
    Tell,
    Verdict,
    Warn,
)
from bartack.agents._artifacts import MAX_BYTES, total_size, verify_artifacts
from bartack.agents._config import NdjsonConfig, ProtocolConfig
from bartack.agents._contract import (
    AgentCapabilities,
    AgentEvent,
    AgentRequest,
    CallNotice,
    CallSink,
    CallText,
    CallUsage,
    Outcome,
    ToolOutcome,
)
from bartack.agents._conversation import Conversation
from bartack.agents._files import CallFiles
from bartack.agents._permissions import Permissions
from bartack.agents._process import AgentProcess, Host
from bartack.agents._record import AgentRecord
from bartack.agents._vitals import Vitals
from bartack.agents.protocol._lines import MAX_LINE, BadLine, Read
from bartack.agents.protocol._messages import Artifact, Heartbeat, Hello, Reason
from bartack.core import Redactor, SecretRule, is_disk_trouble, make_private, open_private
from bartack.errors import AgentStartError

AT_ONCE: Final = 8 * 1024 * 1024
"""Files with so many bytes together are looked at without a thread of their own."""
TRANSCRIPT_BYTES: Final = 16 * 1024 * 1024
"""Behind this much a transcript has no more log lines, progress and usage."""
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
        protocol: How much of bad lines is borne.
        secrets: Which variables nobody may see the values of.
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
        self._uniform = uniform
        self._calls: list[NdjsonCall] = []
        self._processes: list[AgentProcess] = []
        self._transcript: int | None = None
        self._transcribed = 0
        self._left_out = 0

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
        """Let every process end in order."""
        for process in self._processes:
            process.idle_since = None
            process.stop()

    def close(self) -> None:
        """Let go of everything; the processes are ended by whoever keeps them."""
        for process in self._processes:
            process.close()
        for call in self._calls:
            call.files.close()
        self._processes.clear()
        self._calls.clear()
        if self._transcript is not None:
            os.close(self._transcript)
            self._transcript = None

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

    def heard(self, process: AgentProcess, read: Read) -> None:
        """See ``Master.heard``."""
        call = next((call for call in self._calls if call.process is process), None)
        if call is not None:
            call.heard(read)
        elif not isinstance(read, BadLine):
            # Nobody waits for it: whatever it is, it is too late or too early.
            process.link.heard = True
            if isinstance(read.message, Heartbeat):
                process.link.take_heartbeat(read.message)
            elif isinstance(read.message, Hello):
                process.link.take_hello(read.message)

    def started(self, process: AgentProcess) -> None:
        """See ``Master.started``."""
        for call in self._calls:
            if call.process is process:
                call.talk.process_known()
                call.perform()

    def ended(self, process: AgentProcess, status: int | None) -> None:
        """See ``Master.ended``."""
        self._forget(process, lambda talk: talk.exited(status, process.complaints.tail()))

    def not_started(self, process: AgentProcess, problem: str) -> None:
        """See ``Master.not_started``."""
        path = self.surroundings.environ.get("PATH", "")
        told = (
            f"{self.config.argv[0]!r} could not be started: {problem}; looked for in {path}; "
            f"set agents.{self.name}.command"
        )
        self._forget(process, lambda talk: talk.start_failed(told))

    def _forget(self, process: AgentProcess, tell: Callable[[Conversation], None]) -> None:
        if process in self._processes:
            self._processes.remove(process)
        for call in list(self._calls):
            if call.process is process:
                call.process = None
                tell(call.talk)
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

    def transcribe(self, event: AgentEvent) -> None:
        """Add to the transcript of the agent. One that is very long already gets only what matters most."""
        if self._transcript is None:
            make_private(self.folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            self._transcript = open_private(self.folder / "transcript.ndjson", flags)
            self._transcribed = os.fstat(self._transcript).st_size
        if self._transcribed > TRANSCRIPT_BYTES and isinstance(event, CallText | CallNotice | CallUsage):
            self._left_out += 1
            return
        data = self.redact(msgspec.json.encode(event)) + b"\n"
        self._transcribed += len(data)
        with suppress(OSError):  # a full disk ends the run elsewhere; a transcript is not worth that
            os.write(self._transcript, data)

    def take_left_out(self) -> int:
        """How many lines the transcript has not got since this was asked last."""
        left_out, self._left_out = self._left_out, 0
        return left_out


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
        self.talk = Conversation(
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

    def heard(self, read: Read) -> None:
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
                self._judge(artifacts)
            case _:
                self._report(action)

    def _report(self, action: Action) -> None:
        match action:
            case CallOut(call=call):
                self._sink.call_tool(call.call_id, call.name, call.arguments)
            case Tell(event=event):
                self._agent.transcribe(event)
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
            self.process.complaints.store_in(self.files.folder)
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
        left_out = self._agent.take_left_out()
        if left_out:
            self._sink.warn(
                f"agent {self._agent.name}: its transcript is full, {left_out} lines are not in it"
            )
        self._sink.done(outcome)

    def _judge(self, artifacts: list[Artifact]) -> None:
        most = self._agent.surroundings.max_artifact_bytes
        if total_size(self.request, artifacts) <= AT_ONCE:
            self._judged(verify_artifacts(self.request, artifacts, max_bytes=most))
            return
        try:
            self._judge_aside(artifacts, most)
        except (OSError, RuntimeError):
            # The system has no descriptor or no thread left: everything else waits meanwhile.
            self._judged(verify_artifacts(self.request, artifacts, max_bytes=most))

    def _judge_aside(self, artifacts: list[Artifact], most: int) -> None:
        """Look at large files in a thread.

        Raises:
            OSError: No descriptor is left.
            RuntimeError: No thread can be started.
        """
        ready, done = os.pipe()
        found: list[Verdict] = []

        def look() -> None:
            found.append(verify_artifacts(self.request, artifacts, max_bytes=most))
            os.close(done)

        def take() -> None:
            self._agent.host.unwatch(ready)
            os.close(ready)
            self._judged(found[0])

        self._agent.host.watch(ready, take)
        looking = threading.Thread(  # bartack: allow[unsupervised_thread] its pipe tells when it is through
            target=look, daemon=True
        )
        try:
            looking.start()
        except RuntimeError:
            self._agent.host.unwatch(ready)
            os.close(ready)
            os.close(done)
            raise

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
    """The settings of a program that speaks the line protocol, where nobody wrote any."""
    return msgspec.convert({"kind": "ndjson", "command": argv, **(given or {})}, type=NdjsonConfig)
