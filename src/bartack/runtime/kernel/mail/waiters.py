"""Receivers that wait for a message: their queues, the entry that hands a message over, and the answer once it is recorded.

``receive.py`` decides which receiver is served when. A message that arrives while a receiver waits is sent and handed over in one
line, so a waiter makes its entry before it is answered.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
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
from bartack.runtime.state.worker_state import NO_VALUE, OpenStep, Value, WorkerState


class Waiter(ABC):
    """A receiver that waits for a message: a step of a worker, or a process outside."""

    timer: Timer | None = None

    def __init__(self, mailbox: str, peer: Peer, step: tuple[str, int], worker: str = "") -> None:
        self.mailbox = mailbox
        self.peer = peer
        self.step = step
        self.worker = worker
        """The path of the worker whose step it is, if it is one."""
        self.party: str | int = worker or peer.number
        """The worker, by its path, or the process outside, by its number."""

    @abstractmethod
    def entry(self, message: Message) -> tuple[e.EntryData, Value]:
        """The entry that hands a message over."""

    @abstractmethod
    def given(self, message: Message, value: Value) -> None:
        """The entry is recorded, with this value: answer the receiver."""

    @abstractmethod
    def give_up(self, error: BartackError) -> None:
        """Answer the receiver with an error instead of a message."""


class Receiver(Waiter):
    """A step of a worker that receives."""

    opened: OpenStep | None = None
    """The step, if it has to wait."""

    def __init__(
        self, turn: Turn, peer: Peer, worker: WorkerState, step: f.Step, args: s.ReceiveArgs
    ) -> None:
        super().__init__(args.mailbox, peer, (step.p, step.n), worker.path)
        self._turn = turn
        self._worker = worker
        self._asked = step
        self._hold = args.hold

    def entry(self, message: Message) -> tuple[e.EntryData, Value]:
        """See ``Waiter.entry``."""
        asked, attempt = self._asked, 0
        value = Value(message.value, message.ref)
        if self._hold:
            held = held_message(self._turn, message)
            attempt, value = held.attempt, self._turn.pack(held)
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
        self._turn.answer(self._worker, self._asked.p, self._asked.n, value)

    def give_up(self, error: BartackError) -> None:
        """See ``Waiter.give_up``."""
        assert self.opened is not None
        self._turn.fail_open(self._worker, self.opened, error)


class Holder(Waiter):
    """A process outside that receives: it holds a message until it acknowledges it."""

    def __init__(self, turn: Turn, peer: Peer, request: int, mailbox: str, lease: Callable[[], None]) -> None:
        super().__init__(mailbox, peer, ("", request))
        self._turn = turn
        self._request = request
        self._lease = lease
        self._held: s.Held | None = None

    def entry(self, message: Message) -> tuple[e.EntryData, Value]:
        """See ``Waiter.entry``."""
        held = self._held = held_message(self._turn, message)
        return e.MessageHeld(
            mailbox=self.mailbox, id=held.id, by=self.peer.name, attempt=held.attempt
        ), NO_VALUE

    def given(self, message: Message, value: Value) -> None:
        """See ``Waiter.given``."""
        self.peer.held[message.id] = self.mailbox
        self._lease()
        packed = self._turn.pack(self._held)
        self._turn.send(self.peer, f.Answer(i=self._request, v=packed.raw, ref=packed.ref))

    def give_up(self, error: BartackError) -> None:
        """See ``Waiter.give_up``."""
        self._turn.send(self.peer, f.Refusal(i=self._request, e=describe(error)))


def held_message(turn: Turn, message: Message) -> s.Held:
    """A message as a receiver that has to acknowledge it sees it."""
    return s.Held(
        id=message.id,
        value=msgspec.Raw(turn.load(message.value, message.ref)),
        sender=message.sender,
        attempt=message.attempt + 1,
        topic=message.topic,
        metadata=message.metadata,
    )


class Waiters:
    """The receivers that wait, by mailbox, in the order in which they came."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[Waiter]] = {}
        self._parties: Counter[str | int] = Counter()
        """How many messages each worker or process outside waits for."""

    def count(self, name: str) -> int:
        """How many wait for a message from a mailbox."""
        return len(self._queues.get(name, ()))

    def first(self, name: str) -> Waiter | None:
        """The receiver that gets the next message of a mailbox."""
        queue = self._queues.get(name)
        return queue[0] if queue else None

    def of(self, name: str) -> list[Waiter]:
        """The receivers that wait for a message from a mailbox."""
        return list(self._queues.get(name, ()))

    def all(self) -> list[Waiter]:
        """Every receiver that waits."""
        return [waiter for queue in self._queues.values() for waiter in queue]

    def add(self, waiter: Waiter) -> None:
        """Let a receiver wait, after those that do already."""
        self._queues.setdefault(waiter.mailbox, deque()).append(waiter)
        self._parties[waiter.party] += 1

    def remove(self, waiter: Waiter) -> bool:
        """Stop a wait; returns whether the receiver was waiting."""
        queue = self._queues.get(waiter.mailbox)
        if queue is None or waiter not in queue:
            return False
        queue.remove(waiter)
        self._removed(waiter)
        return True

    def take_first(self, name: str) -> Waiter:
        """Stop the wait of the receiver that gets the next message of a mailbox."""
        waiter = self._queues[name].popleft()
        self._removed(waiter)
        return waiter

    def remove_party(self, party: str | int, step: tuple[str, int] | None = None) -> None:
        """Stop all waits of a worker or a process outside, or only that of one step."""
        if party in self._parties:
            for waiter in self.all():
                if waiter.party == party and step in (None, waiter.step):
                    self.remove(waiter)

    def _removed(self, waiter: Waiter) -> None:
        if waiter.timer is not None:
            waiter.timer.cancel()
        left = self._parties[waiter.party] - 1
        if left:
            self._parties[waiter.party] = left
        else:
            del self._parties[waiter.party]
