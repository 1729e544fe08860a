"""Agents that are programs, whatever they speak: their processes and calls. Start with ``adapter.py``, then ``_agent.py``."""
