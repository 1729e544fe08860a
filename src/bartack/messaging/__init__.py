"""Mailboxes: named queues of durable messages."""

from bartack.messaging._mailbox import (
    CAPACITY,
    MAX_BYTES,
    MAX_DELIVERIES,
    MAX_MESSAGE,
    Mailbox,
    Message,
    Overflow,
    check_name,
)

__all__ = [
    "CAPACITY",
    "MAX_BYTES",
    "MAX_DELIVERIES",
    "MAX_MESSAGE",
    "Mailbox",
    "Message",
    "Overflow",
    "check_name",
]
