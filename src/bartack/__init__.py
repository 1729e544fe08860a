"""Bartack runs teams of AI coding agents that never lose work.

Everything that happens in a run is in its journal before it is acknowledged, so a killed run continues where it
was. The names below are loaded on their first use: importing this package costs next to nothing.
"""

from __future__ import annotations

from bartack._version import __version__

TYPE_CHECKING = False  # type checkers know it by its name; importing typing would cost most of the time
if TYPE_CHECKING:
    from bartack.errors import BartackError
    from bartack.runtime import (
        Context,
        Mailbox,
        Mailroom,
        Outcome,
        Retry,
        Run,
        Session,
        ShellResult,
        run,
        step,
        worker,
    )

__all__ = [
    "BartackError",
    "Context",
    "Mailbox",
    "Mailroom",
    "Outcome",
    "Retry",
    "Run",
    "Session",
    "ShellResult",
    "__version__",
    "run",
    "step",
    "worker",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only who uses a name pays for it

    home = import_module("bartack.errors" if name == "BartackError" else "bartack.runtime")
    value: object = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
