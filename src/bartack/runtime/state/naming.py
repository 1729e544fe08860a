"""What people call a worker: its name and the argument that distinguishes it from its siblings, such as ``builder b3``."""

from __future__ import annotations

from typing import Final

import msgspec

from bartack.core import typed
from bartack.core.text import cut
from bartack.runtime.protocol.steps import CallArgs

LONGEST_ARGUMENT: Final = 16
"""Characters of an argument that may be part of a name."""
LONGEST_ARGUMENTS: Final = 200
"""Characters of the arguments of a worker in one line."""


def label_of(worker: str, given: bytes | msgspec.Raw | None) -> str:
    """The name of a worker and its first short argument.

    Args:
        worker: ``module:name``.
        given: What it was called with, encoded, if that is known: ``CallArgs``.
    """
    name = worker.rpartition(":")[2]
    argument = next((text for raw in _arguments(given) if (text := _short(raw))), "")
    return f"{name} {argument}".rstrip()


def one_line_arguments(given: bytes | msgspec.Raw | None) -> str:
    """What a worker was called with, as JSON in one line, cut if it is long; empty if that is not known."""
    line = ", ".join(raw.decode("utf-8", "replace") for raw in _arguments(given))
    return cut(line, LONGEST_ARGUMENTS)


def _arguments(given: bytes | msgspec.Raw | None) -> list[bytes]:
    if given is None:
        return []
    try:
        call = typed.decode(given, type=CallArgs)
    except (msgspec.DecodeError, RecursionError):
        return []
    return [bytes(raw) for raw in (*call.args, *call.kwargs.values())]


def _short(raw: bytes) -> str:
    if len(raw) > 4 * LONGEST_ARGUMENT or raw[:1] in b"[{tfn":
        return ""
    try:
        text = str(msgspec.json.decode(raw))
    except msgspec.DecodeError:
        return ""
    return text if len(text) <= LONGEST_ARGUMENT and text.isprintable() else ""
