"""How often an agent is asked, and how long it may take: what a conversation needs to know of the settings of its agent.

Each kind of agent makes it from its own settings; see ``ProgramConfig.limits``.
"""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """See the module. Times are in seconds; 0 means that there is no such limit.

    Attributes:
        retries: How many attempts may fail.
        backoff_initial_s: The longest wait before the second attempt.
        backoff_factor: By how much each further one is longer.
        backoff_max_s: The longest wait there is.
        max_restarts: How often its process is started again within ``restart_window_s``.
        restart_window_s: See ``max_restarts``.
        start_s: How long it may take to write its first message.
        stall_s: How long it may make no progress while none of its own tools runs.
        tool_s: How long it may make no progress while one of its own tools runs; 0: as long as ``stall_s``.
        retry_s: How long it may do nothing but repeat its own requests.
        rate_limit_s: How long it is left alone after a rate limit without an end, doubled each time; 0: the attempt has failed.
        rate_limit_max_s: The longest such wait.
        heartbeat_s: How often it has to send a heartbeat.
        missed_heartbeats: After how many missing heartbeats its process is stopped.
        cancel_grace_s: How long it may take to answer a cancel.
        keep: Whether its process serves further attempts and calls.
    """

    retries: int = 3
    backoff_initial_s: float = 2.0
    backoff_factor: float = 2.0
    backoff_max_s: float = 60.0
    max_restarts: int = 5
    restart_window_s: float = 600.0
    start_s: float = 60.0
    stall_s: float = 300.0
    tool_s: float = 0.0
    retry_s: float = 0.0
    rate_limit_s: float = 0.0
    rate_limit_max_s: float = 900.0
    heartbeat_s: float = 0.0
    missed_heartbeats: int = 3
    cancel_grace_s: float = 10.0
    keep: bool = True
