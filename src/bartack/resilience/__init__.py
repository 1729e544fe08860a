"""Calls to services that may be away: breaker, health, retries, and an outbox that keeps what they cannot take now.

State is shared by all processes of a user through one SQLite database (``_store.py``). Names are loaded when they are first
used, so that importing this package costs next to nothing: a hook lives for milliseconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bartack.core import Backoff
    from bartack.resilience._breaker import CircuitBreaker, breaker_names
    from bartack.resilience._cache import Kept, PatternCache, TakenBackError
    from bartack.resilience._circuit import CircuitState
    from bartack.resilience._client import ResilientAPIClient
    from bartack.resilience._delivery import Deliverer
    from bartack.resilience._executor import ResilientExecutor
    from bartack.resilience._graceful import graceful_tracking
    from bartack.resilience._health import HealthChecker
    from bartack.resilience._health import HealthChecker as Phase4HealthChecker
    from bartack.resilience._home import make_private, state_home
    from bartack.resilience._http import origin_of
    from bartack.resilience._importing import hook_event, import_spool
    from bartack.resilience._link import DaemonLink, register_outbox
    from bartack.resilience._mirror import encode_event, iso, parse_object
    from bartack.resilience._outbox import Limits, Outbox, bump
    from bartack.resilience._outbox_row import Claim, NewEvent, Verdict
    from bartack.resilience._outcome import CallFailed, CallIgnored, CallRejected, CallSucceeded
    from bartack.resilience._proof import NONCE_HEADER, PROOF_PATH, UNIX_ENDS, ProofSessions, tcp_ends
    from bartack.resilience._settings import ENABLED, Settings, given, load_settings, setting_flaws
    from bartack.resilience._spool import Header, Spool, hook_event_id, split_event
    from bartack.resilience._store import StateStore
    from bartack.resilience._token import hook_token, load_token, read_token
    from bartack.resilience._user_home import service_socket, user_home

_HOMES: Final = {
    "NONCE_HEADER": "_proof",
    "PROOF_PATH": "_proof",
    "ProofSessions": "_proof",
    "UNIX_ENDS": "_proof",
    "hook_token": "_token",
    "load_token": "_token",
    "service_socket": "_user_home",
    "tcp_ends": "_proof",
    "make_private": "_home",
    "hook_event_id": "_spool",
    "Verdict": "_outbox_row",
    "Backoff": "bartack.core",
    "CallFailed": "_outcome",
    "CallIgnored": "_outcome",
    "CallRejected": "_outcome",
    "CallSucceeded": "_outcome",
    "CircuitBreaker": "_breaker",
    "CircuitState": "_circuit",
    "Claim": "_outbox_row",
    "DaemonLink": "_link",
    "Deliverer": "_delivery",
    "ENABLED": "_settings",
    "Header": "_spool",
    "HealthChecker": "_health",
    "Kept": "_cache",
    "Limits": "_outbox",
    "NewEvent": "_outbox_row",
    "Outbox": "_outbox",
    "PatternCache": "_cache",
    "ResilientAPIClient": "_client",
    "ResilientExecutor": "_executor",
    "Settings": "_settings",
    "Spool": "_spool",
    "StateStore": "_store",
    "TakenBackError": "_cache",
    "breaker_names": "_breaker",
    "bump": "_outbox",
    "encode_event": "_mirror",
    "given": "_settings",
    "graceful_tracking": "_graceful",
    "hook_event": "_importing",
    "import_spool": "_importing",
    "iso": "_mirror",
    "load_settings": "_settings",
    "origin_of": "_http",
    "parse_object": "_mirror",
    "read_token": "_token",
    "register_outbox": "_link",
    "setting_flaws": "_settings",
    "split_event": "_spool",
    "state_home": "_home",
    "user_home": "_user_home",
}
_ALIASES: Final = {"Phase4HealthChecker": "HealthChecker"}

__all__ = [
    "ENABLED",
    "NONCE_HEADER",
    "PROOF_PATH",
    "UNIX_ENDS",
    "Backoff",
    "CallFailed",
    "CallIgnored",
    "CallRejected",
    "CallSucceeded",
    "CircuitBreaker",
    "CircuitState",
    "Claim",
    "DaemonLink",
    "Deliverer",
    "Header",
    "HealthChecker",
    "Kept",
    "Limits",
    "NewEvent",
    "Outbox",
    "PatternCache",
    "Phase4HealthChecker",
    "ProofSessions",
    "ResilientAPIClient",
    "ResilientExecutor",
    "Settings",
    "Spool",
    "StateStore",
    "TakenBackError",
    "Verdict",
    "breaker_names",
    "bump",
    "encode_event",
    "given",
    "graceful_tracking",
    "hook_event",
    "hook_event_id",
    "hook_token",
    "import_spool",
    "iso",
    "load_settings",
    "load_token",
    "make_private",
    "origin_of",
    "parse_object",
    "read_token",
    "register_outbox",
    "service_socket",
    "setting_flaws",
    "split_event",
    "state_home",
    "tcp_ends",
    "user_home",
]


def __getattr__(name: str) -> object:
    home = _ALIASES.get(name, name)
    if home not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _HOMES[home]
    found: object = getattr(import_module(module if "." in module else f"{__name__}.{module}"), home)
    globals()[name] = found
    return found
