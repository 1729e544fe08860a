"""``bartack mcp``: the runs of a project as tools of an MCP client. The server is in ``bartack.mcp``."""

from __future__ import annotations

from functools import partial

import click

from bartack.cli.app._options import find_workspace_of
from bartack.mcp import serve_runs


@click.command(short_help="Serve runs as tools of an MCP client.")
@click.option(
    "--plugin", metavar="DIR", help="Offer the entries of this plugin (default: those of [mcp.entries])."
)
@click.option("--read-only", is_flag=True, help="Leave out the tools that start or change runs.")
@click.option(
    "-C",
    "--workspace",
    metavar="DIR",
    help="Use this workspace (default: the nearest directory upwards with a bartack.toml, else the current one).",
)
def mcp(plugin: str | None, workspace: str | None, *, read_only: bool) -> None:
    """Serve the runs of a project to an MCP client, such as Claude Code, on stdin and stdout.

    The tools start runs, wait for them, show them, answer their questions, exchange messages with them and cancel them. A run
    belongs to a process of its own: it continues when the client or this server ends. Permissions that an agent asks for cannot
    be given here; a person gives them with 'bartack answer'.

    The command ends when its input ends.
    """
    # The project is not looked for before a client needs it: the first answer comes sooner without.
    find = partial(find_workspace_of, workspace or ".", named=workspace is not None)
    serve_runs(find, plugin or "", read_only=read_only)
