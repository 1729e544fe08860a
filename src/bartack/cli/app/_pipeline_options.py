"""The options of ``bartack run`` for the pipeline. It imports little, because every ``bartack run`` imports it."""

from __future__ import annotations

from typing import Final

import click
import msgspec

from bartack.cli.app._grouped import grouped
from bartack.errors import UsageError

PIPELINE: Final = "bartack.pipeline._main:main"
"""The first worker of every run of the pipeline."""
PIPELINE_FILE: Final = "_pipeline.py"
"""The file of the pipeline's program."""


class PipelineOptions(msgspec.Struct, kw_only=True, frozen=True):
    """The options that were given."""

    goal: str | None = None
    tasks: tuple[str, ...] = ()
    instruction: str | None = None
    yes: bool = False
    no_input: bool = False
    sets: tuple[str, ...] = ()

    def check_absent(self) -> None:
        """Raise if an option was given that only the pipeline supports.

        Raises:
            UsageError: Such an option was given.
        """
        if self.tasks or self.yes or self.goal is not None or self.instruction is not None:
            raise UsageError(
                "bartack run", "--goal, --task, --instruction and --yes are for runs without FILE"
            )


set_option = click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a setting of bartack.toml: section.key=value.",
)

_OPTIONS: Final = (
    click.option("--goal", metavar="TEXT|@FILE|-", help="Run the pipeline on this one task (without FILE)."),
    click.option(
        "--task",
        "tasks",
        multiple=True,
        metavar="ID",
        help="Run only this task of bartack.toml (without FILE).",
    ),
    click.option(
        "--instruction",
        metavar="TEXT|@FILE|-",
        help="Let an agent turn this text into tasks for your approval (without FILE).",
    ),
    click.option("--yes", is_flag=True, help="Approve the first plan and all tasks (with --instruction)."),
    click.option("--no-input", is_flag=True, help="Do not ask questions: they get their default, or fail."),
    set_option,
)


pipeline_options = grouped("options", PipelineOptions, _OPTIONS)
"""Adds the options to a command; it receives them together, as ``options``."""
