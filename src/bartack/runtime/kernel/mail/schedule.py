"""Messages that are sent for a later time: they are in the journal at once, and join the queue of their mailbox when due."""

from __future__ import annotations

from bartack.messaging import Mailbox
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.mail.dead_letter_entry import DeadLetterEntries
from bartack.runtime.kernel.mail.observer import MailObserver, MailObservers
from bartack.runtime.kernel.mail.receive import Receive
from bartack.runtime.kernel.mail.room import Room
from bartack.runtime.kernel.timers import Timer
from bartack.runtime.state import entries as e
from bartack.runtime.state.worker_state import NO_VALUE


class Schedule(Desk, MailObserver):
    """Releases scheduled messages: when they are due, and there is room."""

    def __init__(
        self,
        shared: Shared,
        room: Room,
        receive: Receive,
        dead_letters: DeadLetterEntries,
        observers: MailObservers,
    ) -> None:
        super().__init__(shared)
        self._room = room
        self._receive = receive
        self._dead_letters = dead_letters
        self._observers = observers
        self._timers: dict[str, Timer] = {}

    def arm(self, mailbox: Mailbox) -> None:
        """Set the timer of the next scheduled message of a mailbox."""
        due = mailbox.next_due()
        timer = self._timers.get(mailbox.name)
        if due is None or (timer is not None and timer.pending and timer.due <= due):
            return
        now = self.now_us()
        if due <= now and mailbox.due(now) is None:
            return  # it waits for room, and ``room_made`` releases it
        if timer is not None:
            timer.cancel()
        self._timers[mailbox.name] = self.timers.at(due, lambda: self._release(mailbox))

    def resumed(self) -> None:
        """Release the messages that came due while no hub ran, and set the timers of the others."""
        for mailbox in list(self.state.mailboxes.values()):
            self.room_made(mailbox)

    def room_made(self, mailbox: Mailbox) -> None:
        """Release the messages that waited for room after they came due."""
        if mailbox.scheduled:
            self._release(mailbox)

    def _release(self, mailbox: Mailbox) -> None:
        name = mailbox.name
        released = False
        while (message := mailbox.due(self.now_us())) is not None:
            fits = self._room.push_out(mailbox, message.size)
            due = e.MessageMoved(mailbox=name, id=message.id, to="due")
            self.turn.record(
                (due if fits else self._dead_letters.of_id(name, message.id, "overflow"), NO_VALUE)
            )
            if message.track or not fits:
                self._observers.message_moved(message.id, message.track)
            released = True
        self.arm(mailbox)
        if released:
            self._receive.serve(mailbox)
