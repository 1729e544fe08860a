"""Requests of processes outside that were taken: a part of the state of a run.

Like the rest of the state (``run_state.py``) it decides nothing; ``kernel/requests.py`` decides, by writing entries.

**How long a request is known.** The state keeps the ids of the last ``KEPT`` requests that have an outcome, each with the place of
the entry that has it, and not the outcomes: those are read from the journal when a request comes again. So the memory is bounded,
about 2 MB, however long a run lasts. A request that is sent again after ``KEPT`` others is carried out again. That is not a limit
in practice: a process sends a request again because it has lost its connection or the hub has died, and as soon as it can, so no
more are needed than were under way at that moment. It is a number and not a time, because every reader of the journal has to
arrive at the same state.
"""

from __future__ import annotations

from typing import Final

from bartack.messaging import Message

KEPT: Final = 10_000
"""How many requests are known after they have an outcome, and how many calls that wait for a reply."""

_REPLY_TO: Final = "request:"


def reply_address(request: str) -> str:
    """Where the reply to a call goes that is a request."""
    return f"{_REPLY_TO}{request} 0"


def request_of(reply_to: str) -> str:
    """The request that a message is the call of; empty if it is not one."""
    return reply_to.removeprefix(_REPLY_TO).partition(" ")[0] if reply_to.startswith(_REPLY_TO) else ""


class TakenRequests:
    """The requests that were taken, and those that are under way."""

    def __init__(self) -> None:
        self._settled: dict[str, int] = {}
        self._sending: set[str] = set()
        self._calls: dict[str, tuple[str, str]] = {}

    def place_of(self, request: str) -> int:
        """Where in the journal the outcome of a request is; 0 if none is known."""
        return self._settled.get(request, 0)

    def is_sending(self, request: str) -> bool:
        """Whether a request is a supervised send or a broadcast that is under way."""
        return request in self._sending

    def message_of(self, request: str) -> tuple[str, str] | None:
        """The mailbox and the id of the message of a call that has no reply."""
        return self._calls.get(request)

    def opened(self, request: str) -> None:
        """A supervised send or a broadcast is under way."""
        self._sending.add(request)

    def called(self, request: str, mailbox: str, message_id: str) -> None:
        """The message of a call was sent."""
        self._calls[request] = (mailbox, message_id)
        _forget_oldest(self._calls)

    def withdrawn(self, message: Message | None) -> None:
        """A message was taken back before it was received. If it was that of a call, the call never happened."""
        if message is not None and message.reply_to:
            self._calls.pop(request_of(message.reply_to), None)

    def settled(self, request: str, seq: int) -> None:
        """A request has its outcome."""
        self._sending.discard(request)
        self._calls.pop(request, None)
        self._settled[request] = seq
        _forget_oldest(self._settled)


def _forget_oldest(known: dict[str, int] | dict[str, tuple[str, str]]) -> None:
    if len(known) > KEPT:
        del known[next(iter(known))]
