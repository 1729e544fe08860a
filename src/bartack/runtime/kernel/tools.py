"""Tools: agents call the tools of a prompt, and the worker that waits for the prompt runs them, one at a time, in order.

Every call that was run stays in the record of its prompt. An agent that is called again, because the hub died or the prompt was set
back, gets the recorded outcomes as long as it makes the same calls in the same order; from the first difference on calls are run
again. The worker has run all of them in any case, and does so again whenever it replays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Final, NamedTuple

from bartack.agents import AgentQuestion
from bartack.runtime.kernel.actions import AnswerCall
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.turn import Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.protocol.paths import CallPlace, parse_call
from bartack.runtime.state import entries as e
from bartack.runtime.state.worker_state import NO_VALUE, OpenStep, ToolRecord, ToolRun, Value, WorkerState

ENDED: Final = "this step has ended"


class ToolCall(NamedTuple):
    """An agent calls a tool.

    Attributes:
        request: Comes back with the answer.
        tool: The name of the tool.
        arguments: An object, encoded.
        id: The agent's own id of this call, if it has one: the same id is the same call.
    """

    request: int
    tool: str
    arguments: bytes = b"{}"
    id: str = ""


class TalkBegins(NamedTuple):
    """The agent of a prompt is called once more. It begins from the beginning, but for calls whose outcomes it has already."""

    delivered: tuple[str, ...] = ()
    """The agent's own ids of those calls."""


class TalkAsks(NamedTuple):
    """The agent of a prompt asks a person."""

    question: AgentQuestion


class TalkWithdraws(NamedTuple):
    """The agent of a prompt does not wait for the answer to a question any longer."""

    question: str
    """Its own id of it."""


class TalkWaits(NamedTuple):
    """The agent of a prompt must not be called again before a moment on the wall, and why."""

    until: int
    agent: str
    problem: str
    code: str = "rate_limited"


class TalkFails(NamedTuple):
    """An attempt of the agent of a prompt failed; it is called again."""

    agent: str
    attempt: int
    code: str
    text: str


class Talk:
    """The calls of one attempt of an agent at a prompt."""

    def __init__(self, token: int, worker: WorkerState, step: OpenStep, tools: frozenset[str]) -> None:
        self.token = token
        self.worker = worker
        self.step = step
        self.tools = tools
        self.made = 0
        """How many calls of the line the agent has made in this attempt."""
        self.waiting: deque[ToolCall] = deque()
        self.current: tuple[ToolCall, int] | None = None
        """The call that is not answered yet, and its number in the record."""
        self.ran_ns = 0
        """How long calls ran that have ended."""
        self.since_ns: int | None = None
        """Since when a call runs."""

    @property
    def record(self) -> ToolRecord:
        """The calls that were run for this prompt."""
        worker = self.worker
        return worker.tools.get(self.step.key) or ToolRecord()


