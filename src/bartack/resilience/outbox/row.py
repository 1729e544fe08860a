"""The rows of the outbox as values: events to keep, claims, verdicts, and how a payload is stored.

Knows the columns and the compression, and no statement that changes anything (``outbox.py``).
"""

from __future__ import annotations

import zlib
from typing import Final, NamedTuple

from bartack.resilience.mirror import Mirrored, parse_object

PATTERN: Final = "pattern"
HOOK: Final = "hook"
COMPRESS_OVER: Final = 1024
CLAIM_COLUMNS: Final = "seq,event_id,kind,recipient,payload,codec,attempts,created_at,lease_token"
"""What ``claim_of`` takes."""
ClaimRow = tuple[int, str, str, str, bytes, int, int, float, int]


class NewEvent(NamedTuple):
    """An event to keep. ``state`` and ``reason`` are for those that are finished from the start."""

    event_id: str
    kind: str
    recipient: str
    payload: bytes
    created_at: float | None = None
    attempts: int = 0
    state: str = "pending"
    reason: str | None = None


class Claim(NamedTuple):
    """A row leased to this process. Finishing it needs the token."""

    seq: int
    event_id: str
    kind: str
    recipient: str
    payload: bytes
    attempts: int
    created_at: float
    token: int


class Verdict(NamedTuple):
    """What became of a claim: ``delivered``, ``transient``, ``dead`` or ``released``."""

    kind: str
    error: str = ""
    wait_s: float = 0.0


DELIVERED: Final = Verdict("delivered")
RELEASED: Final = Verdict("released")


class Listed(NamedTuple):
    """A row, for people."""

    seq: int
    event_id: str
    kind: str
    recipient: str
    state: str
    attempts: int
    size: int
    created_at: float
    finished_at: float | None
    reason: str | None
    last_error: str | None
    wait_s: float
    payload: bytes | None


def pack(payload: bytes, *, compress: bool) -> tuple[bytes, int]:
    """A payload as it is stored, and the number of its encoding."""
    if compress and len(payload) > COMPRESS_OVER:
        packed = zlib.compress(payload, 1)
        if len(packed) < len(payload):
            return packed, 1
    return payload, 0


def unpack(data: bytes | None, codec: int) -> bytes:
    """A stored payload; empty if it was dropped or is damaged."""
    if data is None:
        return b""
    try:
        return zlib.decompress(data) if codec == 1 else bytes(data)
    except zlib.error:  # an empty payload is not JSON, and the event is dead-lettered for that reason
        return b""


def claim_of(row: ClaimRow) -> Claim:
    """The claim in a row of ``CLAIM_COLUMNS``."""
    seq, event_id, kind, recipient, payload, codec, attempts, born, token = row
    return Claim(seq, event_id, kind, recipient, unpack(payload, codec), attempts, born, token)


def mirrored(claim: Claim, retried_at: float | None = None) -> Mirrored:
    """The readable copy of a claimed event."""
    event = parse_object(claim.payload) or {}
    return Mirrored(claim.event_id, claim.created_at, event, claim.attempts, retried_at)
