"""What is known at a place of a script: the directories it may run in, whether HOME was changed, what was defined."""

from __future__ import annotations

from typing import Final

from bartack.agents.guard._syntax import Script

MOST_DIRECTORIES: Final = 6


class Scope:
    """The state of a shell, as far as it can be known from the text.

    Attributes:
        cwds: The directories that may be the working directory; ``None`` stands for an unknown one.
        before: The same before the last change, for ``cd -``.
        has_home: Whether ``HOME`` is still what it was.
        is_elsewhere: Whether commands run on another machine or file system.
        functions: Functions by name.
        aliases: Aliases by name.
        assigns: Whether the text sets variables.
    """

    __slots__ = ("aliases", "assigns", "before", "cwds", "functions", "has_home", "is_elsewhere")

    def __init__(self, cwd: str | None) -> None:
        self.cwds: tuple[str | None, ...] = (cwd,)
        self.before: tuple[str | None, ...] = (None,)
        self.has_home = True
        self.is_elsewhere = False
        self.functions: dict[str, Script] = {}
        self.aliases: dict[str, str] = {}
        self.assigns = False

    def copy(self) -> Scope:
        """The scope of a subshell: what it changes stays in it."""
        made = Scope(None)
        made.cwds, made.before = self.cwds, self.before
        made.has_home, made.is_elsewhere = self.has_home, self.is_elsewhere
        made.functions, made.aliases = self.functions.copy(), self.aliases.copy()
        made.assigns = self.assigns
        return made

    def elsewhere(self) -> Scope:
        """The scope of a command on another machine: nothing there is known."""
        made = self.copy()
        made.cwds, made.is_elsewhere, made.has_home = (None,), True, False
        return made

    def add(self, cwds: tuple[str | None, ...]) -> None:
        """Take in further directories that may be the working directory."""
        merged = tuple(dict.fromkeys((*self.cwds, *cwds)))
        self.cwds = merged if len(merged) <= MOST_DIRECTORIES else (*merged[: MOST_DIRECTORIES - 1], None)

    def enter(self, cwds: tuple[str | None, ...]) -> None:
        """Change the working directory."""
        self.before, self.cwds = self.cwds, ()
        self.add(cwds)
