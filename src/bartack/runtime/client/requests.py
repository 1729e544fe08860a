"""What a process outside asks a hub for, checked before it is sent; the same for those that wait and those that are awaited."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping

from bartack.core import SystemClock
from bartack.errors import DeliveryOptionError
from bartack.messaging import (
    Copy,
    Moment,
    SendOptions,
    check_distinct,
    check_metadata,
    check_options,
    check_pattern,
    check_topic,
    mailbox_of,
    moment_us,
    needed,
)
from bartack.runtime.protocol.durations import check_seconds
from bartack.runtime.protocol.requests import Request


def ask_send(
    mailbox: str, key: str | None, metadata: Mapping[str, object] | None, not_before: Moment | None
) -> Request:
    """A plain send."""
    due = moment_us("not_before", not_before, SystemClock().now_us())
    key = key or secrets.token_hex(16)
    return Request(mailbox=mailbox, key=key, metadata=check_metadata(metadata), not_before=due)


def ask_supervised(mailbox: str, options: SendOptions) -> Request:
    """A supervised send."""
    return Request(mailbox=mailbox, terms=check_options(options, SystemClock().now_us()).terms)


def ask_broadcast(recipients: Iterable[str], strategy: str, options: SendOptions) -> Request:
    """A broadcast."""
    if isinstance(recipients, str):
        raise DeliveryOptionError("recipients", f"they are a list, not one text: {recipients!r}")
    names = [mailbox_of(recipient) for recipient in recipients]
    check_distinct(names)
    needed(strategy, len(names))
    terms = check_options(options, SystemClock().now_us()).terms
    return Request(copies=[Copy(name, name) for name in names], strategy=strategy, terms=terms)


def ask_publish(topic: str, strategy: str, options: SendOptions) -> Request:
    """A broadcast to the subscribers of a topic."""
    needed(strategy, 0)
    terms = check_options(options, SystemClock().now_us()).terms
    return Request(topic=check_topic(topic), strategy=strategy, terms=terms)


def ask_subscription(mailbox: str, pattern: str, *, off: bool = False) -> Request:
    """A subscription, or the end of one."""
    return Request(mailbox=mailbox, pattern=check_pattern(pattern), off=off)


def check_most(most: int | None) -> int:
    """How many messages are drained at most.

    Raises:
        ValueError: There is no such number of messages.
    """
    if most is not None and most < 0:
        raise ValueError(f"max must not be negative: {most}")
    return 1 << 62 if most is None else most


def check_limit(timeout_s: float | None) -> float | None:
    """How long something is waited for, if that is said.

    Raises:
        ValueError: It is negative, or longer than anything lasts.
    """
    return None if timeout_s is None else check_seconds(timeout_s)
