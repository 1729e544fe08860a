"""Functions as tools of a prompt: an agent gets their names, docstrings and annotations."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from bartack.core import typed
from bartack.errors import TypeMismatchError
from bartack.runtime.context.definitions import Shape
from bartack.runtime.protocol.steps import ToolSpec
from bartack.runtime.protocol.values import Buffer, UnsupportedTypeError
from bartack.runtime.scheduler.operations import Tool

ToolFunction = Callable[..., Awaitable[object]] | Tool

_KEYWORDS: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_decode = typed.decoder(dict[str, msgspec.Raw]).decode


def tool_of(function: ToolFunction) -> Tool:
    """A function as a tool: its name, its docstring and its annotations describe it.

    Raises:
        TypeError: It is not an ``async def``, or takes something that an agent cannot give.
    """
    if isinstance(function, Tool):
        return function
    name = getattr(function, "__name__", repr(function))
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"a tool must be an async function, not {name}")
    try:
        shape = Shape(function)
        if any(parameter.kind not in _KEYWORDS for parameter in shape.signature.parameters.values()):
            raise TypeError(f"tool {name}: an agent gives arguments by name, so all parameters must have one")
        schema = shape.schema()
    except (UnsupportedTypeError, NameError) as error:
        raise TypeError(f"tool {name}: {error}") from None

    async def run(data: Buffer) -> bytes:
        try:
            given = _decode(data)
        except msgspec.DecodeError as error:
            raise TypeMismatchError("$", "an object of arguments", str(error)) from None
        arguments = shape.decode_named(given)
        return shape.result.encode(await function(**arguments), f"the result of {name}")

    return Tool(ToolSpec(name, inspect.getdoc(function) or "", schema), run)


def tools_by_name(tools: Sequence[ToolFunction]) -> dict[str, Tool]:
    """The tools of a prompt by their names.

    Raises:
        TypeError: One of them is not a tool.
        ValueError: Two have the same name.
    """
    made = [tool_of(tool) for tool in tools]
    found = {tool.spec.name: tool for tool in made}
    if len(found) < len(made):
        names = [tool.spec.name for tool in made]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"two tools of a prompt have the same name: {twice}; rename one of them")
    return found
