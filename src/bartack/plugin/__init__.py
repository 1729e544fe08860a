"""What Bartack puts into coding agents: hooks that record what they do, and plugins that run programs.

Installing and removing hooks is in ``hooks.py``; what runs as a hook is ``_shim.py`` and ``guard_hook.py``. Plugins are made in
``builder/`` (``builder/_build.py``), their rules are in ``rules/`` (``rules/_check.py``), and ``install/`` installs them
(``install/_install.py``). Names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bartack._lazy import lazy

if TYPE_CHECKING:
    from bartack.plugin._declared import Plugin, PluginMember, command, skill
    from bartack.plugin._manifest import PluginEntry, PluginManifest, load_manifest
    from bartack.plugin.builder._build import BuiltPlugin, build_plugin
    from bartack.plugin.install._dev import run_with_plugin
    from bartack.plugin.install._install import PluginChange, PluginInstaller
    from bartack.plugin.install._validate import PluginReport, validate_plugin
    from bartack.plugin.install._verify import VerifiedPlugin, verify_all, verify_plugin
    from bartack.plugin.rules._finding import PluginFinding

__all__ = [
    "BuiltPlugin",
    "Plugin",
    "PluginChange",
    "PluginEntry",
    "PluginFinding",
    "PluginInstaller",
    "PluginManifest",
    "PluginMember",
    "PluginReport",
    "VerifiedPlugin",
    "build_plugin",
    "command",
    "load_manifest",
    "run_with_plugin",
    "skill",
    "validate_plugin",
    "verify_all",
    "verify_plugin",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "_declared": "Plugin PluginMember command skill",
        "_manifest": "PluginEntry PluginManifest load_manifest",
        "builder._build": "BuiltPlugin build_plugin",
        "install._dev": "run_with_plugin",
        "install._install": "PluginChange PluginInstaller",
        "install._validate": "PluginReport validate_plugin",
        "install._verify": "VerifiedPlugin verify_all verify_plugin",
        "rules._finding": "PluginFinding",
    },
)
