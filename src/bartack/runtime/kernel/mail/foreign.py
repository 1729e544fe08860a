"""Messages of processes outside the run: sends, calls that wait for their reply, and receives.

Its waits live and die with its connection and with the hub; a message that it has sent is in the journal like any other. A process
that stops waiting for a reply takes its message back if no receiver has it. Otherwise the reply is recorded when it comes, as the
outcome of the request: a process that was cut off sends the request again, and gets it then (``kernel/requests.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, assert_never

import msgspec

from bartack.errors import (
    BartackError,
    DeadlineExceededError,
    MailboxClosedError,
    MailboxFullError,
    ReceiveTimeoutError,
    SessionFailedError,
)
from bartack.messaging.mailboxes import check_name
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.mail.enqueue import Enqueue, Enqueued, MustWait, Outgoing, Refused, size_of
from bartack.runtime.kernel.mail.receive import Receive
from bartack.runtime.kernel.mail.room import Room, RoomWaiter
from bartack.runtime.kernel.mail.waiters import Waiter
from bartack.runtime.kernel.requests import Asked, RequestDesk
from bartack.runtime.kernel.timers import Timer
from bartack.runtime.kernel.turn import Peer
from bartack.runtime.state.requests import reply_address, request_of
from bartack.runtime.state.worker_state import Value


class _Wait(NamedTuple):
    """A request that waits: for room, or for a reply."""

    asked: Asked
    timer: Timer
    mailbox: str
    room: RoomWaiter | None = None
    sent: str = ""
    """The message whose reply is awaited, when it was sent."""


class OutsideMail(Desk):
    """Handles requests of processes outside that concern messages."""

    def __init__(
        self, shared: Shared, enqueue: Enqueue, room: Room, receive: Receive, requests: RequestDesk
    ) -> None:
        super().__init__(shared)
        self._enqueue = enqueue
        self._room = room
        self._receive = receive
        self._requests = requests
        self._waits: dict[str, _Wait] = {}
        """By the id of the request."""

    def leave(self, mailbox: str, sender: str, value: Value, key: str) -> str:
        """Enqueue a message that does not wait for room; returns its id.

        Raises:
            MailboxClosedError: The mailbox is closed.
            MailboxFullError: The mailbox is full.
            MailboxNameError: There is no such mailbox.
        """
        check_name(mailbox)
        outcome = self._enqueue.enqueue(Outgoing(mailbox, sender, value, size_of(value), key))
        match outcome:
            case Enqueued():
                return outcome.id
            case MustWait() | Refused():
                raise outcome.error
            case _:
                assert_never(outcome)

    def send(self, asked: Asked, message: Outgoing) -> None:
        """Enqueue a message, or wait for room in turn."""
        check_name(message.mailbox)
        outcome = self._enqueue.enqueue(message)
        match outcome:
            case Enqueued():
                self._requests.settle(asked, self.turn.pack(outcome.id))
            case MustWait():
                self._wait_to_send(asked, message)
            case Refused():
                raise outcome.error
            case _:
                assert_never(outcome)

    def call(self, asked: Asked, message: Outgoing, timeout_s: float | None) -> None:
        """Enqueue a message, unless that was done before, and wait for its reply, until a deadline."""
        check_name(message.mailbox)
        limit, source = self.limit("call", timeout_s)
        late = DeadlineExceededError("call", limit, source)
        timer = self.timers.after(limit, lambda: self._give_up(asked.id, late))
        # Before the message is sent: a receiver that waits for it may reply in the same turn.
        self._waits[asked.id] = _Wait(asked, timer, message.mailbox)
        sent = self.state.requests.message_of(asked.id)
        if sent is not None:
            self._note_sent(asked.id, sent[1])
        else:
            self._begin_call(asked.id, message)

    def _begin_call(self, request: str, message: Outgoing) -> None:
        message = msgspec.structs.replace(message, reply_to=reply_address(request))
        outcome = self._enqueue.enqueue(message)
        match outcome:
            case Enqueued():
                self._note_sent(request, outcome.id)
            case MustWait():
                enter = self._entering_call(request, message)
                self._waits[request] = self._waits[request]._replace(
                    room=self._wait_for_room(request, message, enter)
                )
            case Refused():
                self._give_up(request, outcome.error)
            case _:
                assert_never(outcome)

    def receive(self, waiter: Waiter, timeout_s: float | None) -> None:
        """Hand over the oldest message of a mailbox, or wait for one."""
        if self._receive.take(waiter):
            return
        if self._receive.is_finished(waiter.mailbox):
            waiter.give_up(MailboxClosedError(waiter.mailbox))
            return
        limit, source = self.limit("receive", timeout_s)
        error = ReceiveTimeoutError("receive", max(limit, 0.0), source)
        if limit <= 0:
            waiter.give_up(error)
            return
        self._receive.wait(waiter)
        waiter.timer = self.timers.after(limit, lambda: self._receive.time_out(waiter, error))

    def forget_request(self, peer: Peer, number: int) -> None:
        """A process outside no longer waits for a message, for room or for a reply."""
        self._receive.forget_request(peer, number)
        for request in self._requests.awaited_by(peer, number):
            self._forget(request)

    def replied(self, address: str, value: Value) -> bool:
        """Record the reply to a call; returns whether the call was open."""
        request = request_of(address)
        if self.state.requests.message_of(request) is None:
            return False
        wait = self._end(request)
        asked = Asked(request, "call", "") if wait is None else wait.asked
        self._requests.settle(asked, value)
        return True

    def peer_gone(self, peer: Peer) -> None:
        """A process outside that is gone waits for nothing."""
        for request in self._requests.awaited_by(peer):
            self._forget(request)

    def session_failed(self, error: SessionFailedError) -> None:
        """No request waits any longer."""
        for request in list(self._waits):
            self._end(request)
            self._requests.refuse(request, error)

    # Inside.

    def _wait_to_send(self, asked: Asked, message: Outgoing) -> None:
        def enter() -> None:
            self._waits.pop(asked.id).timer.cancel()
            with self.turn.one_line():
                self._requests.settle(asked, self.turn.pack(self._enqueue.enter(message).id))

        def late() -> None:
            queued = len(self.state.mailbox(message.mailbox))
            self._give_up(asked.id, MailboxFullError(message.mailbox, queued))

        timer = self.timers.after(self.timeouts.limit("send"), late)
        room = self._wait_for_room(asked.id, message, enter)
        self._waits[asked.id] = _Wait(asked, timer, message.mailbox, room)

    def _entering_call(self, request: str, message: Outgoing) -> Callable[[], None]:
        def enter() -> None:
            self._waits[request] = self._waits[request]._replace(room=None)
            self._note_sent(request, self._enqueue.enter(message).id)

        return enter

    def _wait_for_room(self, request: str, message: Outgoing, enter: Callable[[], None]) -> RoomWaiter:
        closed = MailboxClosedError(message.mailbox)
        waiter = RoomWaiter(message.size, enter, lambda: self._give_up(request, closed))
        self._room.wait(message.mailbox, waiter)
        return waiter

    def _note_sent(self, request: str, message_id: str) -> None:
        wait = self._waits.get(request)
        if wait is not None:
            self._waits[request] = wait._replace(sent=message_id)

    def _forget(self, request: str) -> None:
        """No process waits for a request any longer: it never happened, unless a receiver has its message."""
        wait = self._end(request)
        if wait is not None:
            self._requests.drop(request)
            self._take_back(wait)

    def _take_back(self, wait: _Wait) -> None:
        message = self.state.mailbox(wait.mailbox).find(wait.sent) if wait.sent else None
        if message is not None:
            self._enqueue.withdraw(wait.mailbox, wait.sent, message.sender)

    def _end(self, request: str) -> _Wait | None:
        wait = self._waits.pop(request, None)
        if wait is not None:
            wait.timer.cancel()
            if wait.room is not None:
                self._room.stop_waiting(wait.mailbox, wait.room)
        return wait

    def _give_up(self, request: str, error: BartackError) -> None:
        """A request is over before it is done. The line that takes the message of a call back also has the error."""
        wait = self._end(request)
        if wait is None:
            return
        if not wait.sent:
            self._requests.refuse(request, error)
            return
        with self.turn.one_line():
            self._take_back(wait)
            self._requests.settle(wait.asked, error)
