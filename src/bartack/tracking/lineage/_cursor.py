"""Cursors: where an answer ended, as text that only the same query accepts."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Final

import msgspec

from bartack.core import typed
from bartack.core.canonical_json import canonical
from bartack.errors import CursorError

_LARGEST: Final = 2**63 - 1


class Place(msgspec.Struct, frozen=True, array_like=True):
    """What a cursor carries: which query it belongs to, and the numbers that say how far it got."""

    query: str
    numbers: tuple[int, ...]


def make_cursor(query: list[object], *numbers: int) -> str:
    """A cursor for ``query`` that stands at ``numbers``."""
    raw = msgspec.json.encode(Place(_fingerprint(query), numbers))
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def read_cursor(query: list[object], cursor: str, count: int) -> tuple[int, ...]:
    """The ``count`` numbers in a cursor.

    Raises:
        CursorError: It was not made for this query.
    """
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars="-_", validate=True)
        place = typed.decode(raw, type=Place)
    except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
        raise CursorError(cursor) from error
    fits = place.query == _fingerprint(query) and len(place.numbers) == count
    if not fits or not all(0 <= number <= _LARGEST for number in place.numbers):
        raise CursorError(cursor)
    return place.numbers


def _fingerprint(query: list[object]) -> str:
    return hashlib.sha256(canonical(query)).hexdigest()[:16]
