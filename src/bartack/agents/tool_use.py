"""One tool call that an agent wants to make, in the vocabulary that all kinds of agents share.

``Read Grep Glob Write Edit Bash WebFetch WebSearch`` are the tools that modes and rules know. An adapter translates what its agent
calls them: a command of any agent is ``Bash``, a changed file is ``Edit``. Every other tool keeps its own name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, cast

KNOWN: Final = frozenset({"Read", "Grep", "Glob", "Write", "Edit", "Bash", "WebFetch", "WebSearch"})
"""The tools of the vocabulary."""

ALIASES: Final = {
    "MultiEdit": "Edit",
    "NotebookEdit": "Edit",
    "NotebookRead": "Read",
    "LS": "Read",
}
"""Tools of Claude Code that do what another one does."""

BOOKKEEPING: Final = frozenset(
    {
        "TodoRead", "TodoWrite", "TaskCreate", "TaskUpdate", "TaskList", "TaskGet", "TaskOutput", "BashOutput",
        "EnterPlanMode", "ExitPlanMode", "ToolSearch", "StructuredOutput",
    }
)  # fmt: skip
"""Tools by which an agent only keeps its own notes, or returns its answer: they touch nothing outside of it."""

SUBAGENTS: Final = frozenset({"Task", "Agent"})
"""Tools that start a subagent, whose own tool calls are decided one by one."""

WRITING: Final = frozenset({"Write", "Edit"})
_PATH_KEYS: Final = ("file_path", "notebook_path", "path")
_COMMAND_KEYS: Final = ("command", "cmd", "script")
_OTHER_KEYS: Final = ("url", "query", "pattern")


class ToolUse(NamedTuple):
    """A tool call: the tool as its agent calls it, and the input as the agent gave it.

    Adapters of agents that have no such input make one with ``of_command``, ``of_path`` or ``of_paths``.
    """

    tool: str
    input: Mapping[str, object] = {}

    @classmethod
    def of_command(cls, command: str) -> ToolUse:
        """The execution of a shell command."""
        return cls("Bash", {"command": command})

    @classmethod
    def of_path(cls, tool: str, path: str) -> ToolUse:
        """A tool of the vocabulary, used on a file or directory."""
        return cls(tool, {"file_path": path})

    @classmethod
    def of_paths(cls, tool: str, paths: list[str]) -> ToolUse:
        """A tool of the vocabulary, used on several files at once: all have to be allowed."""
        return cls(tool, {"file_paths": paths})

    @property
    def name(self) -> str:
        """The tool in the common vocabulary, or by its own name."""
        return ALIASES.get(self.tool, self.tool)

    @property
    def rule_names(self) -> tuple[str, ...]:
        """The names under which a rule may mean it. A tool that no list here has is treated as ``Bash``, too."""
        name = self.name
        return (name,) if name in KNOWN or name in BOOKKEEPING else (name, "Bash")

    @property
    def writes(self) -> bool:
        """Whether it changes files."""
        return self.name in WRITING

    @property
    def command(self) -> str:
        """The text of the command; empty if it has none."""
        return self._first(_COMMAND_KEYS)

    @property
    def paths(self) -> tuple[str, ...]:
        """The files and directories that it names."""
        several = self.input.get("file_paths")
        if isinstance(several, list):
            return tuple(path for path in cast("list[object]", several) if isinstance(path, str))
        found = [self.input[key] for key in _PATH_KEYS if isinstance(self.input.get(key), str)]
        return tuple(dict.fromkeys(path for path in cast("list[str]", found) if path))

    @property
    def subject(self) -> str:
        """What a rule looks at: the command, else the paths, else the address or the query."""
        return self.command or " ".join(self.paths) or self._first(_OTHER_KEYS)

    def _first(self, keys: tuple[str, ...]) -> str:
        found = (self.input.get(key) for key in keys)
        return next((value for value in found if isinstance(value, str) and value), "")
