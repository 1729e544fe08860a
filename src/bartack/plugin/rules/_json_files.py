"""The rules of the JSON files of a plugin: ``plugin.json``, ``marketplace.json``, ``.mcp.json`` and ``hooks.json``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final, cast

from bartack.plugin.rules._documents import description_problems
from bartack.plugin.rules._finding import PluginFinding
from bartack.plugin.rules._names import ALL_TOOLS, MOST, PLUGIN_MOST, name_problem, tool_name

PLUGIN_JSON: Final = ".claude-plugin/plugin.json"
MARKETPLACE_JSON: Final = ".claude-plugin/marketplace.json"
MCP_JSON: Final = ".mcp.json"
HOOKS_JSON: Final = "hooks/hooks.json"
ROOT: Final = "${CLAUDE_PLUGIN_ROOT}"
TIMEOUT_MOST_S: Final = 60

Object = dict[str, object]

PLUGIN_KEYS: Final = (
    "name", "version", "description", "author", "displayName", "homepage", "repository", "license", "keywords",
)  # fmt: skip
HANDLER_KEYS: Final = ("type", "command", "args", "timeout", "async")
EVENTS: Final = frozenset(
    (
        "SessionStart", "SessionEnd", "Setup", "UserPromptSubmit", "UserPromptExpansion", "PreToolUse", "PermissionRequest",
        "PermissionDenied", "PostToolUse", "PostToolUseFailure", "PostToolBatch", "Notification", "SubagentStart",
        "SubagentStop", "TaskCreated", "TaskCompleted", "Stop", "StopFailure", "TeammateIdle", "InstructionsLoaded",
        "ConfigChange", "CwdChanged", "FileChanged", "WorktreeCreate", "WorktreeRemove", "PreCompact", "PostCompact",
        "Elicitation", "ElicitationResult", "MessageDisplay", "PreModelSwitch", "PostModelSwitch",
    )
)  # fmt: skip
"""The events of hooks that Claude Code knows."""

_VERSION: Final = re.compile(r"\d+\.\d+\.\d+(?:[-+][0-9A-Za-z.+-]+)?")
_META: Final = re.compile(r"[\s;&|<>`$()*?\[\]{}!'\"\\#~]")


class _TwiceError(ValueError):
    """A key that an object has twice."""


def read_json(file: str, data: bytes) -> tuple[object, list[PluginFinding]]:
    """The value of a JSON file, or why it has none. A key that is given twice is an error."""
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_pairs), []
    except _TwiceError as error:
        return None, [PluginFinding(file, 0, str(error), "the key is given twice")]
    except json.JSONDecodeError as error:
        return None, [PluginFinding(file, error.lineno, "", f"it is not JSON: {error.msg}")]
    except (UnicodeDecodeError, RecursionError):
        return None, [PluginFinding(file, 0, "", "it is not JSON in UTF-8")]


def _pairs(pairs: list[tuple[str, object]]) -> Object:
    found: Object = {}
    for key, value in pairs:
        if key in found:
            raise _TwiceError(key)
        found[key] = value
    return found


def line_of(data: bytes, path: str) -> int:
    """The line of a JSON file with a key, which is named with the keys above it; 0 if it is not there.

    Of several objects with the same keys it is that of the first.
    """
    at, end = 0, 0
    for key in path.split("."):
        found = re.compile(re.escape(json.dumps(key).encode()) + rb"\s*:").search(data, end)
        if found is None:
            break
        at, end = found.start(), found.end()
    return data.count(b"\n", 0, at) + 1 if end else 0


class JsonRules:
    """Checks one JSON file. Findings name the first line that has the key."""

    def __init__(self, file: str, data: bytes) -> None:
        self.file = file
        self.data = data

    def at(self, key: str, problem: str) -> PluginFinding:
        """A finding about a key, which is named with the keys above it."""
        return PluginFinding(self.file, line_of(self.data, key), key, problem)

    def check_plugin(self, value: object) -> Iterator[PluginFinding]:
        """The rules of ``plugin.json``."""
        if not isinstance(value, dict):
            yield PluginFinding(self.file, 1, "", "it is not an object")
            return
        known = cast("Object", value)
        for key in known:
            if key not in PLUGIN_KEYS:
                yield self.at(key, f"a plugin has no such key; it has {', '.join(PLUGIN_KEYS)}")
        yield from self._check_identity(known)
        if not is_author(known.get("author")):
            yield self.at("author", 'it is not an object such as {"name": "…"}')
        for key in ("displayName", "homepage", "repository", "license"):
            if key in known and not _is_text(known[key]):
                yield self.at(key, "it is not one line of text")
        words = known.get("keywords", [])
        if not isinstance(words, list) or not all(_is_text(word) for word in cast("list[object]", words)):
            yield self.at("keywords", "it is not a list of texts")

    def _check_identity(self, known: Object) -> Iterator[PluginFinding]:
        name, version, description = (known.get(key) for key in ("name", "version", "description"))
        problem = name_problem(name, PLUGIN_MOST) if isinstance(name, str) else "it is missing"
        if problem:
            yield self.at("name", problem)
        elif any(len(tool_name(str(name), tool)) > MOST for tool in ALL_TOOLS):
            yield self.at("name", f"the names of its tools would be longer than {MOST} characters")
        if not isinstance(version, str) or not _VERSION.fullmatch(version):
            yield self.at("version", "it is not a version such as 1.2.0")
        if not isinstance(description, str) or not description.strip():
            yield self.at("description", "it is missing")
        else:
            yield from (self.at("description", problem) for problem in description_problems(description))

    def check_servers(self, value: object) -> Iterator[PluginFinding]:
        """The rules of ``.mcp.json``: one server, which is Bartack and gets the plugin's own folder."""
        servers = _member(value, "mcpServers")
        if not isinstance(servers, dict) or set(cast("Object", servers)) != {"bartack"}:
            yield self.at("mcpServers", "it does not have exactly one server, 'bartack'")
            return
        server = cast("Object", servers)["bartack"]
        if not isinstance(server, dict) or set(cast("Object", server)) != {"command", "args"}:
            yield self.at("bartack", "it does not have exactly the keys command and args")
            return
        yield from self._check_command(cast("Object", server), "bartack")
        args = cast("Object", server)["args"]
        if isinstance(args, list) and cast("list[object]", args)[-3:] != ["mcp", "--plugin", ROOT]:
            yield self.at("args", f"they do not end with mcp --plugin {ROOT}")

    def check_hooks(self, value: object) -> Iterator[PluginFinding]:
        """The rules of ``hooks.json``."""
        events = _member(value, "hooks")
        if not isinstance(events, dict) or set(cast("Object", value)) != {"hooks"}:
            yield PluginFinding(self.file, 1, "hooks", "it is not an object with the only key hooks")
            return
        for event, groups in cast("Object", events).items():
            if event not in EVENTS:
                yield self.at(f"hooks.{event}", "there is no such event")
            if not isinstance(groups, list):
                yield self.at(f"hooks.{event}", "it is not a list")
                continue
            for group in cast("list[object]", groups):
                yield from self._check_group(event, group)

    def _check_group(self, event: str, group: object) -> Iterator[PluginFinding]:
        handlers = _member(group, "hooks")
        if not isinstance(handlers, list) or set(cast("Object", group)) - {"matcher", "hooks"}:
            yield self.at(f"hooks.{event}", "a group has hooks, a matcher, and nothing else")
            return
        for handler in cast("list[object]", handlers):
            if not isinstance(handler, dict):
                yield self.at(f"hooks.{event}", "a handler is not an object")
                continue
            known = cast("Object", handler)
            for key in known:
                if key not in HANDLER_KEYS:
                    yield self.at(f"hooks.{event}.{key}", "a handler has no such key")
            if known.get("type") != "command":
                yield self.at(f"hooks.{event}.type", "it is not 'command'")
            yield from self._check_command(known, f"hooks.{event}")
            timeout = known.get("timeout")
            if not _is_seconds(timeout):
                problem = f"it is not an integer from 1 to {TIMEOUT_MOST_S}; the unit is seconds"
                yield self.at(f"hooks.{event}.timeout", problem)
            if "async" in known and not isinstance(known["async"], bool):
                yield self.at(f"hooks.{event}.async", "it is neither true nor false")

    def _check_command(self, known: Object, place: str) -> Iterator[PluginFinding]:
        command, args = known.get("command"), known.get("args")
        if not isinstance(command, str) or not command or _META.search(command.replace(ROOT, "")):
            yield self.at(f"{place}.command", "it is not the name or the path of one program")
        elif "/" in command and not command.startswith(("/", f"{ROOT}/")):
            yield self.at(f"{place}.command", f"a path has to be absolute or to start with {ROOT}")
        if not isinstance(args, list) or not all(isinstance(arg, str) for arg in cast("list[object]", args)):
            yield self.at(f"{place}.args", "they are not a list of texts; without args a shell is used")

    def check_marketplace(self, value: object) -> Iterator[PluginFinding]:
        """The rules of ``marketplace.json``."""
        known = cast("Object", value) if isinstance(value, dict) else {}
        for key in set(known) ^ {"name", "description", "owner", "plugins"}:
            yield self.at(key, "it is missing" if key not in known else "a marketplace has no such key")
        name = known.get("name")
        if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
            yield self.at("name", "it is not a name of lower-case letters, digits and '-'")
        if not is_author(known.get("owner")):
            yield self.at("owner", 'it is not an object such as {"name": "…"}')
        for plugin in (
            cast("list[object]", known["plugins"]) if isinstance(known.get("plugins"), list) else []
        ):
            source = _member(plugin, "source")
            if source != f"./plugins/{_member(plugin, 'name')}":
                yield self.at("source", "it is not the folder of the plugin below ./plugins")


def _member(value: object, key: str) -> object:
    return cast("Object", value).get(key) if isinstance(value, dict) else None


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()


def is_author(value: object) -> bool:
    """Whether a value names an author or an owner."""
    return isinstance(value, dict) and _is_text(cast("Object", value).get("name"))


def _is_seconds(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= TIMEOUT_MOST_S
