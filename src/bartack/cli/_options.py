"""Options and arguments that several commands share, so that they mean the same everywhere."""

from __future__ import annotations

import json
import sys

import click

json_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print JSON for programs; errors become one JSON object on stderr.",
)
"""Every command that shows something has it."""

workspace_option = click.option(
    "-C",
    "--workspace",
    default=".",
    metavar="DIR",
    help="The workspace whose runs are meant; the current directory by default.",
)
"""Every command about runs or their settings has it."""


def write_json(value: object) -> None:
    """Print one JSON value on a line of its own."""
    sys.stdout.write(json.dumps(value) + "\n")
