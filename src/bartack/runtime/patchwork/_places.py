"""Where in the source something happened: read off Python's tracebacks, whose lines and columns are those of the source."""

from __future__ import annotations

import linecache
from itertools import islice
from types import CodeType, TracebackType
from typing import Final, Protocol

_MARK: Final = "_patchwork_at"


class Files(Protocol):
    """Knows the files of a program."""

    files: dict[str, str]


def place_of_error(error: BaseException, program: Files) -> str:
    """``file:line:column`` where an error was thrown; the same for whoever catches it again."""
    known: object = getattr(error, _MARK, None)
    if isinstance(known, str):
        return known
    at = _innermost(error.__traceback__, program.files)
    setattr(error, _MARK, at)
    return at


def _innermost(trace: TracebackType | None, files: dict[str, str]) -> str:
    found = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        name = files.get(code.co_filename)
        if name is not None:
            line, column = _position(code, trace.tb_lasti, trace.tb_lineno)
            found = f"{name}:{line}:{_characters(code.co_filename, line, column)}"
        trace = trace.tb_next
    return found


def _position(code: CodeType, instruction: int, line: int) -> tuple[int, int]:
    """Line and byte column of an instruction."""
    position = next(islice(code.co_positions(), instruction // 2, None), None)
    if position is None or position[0] is None or position[2] is None:
        return line, 0
    return position[0], position[2]


def _characters(filename: str, line: int, column: int) -> int:
    """A byte column as people count it: in characters, from 1."""
    text = linecache.getline(filename, line).encode()
    return len(text[:column].decode("utf-8", "ignore")) + 1
