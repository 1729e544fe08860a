"""How far a journal had got, kept outside it: the high-water mark in the lock file.

A journal whose end was cut off or overwritten looks like one whose last line is torn. The mark distinguishes them: an owner writes
it after every commit, before that commit is acknowledged, so a journal that holds less than its mark has lost acknowledged
entries. The mark itself is not synced. It survives the death of every process; a power cut may take back its newest state, and
then it knows less than the journal, never more.

There are two slots, written in turn: an owner that dies while it writes one leaves the other. ``_lock.py`` says where they are.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from zlib import crc32

SLOT_SIZE: Final = 64
_SLOT: Final = re.compile(rb"seq ([0-9]{1,18}) +crc ([0-9a-f]{8}) sum ([0-9a-f]{8})\s*")


class HighWater(NamedTuple):
    """The last acknowledged entry of a journal, and the CRC of the line that it ends."""

    seq: int
    crc: int


def encode_slot(seq: int, crc: int) -> bytes:
    """What a slot holds: a line of text. Made for every commit, so its width comes from its format."""
    text = b"seq %-18d crc %08x" % (seq, crc)
    return b"%b sum %08x               \n" % (text, crc32(text))


def decode_slots(content: bytes) -> HighWater | None:
    """The newest mark that is whole; ``None`` if there is none."""
    slots = (content[start : start + SLOT_SIZE] for start in range(0, len(content), SLOT_SIZE))
    return max((mark for slot in slots if (mark := _decode(slot)) is not None), default=None)


def _decode(slot: bytes) -> HighWater | None:
    found = _SLOT.fullmatch(slot)
    if found is None or crc32(slot[: found.start(3) - len(b" sum ")]) != int(found[3], 16):
        return None
    return HighWater(int(found[1]), int(found[2], 16))
