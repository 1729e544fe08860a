"""How long a wait may take: one table, with what overrides it.

The first of these counts: an explicit argument, ``BARTACK_TIMEOUT_<KIND>``, the settings of the project, the default. A factor in
``BARTACK_TIMEOUT_FACTOR`` multiplies the last two.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Final, NamedTuple

DEFAULTS: Final[Mapping[str, float]] = {
    "receive": 1800.0,
    "send": 5.0,
    "supervised_send": 5.0,
    "broadcast": 10.0,
    "call": 30.0,
    "shell": 600.0,
    "prompt": 3600.0,
    "delegate": 86400.0,
    "step": 600.0,
    "slow": 10.0,
    "child_start": 10.0,
    "child_stop": 5.0,
    "hub_join": 10.0,
    "lock": 10.0,
}


class Timeouts:
    """The limits in force. Unusable settings of the environment are ignored."""

    def __init__(self, environ: Mapping[str, str], settings: Mapping[str, float] | None = None) -> None:
        self._environ = environ
        self._settings = settings or {}
        factor = _number(environ.get("BARTACK_TIMEOUT_FACTOR"))
        self._factor = factor if factor is not None and 0.1 <= factor <= 100 else 1.0
        self._known: dict[str, tuple[float, str]] = {}

    def limit(self, kind: str) -> float:
        """Seconds that a wait of this kind may take when nothing else was said."""
        return self.explain(kind)[0]

    def explain(self, kind: str) -> tuple[float, str]:
        """The limit, and where it comes from."""
        known = self._known.get(kind)
        if known is None:
            known = self._known[kind] = self._find(kind)
        return known

    def _find(self, kind: str) -> tuple[float, str]:
        name = f"BARTACK_TIMEOUT_{kind.upper()}"
        explicit = _number(self._environ.get(name))
        if explicit is not None and explicit > 0:
            return explicit, name
        multiplied = "" if self._factor == 1.0 else f" times {self._factor:g}"
        if kind in self._settings:
            return self._settings[kind] * self._factor, f"timeouts.{kind}{multiplied}"
        return DEFAULTS[kind] * self._factor, f"default{multiplied}"


class Limit(NamedTuple):
    """How long a kind of wait may take, and who says so."""

    kind: str
    seconds: float
    source: str
    """``default``, the setting or the variable of the environment; with the factor, if it was multiplied by one."""


def limits_in_force(environ: Mapping[str, str], settings: Mapping[str, float]) -> list[Limit]:
    """Every limit, as it holds for a run with these settings."""
    timeouts = Timeouts(environ, settings)
    return [Limit(kind, *timeouts.explain(kind)) for kind in DEFAULTS]


def default_limit(kind: str) -> float:
    """Seconds that a wait of this kind may take, for callers that have only the environment."""
    return Timeouts(os.environ).limit(kind)


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None
