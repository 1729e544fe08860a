"""Whether agents can be used, found out without cost. Start reading with ``doctor.py``."""
