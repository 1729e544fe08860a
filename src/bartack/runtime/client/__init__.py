"""Runs from outside: ``Run`` and ``Session``, their asyncio twins, and managing runs.

It speaks to a hub over its socket, or leaves word in the run's directory. Start with ``run.py``.
"""
