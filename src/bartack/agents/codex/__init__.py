"""Codex, through its app server. Read ``_dialect.py``: the course of a call; then ``_agent.py``: processes and files."""
