"""The tool calls of an agent as it reports them, and each as what the one permission decision knows.

An agent reports a call in pieces; ``ToolReports`` puts them together. ``tool_use`` translates by the kind of the tool.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal, NamedTuple, cast

from bartack.agents.acp._messages import SERVER
from bartack.agents.program._json_lines import Json, member, object_of, objects_of, text_of
from bartack.agents.tool_use import ToolUse

VOCABULARY: Final[dict[str, str]] = {
    "read": "Read",
    "search": "Grep",
    "edit": "Edit",
    "delete": "Edit",
    "move": "Edit",
    "execute": "Bash",
    "fetch": "WebFetch",
}
"""The tool of the common vocabulary for each kind of tool that is known."""

NAMED: Final[dict[str, frozenset[str]]] = {
    "search": frozenset({"Grep", "Glob"}),
    "fetch": frozenset({"WebFetch", "WebSearch"}),
}
"""Kinds that are several tools of the vocabulary: there the name of the tool counts, if it is one of them."""

MOST_CALLS: Final = 4096
"""At most this many reports are kept; the oldest are forgotten first."""
_ENDED: Final = {"completed": "finished", "failed": "failed"}
_PATHS: Final = ("file_path", "filePath", "notebook_path", "abs_path", "path")
_COMMANDS: Final = ("command", "cmd", "script")

Phase = Literal["started", "finished", "failed"]


class ToolReport(NamedTuple):
    """What an agent has said about one of its tool calls.

    Attributes:
        id: Its own id.
        kind: What kind of tool it is; empty if it does not say.
        name: The name of the tool, if it says that.
        title: What it shows to people.
        input: What the tool is used with.
        paths: The files that it names.
        ended: How it has ended; empty while it is open.
    """

    id: str
    kind: str = ""
    name: str = ""
    title: str = ""
    input: Mapping[str, object] = {}
    paths: tuple[str, ...] = ()
    ended: str = ""

    def updated(self, given: Json) -> ToolReport:
        """The same with what a further report adds."""
        status = text_of(given, "status")
        return ToolReport(
            self.id,
            text_of(given, "kind") or self.kind,
            _name(given) or self.name,
            text_of(given, "title") or self.title,
            object_of(given, "rawInput") or self.input,
            tuple(dict.fromkeys((*self.paths, *_paths(given)))),
            _ENDED.get(status, self.ended),
        )

    @property
    def tool(self) -> str:
        """The tool in the common vocabulary, or by its own name."""
        if self.name in NAMED.get(self.kind, ()):
            return self.name
        return VOCABULARY.get(self.kind) or self.name or self.title or "unknown"


class ToolReports:
    """The tool calls of one session."""

    def __init__(self) -> None:
        self._reports: dict[str, ToolReport] = {}

    def complete(self, given: Json) -> ToolReport:
        """A report with what was said before; it is not kept."""
        call_id = text_of(given, "toolCallId")
        return self._reports.get(call_id, ToolReport(call_id)).updated(given)

    def take(self, given: Json) -> tuple[ToolReport, Phase | None]:
        """Take a report; returns all that is known of the call, and what has changed, if that is worth an event."""
        call_id = text_of(given, "toolCallId")
        before = self._reports.get(call_id)
        now = (before or ToolReport(call_id)).updated(given)
        self._reports[call_id] = now
        if len(self._reports) > MOST_CALLS:
            del self._reports[next(iter(self._reports))]
        if now.ended and (before is None or not before.ended):
            return now, cast("Phase", now.ended)
        return now, "started" if before is None else None


def own_tool(report: ToolReport, names: Collection[str]) -> str:
    """Which of our tools a call is for; empty if it is for a tool of the agent.

    The name of the tool counts. A title counts only if there is no name, and the kind is not one of those that act: the title of a
    command is its text, which can be anything.
    """
    if report.kind in VOCABULARY or member(report.input, "command") is not None:
        return ""
    said = report.name or report.title
    for name in names:
        before = said.removesuffix(name)
        if before != said and SERVER in before and not before[-1:].isalnum():
            return name
    return ""


def tool_use(report: ToolReport) -> ToolUse:
    """A tool call for the permission decision."""
    if report.kind not in VOCABULARY:
        return ToolUse(report.tool, report.input)
    tool = report.tool
    if tool == "Bash":
        return ToolUse.of_command(command_of(report.input) or report.title)
    if tool in {"Read", "Edit"}:
        return ToolUse.of_paths(tool, list(report.paths))
    return ToolUse(tool, report.input)


def command_of(given: Mapping[str, object]) -> str:
    """The command that a tool is to execute; empty if it does not say."""
    for key in _COMMANDS:
        value = given.get(key)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list) and value:
            return shlex.join(str(word) for word in cast("list[object]", value))
    return ""


def option_for(options: Sequence[Json], *, allowed: bool) -> str:
    """The option that allows or refuses this one call; empty if there is none. What holds for later calls is never chosen."""
    wanted = "allow_once" if allowed else "reject_once"
    return next((text_of(option, "optionId") for option in options if option.get("kind") == wanted), "")


def _name(given: Json) -> str:
    return text_of(given, "_meta", "claudeCode", "toolName") or text_of(given, "name")


def _paths(given: Json) -> tuple[str, ...]:
    """All files that a report names: none of them may be overlooked."""
    raw = object_of(given, "rawInput")
    found = [text_of(raw, key) for key in _PATHS]
    found += [text_of(place, "path") for place in objects_of(given, "locations")]
    found += [text_of(part, "path") for part in objects_of(given, "content") if part.get("type") == "diff"]
    return tuple(dict.fromkeys(path for path in found if path))
