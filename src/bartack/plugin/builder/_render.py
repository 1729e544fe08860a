"""Renders the files of a plugin from its source. The same source gives the same bytes; there is no I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final, NamedTuple

from bartack.errors import PluginDescriptionError
from bartack.plugin._manifest import FORMAT, MANIFEST, PluginManifest
from bartack.plugin.builder._bodies import agent_text, command_text, skill_text
from bartack.plugin.builder._source import PluginSource, SourceEntry
from bartack.plugin.rules._check import check_files, checksum_of
from bartack.plugin.rules._finding import error_of
from bartack.plugin.rules._json_files import HOOKS_JSON, MARKETPLACE_JSON, MCP_JSON, PLUGIN_JSON, ROOT

RECORDED: Final = (
    "SessionStart",
    "PostToolUse",
    "PostToolUseFailure",
    "SubagentStop",
    "Stop",
    "SessionEnd",
)
"""The events that a plugin records."""
LAST: Final = frozenset({"Stop", "SessionEnd"})
"""Events that Claude Code waits for: its end terminates hooks that it does not wait for, and the event would be lost."""
README: Final = "README.md"
TIMEOUT_S: Final = 5
END_TIMEOUT_S: Final = 1
"""Claude Code waits 1.5 s for all hooks at the end of a session together."""


class RenderedPlugin(NamedTuple):
    """A plugin: its name, its files by path, and what its author should know."""

    name: str
    files: dict[str, bytes]
    warnings: tuple[str, ...]


def render_plugin(source: PluginSource, *, allow_placeholder: bool = False) -> RenderedPlugin:
    """Render a plugin.

    Args:
        source: What it is made of.
        allow_placeholder: Use a fixed text where a description is missing, instead of an error.

    Raises:
        PluginDescriptionError: A skill or an agent has no description.
        PluginInvalidError: A rule is broken.
    """
    warnings: list[str] = []
    source = _described(source, warnings, allow_placeholder=allow_placeholder)
    files = {path: text.encode() for path, text in _texts(source)}
    files |= {f"program/{path}": data for path, data in source.program.items()}
    manifest = PluginManifest(
        FORMAT,
        source.entry,
        source.manifest_entries(),
        {path: checksum_of(files[path]) for path in sorted(files)},
    )
    files[MANIFEST] = manifest.encode()
    findings = check_files(files)
    if findings:
        raise error_of(findings)
    return RenderedPlugin(source.name, dict(sorted(files.items())), tuple(warnings))


def _described(source: PluginSource, warnings: list[str], *, allow_placeholder: bool) -> PluginSource:
    """The source with a description everywhere."""
    entries: list[SourceEntry] = []
    for entry in source.entries:
        if entry.doc:
            entries.append(entry)
            continue
        problem = f"the {_NOUN[entry.kind]} {entry.name} has no description"
        if entry.kind != "command" and not allow_placeholder:
            raise PluginDescriptionError(entry.place, f"{problem}; a model chooses by it")
        warnings.append(f"{entry.place}: {problem}")
        entries.append(entry.with_doc(f"Runs {entry.name} of {source.name}."))
    description = source.description
    if not description:
        warnings.append(f"{source.place}: the plugin {source.name} has no description")
        description = f"Runs programs of {source.name} with Bartack."
    return PluginSource(
        name=source.name,
        description=description,
        place=source.place,
        author=source.author,
        settings=source.settings,
        entry=source.entry,
        entries=tuple(entries),
        program=source.program,
    )


_NOUN: Final = {"skill": "skill", "command": "command", "worker": "agent"}


def _texts(source: PluginSource) -> Iterator[tuple[str, str]]:
    yield PLUGIN_JSON, json_text(_facts(source))
    yield MCP_JSON, json_text(servers())
    for entry in source.entries:
        if entry.kind == "skill":
            yield f"skills/{entry.name}/SKILL.md", skill_text(source.name, entry)
        elif entry.kind == "command":
            yield f"commands/{entry.name}.md", command_text(source.name, entry)
        else:
            yield f"agents/{entry.name}.md", agent_text(source.name, entry)
        if entry.command:
            yield f"commands/{entry.command}.md", command_text(source.name, entry)
    hooks = source.settings.hooks
    if hooks.guard or hooks.record:
        yield HOOKS_JSON, hooks_text(guard=hooks.guard, record=hooks.record)
    yield README, _readme(source)


def json_text(value: object) -> str:
    """JSON as the files of a plugin have it: indented, in the order of the keys, with a final newline."""
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def _facts(source: PluginSource) -> dict[str, object]:
    settings = source.settings
    optional = {
        "homepage": settings.homepage,
        "repository": settings.repository,
        "license": settings.license,
        "keywords": list(settings.keywords),
    }
    return {
        "name": source.name,
        "version": settings.version,
        "description": source.description,
        "author": {"name": source.author},
        **{key: value for key, value in optional.items() if value},
    }


def servers() -> dict[str, object]:
    """The content of ``.mcp.json``."""
    return {"mcpServers": {"bartack": {"command": "bartack", "args": ["mcp", "--plugin", ROOT]}}}


def hooks_text(*, guard: bool, record: bool) -> str:
    """The text of ``hooks.json``."""
    events: dict[str, list[object]] = {}
    if guard:
        # At the start of a session the guard tests itself, and reports to the person if it does not work.
        events |= {event: [_group(["hook", "guard"])] for event in ("PreToolUse", "SessionStart")}
    for event in RECORDED if record else ():
        is_end = event == "SessionEnd"
        handler = _group(
            ["hook", "record", event], END_TIMEOUT_S if is_end else TIMEOUT_S, later=event not in LAST
        )
        events[event] = [*events.get(event, []), handler]
    return json_text({"hooks": events})


def _group(args: list[str], timeout_s: int = TIMEOUT_S, *, later: bool = False) -> dict[str, object]:
    handler: dict[str, object] = {
        "type": "command",
        "command": "bartack",
        "args": args,
        "timeout": timeout_s,
    }
    if later:
        handler["async"] = True
    return {"hooks": [handler]}


def _readme(source: PluginSource) -> str:
    lines = [
        f"# {source.name}",
        "",
        source.description,
        "",
        "This plugin for Claude Code runs a program with Bartack. A run belongs to a process of its own and continues if Claude",
        "Code ends. It needs `bartack` on the PATH, or an installation with `bartack plugin install`.",
        "",
        "| in Claude Code | starts | description |",
        "|---|---|---|",
    ]
    lines += [f"| {use} | `{entry.member}` | {_cell(entry.doc)} |" for entry, use in _uses(source)]
    lines += [
        "",
        "These files are generated from the program in `program/`. Change the program, then run `bartack plugin build`.",
        "",
    ]
    return "\n".join(lines)


def _uses(source: PluginSource) -> Iterator[tuple[SourceEntry, str]]:
    for entry in source.entries:
        if entry.kind == "worker":
            yield entry, f"agent `{entry.name}`"
        else:
            typed = entry.command or entry.name
            kind = "skill and command" if entry.command else entry.kind
            yield entry, f"{kind} `/{source.name}:{typed}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def wrap_in_marketplace(plugin: RenderedPlugin) -> dict[str, bytes]:
    """The files of a marketplace with one plugin."""
    below = {f"plugins/{plugin.name}/{path}": data for path, data in plugin.files.items()}
    listed = marketplace_text(plugin.name, [plugin.files[PLUGIN_JSON]])
    return dict(sorted({**below, MARKETPLACE_JSON: listed.encode()}.items()))


def marketplace_text(name: str, plugins: list[bytes], description: str = "") -> str:
    """The text of ``marketplace.json``.

    Args:
        name: The name of the marketplace.
        plugins: The content of ``plugin.json`` of each plugin.
        description: Of the marketplace; else that of its first plugin.
    """
    facts: list[dict[str, object]] = [json.loads(data) for data in plugins]
    return json_text(
        {
            "name": name,
            "description": description or (facts[0]["description"] if facts else name),
            "owner": facts[0]["author"] if facts else {"name": name},
            "plugins": [
                {
                    "name": one["name"],
                    "source": f"./plugins/{one['name']}",
                    "description": one["description"],
                    "version": one["version"],
                }
                for one in facts
            ],
        }
    )
