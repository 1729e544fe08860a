"""All rules of a plugin together: of each file, of files to each other, and the checksums of the manifest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from bartack.core import typed
from bartack.plugin._manifest import MANIFEST, PluginManifest
from bartack.plugin.rules._documents import Document, check_document, read_document
from bartack.plugin.rules._finding import PluginFinding
from bartack.plugin.rules._json_files import HOOKS_JSON, MCP_JSON, PLUGIN_JSON, JsonRules, read_json
from bartack.plugin.rules._names import NAME

Files = Mapping[str, bytes]
"""The files of a plugin, by their paths in it."""

ADAPTED: Final = frozenset((MCP_JSON, HOOKS_JSON))
"""The files that an installation changes: their commands become absolute."""


def checksum_of(data: bytes) -> str:
    """The checksum of a file, as the manifest has it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def check_files(files: Files) -> list[PluginFinding]:
    """Every rule that a plugin breaks, in the order of files and lines. Checksums are checked by ``check_sums``."""
    return sorted(set(_findings(files)))


def _findings(files: Files) -> Iterator[PluginFinding]:
    yield from _check_json(files)
    documents: list[Document] = []
    for file, data in sorted(files.items()):
        if not file.endswith(".md"):
            continue
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            yield PluginFinding(file, data.count(b"\n", 0, error.start) + 1, "", "it is not UTF-8")
            continue
        if b"\r" in data or data.startswith(b"\xef\xbb\xbf"):
            yield PluginFinding(file, 1, "", "it has a byte order mark or carriage returns")
        document = read_document(file, text)
        if document is not None:
            documents.append(document)
            yield from check_document(document)
        elif file.split("/")[0] in {"skills", "commands", "agents"}:
            yield PluginFinding(file, 0, "", "Claude Code does not look for it there")
    yield from _check_names(documents)
    yield from _check_manifest(files, documents)


def _check_json(files: Files) -> Iterator[PluginFinding]:
    for file in (PLUGIN_JSON, MCP_JSON, HOOKS_JSON):
        data = files.get(file)
        if data is None:
            if file != HOOKS_JSON:
                yield PluginFinding(file, 0, "", "it is missing")
            continue
        value, problems = read_json(file, data)
        yield from problems
        if problems:
            continue
        rules = JsonRules(file, data)
        check = {
            PLUGIN_JSON: rules.check_plugin,
            MCP_JSON: rules.check_servers,
            HOOKS_JSON: rules.check_hooks,
        }[file]
        yield from check(value)


def _check_names(documents: list[Document]) -> Iterator[PluginFinding]:
    """Skills and commands share one space of names; only a command that belongs to its skill may have the same."""
    skills = {document.name: document for document in documents if document.kind == "skill"}
    for document in documents:
        skill = skills.get(document.name)
        if document.kind != "command" or skill is None:
            continue
        if skill.head.values.get("user-invocable") is not False:
            problem = f"the skill of the same name, {skill.file}, is not 'user-invocable: false'"
            yield PluginFinding(document.file, 0, "name", problem)


def _check_manifest(files: Files, documents: list[Document]) -> Iterator[PluginFinding]:
    data = files.get(MANIFEST)
    if data is None:
        yield PluginFinding(MANIFEST, 0, "", "it is missing")
        return
    try:
        manifest = typed.decode(data, type=PluginManifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        yield PluginFinding(MANIFEST, 0, "", str(error))
        return
    for name, entry in manifest.entries.items():
        if not NAME.fullmatch(name):
            yield PluginFinding(MANIFEST, 0, f"entries.{name}", "it is not a name of an entry")
        if f"program/{entry.module}" not in files:
            problem = f"the module program/{entry.module} is missing"
            yield PluginFinding(MANIFEST, 0, f"entries.{name}.module", problem)
    for document in documents:
        if document.file in manifest.files and not _names_an_entry(document, manifest):
            yield PluginFinding(document.file, 0, "", "its body starts no entry of the program")


def _names_an_entry(document: Document, manifest: PluginManifest) -> bool:
    return any(f'entry: "{name}"' in document.head.body for name in manifest.entries)


def check_sums(files: Files, *, installed: bool = False) -> list[PluginFinding]:
    """The files that are not as the build wrote them.

    Args:
        files: The plugin.
        installed: Whether it was installed, so that the commands in two files are absolute.
    """
    try:
        manifest = typed.decode(files.get(MANIFEST, b""), type=PluginManifest)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return []  # reported by the rules of the manifest itself
    found: list[PluginFinding] = []
    for file, expected in manifest.files.items():
        if file not in files:
            if not (installed and file == HOOKS_JSON):
                found.append(PluginFinding(file, 0, "", "it is missing"))
        elif checksum_of(files[file]) != expected and not (installed and file in ADAPTED):
            found.append(PluginFinding(file, 0, "", "it was changed after the build"))
    program = {file for file in files if file.startswith("program/")}
    found += [
        PluginFinding(file, 0, "", "it is not part of the build")
        for file in sorted(program - set(manifest.files) - {MANIFEST})
    ]
    return found
