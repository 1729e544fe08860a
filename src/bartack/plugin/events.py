"""Which events of hooks are recorded already, by tracking hooks in settings files and by installed plugins.

Only reads. ``hooks.py`` leaves out what plugins record, and the installation of a plugin leaves out what settings files record.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, cast

from bartack.errors import SettingsError
from bartack.plugin._settings_file import SHIM_NAME, Object, load_settings_file

Scope = Literal["user", "project", "local"]
SCOPES: Final[tuple[Scope, ...]] = ("user", "project", "local")
MARKETPLACE: Final = "bartack-local"
_MANAGED: Final = (
    "/Library/Application Support/ClaudeCode/managed-settings.json"
    if sys.platform == "darwin"
    else "/etc/claude-code/managed-settings.json"
)


def settings_path(scope: Scope, root: str | os.PathLike[str] | None = None) -> Path:
    """The settings file of a scope."""
    if scope == "user":
        return Path(os.environ.get("CLAUDE_CONFIG_DIR") or os.path.expanduser("~/.claude")) / "settings.json"
    name = "settings.json" if scope == "project" else "settings.local.json"
    return Path(root or os.getcwd()) / ".claude" / name


def settings_files(root: str | os.PathLike[str] | None = None) -> list[Path]:
    """Every settings file that Claude Code reads in a project; the later ones win."""
    return [*(settings_path(scope, root) for scope in SCOPES), Path(_MANAGED)]


def find_switched_off(root: str | os.PathLike[str] | None = None) -> list[Path]:
    """The settings files that switch all hooks off, with ``disableAllHooks``."""
    return [path for path in settings_files(root) if _members(path).get("disableAllHooks") is True]


def _members(path: Path) -> Object:
    """The members of a settings file; none if it cannot be read."""
    try:
        found: object = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return cast("Object", found) if isinstance(found, dict) else {}


def enabled_plugins(root: str | os.PathLike[str] | None = None) -> list[str]:
    """The ids of the plugins that the settings of a project enable."""
    found: dict[str, bool] = {}
    for path in settings_files(root):
        enabled = _members(path).get("enabledPlugins")
        if isinstance(enabled, dict):
            found |= {name: value is not False for name, value in cast("Object", enabled).items()}
    return [name for name, is_on in found.items() if is_on]


def marketplace_name(scope: Scope, root: str | os.PathLike[str] | None = None) -> str:
    """The name of the local marketplace of a scope.

    Claude Code knows one folder for each name, in all projects of a user. So each project has a name of its own.
    """
    if scope == "user":
        return MARKETPLACE
    real = os.path.realpath(root or os.getcwd())
    return f"{MARKETPLACE}-{hashlib.sha256(os.fsencode(real)).hexdigest()[:8]}"


def marketplace_folder(
    scope: Scope, root: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None
) -> Path:
    """The folder of the local marketplace of a scope."""
    if scope != "user":
        return Path(os.path.realpath(root or os.getcwd())) / ".bartack" / "marketplace"
    environ = os.environ if environ is None else environ
    home = environ.get("HOME") or os.path.expanduser("~")
    base = environ.get("XDG_DATA_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(
            home, "Library/Application Support" if sys.platform == "darwin" else ".local/share"
        )
    return Path(base) / "bartack" / "marketplace"


def recorded_in_settings(root: str | os.PathLike[str] | None = None) -> dict[str, str]:
    """The events that tracking hooks record in every case, each with its settings file.

    A hook of some tools only is left out: another one records the other tools, and an event that both record is kept once, by
    its id.
    """
    found: dict[str, str] = {}
    for scope in SCOPES:
        path = settings_path(scope, root)
        try:
            entries = load_settings_file(path).installed
        except SettingsError:
            continue
        for event, groups in entries.items():
            if any(not group.get("matcher") for group in groups):
                found.setdefault(event, str(path))
    return found


def recorded_by_plugins(root: str | os.PathLike[str] | None = None) -> dict[str, str]:
    """The events that enabled plugins of the local marketplaces record, each with the id of the plugin."""
    folders = {marketplace_name(scope, root): marketplace_folder(scope, root) for scope in SCOPES}
    found: dict[str, str] = {}
    for plugin in enabled_plugins(root):
        name, _, marketplace = plugin.partition("@")
        if marketplace in folders:
            hooks = _members(folders[marketplace] / "plugins" / name / "hooks" / "hooks.json").get("hooks")
            for event, groups in cast("Object", hooks).items() if isinstance(hooks, dict) else ():
                if SHIM_NAME in json.dumps(groups):
                    found.setdefault(event, plugin)
    return found
