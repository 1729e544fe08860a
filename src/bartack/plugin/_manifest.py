"""The manifest of a built plugin, ``program/manifest.json``: its entries with their parameters, and the checksums of its files.

The MCP server lists and checks entries by it and never parses the program. The build writes it, and knows by it which files of a
folder are its own.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from bartack.core import typed
from bartack.errors import PluginInvalidError

FORMAT: Final = 1
MANIFEST: Final = "program/manifest.json"
"""The path of the manifest in a plugin."""

EntryKind = Literal["skill", "command", "worker"]
JsonSchema: TypeAlias = dict[str, object]


class EntryParameter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A parameter of an entry.

    Attributes:
        name: As the program declares it, and as ``args`` of a start names it.
        type: As the program writes it; ``any`` if it writes none.
        schema: The JSON Schema of the values that it accepts.
        required: Whether a start has to give it.
        doc: The text of its ``@arg`` tag, or nothing.
    """

    name: str
    type: str
    schema: JsonSchema
    required: bool
    doc: str = ""


class PluginEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What can be started.

    Attributes:
        kind: What it is in the plugin. An entry that is a skill and a command is a skill here.
        module: The file that declares it, below ``program``.
        member: Its name in that file, as ``--worker`` of ``bartack run`` takes it: ``sort`` or ``NightDesk.sort_inbox``.
        params: Its parameters, in the order of the declaration.
        returns: The JSON Schema of its result; empty if the program writes no type.
        doc: Its description, in one line.
    """

    kind: EntryKind
    module: str
    member: str
    params: tuple[EntryParameter, ...]
    returns: JsonSchema
    doc: str = ""

    @property
    def signature(self) -> str:
        """The parameters in one line: ``folder: string, limit: int (optional)``."""
        return ", ".join(f"{p.name}: {p.type}{'' if p.required else ' (optional)'}" for p in self.params)


class PluginManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole manifest.

    Attributes:
        format: The version of this format.
        entry: The entry file of the program, below ``program``.
        entries: What can be started, by its name in the plugin.
        files: The checksum of each generated file but this one, by its path in the plugin: ``sha256:`` and hexadecimal digits.
    """

    format: int
    entry: str
    entries: dict[str, PluginEntry]
    files: dict[str, str] = {}

    def encode(self) -> bytes:
        """The bytes of the file: the same for the same content."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"


def load_manifest(plugin: str | os.PathLike[str]) -> PluginManifest:
    """Read the manifest of a plugin.

    Args:
        plugin: The folder of the plugin.

    Raises:
        PluginInvalidError: There is no manifest, or it cannot be read.
    """
    file = Path(plugin) / MANIFEST
    try:
        read = typed.decode(file.read_bytes(), type=PluginManifest)
    except OSError as error:
        remedy = "Name the folder that 'bartack plugin build' made."
        raise PluginInvalidError(str(file), error.strerror or str(error), remedy) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise PluginInvalidError(str(file), str(error)) from None
    if read.format != FORMAT:
        problem = f"format {read.format} is unknown; this version reads format {FORMAT}"
        raise PluginInvalidError(str(file), problem)
    return read
