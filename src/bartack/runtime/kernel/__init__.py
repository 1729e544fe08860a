"""The decisions of the hub, without I/O: frames in, entries and actions out.

It knows neither sockets nor processes nor the clock of the machine. Start with ``core.py`` (frames in), then ``turn.py`` (one
turn: what is committed and what leaves after it).
"""
