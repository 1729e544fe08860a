"""The texts of skills, commands and agents: fixed instructions with the data of an entry filled in.

They run the program through the plugin's own MCP server. Arguments are data in JSON, and no shell is involved.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bartack.plugin._manifest import EntryParameter
from bartack.plugin.builder._source import SourceEntry
from bartack.plugin.rules._documents import HINT_MOST
from bartack.plugin.rules._front_matter import Value, write_head
from bartack.plugin.rules._names import TOOLS, tool_name

_ASKED: Final = "The user's arguments, as data:"
_MAYBE: Final = "Arguments, if the user gave any:"

_STEPS: Final = """\
1. Call `{start}` with `entry: "{entry}"` and `args`: an object of the parameters above, filled from {source}. If a required
   one is missing, ask the user; do not invent it. If the tool is not listed, load it with the tool search.
2. Then call `{wait}` with the `run` and `cursor` of the last answer, again and again, until `done` is true. Relay `lines`
   briefly.
3. If `questions` is not empty: put each question to the user word for word, with its options, and pass the reply to
   `{answer}`. Never answer on the user's behalf. If there is no user to ask, write `bartack answer <run> <question>` and
   stop. If the user wants to stop the run, call `{cancel}`.
4. At the end report `status`, `value` and `artifacts`. On `failed` report `error` and `resume_hint` as given. Do not redo
   the work by hand."""


def skill_text(plugin: str, entry: SourceEntry) -> str:
    """``SKILL.md`` of an entry."""
    values: dict[str, Value] = {"name": entry.name, "description": entry.doc, **_hint(entry)}
    values["allowed-tools"] = tools_of(plugin)
    if entry.command:
        values["user-invocable"] = False
    return write_head(values, _body(plugin, entry, _MAYBE))


def command_text(plugin: str, entry: SourceEntry) -> str:
    """The file of a command."""
    values: dict[str, Value] = {"description": entry.doc, **_hint(entry), "allowed-tools": tools_of(plugin)}
    return write_head(values, _body(plugin, entry, _ASKED))


def agent_text(plugin: str, entry: SourceEntry) -> str:
    """The file of a subagent that runs a worker."""
    values: dict[str, Value] = {
        "name": entry.name,
        "description": entry.doc,
        "tools": tools_of(plugin),
        "model": entry.model or "inherit",
    }
    if entry.color:
        values["color"] = entry.color
    return write_head(values, _body(plugin, entry, ""))


def tools_of(plugin: str) -> list[str]:
    """The full names of the tools that an entry needs."""
    return [tool_name(plugin, tool) for tool in TOOLS]


def _hint(entry: SourceEntry) -> dict[str, Value]:
    words = [f"<{one.name}>" if one.required else f"[{one.name}]" for one in entry.params]
    hint = " ".join(words)
    while len(hint) > HINT_MOST:
        words.pop()
        hint = " ".join([*words, "…"])
    return {"argument-hint": hint} if hint else {}


def _body(plugin: str, entry: SourceEntry, heading: str) -> str:
    start, wait, answer, cancel = tools_of(plugin)
    source = "the arguments" if heading else "the task that you were given"
    parts = [
        entry.doc,
        "\n".join(_parameters(entry.params)),
        *([f"{heading}\n\n<arguments>\n$ARGUMENTS\n</arguments>"] if heading else []),
        _STEPS.format(start=start, wait=wait, answer=answer, cancel=cancel, entry=entry.name, source=source),
    ]
    return "\n\n".join(parts)


def _parameters(params: tuple[EntryParameter, ...]) -> Iterator[str]:
    if not params:
        yield "It has no parameters: `args` is an empty object."
        return
    yield "Parameters:"
    yield ""
    for one in params:
        need = "required" if one.required else "optional"
        yield f"- `{one.name}` ({one.type}, {need}){f': {one.doc}' if one.doc else ''}"
