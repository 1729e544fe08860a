"""Whole runs in memory, for tests of programs. Start reading with ``_run.py``."""
