"""What people are shown while a run works, as the files of the run keep it."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Shown(NamedTuple):
    """Something that was printed, logged or noted; or a piece of the output of a command.

    Attributes:
        channel: Where it comes from.
        worker: The path of the worker; empty if it concerns the run.
        text: The text itself.
        at: When, in microseconds since 1970; 0: now.
    """

    channel: Literal["print", "log", "note", "out", "err"]
    worker: str
    text: str
    at: int = 0
