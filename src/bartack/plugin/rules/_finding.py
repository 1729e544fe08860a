"""One broken rule of a plugin, with its place."""

from __future__ import annotations

import msgspec

from bartack.errors import PluginInvalidError


class PluginFinding(msgspec.Struct, frozen=True, order=True):
    """A rule that a file of a plugin breaks.

    Attributes:
        file: The path in the plugin.
        line: The line, from 1; 0 if it is about the whole file.
        key: The key that is wrong, if it is about one.
        problem: What is wrong.
    """

    file: str
    line: int
    key: str
    problem: str

    @property
    def place(self) -> str:
        """The file, and the line if there is one."""
        return f"{self.file}:{self.line}" if self.line else self.file

    def __str__(self) -> str:
        return f"{self.place}: {self.key}: {self.problem}" if self.key else f"{self.place}: {self.problem}"


def error_of(findings: list[PluginFinding]) -> PluginInvalidError:
    """The error for broken rules: the first one, and how many more there are."""
    first, *more = findings
    problem = f"{first.key}: {first.problem}" if first.key else first.problem
    if more:
        problem += f" ({len(more)} more {'problem' if len(more) == 1 else 'problems'})"
    return PluginInvalidError(first.place, problem)
