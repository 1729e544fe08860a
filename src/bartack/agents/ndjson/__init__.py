"""Agents that are programs speaking the line protocol. Start with ``agent.py``."""
