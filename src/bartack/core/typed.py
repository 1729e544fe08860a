"""Reading data into types with msgspec, in any number of threads.

What msgspec knows about a type it finds out when the type is used for the first time, and it keeps that before it is complete:
another thread that uses the type meanwhile, or one inside it, crashes the process. So each type is used for the first time by
one thread while the others wait. Whatever reads data into a type goes through this module.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import msgspec

_learning = threading.RLock()
_learned: set[object] = set()

if TYPE_CHECKING:
    # The signatures are those of msgspec, which cannot be written down elsewhere: a type may also be a union.
    from msgspec import convert
    from msgspec.json import Decoder as decoder  # noqa: N813 - it is called like a function
    from msgspec.json import decode
else:

    def decode(data: bytes, *, type: object) -> object:  # noqa: A002 - the name that msgspec gives it
        """Decode JSON; see ``msgspec.json.decode``."""
        _learn(type)
        return msgspec.json.decode(data, type=type)

    def convert(value: object, type: object, *, strict: bool = True) -> object:  # noqa: A002 - likewise
        """Make a value of a type out of dicts, lists and plain values; see ``msgspec.convert``."""
        _learn(type)
        return msgspec.convert(value, type, strict=strict)

    def decoder(type: object, **options: object) -> object:  # noqa: A002 - likewise
        """A decoder of JSON; see ``msgspec.json.Decoder``."""
        with _learning:
            return msgspec.json.Decoder(type, **options)


def _learn(kind: object) -> None:
    """Use a type for the first time, unless that was done before."""
    try:
        if kind in _learned:
            return
        decoder(kind)
        _learned.add(kind)
    except TypeError:  # what is in its annotations cannot be compared
        decoder(kind)


__all__ = ["convert", "decode", "decoder"]
