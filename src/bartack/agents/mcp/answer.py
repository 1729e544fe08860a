"""What a tool call comes to, in the form that MCP has for it: text, the same as a value, and whether it is an error."""

from __future__ import annotations

from typing import NamedTuple


class ToolAnswer(NamedTuple):
    """The end of a tool call.

    Attributes:
        text: What the model reads.
        structured: The same as an object, for clients that take one.
        is_error: The tool failed; the text says why.
    """

    text: str
    structured: dict[str, object] | None = None
    is_error: bool = False


def value_answer(value: object) -> ToolAnswer:
    """The answer of a block or function: its value as canonical JSON, and under the name ``value``.

    Raises:
        CanonicalJsonError: The value is not one that JSON has.
    """
    return ToolAnswer(_canonical(value), {"value": value})


def object_answer(members: dict[str, object]) -> ToolAnswer:
    """The answer of a tool whose result is an object.

    Raises:
        CanonicalJsonError: A member is not a value that JSON has.
    """
    return ToolAnswer(_canonical(members), members)


def error_answer(text: str) -> ToolAnswer:
    """The answer of a tool that failed: the model reads why and may try again."""
    return ToolAnswer(text, is_error=True)


def _canonical(value: object) -> str:
    from bartack.core.canonical_json import canonical  # noqa: PLC0415 - a server is ready before it is needed

    return canonical(value).decode()
