"""What one process of a run sends to another: frames, steps, values, requests and paths.

It knows nothing of journals or hubs. Start with ``frames.py`` (what a worker and its hub exchange) and ``steps.py`` (the arguments
of each kind of step).
"""
