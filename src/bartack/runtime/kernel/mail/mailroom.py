"""Puts the parts of mail together: which part gets which, in which order they are notified, and which handles which step.

It decides nothing. ``enqueue.py`` is the way into a mailbox, ``receive.py`` the way out, ``held.py`` the acknowledgement.
"""

from __future__ import annotations

from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.handler import AtOnce, StepHandler
from bartack.runtime.kernel.mail.broadcast import DeliveryDesk, DeliveryStep
from bartack.runtime.kernel.mail.calls import CallStep
from bartack.runtime.kernel.mail.dead_letter_entry import DeadLetterEntries
from bartack.runtime.kernel.mail.dead_letters import LetterDesk
from bartack.runtime.kernel.mail.enqueue import Enqueue
from bartack.runtime.kernel.mail.foreign import OutsideMail
from bartack.runtime.kernel.mail.held import HeldMessages
from bartack.runtime.kernel.mail.observer import MailObservers
from bartack.runtime.kernel.mail.receive import Receive, ReceiveStep
from bartack.runtime.kernel.mail.registry import MailboxRegistry
from bartack.runtime.kernel.mail.room import Room
from bartack.runtime.kernel.mail.schedule import Schedule
from bartack.runtime.kernel.mail.send import SendStep
from bartack.runtime.kernel.requests import RequestDesk


class MailDesks:
    """The parts of mail of one hub."""

    def __init__(self, shared: Shared, requests: RequestDesk) -> None:
        observers = MailObservers()
        entries = DeadLetterEntries(shared)
        self._turn = shared.turn
        self.room = Room(shared, entries, observers)
        self.receive = Receive(shared, observers)
        self.held = HeldMessages(shared, self.receive, entries, observers)
        self._schedule = Schedule(shared, self.room, self.receive, entries, observers)
        self.enqueue = Enqueue(shared, self.room, self.receive, self._schedule, entries, observers)
        self.letters = LetterDesk(shared, entries, self.enqueue)
        self.outside = OutsideMail(shared, self.enqueue, self.room, self.receive, requests)
        self.calls = CallStep(shared, self.enqueue, self.room, self.outside)
        self.delivery = DeliveryDesk(shared, self.enqueue, self.room, entries, observers, requests)
        self.registry = MailboxRegistry(shared, self.room, self.receive)
        self._send = SendStep(shared, self.enqueue, self.room)
        self._receive_step = ReceiveStep(shared, self.receive)
        # Room goes to messages that are due, then to sends in the order of their waits, then to broadcasts. Receivers learn last
        # that no message will come, since all of these may still put one into a mailbox.
        observers.register(
            of_messages=(self.letters, self.delivery),
            of_room=(self._schedule, self.room, self.delivery, self.receive),
        )

    def desks(self) -> tuple[Desk, ...]:
        """The parts that have a life cycle, in the order in which they are notified.

        Receivers that are gone stop waiting before messages are returned, so that none is returned to them; senders learn that the
        inbox of a worker is closed after all that this worker held or sent has gone back.
        """
        return (
            self.room,
            self.receive,
            self.held,
            self._schedule,
            self.outside,
            self.delivery,
            self.registry,
            self.letters,
        )

    def handlers(self) -> dict[str, StepHandler]:
        """The handler of each kind of step that concerns messages."""
        turn, registry, delivery = self._turn, self.registry, self.delivery
        return {
            "send": self._send,
            "withdraw": AtOnce(turn, self._send.withdraw),
            "receive": self._receive_step,
            "drain": AtOnce(turn, self.receive.drain),
            "ack": AtOnce(turn, self.held.ack),
            "nack": AtOnce(turn, self.held.nack),
            "call": self.calls,
            "reply": AtOnce(turn, self.calls.reply),
            "send_supervised": DeliveryStep(delivery, delivery.send),
            "broadcast": DeliveryStep(delivery, delivery.broadcast),
            "publish": DeliveryStep(delivery, delivery.publish),
            "subscribe": AtOnce(turn, registry.subscribe),
            "unsubscribe": AtOnce(turn, registry.unsubscribe),
            "register": AtOnce(turn, registry.register),
            "declare": AtOnce(turn, registry.declare),
            "close": AtOnce(turn, registry.close_step),
            "stats": AtOnce(turn, registry.stats),
        }
