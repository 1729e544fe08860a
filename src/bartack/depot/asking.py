"""Requests to a run that is kept in a database, from anywhere: what both sides of one need to know.

A process that asks stores a request, and waits until it has an answer (``Questioner``). The process that owns the run hands the
request to its hub, and stores the answer (``Answerer``). A request has an id, and the journal of the run has the outcome under that
id, so each is carried out once, whichever of the two dies meanwhile (``runtime/kernel/requests.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, Protocol

from bartack.core.watch import Watch

LEAVE: Final = "leave"
"""Instead of a request to the hub: a client closes its connection."""

RequestState = Literal["open", "done", "refused", "late", "gone"]


class StoredRequest(NamedTuple):
    """A request as it is stored.

    Attributes:
        id: What it is recognised by if it is sent again.
        asks: What is asked for.
        args: Its arguments, as JSON.
        value: The value that it carries, as JSON.
        client: Whose connection to the hub it belongs to; empty if it needs none of its own.
        number: Its number in that connection; 0 if it is not answered.
        by: Who asks: a role of the database.
    """

    id: str
    asks: str
    args: bytes
    value: bytes | None = None
    client: str = ""
    number: int = 0
    by: str = ""


class Answered(NamedTuple):
    """What became of a request.

    Attributes:
        state: ``open`` if nothing did yet, ``gone`` if it is not there.
        answer: The result, or the error of a hub that refused it, as JSON.
    """

    state: RequestState
    answer: bytes = b""


class Questioner(Protocol):
    """The side that asks."""

    def ask(self, request: StoredRequest, late_s: float | None = None) -> Answered:
        """Store a request, unless it is stored already; returns what became of it so far.

        Args:
            request: The request.
            late_s: After how long it is too late to begin with it.
        """
        ...

    def look(self, requests: Sequence[str]) -> dict[str, Answered]:
        """What became of requests. Those that are not there are left out."""
        ...

    def withdraw(self, request: str) -> None:
        """Take back a request that has no answer."""
        ...

    def standing(self) -> Literal["owned", "queued", ""]:
        """Whether a process answers requests, or one is going to without anything further."""
        ...

    def watch(self) -> Watch:
        """Watch the run and its requests."""
        ...


class Answerer(Protocol):
    """The side of the owner."""

    def open(self) -> list[StoredRequest]:
        """The requests that have no answer, the oldest first."""
        ...

    def settle(self, request: str, state: RequestState, answer: bytes) -> bool:
        """Store an answer; ``False`` if it is of no use any more."""
        ...
