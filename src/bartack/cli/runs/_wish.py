"""What somebody says on the command line that the pipeline is to do. Light: every ``bartack run`` imports it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Final, TypeVar

import click
import msgspec

from bartack.errors import UsageError

R = TypeVar("R")

PIPELINE: Final = "bartack.pipeline._main:main"
"""The first worker of every run of the pipeline."""
PIPELINE_FILE: Final = "_pipeline.py"
"""The file of its program."""


class Wish(msgspec.Struct, kw_only=True, frozen=True):
    """What was said on the command line."""

    goal: str | None = None
    tasks: tuple[str, ...] = ()
    instruction: str | None = None
    yes: bool = False
    no_input: bool = False
    sets: tuple[str, ...] = ()

    def check_absent(self) -> None:
        """Raise if something was said that only the pipeline can do.

        Raises:
            UsageError: It was.
        """
        if self.tasks or self.yes or self.goal is not None or self.instruction is not None:
            told = "--goal, --task, --instruction and --yes are for runs without FILE"
            raise UsageError("bartack run", told)


set_option = click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a setting of bartack.toml: section.key=value.",
)

_OPTIONS: Final = (
    click.option(
        "--goal", metavar="TEXT|@FILE|-", help="Without FILE: one task, to be taken through the pipeline."
    ),
    click.option(
        "--task", "tasks", multiple=True, metavar="ID", help="Without FILE: only this task of bartack.toml."
    ),
    click.option(
        "--instruction",
        metavar="TEXT|@FILE|-",
        help="Without FILE: have an agent make tasks of this, for you to approve.",
    ),
    click.option("--yes", is_flag=True, help="With --instruction: approve the first plan and all tasks."),
    click.option(
        "--no-input", is_flag=True, help="Nobody answers questions: they get their default, or fail."
    ),
    set_option,
)


def wish_options(command: Callable[..., R]) -> Callable[..., R]:
    """The options that say what is to be done; the command gets them together, as ``wish``."""

    @wraps(command)
    def wished(**given: object) -> R:
        names = [field.name for field in msgspec.structs.fields(Wish)]
        wish = msgspec.convert({name: given.pop(name) for name in names}, type=Wish)
        return command(wish=wish, **given)

    for option in reversed(_OPTIONS):
        wished = option(wished)
    return wished
