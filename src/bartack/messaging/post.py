"""Supervised sends and broadcasts in progress: their state according to the journal. Pure; the hub decides (``runtime``)."""

from __future__ import annotations

from typing import Literal

import msgspec

from bartack.journal import BlobRef
from bartack.messaging.options import Terms
from bartack.messaging.outcome import Copy

PostStage = Literal["none", "accepted", "delivered", "processed", "dead"]


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that happened to a message on its way."""

    at: int
    event: str
    detail: str = ""


class Trial(msgspec.Struct, kw_only=True):
    """Attempts at something: how many there were, and since when the current one lasts."""

    id: str
    terms: Terms
    sender: str
    p: str = ""
    n: int = 0
    """The step whose outcome it is; of a process outside, and of a copy of a broadcast, none."""
    request: str = ""
    """The request of a process outside whose outcome it is; of a copy of a broadcast, none."""
    opened_at: int = 0
    attempt: int = 1
    due: int = 0
    """When the current attempt begins, if it was not the first: microseconds since 1970, UTC."""
    since: int = 0
    """When the current attempt began."""
    dead_us: int = 0
    """Time that the run was not active, before that."""
    reason: str = ""
    """Why the attempt before failed."""
    notes: list[Note] = []


class Post(Trial, kw_only=True):
    """A supervised send, or one copy of a broadcast."""

    mailbox: str
    size: int
    value: msgspec.Raw | None = None
    ref: BlobRef | None = None
    topic: str = ""
    cast: str = ""
    place: int = 0
    """Which copy of the broadcast it is."""
    message: str = ""
    """The id of its message, once that is in a mailbox."""
    stage: PostStage = "none"
    receiver: str = ""
    reached_at: int = 0
    for_good: bool = False
    """Its receiver took it without saying when it is processed."""


class Cast(Trial, kw_only=True):
    """A broadcast whose result is not known yet."""

    strategy: str
    need: int
    copies: list[Copy]
    topic: str = ""
    posts: list[str] = []
