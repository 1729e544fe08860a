"""Who waits for a message, and how one is handed to them: the entry that does it, and what follows when it is written.

The mailroom (``mailroom.py``) decides who is served when. A message that arrives while somebody waits is sent and handed over
in one line, so a waiter makes its entry before it is told.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import msgspec

from bartack.errors import BartackError
from bartack.messaging import Message
from bartack.runtime.kernel.outcome import describe
from bartack.runtime.kernel.timers import Timer
from bartack.runtime.kernel.turn import Peer, Turn
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.state import entries as e
from bartack.runtime.state.worker_state import NO_VALUE, OpenStep, Value, Worker


class Waiter(ABC):
    """Somebody who waits for a message: a worker's step, or a foreign process."""

    timer: Timer | None = None

    def __init__(self, mailbox: str, peer: Peer, step: tuple[str, int], worker: str = "") -> None:
        self.mailbox = mailbox
        self.peer = peer
        self.step = step
        self.worker = worker
        """The path of the worker whose step it is, if it is one."""
        self.party: str | int = worker or peer.number
        """Who waits: a worker by its path, a process outside by its number."""

    @abstractmethod
    def entry(self, message: Message) -> tuple[e.EntryData, Value]:
        """What hands a message over when it is written."""

    @abstractmethod
    def given(self, message: Message, value: Value) -> None:
        """The entry is written, with this value: tell it."""

    @abstractmethod
    def give_up(self, error: BartackError) -> None:
        """There is no message for it."""


class Receiver(Waiter):
    """A step of a worker that receives."""

    opened: OpenStep | None = None
    """The step, if it has to wait."""

    def __init__(self, turn: Turn, peer: Peer, worker: Worker, step: f.Step, args: s.ReceiveArgs) -> None:
        super().__init__(args.mailbox, peer, (step.p, step.n), worker.path)
        self._ledger = turn
        self._worker = worker
        self._asked = step
        self._hold = args.hold

    def entry(self, message: Message) -> tuple[e.EntryData, Value]:
        """See ``Waiter.entry``."""
        asked, attempt = self._asked, 0
        value = Value(message.value, message.ref)
        if self._hold:
            held = held_message(self._ledger, message)
            attempt, value = held.attempt, self._ledger.pack(held)
        taken = e.MessageTaken(
            mailbox=self.mailbox,
            id=message.id,
            p=asked.p,
            n=asked.n,
            fp=asked.fp,
            step=asked.step,
            attempt=attempt,
        )
        return taken, value

    def given(self, message: Message, value: Value) -> None:
        """See ``Waiter.given``."""
        self._ledger.answer(self._worker, self._asked.p, self._asked.n, value)

    def give_up(self, error: BartackError) -> None:
        """See ``Waiter.give_up``."""
        assert self.opened is not None
        self._ledger.fail_open(self._worker, self.opened, error)


class Holder(Waiter):
    """A process outside that receives: it holds what it is handed until it acknowledges it."""

    def __init__(self, turn: Turn, peer: Peer, request: int, mailbox: str, lease: Callable[[], None]) -> None:
        super().__init__(mailbox, peer, ("", request))
        self._ledger = turn
        self._request = request
        self._lease = lease
        self._held: s.Held | None = None

    def entry(self, message: Message) -> tuple[e.EntryData, Value]:
        """See ``Waiter.entry``."""
        held = self._held = held_message(self._ledger, message)
        return e.MessageHeld(
            mailbox=self.mailbox, id=held.id, by=self.peer.name, attempt=held.attempt
        ), NO_VALUE

    def given(self, message: Message, value: Value) -> None:
        """See ``Waiter.given``."""
        self.peer.held[message.id] = self.mailbox
        self._lease()
        packed = self._ledger.pack(self._held)
        self._ledger.send(self.peer, f.Answer(i=self._request, v=packed.raw, ref=packed.ref))

    def give_up(self, error: BartackError) -> None:
        """See ``Waiter.give_up``."""
        self._ledger.send(self.peer, f.Refusal(i=self._request, e=describe(error)))


def held_message(turn: Turn, message: Message) -> s.Held:
    """A message as its receiver sees it who has to acknowledge it."""
    return s.Held(
        id=message.id,
        value=msgspec.Raw(turn.load(message.value, message.ref)),
        sender=message.sender,
        attempt=message.attempt + 1,
        topic=message.topic,
        metadata=message.metadata,
    )
