"""The agents of a run as the hub sees them: which there are, their calls, their events, and the bridges to the tools of a step.

Start reading with ``prompts.py``, then ``programs.py``.
"""
