"""Errors as a program sees them, and where in the source they happened.

Places are read off Python's tracebacks, whose lines and columns are those of the source.
"""

from __future__ import annotations

import resource
import sys
from types import TracebackType
from typing import Final, Protocol

from bartack.errors import InternalError, LimitExceededError
from bartack.runtime.protocol.exceptions import place_in

_MARK: Final = "_patchwork_at"


class Files(Protocol):
    """Knows the files of a program."""

    files: dict[str, str]


def place_of_error(error: BaseException, program: Files) -> str:
    """``file:line:column`` where an error was thrown; the same wherever it is caught again."""
    known: object = getattr(error, _MARK, None)
    if isinstance(known, str):
        return known
    at = _innermost(error.__traceback__, program.files)
    setattr(error, _MARK, at)
    return at


def _innermost(trace: TracebackType | None, files: dict[str, str]) -> str:
    last: TracebackType | None = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename in files:
            last = trace
        trace = trace.tb_next
    if last is None:
        return ""
    code = last.tb_frame.f_code
    line, column, _ = place_in(code, last.tb_lasti, last.tb_lineno)
    return f"{files[code.co_filename]}:{line}:{max(column, 1)}"


def own_error(error: Exception) -> Exception:
    """An error of the language for one of Python: a program never sees Python's own.

    Too much depth or memory is a limit that the program has met. Everything else is a defect of Bartack.
    """
    if type(error).__module__ != "builtins":
        return error
    own: Exception
    if isinstance(error, RecursionError):
        own = LimitExceededError("levels of calls and values", sys.getrecursionlimit())
    elif isinstance(error, MemoryError):
        own = LimitExceededError("bytes of memory in one worker", _memory_bytes())
    else:
        own = InternalError(f"{type(error).__name__}: {error}")
    return own.with_traceback(error.__traceback__)


def _memory_bytes() -> int:
    """The most memory that this process has had so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
