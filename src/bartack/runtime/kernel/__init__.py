"""The decisions of the hub, without I/O: frames in, entries and actions out.

It knows neither sockets nor processes nor the clock of the machine. Start with ``core.py`` (frames in), then ``turn.py`` (what is
committed, and what leaves before and after that), ``step_table.py`` (who handles which step) and ``failure.py`` (how a failure
reaches all workers). Messages are in ``mail/``.
"""
