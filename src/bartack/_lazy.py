"""Packages whose names are loaded by their first use.

Hooks live for milliseconds and guardians have to stay small; both import packages of which they need one name. So this module
imports nothing before a name is used. A package that is always needed as a whole imports its names directly instead.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # type checkers know it by its name; importing typing would cost most of the time
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy(
    package: str, homes: Mapping[str, str], modules: Mapping[str, str] | None = None
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The ``__getattr__`` and the ``__dir__`` of a package.

    Args:
        package: Its name.
        homes: For each module, relative to the package, the names that come from it, separated by blanks.
        modules: Modules that are exported themselves, by the name they are exported as.
    """
    places = {name: home for home, names in homes.items() for name in names.split()}
    whole = modules or {}

    def get(name: str) -> object:
        if name not in places and name not in whole:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415 - only the use of a name pays for it

        home: object = import_module(f".{whole.get(name) or places[name]}", package)
        value: object = home if name in whole else getattr(home, name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *places, *whole})

    return get, names
