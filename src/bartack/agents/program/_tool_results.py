"""The result of a tool of ours as a model reads it. A large one is stored: the model gets its beginning, and where all of it is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bartack.agents.mcp.answer import ToolAnswer, error_answer, value_answer
from bartack.agents.protocol.messages import ToolProblem
from bartack.core.files import write_file
from bartack.core.trust import make_private
from bartack.errors import CanonicalJsonError

SHOWN: Final = 32 * 1024
"""Characters of a large result that the model gets at once."""
LARGEST: Final = 64 * 1024
"""A result with more than this many is large."""

Store = Callable[[str], str]
"""Stores a text, and returns where."""


def tool_answer(result: object, problem: ToolProblem | None, store: Store) -> ToolAnswer:
    """What the model gets of a tool that has ended."""
    given = _answer(result, problem)
    if len(given.text) <= LARGEST:
        return given
    text = f"{given.text[:SHOWN]}\n[{len(given.text)} characters; all of them are in {store(given.text)}]"
    return ToolAnswer(text, is_error=given.is_error)


def store_result(folder: Path, text: str) -> str:
    """Store a text in the directory of a call, under a name that says what is in it; returns its path."""
    data = text.encode()
    path = folder / "results" / f"{hashlib.sha256(data).hexdigest()}.json"
    if not path.exists():
        make_private(path.parent)
        write_file(path, data)
    return str(path)


def _answer(result: object, problem: ToolProblem | None) -> ToolAnswer:
    if problem is not None:
        return error_answer(problem.message)
    try:
        return value_answer(result)
    except CanonicalJsonError as error:
        return error_answer(f"the result cannot be written as JSON: {error}")
