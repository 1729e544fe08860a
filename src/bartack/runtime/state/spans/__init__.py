"""A run as spans: whatever lasts, from the entry that opens it to the one that closes it. Pure: entries in, spans out.

Start reading with ``spans.py``; ``rows.py`` has what it returns.
"""
