"""Supervisors and monitors: which children there are, and when one is started again.

How processes are started and killed is left to ``parent`` and ``process``. Start with ``spec.py`` (what can be specified), then
``_core.py`` (what is decided) and ``_supervisor.py`` (how it is done).
"""
