"""Options that several commands share, with the same meaning everywhere."""

from __future__ import annotations

import json
import os
import shlex
import sys
from typing import Final

import click

json_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print JSON for programs; errors become one JSON object on stderr.",
)
"""For every command that shows something."""


_SETTINGS: Final = "bartack.toml"
ON: Final = "bartack.on"
"""In the context of a command: finds the directory in which the runs of a database are shown; see ``_database.py``."""
ON_GIVEN: Final = "bartack.on.given"
"""In the context of a command: the database that ``--on`` names."""

TOTAL: Final = "bartack.total"
"""In the context of a command with ``--limit``: how many runs the database has, of which the newest are listed."""


def with_on(command: str) -> str:
    """A command for a run that is shown to a person, with the database of the current command."""
    context = click.get_current_context(silent=True)
    on = None if context is None else context.meta.get(ON_GIVEN)
    return command if on is None else f"{command} --on {shlex.quote(on)}"


def name_database(on: str) -> None:
    """Let what is shown from now on name this database in commands for its runs; see ``with_on``."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta[ON_GIVEN] = on


def _find_workspace(context: click.Context, parameter: click.Parameter, given: str) -> str:
    """The named workspace, else the nearest directory upwards with a bartack.toml, else the current directory."""
    if ON in context.meta:
        return str(context.meta[ON]())
    source = context.get_parameter_source(parameter.name or "")
    return find_workspace_of(given, named=source is not click.core.ParameterSource.DEFAULT)


def find_workspace_of(given: str, *, named: bool) -> str:
    """The workspace that a command works in; see ``workspace_option``.

    Args:
        given: A directory.
        named: A person named it; else directories above it count, too.

    Raises:
        UntrustedError: The settings belong to another user, or other users can write to them.
    """
    if named or os.path.isfile(_SETTINGS):
        return _inside(given)
    here = os.getcwd()
    while here != (above := os.path.dirname(here)):
        here = above
        if os.path.isfile(os.path.join(here, _SETTINGS)):
            return _inside(here)
    return given


def _inside(project: str) -> str:
    """Return the workspace of a project: its directory, unless its settings name one below it.

    Raises:
        UntrustedError: The settings belong to another user, or other users can write to them.
    """
    from bartack.core.trust import check_settings  # noqa: PLC0415 - commands load it anyway; --help does not need it

    settings = os.path.join(project, _SETTINGS)
    check_settings(settings)
    try:
        with open(settings, "rb") as file:
            named = b"workspace" in file.read() or "BARTACK_PROJECT_WORKSPACE" in os.environ
    except OSError:
        return project
    if not named:
        return project
    from pathlib import Path  # noqa: PLC0415 - few projects name one, and the others start faster without it

    from bartack.config.load import find_workspace  # noqa: PLC0415 - likewise

    return str(find_workspace(Path(project)))


workspace_option = click.option(
    "-C",
    "--workspace",
    default=".",
    metavar="DIR",
    callback=_find_workspace,
    help="Use this workspace (default: the nearest directory upwards with a bartack.toml, else the current one).",
)
"""For every command that works with runs or their settings."""


def is_given(option: str) -> bool:
    """Whether an option of the current command was given on the command line or in the environment."""
    context = click.get_current_context(silent=True)
    source = None if context is None else context.get_parameter_source(option)
    return source is not None and source is not click.core.ParameterSource.DEFAULT


def write_json(value: object) -> None:
    """Print one JSON value on a line of its own."""
    sys.stdout.write(json.dumps(value) + "\n")
