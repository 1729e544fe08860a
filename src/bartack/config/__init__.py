"""The settings of a project: reading ``bartack.toml``, checking it, and saying where a value came from.

It knows nothing of runs. Start with ``load.py`` (how settings are found and read) and ``sections.py`` (which there are).
"""
