"""Places in source files, for people: which are of the program, and what they are called.

A run executes a copy of its program. People know the file that they edit, so that is the one that is named.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from itertools import islice
from types import CodeType, FrameType
from typing import Final

OWN_CODE: Final = tuple(
    os.path.dirname(os.path.dirname(os.path.dirname(place))) + os.sep
    for place in (os.path.abspath(__file__), os.path.realpath(__file__))
)
"""Where Bartack is: as frames name it, and without links."""
_COMMAND: Final = "bartack"
"""The file that starts the command line."""


class _Sources:
    """Where the program of this process is kept, and where people edit it."""

    kept = ""
    root = ""


_sources: Final = _Sources()


def name_sources(kept: str, root: str) -> None:
    """From now on places in the copy of a program that a run keeps are shown as places in its source."""
    _sources.kept = os.path.join(kept, "")
    _sources.root = root


def shown_place(file: str, line: int) -> str:
    """File and line for people: of the source, also if it is a copy of it that runs."""
    if _sources.kept and file.startswith(_sources.kept):
        file = os.path.join(_sources.root, file.removeprefix(_sources.kept))
    return f"{sound(file)}:{line}"


def program_file(code: CodeType) -> str:
    """The file of code of the program, relative to its root if a run keeps a copy of it; empty if the code is not the program's."""
    if _sources.kept:
        inside = code.co_filename.startswith(_sources.kept)
        return sound(code.co_filename.removeprefix(_sources.kept)) if inside else ""
    return sound(code.co_filename) if is_program(code) else ""


def source_at(place: str) -> str:
    """The line of the program that is at a place which ``shown_place`` has named; empty if it is not there."""
    file, _, line = place.rpartition(":")
    if _sources.kept and file.startswith(os.path.join(_sources.root, "")):
        file = os.path.join(_sources.kept, os.path.relpath(file, _sources.root))
    try:
        with open(file, encoding="utf-8") as source:
            return next(islice(source, int(line) - 1, None), "").strip()
    except (OSError, ValueError):
        return ""


def sound(text: str) -> str:
    """Text that can be encoded: the name of a file that is not UTF-8 has half characters in it."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def is_own(file: str) -> bool:
    """Whether a source file is part of Bartack."""
    return file.startswith(OWN_CODE)


def is_program(code: CodeType) -> bool:
    """Whether code is neither Bartack's nor a library's."""
    file = code.co_filename
    return not is_own(file) and not file.startswith(_libraries()) and not file.startswith("<")


@cache
def _libraries() -> tuple[str, ...]:
    import sysconfig  # noqa: PLC0415 - only mistakes need it

    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple({os.path.join(sysconfig.get_path(name), "") for name in names})


def place_of_function(function: Callable[..., object]) -> str:
    """File and line of a function; empty if it has none."""
    code = getattr(function, "__code__", None)
    return shown_place(code.co_filename, code.co_firstlineno) if isinstance(code, CodeType) else ""


def place_of_caller() -> str:
    """File and line of the program that called into Bartack; empty if none did."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the only way to see who calls
    while frame is not None and not is_program(frame.f_code):
        frame = frame.f_back
    if frame is None or os.path.basename(frame.f_code.co_filename) == _COMMAND:
        return ""
    return shown_place(frame.f_code.co_filename, frame.f_lineno)
