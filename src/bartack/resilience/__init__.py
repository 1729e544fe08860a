"""Calls to services that may be away: breaker, health, retries, and an outbox that keeps what they cannot take now.

State is shared by all processes of a user through one SQLite database (``_store.py``). Names are loaded when they are first
used, so that importing this package costs next to nothing: a hook lives for milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bartack._lazy import lazy

if TYPE_CHECKING:
    from bartack.core import Backoff
    from bartack.resilience._breaker import CircuitBreaker, breaker_names
    from bartack.resilience._cache import Kept, PatternCache, TakenBackError
    from bartack.resilience._circuit import CircuitState
    from bartack.resilience._client import ResilientAPIClient
    from bartack.resilience._delivery import Deliverer
    from bartack.resilience._executor import ResilientExecutor
    from bartack.resilience._graceful import graceful_tracking
    from bartack.resilience._health import HealthChecker, Phase4HealthChecker
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

__getattr__, __dir__ = lazy(
    __name__,
    {
        ".core": "Backoff",
        "_breaker": "CircuitBreaker breaker_names",
        "_cache": "Kept PatternCache TakenBackError",
        "_circuit": "CircuitState",
        "_client": "ResilientAPIClient",
        "_delivery": "Deliverer",
        "_executor": "ResilientExecutor",
        "_graceful": "graceful_tracking",
        "_health": "HealthChecker Phase4HealthChecker",
        "_home": "make_private state_home",
        "_http": "origin_of",
        "_importing": "hook_event import_spool",
        "_link": "DaemonLink register_outbox",
        "_mirror": "encode_event iso parse_object",
        "_outbox": "Limits Outbox bump",
        "_outbox_row": "Claim NewEvent Verdict",
        "_outcome": "CallFailed CallIgnored CallRejected CallSucceeded",
        "_proof": "NONCE_HEADER PROOF_PATH UNIX_ENDS ProofSessions tcp_ends",
        "_settings": "ENABLED Settings given load_settings setting_flaws",
        "_spool": "Header Spool hook_event_id split_event",
        "_store": "StateStore",
        "_token": "hook_token load_token read_token",
        "_user_home": "service_socket user_home",
    },
)
