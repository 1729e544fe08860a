"""The process of a worker: forked by the zygote, connected to its hub.

It decides nothing. Start with ``zygote.py`` (how workers are forked), then ``child.py`` (what a worker does from then on).
"""
