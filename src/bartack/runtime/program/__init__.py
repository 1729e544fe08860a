"""The program of a run: pinning, probing, checking a replay, updating it.

It knows nothing of a running hub. Start with ``pin.py`` (which files are kept with a run) and ``probe.py`` (what importing a
program finds).
"""
