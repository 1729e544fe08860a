"""Patterns and their events: ids, similarity, analytics, the tracker.

Makes events durable and leaves their delivery to the daemon or to a sync. Start with ``_tracker.py`` (what programs call), then
``_event.py`` (what an event holds) and ``_pattern.py`` (the id of a piece of code).
"""
