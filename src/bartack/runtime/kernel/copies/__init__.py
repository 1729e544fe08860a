"""Runs that keep copies of their workspace: a step that may have changed files is finished together with a copy of them.

Start with ``desk.py``, which states what is held, and why. ``core.py`` puts the desk in front of what ends steps.
"""
