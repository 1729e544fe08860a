"""What the contract of agents needs around a kind of agents: the agents as seen from outside, and a sink that keeps a record."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, Protocol

from bartack.agents import (
    Agent,
    AgentEvent,
    AgentQuestion,
    AgentRequest,
    AgentResult,
    Call,
    Outcome,
)
from bartack.errors import AgentError

Behaviour = Literal["replies", "hangs", "exits", "floods", "resists"]
"""What the program of an agent does with a prompt.

- ``replies``: with the text ``hello``.
- ``hangs``: it takes the prompt and never says anything again. It ends when it is asked to.
- ``exits``: it takes the prompt and ends with status 0, without a reply.
- ``floods``: it writes one line that is longer than any line may be, and then hangs.
- ``resists``: like ``hangs``, with a process of its own in a session of its own. Neither ends when it is asked to.
"""

PATIENCE_S = 60.0
"""How long a test waits for what must happen at once; a busy machine may be slow at it."""


class AgentEngine(Protocol):
    """One kind of agents, with the files of one run: every call means the same run."""

    @property
    def behaviours(self) -> frozenset[Behaviour]:
        """What agents of this kind can be made to do. ``replies`` and ``hangs`` are required."""
        ...

    def open(self, behaviour: Behaviour) -> Agent:
        """An agent, as a new hub opens it. Several can be open at the same time."""
        ...

    def request(self, behaviour: Behaviour) -> AgentRequest:
        """A prompt that makes the agent do this. Its key is the same each time."""
        ...

    def asked(self, behaviour: Behaviour) -> int:
        """How many prompts the programs of such agents have taken so far."""
        ...

    def processes(self) -> list[int]:
        """The living processes of all calls, whichever process started them."""
        ...

    def drive(self, is_over: Callable[[], bool], timeout_s: float) -> bool:
        """Run the loop of all agents until something is so; ``False`` if it is not in time."""
        ...

    def kill(self, agent: Agent) -> None:
        """The hub of an agent is killed: its calls are not notified, and nothing of their processes is left."""
        ...

    def close(self) -> None:
        """Stop everything, and remove the files."""
        ...


class RecordingSink:
    """Keeps what a call reports. With ``processes``, also which of them live when the call is over."""

    def __init__(self, processes: Callable[[], list[int]] = list) -> None:
        self.events: list[AgentEvent] = []
        self.warnings: list[str] = []
        self.outcomes: list[Outcome] = []
        self.left: list[int] = []
        """The processes that lived when ``done`` was called."""
        self.after_done: list[object] = []
        """What came although the call was over."""
        self.done_at: float | None = None
        self._processes = processes

    @property
    def is_done(self) -> bool:
        """Whether the call is over."""
        return bool(self.outcomes)

    @property
    def result(self) -> AgentResult:
        """The result of the call."""
        assert isinstance(self.outcomes[0], AgentResult), repr(self.outcomes[0])
        return self.outcomes[0]

    @property
    def error(self) -> AgentError:
        """The error of the call."""
        assert isinstance(self.outcomes[0], AgentError), repr(self.outcomes[0])
        return self.outcomes[0]

    def emit(self, event: AgentEvent) -> None:
        """See ``CallSink.emit``."""
        self.events.append(event)
        self._note_late(event)

    def warn(self, text: str) -> None:
        """See ``CallSink.warn``."""
        self.warnings.append(text)
        self._note_late(text)

    def call_tool(self, call_id: str, name: str, arguments: dict[str, object]) -> None:
        """See ``CallSink.call_tool``: no request of the contract has tools."""
        raise AssertionError(f"there is no tool {name}")

    def ask(self, question: AgentQuestion) -> None:
        """See ``CallSink.ask``: no request of the contract allows questions."""
        raise AssertionError(f"{question.text}: there is no person to ask")

    def withdraw(self, question_id: str) -> None:
        """See ``CallSink.withdraw``: there is no question."""
        raise AssertionError(f"there is no question {question_id}")

    def done(self, outcome: Outcome) -> None:
        """See ``CallSink.done``."""
        self._note_late(outcome)
        self.left = self._processes()
        self.done_at = time.monotonic()
        self.outcomes.append(outcome)

    def _note_late(self, what: object) -> None:
        if self.outcomes:
            self.after_done.append(what)


class OpenedCall:
    """A call of an agent with its sink."""

    def __init__(self, engine: AgentEngine, agent: Agent, request: AgentRequest) -> None:
        self.engine = engine
        self.agent = agent
        self.sink = RecordingSink(engine.processes)
        self.began_at = time.monotonic()
        self.call: Call = agent.start(request, self.sink)

    def finish(self, timeout_s: float = PATIENCE_S) -> RecordingSink:
        """Wait for its end."""
        assert self.engine.drive(lambda: self.sink.is_done, timeout_s), f"not over within {timeout_s:g} s"
        return self.sink

    @property
    def took_s(self) -> float:
        """Seconds until it was over."""
        assert self.sink.done_at is not None
        return self.sink.done_at - self.began_at
