"""The daemon of a user: accepts events from hooks and delivers them to services.

What an event means is decided in ``pattern``; how it is kept, in ``bartack.resilience``. Start with ``_daemon.py``, then
``_listener.py`` (how events come in) and ``_outbox_worker.py`` (how they go out).
"""
