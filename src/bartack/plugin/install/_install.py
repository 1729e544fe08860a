"""Installs and uninstalls plugins with the commands of Claude Code. A step that fails undoes the steps before it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from bartack.errors import BartackError, PluginInstallError, PluginInvalidError
from bartack.plugin._folder import read_folder
from bartack.plugin.events import (
    Scope,
    find_switched_off,
    marketplace_folder,
    marketplace_name,
    recorded_in_settings,
)
from bartack.plugin.hooks import install_shim
from bartack.plugin.install._claude import ClaudeProgram, InstalledPlugin, open_claude
from bartack.plugin.install._commands import check_commands
from bartack.plugin.install._marketplace import Interpreter, LocalMarketplace, localise, recorded_events
from bartack.plugin.install._validate import validate_plugin
from bartack.plugin.install._verify import VerifiedPlugin, verify_installed
from bartack.plugin.rules._finding import error_of
from bartack.plugin.rules._json_files import HOOKS_JSON, PLUGIN_JSON


class PluginChange(NamedTuple):
    """What an installation or its removal has done.

    Attributes:
        id: The id of the plugin in Claude Code.
        version: The version that is installed now, or was.
        scope: The scope.
        folder: Where Claude Code reads it, or did.
        changed: Whether it was not so before.
        left_out: Events that other hooks record already, so that the plugin does not.
    """

    id: str
    version: str
    scope: str
    folder: str
    changed: bool
    left_out: tuple[str, ...] = ()


class PluginInstaller:
    """Installs plugins in one scope of one project.

    Args:
        scope: Where Claude Code enables them: for the user, for the project, or for the user in the project.
        root: The project; by default the working directory.
        environ: The environment; that of this process by default.

    Raises:
        PluginInstallError: There is no Claude Code.
    """

    def __init__(
        self,
        scope: Scope = "project",
        root: str | os.PathLike[str] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._scope: Scope = scope
        self._root = Path(os.path.realpath(root or os.getcwd()))
        self._environ = os.environ if environ is None else environ
        self._claude: ClaudeProgram = open_claude(self._root, self._environ)
        self._marketplace = LocalMarketplace(
            marketplace_name(scope, self._root), marketplace_folder(scope, self._root, self._environ)
        )

    def install(self, folder: str | os.PathLike[str]) -> PluginChange:
        """Install the plugin in a folder, in place of the version that is installed.

        Raises:
            PluginInvalidError: It breaks a rule.
            PluginInstallError: Claude Code refused a step, or the installed plugin does not work; all steps were undone.
        """
        source = self._validated(folder)
        files = read_folder(source)
        facts: dict[str, str] = json.loads(files[PLUGIN_JSON])
        name, version = facts["name"], facts["version"]
        left_out = recorded_in_settings(self._root)
        installed = localise(files, Interpreter.own(install_shim()), left_out)
        self._check_commands(installed)
        before, listed = self._marketplace.read(), self._find(name)
        try:
            self._marketplace.put(name, installed)
            verified = self._register(name)
        except BaseException:
            self._undo(name, before, is_new=listed is None)
            raise
        return PluginChange(
            verified.id,
            version,
            self._scope,
            verified.folder,
            listed is None or self._marketplace.read() != before,
            tuple(event for event in recorded_events(files) if event in left_out),
        )

    def _validated(self, folder: str | os.PathLike[str]) -> Path:
        report = validate_plugin(folder, environ=self._environ)
        if not report.ok:
            raise error_of(list(report.findings))
        if len(report.plugins) != 1:
            problem = f"the marketplace has {len(report.plugins)} plugins"
            raise PluginInvalidError(str(folder), problem, "Name the folder of one plugin.")
        return Path(report.plugins[0])

    def _check_commands(self, files: Mapping[str, bytes]) -> None:
        problems = check_commands(files, self._environ)
        if problems:
            raise PluginInstallError("", f"a command of the plugin does not answer: {problems[0]}")
        if HOOKS_JSON in files:
            for path in find_switched_off(self._root):
                problem = "disableAllHooks switches the hooks of the plugin off"
                raise PluginInstallError(str(path), problem, f"Take disableAllHooks out of {path}.")

    def _register(self, name: str) -> VerifiedPlugin:
        """Make Claude Code know the plugin, and verify that it does."""
        id_, scope = self._id(name), ("--scope", self._scope)
        self._claude.do("plugin", "marketplace", "add", str(self._marketplace.folder), *scope, "--json")
        self._claude.do("plugin", "install", id_, *scope, "--json")
        listed = self._find(name)
        if listed is None:
            raise PluginInstallError(id_, "Claude Code does not list the plugin after the installation")
        if listed.version != listed.folder_version:
            self._claude.do("plugin", "update", id_, *scope)
        if not listed.enabled:
            self._claude.do("plugin", "enable", id_, *scope)
        listed = self._find(name) or listed
        verified = verify_installed(listed, self._root, self._environ)
        if not verified.ok:
            raise PluginInstallError(id_, f"the installed plugin does not work: {verified.problems[0]}")
        return verified

    def _undo(self, name: str, before: Mapping[str, bytes], *, is_new: bool) -> None:
        """Bring back what was there before. A step that fails must not hide the error that led here."""
        with contextlib.suppress(BartackError, OSError):
            if is_new:
                self._claude.call("plugin", "uninstall", self._id(name), "--scope", self._scope)
            if not before:
                self._claude.call("plugin", "marketplace", "remove", self._marketplace.name)
        self._marketplace.restore(before)

    def uninstall(self, name: str) -> PluginChange:
        """Uninstall a plugin; a second time changes nothing.

        Raises:
            PluginInstallError: Claude Code refused a step.
        """
        name = name.partition("@")[0]
        id_, folder = self._id(name), self._marketplace.plugin_folder(name)
        listed, was_there = self._find(name), folder.exists()
        if listed is not None:
            self._claude.do(
                "plugin", "uninstall", id_, "--scope", self._scope, "--json", unless=("not_installed",)
            )
        if not any(one.id == id_ for one in self._claude.list_plugins()) and self._marketplace.drop(name):
            self._claude.do(
                "plugin",
                "marketplace",
                "remove",
                self._marketplace.name,
                "--json",
                unless=("not_configured",),
            )
        changed = listed is not None or was_there
        return PluginChange(id_, listed.version if listed else "", self._scope, str(folder), changed)

    def _id(self, name: str) -> str:
        return f"{name}@{self._marketplace.name}"

    def _find(self, name: str) -> InstalledPlugin | None:
        """The plugin as Claude Code lists it in this scope."""
        for one in self._claude.list_plugins():
            own = self._scope == "user" or os.path.realpath(one.project_path) == str(self._root)
            if one.id == self._id(name) and one.scope == self._scope and own:
                return one
        return None
