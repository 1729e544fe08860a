"""What calls of agents use beside money: tokens, turns and seconds. Reserved before a call and settled after it, by the hub alone.

Money is counted in the same way, in fields of its own: it is older.
"""

from __future__ import annotations

from typing import Final

import msgspec

from bartack.core import typed
from bartack.errors import BudgetExceededError

MOST: Final = 2**53 - 1
"""Where counting ends: what agents report may be anything."""
CALLS: Final = 8
"""The part of what is left that is reserved for a call of which nothing is known."""


class Units(msgspec.Struct, omit_defaults=True, frozen=True, gc=False):
    """Tokens, turns and seconds."""

    tokens: int = 0
    turns: int = 0
    wall_s: float = 0.0

    def __add__(self, other: Units) -> Units:
        """Both together."""
        return Units(
            min(self.tokens + other.tokens, MOST),
            min(self.turns + other.turns, MOST),
            self.wall_s + other.wall_s,
        )

    def __sub__(self, other: Units) -> Units:
        """What is left of them."""
        return Units(
            max(self.tokens - other.tokens, 0),
            max(self.turns - other.turns, 0),
            max(self.wall_s - other.wall_s, 0.0),
        )

    def __bool__(self) -> bool:
        """Whether it is anything."""
        return self != NONE


NONE: Final = Units()


class Caps(msgspec.Struct, frozen=True, kw_only=True):
    """What a run may use, all calls together; ``None``: as much as it wants.

    Attributes:
        strict: A call that does not say what it used has used what was reserved for it.
    """

    tokens: int | None = None
    turns: int | None = None
    wall_s: float | None = None
    strict: bool = False


def reserve(caps: Caps, spent: Units, reserved: Units, wanted: Units, share: int) -> Units:
    """What is reserved for a call: its share of what is left, and at least one of what it has to have.

    Args:
        caps: What the run may use.
        spent: What it has used.
        reserved: What is reserved for the calls that are under way.
        wanted: What the call asks for; nothing: as much as it gets.
        share: How many calls there are at a time; 0: not known.

    Raises:
        BudgetExceededError: Nothing is left.
    """
    found: dict[str, float] = {}
    for unit, least in (("tokens", 1), ("turns", 1), ("wall_s", 0.001)):
        cap: float | None = getattr(caps, unit)
        if cap is None:
            continue
        used: float = getattr(spent, unit)
        left = cap - used - getattr(reserved, unit)
        if left < least:
            raise BudgetExceededError(cap, cap - left, unit)
        asked = getattr(wanted, unit) if not share else 0
        part = asked or (cap - used) / (share or CALLS)
        found[unit] = min(max(part if unit == "wall_s" else int(part), least), left)
    return typed.convert(found, type=Units, strict=False)


def settle(caps: Caps, used: Units, reserved: Units) -> Units:
    """What a call counts as: what it says, or what was reserved where it says nothing and the settings are strict."""
    if not caps.strict:
        return used
    return Units(used.tokens or reserved.tokens, used.turns or reserved.turns, used.wall_s)
