"""Verifies an installed plugin: whether Claude Code has it, whether its files are as built, and whether its commands answer."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import cast

import msgspec

from bartack.core import typed
from bartack.plugin._folder import read_folder
from bartack.plugin._manifest import MANIFEST, PluginManifest
from bartack.plugin.builder._render import hooks_text, json_text, servers
from bartack.plugin.events import enabled_plugins, find_switched_off, recorded_in_settings
from bartack.plugin.hooks import install_shim
from bartack.plugin.install._claude import ClaudeProgram, InstalledPlugin, open_claude
from bartack.plugin.install._commands import check_commands, check_server
from bartack.plugin.install._marketplace import Interpreter, localise
from bartack.plugin.rules._check import check_sums, checksum_of
from bartack.plugin.rules._json_files import HOOKS_JSON, MCP_JSON, PLUGIN_JSON


class VerifiedPlugin(msgspec.Struct, frozen=True):
    """What was found out about an installed plugin.

    Attributes:
        id: Its id in Claude Code, name and marketplace.
        version: The version that is in use.
        scope: The scope that it is installed in.
        folder: Where Claude Code reads it.
        problems: What is wrong; none if it works.
    """

    id: str
    version: str
    scope: str
    folder: str
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether it works."""
        return not self.problems


def verify_plugin(
    name: str, root: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None
) -> list[VerifiedPlugin]:
    """Verify an installed plugin, in each scope that it is installed in.

    Args:
        name: Its name, with or without the marketplace.
        root: The project; by default the working directory.
        environ: The environment; that of this process by default.

    Raises:
        PluginInstallError: There is no Claude Code, or it does not answer.
    """
    root = Path(os.path.realpath(root or os.getcwd()))
    claude = open_claude(root, environ)
    return [
        verify_installed(one, root, environ) for one in _of_project(claude, root) if name in _names(one.id)
    ]


def verify_all(
    root: str | os.PathLike[str], environ: Mapping[str, str] | None = None
) -> list[VerifiedPlugin]:
    """Verify every enabled plugin of Bartack in a project. If the settings enable no plugin, nothing is started.

    Raises:
        PluginInstallError: There is no Claude Code, or it does not answer.
    """
    root = Path(os.path.realpath(root))
    if not enabled_plugins(root):
        return []
    claude = open_claude(root, environ)
    found = [one for one in _of_project(claude, root) if (_folder_of(one) / MANIFEST).is_file() or one.errors]
    return [verify_installed(one, root, environ, cautious=True) for one in found if _is_ours(one)]


def _is_ours(one: InstalledPlugin) -> bool:
    return (_folder_of(one) / MANIFEST).is_file() or one.id.partition("@")[2].startswith("bartack-local")


def _names(id_: str) -> tuple[str, str]:
    return id_, id_.partition("@")[0]


def _of_project(claude: ClaudeProgram, root: Path) -> list[InstalledPlugin]:
    return [
        one
        for one in claude.list_plugins()
        if one.scope == "user" or os.path.realpath(one.project_path or root) == str(root)
    ]


def _folder_of(one: InstalledPlugin) -> Path:
    return Path(one.read_from_folder or one.install_path)


def verify_installed(
    one: InstalledPlugin, root: Path, environ: Mapping[str, str] | None = None, *, cautious: bool = False
) -> VerifiedPlugin:
    """Verify one installed plugin.

    Args:
        one: The plugin, as Claude Code lists it.
        root: The project.
        environ: The environment; that of this process by default.
        cautious: Start no program that is in the project.
    """
    folder = _folder_of(one)
    problems = [*one.errors]
    if not one.enabled:
        problems.append("it is not enabled in Claude Code")
    try:
        files = read_folder(folder) if folder.is_dir() else {}
    except OSError as error:
        files = {}
        problems.append(f"{error.filename}: {error.strerror}")
    if not files:
        problems.append(f"its folder {folder} is missing")
    else:
        foreign = str(root) if cautious else ""
        problems += _content_problems(files, folder, root, environ, foreign)
    return VerifiedPlugin(one.id, _version(files) or one.version, one.scope, str(folder), tuple(problems))


def _content_problems(
    files: Mapping[str, bytes], folder: Path, root: Path, environ: Mapping[str, str] | None, foreign: str
) -> Iterator[str]:
    if MANIFEST not in files:
        yield f"{folder / MANIFEST} is missing"
        return
    yield from (str(found) for found in check_sums(files, installed=True))
    try:
        changed = _changed_commands(files, root)
        unanswered = check_commands(files, environ, foreign=foreign)
    except (ValueError, KeyError, TypeError, AttributeError):
        yield f"{MCP_JSON} or {HOOKS_JSON} cannot be read; install the plugin again"
        return
    yield from changed
    if HOOKS_JSON in files:
        for path in find_switched_off(root):
            yield f"{path} switches all hooks off (disableAllHooks)"
    yield from unanswered
    if not unanswered:
        problem = check_server(files, folder, environ)
        if problem:
            yield problem


def _version(files: Mapping[str, bytes]) -> str:
    try:
        return str(cast("dict[str, object]", json.loads(files.get(PLUGIN_JSON, b"{}"))).get("version", ""))
    except (ValueError, AttributeError):
        return ""


def _changed_commands(files: Mapping[str, bytes], root: Path) -> list[str]:
    """What differs in the two files with commands from what an installation makes of the build."""
    manifest = typed.decode(files[MANIFEST], type=PluginManifest)
    built = _built(manifest)
    if built is None:
        return [f"{HOOKS_JSON} was not made by this version of Bartack; build and install the plugin again"]
    if files.get(MCP_JSON) == built[MCP_JSON] and files.get(HOOKS_JSON) == built.get(HOOKS_JSON):
        return []  # as it was built: installed from elsewhere, with the commands of the PATH
    python = str(json.loads(files[MCP_JSON])["mcpServers"]["bartack"]["command"])
    expected = localise(built, Interpreter(python, str(install_shim())), recorded_in_settings(root))
    return [
        f"{file} is not what the installation made of it; install the plugin again"
        for file in (MCP_JSON, HOOKS_JSON)
        if files.get(file) != expected.get(file)
    ]


def _built(manifest: PluginManifest) -> dict[str, bytes] | None:
    """The two files with commands, as they were built: made again, and known by their checksums."""
    found = {MCP_JSON: json_text(servers()).encode()}
    if HOOKS_JSON in manifest.files:
        for guard, record in product((True, False), repeat=2):
            text = hooks_text(guard=guard, record=record).encode()
            if checksum_of(text) == manifest.files[HOOKS_JSON]:
                return {**found, HOOKS_JSON: text}
        return None
    return found
