"""Stepping the coroutines of one worker: operations, replay, branches and step bodies.

It knows nothing of the hub's side. Start with ``scheduler.py`` (turns of a worker), then ``replay.py`` (its history).
How one program serves runs from before and after a change: ``versions.py``.
"""
