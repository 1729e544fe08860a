"""How long something may last."""

from __future__ import annotations

from typing import Final

LONGEST_S: Final = 1e10
"""The longest duration, some 300 years."""


def check_seconds(seconds: float, name: str = "timeout_s") -> float:
    """How long something lasts, if it can.

    Raises:
        ValueError: It is negative, or longer than anything lasts.
    """
    if not seconds >= 0:
        raise ValueError(f"{name} must not be negative: {seconds:g}")
    if seconds > LONGEST_S:
        raise ValueError(f"{name} must be at most {LONGEST_S:.0f} (some 300 years): {seconds:g}")
    return seconds
