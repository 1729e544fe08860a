"""Messages from processes outside the run: sends, and calls that wait for their reply.

What such a process waits for lives and dies with its connection and with the hub; a message that it has sent is in the journal like
any other. Who gives up waiting for a reply takes the message back, as long as nobody has received it; a reply to somebody who has
left, or whose hub has died since, reaches nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bartack.errors import BartackError, DeadlineExceededError, MailboxFullError
from bartack.messaging import check_name
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.mail.dead_letters import LetterDesk
from bartack.runtime.kernel.mail.mailroom import Blocked, MailDesk, size_of
from bartack.runtime.kernel.timers import Timer
from bartack.runtime.kernel.turn import Peer
from bartack.runtime.state import entries as e
from bartack.runtime.state.worker_state import NO_VALUE, Value

OnOutcome = Callable[[Value | BartackError], None]
"""A process outside learns what became of what it asked for."""


class OutsideMessage(NamedTuple):
    """A message from outside."""

    mailbox: str
    sender: str
    value: Value
    key: str = ""
    not_before: int = 0
    metadata: dict[str, object] = {}  # noqa: RUF012 - never changed
    reply_to: str = ""


class _Wait(NamedTuple):
    """Somebody outside who waits: for room, or for a reply."""

    peer: int
    told: OnOutcome
    timer: Timer
    blocked: Blocked | None
    mailbox: str
    sender: str
    sent: str = ""
    """The message whose reply is waited for, when it was sent."""


class ForeignMail(Desk):
    """Puts messages from outside into mailboxes."""

    def __init__(self, shared: Shared, mail: MailDesk, letters: LetterDesk) -> None:
        super().__init__(shared)
        self._mail = mail
        self._letters = letters
        self._waits: dict[str, _Wait] = {}
        """By what identifies the request: peer, hub and number."""

    def leave(self, mailbox: str, sender: str, value: Value, key: str) -> str:
        """A message that does not wait for room, from somebody who is told at once; returns its id.

        Raises:
            MailboxClosedError: The mailbox takes no more.
            MailboxFullError: It holds as much as it may.
            MailboxNameError: There is no such mailbox.
        """
        return self._put(OutsideMessage(mailbox, sender, value, key))

    def send(self, peer: Peer, number: int, parcel: OutsideMessage, told: OnOutcome) -> None:
        """A message that waits for room in its turn, where senders do."""
        request = self._request(peer, number)

        def sent() -> None:
            self._waits.pop(request).timer.cancel()
            known = self.state.mailbox(parcel.mailbox).id_for(parcel.key)  # another may have waited, too
            told(self.turn.pack(known or self._enqueue(parcel)))

        def late() -> None:
            full = MailboxFullError(parcel.mailbox, len(self.state.mailbox(parcel.mailbox)))
            self._give_up(request, full)

        if self._known(parcel) is None and self._must_wait(parcel):
            timer = self.timers.after(self.timeouts.limit("send"), late)
            self._wait(request, peer, parcel, told, timer, self._block(request, parcel, sent))
        else:
            told(self.turn.pack(self._put(parcel)))

    def call(
        self, peer: Peer, number: int, parcel: OutsideMessage, timeout_s: float | None, told: OnOutcome
    ) -> None:
        """A message whose reply is waited for, until a deadline."""
        request = self._request(peer, number)
        parcel = parcel._replace(reply_to=f"{request} 0")
        explicit = (timeout_s, "explicit") if timeout_s is not None else None
        limit, source = explicit or self.timeouts.explain("call")

        def late() -> None:
            self._give_up(request, DeadlineExceededError("call", limit, source))

        def sent() -> None:
            self._waits[request] = self._waits[request]._replace(blocked=None)
            self._note_sent(request, self._enqueue(parcel))

        self._known(parcel)
        waits = self._must_wait(parcel)
        timer = self.timers.after(limit, late)
        self._wait(request, peer, parcel, told, timer, self._block(request, parcel, sent) if waits else None)
        if not waits:
            try:
                self._note_sent(request, self._put(parcel))
            except BartackError as error:
                self._give_up(request, error)

    def forget(self, peer: Peer) -> None:
        """A process outside is gone: it waits for nothing."""
        for request in [request for request, wait in self._waits.items() if wait.peer == peer.number]:
            self._take_back(self._end(request))

    def forget_request(self, peer: Peer, number: int) -> None:
        """A process outside waits no longer for room, or for a reply."""
        self._take_back(self._end(self._request(peer, number)))

    def replied(self, request: str, value: Value) -> bool:
        """A reply was made; whether it was for somebody outside who waits for it."""
        wait = self._end(request)
        if wait is not None:
            wait.told(value)
        return wait is not None

    def abort_all(self, error: BartackError) -> None:
        """The session failed: nobody waits any more."""
        for request in list(self._waits):
            self._give_up(request, error)

    # Inside.

    def _request(self, peer: Peer, number: int) -> str:
        return f"{peer.name}#{self.state.hub}.{peer.number}.{number}"

    def _known(self, parcel: OutsideMessage) -> str | None:
        """The message that has the key already; raises unless its mailbox takes messages."""
        check_name(parcel.mailbox)
        known = self.state.mailbox(parcel.mailbox).id_for(parcel.key)
        if known is None:
            size_of(parcel.value.raw, parcel.value.ref)
            self._mail.check_open(parcel.mailbox)
        return known

    def _put(self, parcel: OutsideMessage) -> str:
        known = self._known(parcel)
        if known is not None:
            return known
        if not self._has_room(parcel):
            mailbox = self.state.mailbox(parcel.mailbox)
            if mailbox.overflow != "drop_newest" or parcel.reply_to:
                raise MailboxFullError(parcel.mailbox, len(mailbox))
            return self._dead_letter(parcel)
        return self._enqueue(parcel)

    def _has_room(self, parcel: OutsideMessage) -> bool:
        mailbox = self.state.mailbox(parcel.mailbox)
        size = size_of(parcel.value.raw, parcel.value.ref)
        if parcel.not_before or self._mail.has_room(mailbox, size, ""):
            return True
        return mailbox.overflow == "drop_oldest" and self._mail.push_out(parcel.mailbox, size)

    def _must_wait(self, parcel: OutsideMessage) -> bool:
        overflow = self.state.mailbox(parcel.mailbox).overflow
        return overflow == "block" and not self._has_room(parcel)

    def _sent(self, parcel: OutsideMessage) -> e.MessageSent:
        return e.MessageSent(
            mailbox=parcel.mailbox,
            id=f"m-{self.turn.next_message()}",
            size=size_of(parcel.value.raw, parcel.value.ref),
            sender=parcel.sender,
            key=parcel.key,
            not_before=parcel.not_before,
            metadata=parcel.metadata,
            reply_to=parcel.reply_to,
        )

    def _enqueue(self, parcel: OutsideMessage) -> str:
        sent = self._sent(parcel)
        self.turn.record((sent, parcel.value))
        self._mail.arrived(parcel.mailbox)
        return sent.id

    def _dead_letter(self, parcel: OutsideMessage) -> str:
        sent = self._sent(parcel)
        dropped = self._letters.dead_letter_entry(parcel.mailbox, sent.id, "overflow", attempts=1)
        self.turn.record((sent, parcel.value), (dropped, NO_VALUE))
        self._letters.arm(sent.id)
        return sent.id

    def _block(self, request: str, parcel: OutsideMessage, go: Callable[[], None]) -> Blocked:
        def shut() -> None:
            try:
                self._mail.check_open(parcel.mailbox)
            except BartackError as error:
                self._give_up(request, error)

        blocked = Blocked(size_of(parcel.value.raw, parcel.value.ref), go, shut)
        self._mail.block(parcel.mailbox, blocked)
        return blocked

    def _wait(
        self,
        request: str,
        peer: Peer,
        parcel: OutsideMessage,
        told: OnOutcome,
        timer: Timer,
        blocked: Blocked | None,
    ) -> None:
        self._waits[request] = _Wait(peer.number, told, timer, blocked, parcel.mailbox, parcel.sender)

    def _note_sent(self, request: str, message_id: str) -> None:
        wait = self._waits.get(request)
        if wait is not None:  # whoever was waiting for the message may have replied at once
            self._waits[request] = wait._replace(sent=message_id)

    def _take_back(self, wait: _Wait | None) -> None:
        if wait is not None and wait.sent:
            self._mail.take_back(wait.mailbox, wait.sent, wait.sender)

    def _end(self, request: str) -> _Wait | None:
        wait = self._waits.pop(request, None)
        if wait is not None:
            wait.timer.cancel()
            if wait.blocked is not None:
                self._mail.unblock(wait.mailbox, wait.blocked)
        return wait

    def _give_up(self, request: str, error: BartackError) -> None:
        wait = self._end(request)
        if wait is not None:
            wait.told(error)
        if self.state.failure is None:
            self._take_back(wait)
