"""Calls to services that may be away: breaker, health, retries, and an outbox that keeps what they cannot take now.

State is shared by all processes of a user through one SQLite database (``_store.py``). How an event reaches a service that was
away is in ``outbox/`` (``outbox/outbox.py``); ``bartack.tracking`` has the daemon that delivers. Names are loaded when they are
first used, so that importing this package costs next to nothing: a hook lives for milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bartack._lazy import lazy
from bartack.core.backoff import Backoff

if TYPE_CHECKING:
    from bartack.resilience._breaker import CircuitBreaker, breaker_names
    from bartack.resilience._circuit import CircuitState
    from bartack.resilience._client import ResilientAPIClient
    from bartack.resilience._delivery import Deliverer
    from bartack.resilience._executor import ResilientExecutor
    from bartack.resilience._graceful import graceful_tracking
    from bartack.resilience._health import HealthChecker, Phase4HealthChecker
    from bartack.resilience._outcome import CallFailed, CallIgnored, CallRejected, CallSucceeded
    from bartack.resilience._store import StateStore
    from bartack.resilience.cache import Kept, PatternCache
    from bartack.resilience.outbox.outbox import Outbox
    from bartack.resilience.outbox.row import NewEvent
    from bartack.resilience.settings import Settings, load_settings

__all__ = [
    "Backoff",
    "CallFailed",
    "CallIgnored",
    "CallRejected",
    "CallSucceeded",
    "CircuitBreaker",
    "CircuitState",
    "Deliverer",
    "HealthChecker",
    "Kept",
    "NewEvent",
    "Outbox",
    "PatternCache",
    "Phase4HealthChecker",
    "ResilientAPIClient",
    "ResilientExecutor",
    "Settings",
    "StateStore",
    "breaker_names",
    "graceful_tracking",
    "load_settings",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "_breaker": "CircuitBreaker breaker_names",
        "_circuit": "CircuitState",
        "_client": "ResilientAPIClient",
        "_delivery": "Deliverer",
        "_executor": "ResilientExecutor",
        "_graceful": "graceful_tracking",
        "_health": "HealthChecker Phase4HealthChecker",
        "_outcome": "CallFailed CallIgnored CallRejected CallSucceeded",
        "_store": "StateStore",
        "cache": "Kept PatternCache",
        "outbox.outbox": "Outbox",
        "outbox.row": "NewEvent",
        "settings": "Settings load_settings",
    },
)
