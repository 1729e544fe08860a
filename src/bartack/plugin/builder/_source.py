"""What a plugin is made of, however its program is written: its facts, its entries and the files of the program."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from bartack.config.load import Config
from bartack.config.sections import PluginConfig
from bartack.errors import PluginInvalidError
from bartack.plugin._manifest import MANIFEST, EntryKind, EntryParameter, JsonSchema, PluginEntry
from bartack.plugin.rules._names import PLUGIN_MOST, kebab, name_problem


class SourceEntry(msgspec.Struct, frozen=True):
    """An entry as its program declares it.

    Attributes:
        kind: What it is in the plugin.
        name: Its name in the plugin.
        member: Its name in the program.
        params: Its parameters.
        returns: The JSON Schema of its result.
        doc: Its description in one line; may be empty.
        place: Where it is declared, for messages.
        command: The name of the command that starts the same entry as a skill, if there is one.
        color: The colour of an agent, if one is given.
        model: The model of an agent, if one is given.
    """

    kind: EntryKind
    name: str
    member: str
    params: tuple[EntryParameter, ...]
    returns: JsonSchema
    doc: str
    place: str
    command: str = ""
    color: str = ""
    model: str = ""

    def with_doc(self, doc: str) -> SourceEntry:
        """The same with another description."""
        return msgspec.structs.replace(self, doc=doc)


class PluginSource(msgspec.Struct, frozen=True):
    """Everything a plugin is made of.

    Attributes:
        name: The name of the plugin.
        description: Its description in one line; may be empty.
        place: Where it is declared, for messages.
        author: The name of its author.
        settings: The section ``plugin`` of the settings.
        entry: The entry file of the program, below its root.
        entries: What can be started.
        program: The files of the program, by their paths below its root.
    """

    name: str
    description: str
    place: str
    author: str
    settings: PluginConfig
    entry: str
    entries: tuple[SourceEntry, ...]
    program: dict[str, bytes]

    def manifest_entries(self) -> dict[str, PluginEntry]:
        """The entries as the manifest has them, by name."""
        return {
            one.name: PluginEntry(one.kind, self.entry, one.member, one.params, one.returns, one.doc)
            for one in self.entries
        }


def make_source(
    declared: str,
    doc: str,
    place: str,
    entry: str,
    entries: tuple[SourceEntry, ...],
    program: dict[str, bytes],
    config: Config,
) -> PluginSource:
    """A source from what a program declares and its project sets.

    Raises:
        PluginInvalidError: A name is not allowed, or two names are the same.
    """
    settings = config.plugin
    name = settings.name or kebab(declared)
    problem = name_problem(name, PLUGIN_MOST)
    if problem:
        raise PluginInvalidError(place, f"name: {problem}", _RENAME)
    if not entries:
        raise PluginInvalidError(place, "the plugin has no skill, no command and no worker", _DECLARE)
    _check_unique(entries)
    if MANIFEST.removeprefix("program/") in program:
        raise PluginInvalidError(place, "the program has a file manifest.json, whose name the plugin needs")
    return PluginSource(
        name=name,
        description=folded(settings.description or doc),
        place=place,
        author=settings.author or config.project.name or name,
        settings=settings,
        entry=entry,
        entries=entries,
        program=program,
    )


_RENAME: Final = "Rename it, or set plugin.name in bartack.toml."
_DECLARE: Final = "Annotate a method with @skill or @command, or export a worker."


def folded(text: str) -> str:
    """A text in one line, with single blanks."""
    return " ".join(text.split())


def read_program(root: Path, files: list[str]) -> dict[str, bytes]:
    """The files of a program, byte for byte."""
    return {file: (root / file).read_bytes() for file in sorted(files)}


def _check_unique(entries: tuple[SourceEntry, ...]) -> None:
    seen: dict[str, SourceEntry] = {}
    for entry in entries:
        for name in _names_of(entry):
            problem = name_problem(name)
            if problem:
                raise PluginInvalidError(
                    entry.place, f"name: {problem}", "Rename it, or give it a name there."
                )
            first = seen.setdefault(name, entry)
            if first is not entry:
                problem = f"name: {entry.member} becomes {name!r}, and so does {first.member} ({first.place})"
                raise PluginInvalidError(entry.place, problem, "Give one of them another name.")


def _names_of(entry: SourceEntry) -> Iterator[str]:
    yield entry.name
    if entry.command and entry.command != entry.name:
        yield entry.command
