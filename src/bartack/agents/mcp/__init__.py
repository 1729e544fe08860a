"""The tools of a step as an MCP server. Start with ``server.py``; it hands out ``calls.py`` and takes ``answer.py``."""
