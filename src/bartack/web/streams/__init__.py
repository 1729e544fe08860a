"""Streams of events: what a page gets when a run, or the list of runs, changes. Start reading with ``_run_stream.py``."""