class ToolDesk(Desk):
    """Passes the calls of agents on to workers, and their outcomes back."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._talks: dict[int, Talk] = {}

    def open(self, token: int, worker: WorkerState, step: OpenStep, tools: list[s.ToolSpec]) -> None:
        """An agent is about to be called, and may call these tools."""
        self._talks[token] = Talk(token, worker, step, frozenset(tool.name for tool in tools))

    def begin_again(self, token: int, delivered: Collection[str]) -> None:
        """The agent is called once more: it gets the recorded outcomes, from the first call on that it does not have."""
        talk = self._talks.get(token)
        if talk is not None:
            places = [place for place, run in enumerate(talk.record.line, 1) if run.id in delivered]
            talk.made = max(places, default=0)
            talk.waiting.clear()
            talk.current = None

    def take_time_s(self, token: int) -> float:
        """How long tools of a prompt have run since this was asked last: time that its agent was not to blame for."""
        talk = self._talks.get(token)
        if talk is None:
            return 0.0
        self._count(talk)
        taken, talk.ran_ns = talk.ran_ns, 0
        return taken / 1e9

    def close(self, token: int) -> None:
        """A prompt has ended: its agent gets no more answers."""
        self._talks.pop(token, None)

    def called(self, token: int, call: ToolCall) -> None:
        """An agent calls a tool."""
        talk = self._talks.get(token)
        if talk is None or not self.is_open(talk.worker, talk.step):
            self.turn.before_commit(AnswerCall(token, call.request, NO_VALUE, ENDED))
        elif call.tool not in talk.tools:
            problem = f"there is no tool {call.tool!r}"
            self.turn.before_commit(AnswerCall(token, call.request, NO_VALUE, problem))
        else:
            talk.waiting.append(call)
            self._take_calls(talk)

    def returned(self, peer: Peer, worker: WorkerState, frame: f.Returned) -> None:
        """A tool has ended in its worker. After a failure that is not an outcome: the tool continues when the run is resumed."""
        place = parse_call(frame.p)
        if place is None or self.state.failure is not None or worker.ended:
            return
        record = worker.tools.get((place.p, place.n))
        run = record.find(place.call) if record is not None else None
        if run is not None and run.ended_seq:
            return
        value = NO_VALUE if frame.e is not None else Value(frame.v, frame.ref)
        data: e.ToolFinished | e.ToolFailed = e.ToolFinished(p=place.p, n=place.n, call=place.call)
        if frame.e is not None:
            data = e.ToolFailed(p=place.p, n=place.n, call=place.call, error=frame.e)
        self.turn.record((data, value))
        for talk in [
            talk for talk in self._talks.values() if talk.step.p == place.p and talk.step.n == place.n
        ]:
            self._count(talk)
            self._answer_current(talk, run)
            self._take_calls(talk)

    # Inside.

    def _count(self, talk: Talk) -> None:
        """Add up how long tools ran, up to now."""
        now = self.timers.alive_ns()
        if talk.since_ns is not None:
            talk.ran_ns += now - talk.since_ns
        talk.since_ns = None if talk.record.running is None else now

    def _take_calls(self, talk: Talk) -> None:
        """Take the next calls, as far as they need not wait for one that runs."""
        while talk.waiting and talk.current is None:
            call = talk.waiting[0]
            run = self._recorded(talk, call)
            if run is None and talk.record.running is not None:
                return  # one at a time; it is superseded, but it ends first
            del talk.waiting[0]
            if run is None:
                self._start(talk, call)
            elif run.ended_seq:
                self._answer(talk, call, run)
            else:
                talk.current = (call, run.call)

    def _recorded(self, talk: Talk, call: ToolCall) -> ToolRun | None:
        """What is recorded of a call: the next one of the line, or one that was made already."""
        line = talk.record.line
        if talk.made < len(line) and self._is_same(line[talk.made], call):
            talk.made += 1
            return line[talk.made - 1]
        return next((run for run in line[: talk.made] if call.id and run.id == call.id), None)

    def _is_same(self, run: ToolRun, call: ToolCall) -> bool:
        return run.tool == call.tool and self.turn.load(run.asked.raw, run.asked.ref) == call.arguments

    def _start(self, talk: Talk, call: ToolCall) -> None:
        turn = self.turn
        number = len(talk.record.runs) + 1
        talk.made += 1
        asked = turn.pack_raw(call.arguments)
        called = e.ToolCalled(
            p=talk.step.p, n=talk.step.n, call=number, place=talk.made, tool=call.tool, id=call.id
        )
        turn.record((called, asked))
        talk.current = (call, number)
        self._count(talk)
        peer = turn.by_worker.get(talk.worker.path)
        if peer is not None:  # otherwise the call is part of the history that its next process gets
            path = CallPlace(talk.step.p, talk.step.n, number).path
            turn.send(peer, f.Called(p=path, tool=call.tool, v=asked.raw, ref=asked.ref))

    def _answer_current(self, talk: Talk, run: ToolRun | None) -> None:
        if talk.current is not None and run is not None and talk.current[1] == run.call:
            call, talk.current = talk.current[0], None
            self._answer(talk, call, run)

    def _answer(self, talk: Talk, call: ToolCall, run: ToolRun) -> None:
        error = run.error
        problem = "" if error is None else f"{error.type.rpartition(':')[2]}: {error.message}"
        self.turn.after_commit(AnswerCall(talk.token, call.request, run.value, problem))
