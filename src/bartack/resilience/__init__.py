"""Calls to services that may be away: breaker, health, retries, and an outbox that keeps what they cannot take now.

State is shared by all processes of a user through one SQLite database (``_store.py``). Names are loaded when they are first
used, so that importing this package costs next to nothing: a hook lives for milliseconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bartack.resilience._backoff import Backoff
    from bartack.resilience._breaker import CircuitBreaker
    from bartack.resilience._cache import PatternCache
    from bartack.resilience._circuit import CircuitState
    from bartack.resilience._client import ResilientAPIClient
    from bartack.resilience._executor import ResilientExecutor
    from bartack.resilience._graceful import graceful_tracking
    from bartack.resilience._health import HealthChecker
    from bartack.resilience._health import HealthChecker as Phase4HealthChecker
    from bartack.resilience._outbox import Outbox
    from bartack.resilience._outcome import CallFailed, CallIgnored, CallRejected, CallSucceeded
    from bartack.resilience._store import StateStore

_HOMES: Final = {
    "Backoff": "_backoff",
    "CallFailed": "_outcome",
    "CallIgnored": "_outcome",
    "CallRejected": "_outcome",
    "CallSucceeded": "_outcome",
    "CircuitBreaker": "_breaker",
    "CircuitState": "_circuit",
    "HealthChecker": "_health",
    "Outbox": "_outbox",
    "PatternCache": "_cache",
    "ResilientAPIClient": "_client",
    "ResilientExecutor": "_executor",
    "StateStore": "_store",
    "graceful_tracking": "_graceful",
}
_ALIASES: Final = {"Phase4HealthChecker": "HealthChecker"}

__all__ = [
    "Backoff",
    "CallFailed",
    "CallIgnored",
    "CallRejected",
    "CallSucceeded",
    "CircuitBreaker",
    "CircuitState",
    "HealthChecker",
    "Outbox",
    "PatternCache",
    "Phase4HealthChecker",
    "ResilientAPIClient",
    "ResilientExecutor",
    "StateStore",
    "graceful_tracking",
]


def __getattr__(name: str) -> object:
    name = _ALIASES.get(name, name)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
