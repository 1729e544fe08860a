"""The process that owns a run: its loop, sockets, children, prompts, and how it is launched.

What it does is decided in ``kernel``. Start with ``hub.py`` (one turn of the loop), then ``launch.py`` (how a hub begins).
What a power cut leaves of a run that is being created: ``create.py``.
"""
