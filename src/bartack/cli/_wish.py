"""What somebody says on the command line that the pipeline is to do. Light: every ``bartack run`` imports it."""

from __future__ import annotations

from typing import Final

import msgspec

PIPELINE: Final = "bartack.pipeline._main:main"
"""The first worker of every run of the pipeline."""


class Wish(msgspec.Struct, kw_only=True, frozen=True):
    """What was said on the command line."""

    goal: str | None = None
    tasks: tuple[str, ...] = ()
    instruction: str | None = None
    yes: bool = False
    no_input: bool = False
    wait: bool = False
    sets: tuple[str, ...] = ()

    @property
    def is_there(self) -> bool:
        """Whether anything of it was said."""
        return bool(self.tasks or self.yes) or self.goal is not None or self.instruction is not None
