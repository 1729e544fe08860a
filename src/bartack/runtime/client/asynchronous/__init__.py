"""Runs from outside, for asyncio programs: the twins of ``run.py``, ``session.py`` and ``connection.py``.

Start reading with ``run.py``.
"""
