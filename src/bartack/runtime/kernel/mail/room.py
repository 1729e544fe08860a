"""The bounds of mailboxes: whether one more message fits, which messages are pushed out for it, and which sends wait for room.

Sends that wait live here and die with the hub; a restarted worker asks again. ``enqueue.py`` decides which of these a message is
subject to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from bartack.errors import SessionFailedError
from bartack.messaging import Mailbox
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.mail.dead_letter_entry import DeadLetterEntries
from bartack.runtime.kernel.mail.observer import MailObserver, MailObservers
from bartack.runtime.kernel.timers import Timer
from bartack.runtime.state import entries as e
from bartack.runtime.state.worker_state import NO_VALUE, WorkerState


class RoomWaiter(NamedTuple):
    """A send that waits for room."""

    size: int
    enter: Callable[[], None]
    """There is room: enqueue the message."""
    closed: Callable[[], None]
    """There will never be room: the mailbox was closed."""
    timer: Timer | None = None
    worker: str = ""
    """The path of the worker whose step waits, if the wait ends with its process."""
    step: tuple[str, int] = ("", 0)


class Room(Desk, MailObserver):
    """Keeps mailboxes within their bounds."""

    def __init__(self, shared: Shared, dead_letters: DeadLetterEntries, observers: MailObservers) -> None:
        super().__init__(shared)
        self._dead_letters = dead_letters
        self._observers = observers
        self._waiting: dict[str, deque[RoomWaiter]] = {}

    @property
    def has_waiting(self) -> bool:
        """Whether a send waits for room."""
        return any(self._waiting.values())

    # Bounds.

    def has_room(self, mailbox: Mailbox, size: int, sender: str) -> bool:
        """Whether a message fits now, after the sends that wait for room already."""
        is_next = not self._waiting.get(mailbox.name) or self.is_own(mailbox, sender)
        return is_next and mailbox.has_room(size)

    def is_own(self, mailbox: Mailbox, sender: str) -> bool:
        """Whether only the sender receives from a mailbox: it must not wait for room that only it can make."""
        return mailbox.name == f"@{sender}" or mailbox.owner == sender

    def push_out(self, mailbox: Mailbox, size: int) -> bool:
        """Drop the oldest messages if the mailbox is declared to; returns whether a message of this size fits then."""
        if mailbox.overflow == "drop_oldest":
            for message in mailbox.pushed_out(size):
                dropped = self._dead_letters.of_id(mailbox.name, message.id, "overflow")
                self.turn.record((dropped, NO_VALUE))
                self._observers.message_moved(message.id, message.track)
        return mailbox.has_room(size)

    # Sends that wait.

    def wait(self, name: str, waiter: RoomWaiter) -> None:
        """Let a send wait for room, after those that wait already."""
        self._waiting.setdefault(name, deque()).append(waiter)

    def stop_waiting(self, name: str, waiter: RoomWaiter) -> None:
        """A send no longer waits for room: there may be enough for those after it."""
        queue = self._waiting.get(name)
        if queue is not None and waiter in queue:
            # The queue is changed in place, since ``room_made`` may be walking through it, and the next ones enter in a later turn.
            queue.remove(waiter)
            self.timers.after(0.0, lambda: self._observers.waits_changed(self.state.mailbox(name)))

    def forget_step(self, worker: WorkerState, step: tuple[str, int]) -> None:
        """A step of a worker no longer waits for room."""
        self._forget(lambda waiter: waiter.worker == worker.path and waiter.step == step)

    def room_made(self, mailbox: Mailbox) -> None:
        """Let sends enter, in the order in which they began to wait."""
        queue = self._waiting.get(mailbox.name)
        while queue and mailbox.has_room(queue[0].size):
            first = queue.popleft()
            _stop_timer(first)
            first.enter()

    waits_changed = room_made

    def close(self, name: str) -> None:
        """A mailbox takes no more messages: sends that wait for room in it, and receivers that wait in vain, are notified."""
        for waiter in self._waiting.pop(name, ()):
            _stop_timer(waiter)
            waiter.closed()
        self._observers.waits_changed(self.state.mailbox(name))

    # The life of a run.

    def resumed(self) -> None:
        """Give mailboxes without bounds those of the project's settings."""
        for name, bounds in self.settings.mailboxes.items():
            if not self.state.mailbox(name).declared:
                changed = e.MailboxChanged(
                    mailbox=name,
                    capacity=bounds.capacity,
                    max_bytes=bounds.max_bytes,
                    overflow=bounds.overflow,
                )
                self.turn.record((changed, NO_VALUE), sync=False)

    def session_failed(self, error: SessionFailedError) -> None:
        """No send waits any longer."""
        for queue in self._waiting.values():
            for waiter in queue:
                _stop_timer(waiter)
        self._waiting.clear()

    def process_ended(self, worker: WorkerState) -> None:
        """The steps of a worker whose process has ended wait for nothing."""
        self._forget(lambda waiter: waiter.worker == worker.path)

    def _forget(self, is_gone: Callable[[RoomWaiter], bool]) -> None:
        for name, queue in self._waiting.items():
            for waiter in [waiter for waiter in queue if is_gone(waiter)]:
                _stop_timer(waiter)
                self.stop_waiting(name, waiter)


def _stop_timer(waiter: RoomWaiter) -> None:
    if waiter.timer is not None:
        waiter.timer.cancel()
