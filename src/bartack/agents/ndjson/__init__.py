"""Agents that are programs speaking the line protocol. Start with ``_agent.py``."""
