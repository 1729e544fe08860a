"""The program that reads the ``Plugin`` of a Python program: imports it once, in a process of its own.

What the program prints while it is imported goes to stderr. The answer goes to the descriptor that was stdout, as one JSON object.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from bartack.config.project import main_module
from bartack.core import typed
from bartack.errors import BartackError, PluginInvalidError, PluginTraitError
from bartack.plugin._declared import Plugin
from bartack.plugin._manifest import EntryKind, EntryParameter, JsonSchema
from bartack.plugin.builder._source import SourceEntry, folded
from bartack.plugin.rules._names import kebab
from bartack.runtime import Worker
from bartack.runtime.program.probe import import_program
from bartack.runtime.protocol.exceptions import describe_error
from bartack.runtime.protocol.frames import ErrorData
from bartack.runtime.protocol.values import object_schema

AnyWorker = Worker[..., Any]
_SECTION: Final = re.compile(
    r"^(Args|Arguments|Returns|Raises|Yields|Attributes|Example|Examples|Note|Notes):\s*$", re.MULTILINE
)
_ARGUMENT: Final = re.compile(r"(\w+)(?: \([^)]*\))?: *(.*)")


class PluginRequest(msgspec.Struct):
    """What to read: a file, and the root of its project."""

    file: str
    root: str


class DeclaredPlugin(msgspec.Struct):
    """What a program declares, or the error of reading it."""

    name: str = ""
    description: str = ""
    entries: tuple[SourceEntry, ...] = ()
    error: ErrorData | None = None


def main() -> int:
    """Answer one request on standard output."""
    request = typed.decode(sys.stdin.buffer.read(), type=PluginRequest)
    answer = os.dup(1)
    os.dup2(2, 1)
    try:
        found = declared_plugin(request)
    except BartackError as error:
        found = DeclaredPlugin(error=describe_error(error))
    with open(answer, "wb") as stream:
        stream.write(msgspec.json.encode(found))
    return 0


def declared_plugin(request: PluginRequest) -> DeclaredPlugin:
    """Import a program and describe its plugin.

    Raises:
        ProgramImportError: It cannot be imported.
        PluginTraitError: It has no plugin, or several.
        PluginInvalidError: A worker cannot be an entry.
    """
    own = main_module(Path(request.file), request.root, sys.path, "")
    module = import_program(request.file, request.root, own)
    shown = os.path.relpath(request.file, request.root)
    found = {id(value): value for value in vars(module).values() if isinstance(value, Plugin)}
    if len(found) != 1:
        problem = f"{len(found)} plugins are declared" if found else "no plugin is declared"
        remedy = "Write once at the top level: plugin = Plugin('name', entries=[...])."
        raise PluginTraitError(shown, problem, remedy)
    plugin = next(iter(found.values()))
    members = {cast("AnyWorker", value).name for value in vars(module).values() if isinstance(value, Worker)}
    entries = [*_members(plugin, request.root), *_workers(plugin, request.root)]
    for entry in entries:
        if entry.member not in members:
            problem = f"the worker {entry.member} is not a name of the program's file"
            raise PluginInvalidError(entry.place, problem, f"Import it in {shown}.")
    description = plugin.description or _description(inspect.getdoc(module) or "")
    return DeclaredPlugin(plugin.name, folded(description), tuple(entries))


def _members(plugin: Plugin, root: str) -> Iterator[SourceEntry]:
    """One entry for each worker, which may be a skill and a command."""
    kinds: dict[str, dict[str, str]] = {}
    workers: dict[str, AnyWorker] = {}
    for member in plugin.entries:
        worker = member.worker
        workers[worker.ref] = worker
        kinds.setdefault(worker.ref, {})[member.kind] = kebab(member.name or worker.name)
    for ref, names in kinds.items():
        name, command = names.get("skill", ""), names.get("command", "")
        kind: EntryKind = "skill" if name else "command"
        yield _entry(workers[ref], kind, name or command, root, command if name else "")


def _workers(plugin: Plugin, root: str) -> Iterator[SourceEntry]:
    for worker in plugin.workers:
        yield _entry(worker, "worker", kebab(worker.name), root)


def _entry(worker: AnyWorker, kind: EntryKind, name: str, root: str, command: str = "") -> SourceEntry:
    text = inspect.getdoc(worker.function) or ""
    place = _place(worker, root)
    return SourceEntry(
        kind=kind,
        name=name,
        member=worker.name,
        params=tuple(_parameters(worker, _arguments(text), place)),
        returns=_returns(worker),
        doc=folded(_description(text)),
        place=place,
        command=command,
    )


def _place(worker: AnyWorker, root: str) -> str:
    code = inspect.unwrap(worker.function).__code__
    return f"{os.path.relpath(code.co_filename, root)}:{code.co_firstlineno}"


def _parameters(worker: AnyWorker, texts: dict[str, str], place: str) -> Iterator[EntryParameter]:
    whole = worker.shape.schema()
    shared = {"$defs": whole["$defs"]} if "$defs" in whole else {}
    schemas = cast("dict[str, JsonSchema]", whole["properties"])
    for parameter in list(worker.shape.signature.parameters.values())[1:]:
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            problem = f"{worker.name} takes *{parameter.name}; arguments of an entry are given by name"
            raise PluginInvalidError(place, problem, f"Take a list: {parameter.name}: list[str].")
        own = schemas[parameter.name]
        uses_shared = b"#/$defs/" in msgspec.json.encode(own)
        yield EntryParameter(
            name=parameter.name,
            type=_type_text(parameter.annotation),
            schema={**own, **(shared if uses_shared else {})},
            required=parameter.default is inspect.Parameter.empty,
            doc=folded(texts.get(parameter.name, "")),
        )


def _type_text(annotation: object) -> str:
    if annotation is inspect.Parameter.empty:
        return "any"
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _returns(worker: AnyWorker) -> JsonSchema:
    hints = typing.get_type_hints(worker.function, include_extras=True)
    if "return" not in hints:
        return {}
    whole = object_schema({"value": hints["return"]}, [])
    found = cast("dict[str, JsonSchema]", whole["properties"])["value"]
    return {**found, "$defs": whole["$defs"]} if "$defs" in whole else found


def _description(text: str) -> str:
    """The text of a docstring before its first section."""
    return _SECTION.split(text, maxsplit=1)[0]


def _arguments(text: str) -> dict[str, str]:
    """The texts of parameters in the section ``Args`` of a docstring."""
    parts = _SECTION.split(text)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    found: dict[str, str] = {}
    name = ""
    for line in (sections.get("Args") or sections.get("Arguments") or "").splitlines():
        matched = _ARGUMENT.fullmatch(line.strip())
        if matched and len(line) - len(line.lstrip()) <= 4:
            name = matched[1]
            found[name] = matched[2]
        elif name:
            found[name] += f" {line.strip()}"
    return found


if __name__ == "__main__":
    sys.exit(main())
