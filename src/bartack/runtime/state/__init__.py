"""Journal entries, and the state of a run that they add up to.

It decides nothing and does no I/O. Start with ``entries.py`` (the facts), then ``apply.py`` (the one function that changes the
state), then ``timeline.py`` (the same for people).
"""
