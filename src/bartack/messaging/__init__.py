"""Mailboxes: named queues of durable messages; supervised sends, broadcasts, topics and dead letters.

Only their state and their rules: who waits, retries and journals is decided in ``bartack.runtime.kernel.mail``. Start with
``mailboxes.py``, then ``options.py`` and ``outcome.py``.
"""

from bartack.messaging.dead_letter_queue import DeadLetterQueue, broadcast_supervised, send_supervised
from bartack.messaging.letter import DeadLetter, LetterFilter, LetterPolicy
from bartack.messaging.mailboxes import Mailbox, Message, Overflow
from bartack.messaging.options import Ack, OnError, SendOptions
from bartack.messaging.outcome import (
    Accepted,
    BroadcastResult,
    DeadLettered,
    Delivered,
    Reason,
    Refusal,
    Rejected,
    SendOutcome,
    TimedOut,
)

__all__ = [
    "Accepted",
    "Ack",
    "BroadcastResult",
    "DeadLetter",
    "DeadLetterQueue",
    "DeadLettered",
    "Delivered",
    "LetterFilter",
    "LetterPolicy",
    "Mailbox",
    "Message",
    "OnError",
    "Overflow",
    "Reason",
    "Refusal",
    "Rejected",
    "SendOptions",
    "SendOutcome",
    "TimedOut",
    "broadcast_supervised",
    "send_supervised",
]
