"""What a client can start: the entries of a plugin's manifest, or those that ``bartack.toml`` names. No program is read for it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol, cast

from bartack.mcp._errors import ToolError
from bartack.mcp._tools import ListedEntry

MANIFEST: Final = os.path.join("program", "manifest.json")
SETTINGS: Final = "bartack.toml"


class Startable(NamedTuple):
    """An entry that can be started.

    Attributes:
        listed: What a client sees of it.
        program: The file, or ``FILE:WORKER``.
        member: The name of what to run in the file; empty for its main worker.
        schema: The JSON Schema of its arguments; ``None`` if only the program knows.
    """

    listed: ListedEntry
    program: str
    member: str = ""
    schema: dict[str, object] | None = None


class Entries(Protocol):
    """Where entries come from."""

    def all(self) -> dict[str, Startable]:
        """The entries by name.

        Raises:
            ToolError: They cannot be read.
        """
        ...


def find_entry(entries: Entries, name: str) -> Startable:
    """An entry by its name.

    Raises:
        EntryNotFoundError: There is none.
        ToolError: The entries cannot be read.
    """
    found = entries.all()
    if name not in found:
        from bartack.errors import EntryNotFoundError  # noqa: PLC0415 - the server is ready before it is needed

        raise EntryNotFoundError(name, tuple(found))
    return found[name]


def check_arguments(entry: Startable, args: dict[str, object]) -> None:
    """Check arguments against the parameters of an entry.

    Raises:
        ToolError: They do not match; the text has the whole signature.
    """
    if entry.schema is None:
        return
    from bartack.agents.reply import check_value  # noqa: PLC0415 - likewise

    _, faults = check_value(args, entry.schema)
    known = cast("dict[str, object]", entry.schema["properties"])
    problems = [f"args{str(fault)[1:]}" for fault in faults]
    problems += [f"args.{name}: there is no such parameter" for name in args if name not in known]
    if problems:
        listed = "\n".join(f"- {problem}" for problem in problems)
        raise ToolError(
            f"The arguments do not match {entry.listed.name}({entry.listed.signature}):\n{listed}"
        )


class PluginEntries:
    """The entries of a built plugin.

    The manifest is read without the types of ``bartack.plugin``, which take longer to load than everything else here.
    """

    def __init__(self, folder: str) -> None:
        self._folder = os.path.abspath(folder)

    def all(self) -> dict[str, Startable]:
        """See ``Entries.all``."""
        file = os.path.join(self._folder, MANIFEST)
        try:
            with open(file, "rb") as stream:
                manifest = json.load(stream)
            if manifest["format"] != 1:
                raise ToolError(f"{file}: format {manifest['format']} is unknown to this version of Bartack.")
            return {name: self._entry(name, entry) for name, entry in manifest["entries"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ToolError(
                f"{file} is not the manifest of a plugin ({error}); build the plugin again."
            ) from None

    def _entry(self, name: str, entry: dict[str, object]) -> Startable:
        module, member = str(entry["module"]), str(entry["member"])
        if os.path.isabs(module) or os.pardir in module.split("/"):
            raise ValueError(f"the module {module} is not in the plugin")
        params = cast("list[dict[str, object]]", entry["params"])
        schema: dict[str, object] = {
            "type": "object",
            "properties": {str(param["name"]): param["schema"] for param in params},
            "required": [param["name"] for param in params if param["required"]],
        }
        signature = ", ".join(
            f"{param['name']}: {param['type']}{'' if param['required'] else ' (optional)'}"
            for param in params
        )
        listed = ListedEntry(name, signature, str(entry.get("doc", "")))
        return Startable(listed, os.path.join(self._folder, "program", module), member, schema)


class ProjectEntries:
    """The entries that ``[mcp.entries]`` of a project's settings names: ``NAME = "FILE[:WORKER]"``."""

    def __init__(self, project: Callable[[], str]) -> None:
        self._project = project

    def all(self) -> dict[str, Startable]:
        """See ``Entries.all``."""
        named = self._named(self._project())
        return {name: Startable(ListedEntry(name), str(program)) for name, program in named.items()}

    def _named(self, project: str) -> Mapping[str, object]:
        file = os.path.join(project, SETTINGS)
        if not os.path.isfile(file):
            return _read_settings(project)
        import tomllib  # noqa: PLC0415 - a server of a plugin is ready sooner without it

        try:
            with open(file, "rb") as stream:
                table = tomllib.load(stream)
        except (OSError, ValueError) as error:
            raise ToolError(f"{SETTINGS} cannot be read: {error}") from None
        section = table.get("mcp")
        named = cast("dict[str, object]", section).get("entries") if isinstance(section, dict) else None
        return cast("dict[str, object]", named) if isinstance(named, dict) else {}


def _read_settings(workspace: str) -> Mapping[str, object]:
    """The entries of a workspace whose settings are above it, or that has none."""
    from pathlib import Path  # noqa: PLC0415 - few projects need it

    from bartack.config.load import load_config  # noqa: PLC0415 - likewise

    return load_config(Path(workspace)).mcp.entries
