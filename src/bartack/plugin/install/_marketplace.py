"""The local marketplace of a scope: a folder from which Claude Code reads plugins at every start.

The folder is replaced as a whole, so that no session finds half of a plugin. In it every command is absolute.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final, NamedTuple, cast

from bartack.core.trust import make_private
from bartack.plugin._folder import read_folder, remove_folder, replace_folder
from bartack.plugin.builder._render import json_text, marketplace_text
from bartack.plugin.rules._json_files import HOOKS_JSON, MARKETPLACE_JSON, MCP_JSON, PLUGIN_JSON

Object = dict[str, object]
PROGRAM: Final = "bartack"
_DESCRIPTION: Final = "Plugins that were built on this machine with Bartack."
_RECORD: Final = ("hook", "record")


class Interpreter(NamedTuple):
    """How the commands of an installed plugin are started: by this interpreter, and record events with this file."""

    python: str
    shim: str

    @classmethod
    def own(cls, shim: Path) -> Interpreter:
        """The interpreter that is running now."""
        return cls(sys.executable, str(shim))

    def command(self, args: list[str]) -> tuple[str, list[str]]:
        """A command of a built plugin, made absolute."""
        if tuple(args[:2]) == _RECORD:
            return self.python, ["-I", "-S", self.shim, *args[2:]]
        return self.python, ["-I", "-m", PROGRAM, *args]


def localise(
    files: Mapping[str, bytes], interpreter: Interpreter, left_out: Collection[str] = ()
) -> dict[str, bytes]:
    """The files of a built plugin with absolute commands.

    Args:
        files: The files, as they were built.
        interpreter: What the commands become.
        left_out: Events that are recorded by other hooks already.
    """
    result = dict(files)
    servers = cast("dict[str, Object]", json.loads(files[MCP_JSON])["mcpServers"])
    for server in servers.values():
        _make_absolute(server, interpreter)
    result[MCP_JSON] = json_text({"mcpServers": servers}).encode()
    if HOOKS_JSON in files:
        kept: dict[str, list[Object]] = {}
        for event, groups in _events(files).items():
            others = [group for group in groups if event not in left_out or not _records(group)]
            kept |= {event: others} if others else {}
        for groups in kept.values():
            for handler in _handlers(groups):
                _make_absolute(handler, interpreter)
        result[HOOKS_JSON] = json_text({"hooks": kept}).encode()
        if not kept:
            del result[HOOKS_JSON]
    return result


def recorded_events(files: Mapping[str, bytes]) -> list[str]:
    """The events that a built plugin records."""
    return [event for event, groups in _events(files).items() if any(map(_records, groups))]


def _events(files: Mapping[str, bytes]) -> dict[str, list[Object]]:
    found: object = json.loads(files[HOOKS_JSON])["hooks"] if HOOKS_JSON in files else {}
    return cast("dict[str, list[Object]]", found)


def _records(group: Object) -> bool:
    return all(cast("list[str]", handler["args"])[:2] == list(_RECORD) for handler in _handlers([group]))


def _handlers(groups: list[Object]) -> list[Object]:
    return [handler for group in groups for handler in cast("list[Object]", group["hooks"])]


def _make_absolute(known: Object, interpreter: Interpreter) -> None:
    if known["command"] == PROGRAM:
        known["command"], known["args"] = interpreter.command(cast("list[str]", known["args"]))


class LocalMarketplace:
    """A marketplace on this machine.

    Args:
        name: Its name in Claude Code.
        folder: Where it is.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder

    def read(self) -> dict[str, bytes]:
        """All files of it; none if it is not there."""
        return read_folder(self.folder) if self.folder.is_dir() else {}

    def plugin_folder(self, plugin: str) -> Path:
        """Where a plugin of it is."""
        return self.folder / "plugins" / plugin

    def put(self, plugin: str, files: Mapping[str, bytes]) -> None:
        """Add a plugin, or replace it."""
        others = self._without(plugin)
        self._write({**others, **{f"plugins/{plugin}/{path}": data for path, data in files.items()}})

    def drop(self, plugin: str) -> bool:
        """Remove a plugin; whether the marketplace is empty now."""
        before = self.read()
        others = self._without(plugin)
        if _plugins(others) and others != before:
            self._write(others)
        elif not _plugins(others):
            remove_folder(self.folder)
        return not _plugins(others)

    def restore(self, files: Mapping[str, bytes]) -> None:
        """Give it the files that it had before."""
        if files:
            replace_folder(self.folder, files)
        else:
            remove_folder(self.folder)

    def _without(self, plugin: str) -> dict[str, bytes]:
        return {
            path: data
            for path, data in self.read().items()
            if path != MARKETPLACE_JSON and not path.startswith(f"plugins/{plugin}/")
        }

    def _write(self, files: dict[str, bytes]) -> None:
        facts = [files[f"plugins/{plugin}/{PLUGIN_JSON}"] for plugin in _plugins(files)]
        listed = marketplace_text(self.name, facts, _DESCRIPTION).encode()
        whole = {**files, MARKETPLACE_JSON: listed}
        if whole != self.read():
            make_private(self.folder.parent)
            replace_folder(self.folder, whole)


def _plugins(files: Mapping[str, bytes]) -> list[str]:
    """The plugins of a marketplace, by its files."""
    names = {path.split("/")[1] for path in files if path.startswith("plugins/")}
    return sorted(name for name in names if f"plugins/{name}/{PLUGIN_JSON}" in files)
