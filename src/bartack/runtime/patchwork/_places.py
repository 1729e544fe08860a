"""Where in the source something happened: read off Python's tracebacks, whose lines and columns are those of the source."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Protocol

from bartack.runtime._exceptions import place_in

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
            line, column, _ = place_in(code, trace.tb_lasti, trace.tb_lineno)
            found = f"{name}:{line}:{max(column, 1)}"
        trace = trace.tb_next
    return found
