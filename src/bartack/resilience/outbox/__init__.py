"""The durable queue of events for a service that may be away. Start reading with ``outbox.py``."""
