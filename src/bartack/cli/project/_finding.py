"""What one check of ``bartack doctor`` found."""

from __future__ import annotations

from typing import Literal, NamedTuple

Level = Literal["ok", "warn", "fail"]


class Finding(NamedTuple):
    """What one check found, and what to do if it is not well."""

    check: str
    level: Level
    sentence: str
    remedy: str = ""
