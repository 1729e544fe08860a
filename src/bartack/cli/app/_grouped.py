"""Options that a command receives together, as one value. It imports little, because ``bartack run`` imports it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

import msgspec

from bartack.core import typed

R = TypeVar("R")
Command = Callable[..., R]


def grouped(
    name: str, kind: type[msgspec.Struct], options: Sequence[Callable[[Any], Any]]
) -> Callable[[Command[R]], Command[R]]:
    """Add options to a command.

    Args:
        name: The parameter of the command that receives them.
        kind: The type of that parameter; it has a member for each option.
        options: The options, in the order of the help text.
    """

    def decorate(command: Command[R]) -> Command[R]:
        @wraps(command)
        def with_options(**given: object) -> R:
            names = [field.name for field in msgspec.structs.fields(kind)]
            value = typed.convert({one: given.pop(one) for one in names}, type=kind)
            return command(**{name: value}, **given)

        for option in reversed(options):
            with_options = option(with_options)
        return with_options

    return decorate
