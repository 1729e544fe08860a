"""An agent that is a program, in the loop of a hub: its calls, and which process serves which of them.

What a call does next is decided in ``conversation/_conversation.py``; what is particular to a kind of agents, in its ``Adapter``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, Generic, TypeVar

from bartack.agents._transcript import AgentTranscript
from bartack.agents._verification import verify_in_loop
from bartack.agents.contract import (
    AgentAnswer,
    AgentCapabilities,
    AgentRequest,
    CallSink,
    Outcome,
    ToolOutcome,
    Verdict,
)
from bartack.agents.conversation._actions import (
    Action,
    AskOut,
    CallOut,
    Done,
    JudgeFiles,
    NeedProcess,
    ReleaseProcess,
    Report,
    Send,
    StopProcess,
    Warn,
    WithdrawOut,
)
from bartack.agents.conversation._conversation import Conversation
from bartack.agents.process.process import AgentProcess, Host, Launch
from bartack.agents.program._checks import check_place
from bartack.agents.program.adapter import Adapter, OpenCall, Surroundings, secrets_of
from bartack.agents.protocol.messages import Reason
from bartack.core.disk import is_disk_trouble
from bartack.errors import AgentError, AgentPlaceError

REASONS: Final[dict[str, Reason]] = {
    "user": "user",
    "deadline": "deadline",
    "stalled": "stalled",
    "budget": "budget",
    "session_failed": "session_failed",
    "superseded": "superseded",
}

R = TypeVar("R")
"""One thing that is read from an agent of this kind."""


class ProgramAgent(Generic[R]):
    """One agent of a run.

    Args:
        name: Its name in the settings.
        adapter: What is particular to its kind.
        host: The loop it lives in.
        surroundings: What it has in common with the other agents of the run.
        redact: Takes secrets out of what is stored for people; by default those of the environment and the settings.
    """

    def __init__(
        self,
        name: str,
        adapter: Adapter[R],
        host: Host,
        surroundings: Surroundings,
        redact: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self.name = name
        self.adapter = adapter
        self.host = host
        self.surroundings = surroundings
        self.folder = surroundings.folder / name
        self.redact = redact or secrets_of(surroundings, adapter.env)
        self.transcript = AgentTranscript(self.folder, self.redact)
        self._calls: list[ProgramCall[R]] = []
        self._processes: list[AgentProcess[R]] = []

    @property
    def kind(self) -> str:
        """See ``Agent.kind``."""
        return self.adapter.kind

    @property
    def capabilities(self) -> AgentCapabilities:
        """See ``Agent.capabilities``."""
        return self.adapter.capabilities

    def start(self, request: AgentRequest, sink: CallSink) -> ProgramCall[R]:
        """See ``Agent.start``."""
        self.adapter.check(request)
        try:
            call = ProgramCall(self, request, sink, self.adapter.open_call(request, self.folder))
        except OSError as error:
            if is_disk_trouble(error):
                raise
            raise AgentPlaceError(self.name, f"its files cannot be opened: {error}", "start_failed") from None
        self._calls.append(call)
        call.begin()
        return call

    # Time.

    def next_due(self) -> float | None:
        """See ``Agent.next_due``."""
        dues = [call.talk.next_due() for call in self._calls]
        dues += [process.next_due() for process in self._processes]
        dues += [self._idle_end(process) for process in self._processes]
        return min((due for due in dues if due is not None), default=None)

    def tick(self) -> None:
        """See ``Agent.tick``."""
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
        """See ``Agent.stop_all``.

        A process that waits for a person is killed. It would take the end of its input for a refusal, and write that into its
        conversation: after a resume it would not ask again, and miss the answer.
        """
        asking = [call.process for call in self._calls if call.talk.questions.are_open]
        for process in self._processes:
            process.idle_since = None
            if process in asking:
                process.kill()
            else:
                process.stop()

    def close(self) -> None:
        """See ``Agent.close``."""
        for process in self._processes:
            process.close()
        for call in self._calls:
            call.opened.close()
        self._processes.clear()
        self._calls.clear()
        self.transcript.close()

    def save(self) -> None:
        """See ``Agent.save``."""
        for call in self._calls:
            with suppress(OSError):  # then the copy has an earlier part of the conversation
                call.opened.save()

    def pids(self) -> list[int]:
        """See ``Agent.pids``."""
        return [process.link.pid for process in self._processes if process.link.pid and not process.over]

    # Processes.

    def attach(self, call: ProgramCall[R]) -> AgentProcess[R]:
        """A process for a call: a kept one that is idle, else a new one.

        Raises:
            AgentError: There is no sense in starting one.
            OSError: None can be started now.
        """
        for process in self._processes:
            if process.idle_since is not None and not process.over:
                process.idle_since = None
                return process
        check_place(self.name, call.request)
        process = AgentProcess(self.host, self, self._launch(call), self.redact)
        self._processes.append(process)
        return process

    def _launch(self, call: ProgramCall[R]) -> Launch[R]:
        try:
            return call.opened.launch()
        except OSError as error:
            if is_disk_trouble(error):
                raise
            raise AgentPlaceError(
                self.name, f"its files cannot be written: {error}", "start_failed"
            ) from None

    def line_came(self, process: AgentProcess[R], read: R) -> None:
        """See ``ProcessOwner.line_came``."""
        call = next((call for call in self._calls if call.process is process), None)
        if call is not None:
            call.line_came(read)
        else:
            self.adapter.idle_line(process.link, read)

    def started(self, process: AgentProcess[R]) -> None:
        """See ``ProcessOwner.started``."""
        for call in self._calls:
            if call.process is process:
                call.talk.announce()
                call.perform()

    def ended(self, process: AgentProcess[R], status: int | None) -> None:
        """See ``ProcessOwner.ended``."""
        tail, memory = process.stderr_log.tail(), process.memory.explain(status)
        self._forget(process, lambda talk: talk.exited(status, tail, process.leftovers, memory))

    def not_started(self, process: AgentProcess[R], reason: str) -> None:
        """See ``ProcessOwner.not_started``."""
        path = self.surroundings.environ.get("PATH", "")
        problem = (
            f"{self.adapter.program!r} could not be started: {reason}; looked for in {path}; "
            f"set agents.{self.name}.command in bartack.toml"
        )
        self._forget(process, lambda talk: talk.start_failed(problem))

    def _forget(self, process: AgentProcess[R], notify: Callable[[Conversation[R]], None]) -> None:
        if process in self._processes:
            self._processes.remove(process)
        for call in list(self._calls):
            if call.process is process:
                call.process = None
                notify(call.talk)
                call.perform()

    def over(self, call: ProgramCall[R]) -> None:
        """A call is over."""
        self._calls.remove(call)
        call.opened.close()

    def _idle_end(self, process: AgentProcess[R]) -> float | None:
        kept_s = self.adapter.keep_s
        return None if process.idle_since is None or kept_s is None else process.idle_since + kept_s


class ProgramCall(Generic[R]):
    """One call of such an agent: does what its conversation wants done."""

    def __init__(
        self, agent: ProgramAgent[R], request: AgentRequest, sink: CallSink, opened: OpenCall[R]
    ) -> None:
        self.request = request
        self.opened = opened
        self.process: AgentProcess[R] | None = None
        self._agent = agent
        self._sink = sink

    @property
    def talk(self) -> Conversation[R]:
        """Decides what happens next."""
        return self.opened.talk

    @property
    def deadline_in_s(self) -> float:
        """See ``Call.deadline_in_s``."""
        return self.talk.deadline_in_s

    def begin(self) -> None:
        """Begin, with the answer that may be there already."""
        # A first attempt was never sent before: what is there belongs to a step that failed or was refused.
        self.talk.begin(self.opened.recover() if self.request.attempt > 1 else None)
        self.perform()

    def cancel(self, reason: str) -> None:
        """See ``Call.cancel``."""
        self.talk.cancel(REASONS.get(reason, "user"))
        self.perform()

    def tool_ended(self, call_id: str, outcome: ToolOutcome) -> None:
        """See ``Call.tool_ended``."""
        self.talk.tool_ended(call_id, outcome)
        self.perform()

    def answered(self, question_id: str, answer: AgentAnswer) -> None:
        """See ``Call.answered``."""
        self.talk.answered(question_id, answer)
        self.perform()

    def line_came(self, read: R) -> None:
        """Its process wrote a line."""
        case = self.talk.line(read)
        self.opened.copy_in(read, case)
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
            case Send(line=line, may_drop=may_drop):
                self.opened.copy_out(line)
                if self.process is not None:
                    self.process.send(line, may_drop=may_drop)
            case StopProcess():
                if self.process is not None:
                    self.process.stop()
            case ReleaseProcess():
                self._release()
            case JudgeFiles(artifacts=artifacts):
                most = self._agent.surroundings.max_artifact_bytes
                verify_in_loop(self._agent.host, self.request, artifacts, most, self._judged)
            case _:
                self._pass_on(action)

    def _pass_on(self, action: Action) -> None:
        match action:
            case CallOut(call_id=call_id, name=name, arguments=arguments):
                self._sink.call_tool(call_id, name, arguments)
            case AskOut(question=question):
                self._sink.ask(question)
            case WithdrawOut(question_id=question_id):
                self._sink.withdraw(question_id)
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
            self.process.stderr_log.store_in(self.opened.folder)
        except AgentError as error:
            self.talk.end(error)
            return
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
