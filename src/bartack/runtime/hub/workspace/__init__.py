"""Workspaces on machines that continue a run, beside their files: what prepares them before the hub starts.

Start with ``preparation.py``. The files themselves come with ``hub/carried.py``, and ``runtime/copies`` makes the copies of them.
"""
