"""Which view shows a run: ``--view``, or what stderr is."""

from __future__ import annotations

import os
import sys
from typing import Final, Literal

import click

from bartack.cli.live._views import JsonView, PlainView, QuietView, View
from bartack.config.load import Config
from bartack.errors import UsageError
from bartack.runtime.rundir.layout import RunDir

ViewName = Literal["live", "plain", "json", "quiet"]
VIEWS: Final[tuple[ViewName, ...]] = ("live", "plain", "json", "quiet")

view_option = click.option(
    "--view",
    type=click.Choice(VIEWS),
    help="How to show the run: live (default on a terminal), plain lines (default elsewhere, with TERM=dumb and in CI), "
    "json (like --json) or quiet (only the output of the program).",
)


def choose_view(asked: str | None, command: str, *, as_json: bool) -> ViewName:
    """Choose the view of a command.

    Args:
        asked: What ``--view`` names.
        command: The command, for errors.
        as_json: Whether ``--json`` was given.

    Raises:
        UsageError: Both were given, and differ.
    """
    if as_json and asked not in {None, "json"}:
        raise UsageError(command, f"--json and --view {asked} exclude each other")
    if as_json or asked == "json":
        return "json"
    if asked == "quiet":
        return "quiet"
    terminal = sys.stderr.isatty()
    if asked is None:
        terminal = terminal and os.environ.get("TERM") != "dumb" and not os.environ.get("CI")
    return "live" if terminal and asked != "plain" else "plain"


def open_view(
    name: ViewName,
    run: RunDir,
    config: Config,
    began: str,
    *,
    patient: bool,
    no_input: bool = False,
    leaves: str = "detach",
) -> View:
    """Make a view of a run.

    Args:
        name: Which one.
        run: The run.
        config: The settings of its workspace.
        began: ``started``, ``resumed`` or ``watched``.
        patient: Whether a run that is blocked on a person stays active.
        no_input: Whether no person can be asked.
        leaves: What leaving the live view means.
    """
    if name == "json":
        return JsonView(run, began=began, patient=patient)
    if name == "plain":
        return PlainView(run, began=began, patient=patient)
    if name == "quiet":
        return QuietView(run, began=began, patient=patient)
    from bartack.cli.live._live import LiveView  # noqa: PLC0415 - runs in CI start faster without it

    asks = sys.stdin.isatty() and not no_input and not os.environ.get("CI")
    return LiveView(
        run,
        began=began,
        patient=patient,
        asks=asks,
        colour=config.transcript.color,
        limit_usd=config.max_usd,
        hint=leaves,
    )
