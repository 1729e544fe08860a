"""What the parts of mail report to each other: that a message moved, and that a mailbox may have room.

``mailroom.py`` registers the observers, in the order in which they are notified. They are not passed to each other because room for
one message is made by moving another: receivers make room for senders, and senders serve receivers.
"""

from __future__ import annotations

from bartack.messaging import Mailbox


class MailObserver:
    """Learns what happens in mailboxes. Every method does nothing by default."""

    def message_moved(self, message_id: str, track: str) -> None:
        """A message became a dead letter; or a supervised one was handed over, acknowledged, returned or came due.

        Args:
            message_id: The message.
            track: The supervised send that it belongs to; empty for other messages.
        """

    def room_made(self, mailbox: Mailbox) -> None:
        """A message left a mailbox."""

    def waits_changed(self, mailbox: Mailbox) -> None:
        """A send stopped waiting for room in a mailbox, or the mailbox was closed; its messages are as they were."""


class MailObservers(MailObserver):
    """Notifies observers in the order in which they were registered."""

    def __init__(self) -> None:
        self._of_messages: tuple[MailObserver, ...] = ()
        self._of_room: tuple[MailObserver, ...] = ()

    def register(self, *, of_messages: tuple[MailObserver, ...], of_room: tuple[MailObserver, ...]) -> None:
        """Set the observers: those that are notified of messages that moved, and those of room and waits."""
        self._of_messages, self._of_room = of_messages, of_room

    def message_moved(self, message_id: str, track: str) -> None:
        """See ``MailObserver.message_moved``."""
        for observer in self._of_messages:
            observer.message_moved(message_id, track)

    def room_made(self, mailbox: Mailbox) -> None:
        """See ``MailObserver.room_made``."""
        for observer in self._of_room:
            observer.room_made(mailbox)

    def waits_changed(self, mailbox: Mailbox) -> None:
        """See ``MailObserver.waits_changed``."""
        for observer in self._of_room:
            observer.waits_changed(mailbox)
