"""What Bartack puts into coding agents: hooks that record what they do.

Installing and removing them is in ``_hooks.py``; what runs as a hook is ``_shim.py``. Names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bartack.plugin._hooks import (
        EVENTS,
        MODES,
        SCOPES,
        HookChange,
        Mode,
        Scope,
        hook_status,
        install_hooks,
        install_shim,
        shim_path,
        uninstall_hooks,
    )

__all__ = [
    "EVENTS",
    "MODES",
    "SCOPES",
    "HookChange",
    "Mode",
    "Scope",
    "hook_status",
    "install_hooks",
    "install_shim",
    "shim_path",
    "uninstall_hooks",
]

_HOME: Final = "_hooks"


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{_HOME}"), name)
    globals()[name] = found
    return found
