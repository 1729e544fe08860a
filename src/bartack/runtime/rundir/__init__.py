"""The directory of a run: its layout, finding runs, and every file beside the journal.

It knows nothing of the hub that writes there. Start with ``layout.py`` (which files there are) and ``find.py`` (how a run is
found by its name).
"""
