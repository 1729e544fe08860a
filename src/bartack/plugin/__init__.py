"""What Bartack puts into coding agents: hooks that record what they do.

Installing and removing them is in ``_hooks.py``; what runs as a hook is ``_shim.py``. Names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bartack._lazy import lazy

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

__getattr__, __dir__ = lazy(
    __name__,
    {
        "_hooks": "EVENTS MODES SCOPES HookChange Mode Scope hook_status install_hooks install_shim shim_path uninstall_hooks",
    },
)
