"""Processes of this machine: what the system knows of them, their trees, control groups and locks.

Starts nothing that lives longer than a call, and knows nothing of hubs. Start with ``facts.py`` and ``tree.py``; ``system.py``
chooses between ``_linux.py`` and ``_darwin.py``.
"""
