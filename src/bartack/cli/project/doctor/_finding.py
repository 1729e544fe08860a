"""The result of one check of ``bartack doctor``."""

from __future__ import annotations

from typing import Literal, NamedTuple

Level = Literal["ok", "warn", "fail"]


class Finding(NamedTuple):
    """The result of one check, and what to do about a problem."""

    check: str
    level: Level
    sentence: str
    remedy: str = ""
