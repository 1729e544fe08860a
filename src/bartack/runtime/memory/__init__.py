"""A whole run in one process without files or sockets, for ``bartack.testing``.

It drives the same kernel and scheduler as the hub and the workers. Start with ``run.py``.
"""
