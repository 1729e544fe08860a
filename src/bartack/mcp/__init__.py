"""``bartack mcp``: the runs of a project as tools of an MCP client, such as Claude Code.

The server is a client of hubs and has no state that a run needs: it can be killed at any moment, and several can serve one project.
It answers its first message before it imports anything that knows of runs.

Read ``_tools.py`` (what is offered), ``_stdio.py`` (the loop), then ``_operations.py`` (what each tool does).
"""

from bartack.mcp._service import serve_runs

__all__ = ["serve_runs"]
