"""The parent program of a supervisor's processes: it executes commands, and forks functions of the supervisor's program.

It never imports a module of the user itself: a forked child does, with the paths that the supervisor's program looks in.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from functools import reduce
from importlib import import_module
from typing import Final, cast

import msgspec

from bartack.core import typed
from bartack.supervision.parent.parent import run_parent

HOST_PROGRAM: Final = "bartack.supervision.supervisor._host_program"
"""The module to start."""

EXIT_RAISED: Final = 1
"""How a function that raised ends, as any Python program does."""

_MAIN: Final = "__bartack_main__"
"""Under which name the supervisor's own program is loaded again: not the one that makes it run."""


class FunctionCall(msgspec.Struct, frozen=True):
    """Which function to call, and where it is found. ``main`` is the file of a program that was not started as a module."""

    module: str
    name: str
    main: str
    paths: list[str]
    cwd: str


def describe_function(function: Callable[[], object], cwd: str) -> bytes:
    """What a child needs to call ``function``."""
    module, main = function.__module__, ""
    if module == "__main__":
        program = sys.modules["__main__"]
        if program.__spec__ is not None:
            module = program.__spec__.name
        else:
            main = os.path.abspath(str(program.__file__))
    paths = [os.path.abspath(path) for path in sys.path]
    return msgspec.json.encode(FunctionCall(module, function.__qualname__, main, paths, cwd))


def call_function(payload: bytes, fds: list[int]) -> int:
    """In the child: call the function; return the exit code."""
    call = typed.decode(payload, type=FunctionCall)
    for target, fd in zip((sys.stdout.fileno(), sys.stderr.fileno()), fds, strict=False):
        os.dup2(fd, target)
        os.close(fd)
    try:
        os.chdir(call.cwd)
        sys.path[:] = call.paths
        _load(call)()
    except Exception:  # noqa: BLE001 - the last frame of the function: its supervisor reads this in what it wrote
        traceback.print_exc()
        return EXIT_RAISED
    return 0


def _load(call: FunctionCall) -> Callable[[], object]:
    if not call.main:
        home: object = import_module(call.module)
    else:
        import runpy  # noqa: PLC0415 - only a program that is not a module is loaded this way

        home = type("Program", (), runpy.run_path(call.main, run_name=_MAIN))
    return cast("Callable[[], object]", reduce(getattr, call.name.split("."), home))


if __name__ == "__main__":
    sys.exit(run_parent(call_function))
