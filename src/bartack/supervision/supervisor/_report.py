"""How a child ended, and the crash report of its supervisor. Only data; ``_core.py`` decides what follows."""

from __future__ import annotations

from typing import Literal

import msgspec

Decision = Literal["restart", "escalate", "none"]


class ChildEnd(msgspec.Struct, frozen=True, kw_only=True):
    """One end of a child, as its runner saw it. Nothing of it is left."""

    reason: str
    """``normal``, ``shutdown``, ``error``, ``exit:<code>``, ``signal:<name>``, ``oom``, ``lost``, or why a supervisor ended."""
    normal: bool = False
    counted: bool = True
    """Whether it is the child's own doing. The death of a parent program takes its children along without their fault."""
    pid: int | None = None
    exception: str = ""
    stack: tuple[str, ...] = ()
    stderr_tail: str = ""
    peak_memory_bytes: int = 0


class CrashReport(msgspec.Struct, frozen=True, kw_only=True):
    """An abnormal end and what follows from it. The fields are always these; what is not known is empty."""

    supervisor: str
    child: str
    path: str
    incarnation: int
    pid: int | None
    reason: str
    """As in ``ChildEnd``, or ``start_timeout``."""
    exception: str
    stack: tuple[str, ...]
    """Where the exception came from, one text per frame, innermost last."""
    last_step: str
    last_message: str
    stderr_tail: str
    """The last 4 KiB of what it wrote as errors, without secrets of its environment."""
    uptime_s: float
    peak_memory_bytes: int
    restarts_in_window: int
    decision: Decision
    next_start_us: int | None
    """When it is started again: microseconds since 1970."""
    metadata: dict[str, object]
