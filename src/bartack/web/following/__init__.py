"""Following runs: the journals that are read for pages, and the list of all runs. Start reading with ``_follow.py``."""
