"""What a model server has been asked, for tests to read and to wait for.

Threads of the server write, tests read. ``_http.py`` has the server.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, Literal

import msgspec

from bartack.testing.model._conversation import ToolResult
from bartack.testing.model._script import TokenUsage

Outcome = Literal["open", "sent", "failed", "cut", "hung", "gone"]

_SHOWN: Final = 10


class ModelRequest(msgspec.Struct, frozen=True):
    """One request that a model server got.

    Attributes:
        number: Its number, from 1.
        path: The path, without the query.
        script: The script that answered; empty if none did.
        step: The number of the step, from 0; -1 without a script. It may be larger than that of the last step, which repeats.
        prompt: The newest text of the user.
        tools: The names of the tools that were offered.
        tool_results: The results of the tools since the last reply.
        model: The model that was asked for.
        stream: Whether a stream was asked for.
        started_at: When it came, in seconds since the epoch.
        ended_at: When it was answered; 0 while it is open.
        outcome: ``open``; ``sent`` completely; ``failed`` as its step wanted; ``cut``, ``hung``; ``gone``: the client left.
        status: The HTTP status of the answer; 0 if there was none.
        events: How many events were sent.
        usage: What the reply was charged with.
        body: The request, if the server keeps bodies.
    """

    number: int
    path: str
    script: str = ""
    step: int = -1
    prompt: str = ""
    tools: tuple[str, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()
    model: str = ""
    stream: bool = False
    started_at: float = 0.0
    ended_at: float = 0.0
    outcome: Outcome = "open"
    status: int = 0
    events: int = 0
    usage: TokenUsage = TokenUsage()
    body: Mapping[str, object] | None = None


class RequestLog:
    """The requests of one server, in the order in which they came."""

    def __init__(self, on_end: Callable[[ModelRequest], None] | None = None) -> None:
        self._requests: list[ModelRequest] = []
        self._problems: list[str] = []
        self._changed = threading.Condition()
        self._on_end = on_end

    @property
    def requests(self) -> list[ModelRequest]:
        """A copy of the requests."""
        with self._changed:
            return list(self._requests)

    @property
    def problems(self) -> list[str]:
        """What scripts expected and did not get."""
        with self._changed:
            return list(self._problems)

    @property
    def usage(self) -> TokenUsage:
        """What all replies together were charged with."""
        return sum((request.usage for request in self.requests), TokenUsage())

    def add(self, make: Callable[[int], ModelRequest], problem: str = "") -> ModelRequest:
        """Append a request, which is made with its number."""
        with self._changed:
            request = make(len(self._requests) + 1)
            self._requests.append(request)
            if problem and problem not in self._problems:  # agents repeat what is refused
                self._problems.append(problem)
            self._changed.notify_all()
        return request

    def end(
        self, request: ModelRequest, outcome: Outcome, status: int, events: int, usage: TokenUsage
    ) -> None:
        """Note how a request was answered."""
        with self._changed:
            ended = msgspec.structs.replace(
                request, outcome=outcome, status=status, events=events, usage=usage, ended_at=time.time()
            )
            self._requests[request.number - 1] = ended
            if self._on_end is not None:
                self._on_end(ended)
            self._changed.notify_all()

    def wait_for(
        self, wanted: Callable[[ModelRequest], object], timeout_s: float, count: int
    ) -> ModelRequest:
        """Wait until ``count`` requests are wanted ones; the last of them."""
        with self._changed:

            def find() -> list[ModelRequest]:
                return [request for request in self._requests if wanted(request)]

            found = self._changed.wait_for(lambda: len(find()) >= count, timeout_s)
            if found:
                return find()[count - 1]
            shown = [
                f"{one.number}: {one.path} {one.script}[{one.step}] {one.outcome} {one.status}"
                for one in self._requests[-_SHOWN:]
            ]
        raise TimeoutError(f"no such request within {timeout_s:g} s; the last requests: {shown or 'none'}")
