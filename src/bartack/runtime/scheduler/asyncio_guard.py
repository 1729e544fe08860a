"""Catches a worker that leaves the scheduler: asyncio and other libraries live inside steps.

While a worker runs, asyncio finds a running loop in its thread that cannot be touched. Whatever asks for it, also deep inside a
library and below ``except Exception``, learns at once and with its line what is wrong, on the first run and not at a replay.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable, Coroutine, Sequence
from types import FrameType, ModuleType
from typing import Final, cast

from bartack.errors import ForeignAwaitError
from bartack.runtime.protocol.source_places import is_program, shown_place

_EVENTS: Final = "asyncio.events"

Raise = Callable[[ForeignAwaitError], None]
"""Called with what was found; it does not return."""


class PoisonLoop:
    """A loop that cannot be touched."""

    def __init__(self, report: Raise) -> None:
        object.__setattr__(self, "_report", report)

    def __getattribute__(self, name: str) -> object:
        _touched(self, name)
        return None

    def __hash__(self) -> int:
        _touched(self, "current_task")
        return 0

    def __eq__(self, other: object) -> bool:
        return self is other

    def __bool__(self) -> bool:
        return True


def _touched(loop: PoisonLoop, name: str) -> None:
    report = cast("Raise", object.__getattribute__(loop, "_report"))
    frame = sys._getframe(2)  # noqa: SLF001 - the only way to see who calls
    report(ForeignAwaitError(_called_by_program(frame) or f"asyncio ({name})", place_of_frame(frame)))


def _called_by_program(frame: FrameType | None) -> str:
    """The function of asyncio that the program itself has called; empty if it has called another library."""
    called = None
    while frame is not None and not is_program(frame.f_code):
        called, frame = frame, frame.f_back
    module = str(called.f_globals.get("__name__", "")) if frame is not None and called is not None else ""
    if called is None or not module.startswith("asyncio."):
        return ""
    return f"asyncio.{called.f_code.co_name}()"


class Guard:
    """Puts a poison loop into this thread and takes it out again; costs nothing while asyncio is not loaded."""

    def __init__(self, report: Raise) -> None:
        self._loop = PoisonLoop(report)
        self._inside = False
        self._before: object = None

    def put_in(self) -> None:
        """From now on asyncio cannot be used in this thread."""
        self._inside = True
        if _EVENTS in sys.modules:
            events = sys.modules[_EVENTS]
            self._before = vars(events)["_get_running_loop"]()
            vars(events)["_set_running_loop"](self._loop)

    def take_out(self) -> None:
        """As it was before."""
        self._inside = False
        if _EVENTS in sys.modules:
            events = sys.modules[_EVENTS]
            vars(events)["_set_running_loop"](self._before)
            self._before = None

    def watch_import(self) -> None:
        """Poison also an asyncio that is imported only while the worker runs."""
        if _EVENTS not in sys.modules:
            sys.meta_path.insert(0, _ImportWatch(self._arm))

    def _arm(self, events: ModuleType) -> None:
        if self._inside:
            vars(events)["_set_running_loop"](self._loop)


class _ImportWatch:
    """Lets the import system find asyncio as always, and is called when it is loaded."""

    def __init__(self, loaded: Callable[[ModuleType], None]) -> None:
        self._loaded = loaded

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> importlib.machinery.ModuleSpec | None:
        """See ``importlib.abc.MetaPathFinder``."""
        if name != _EVENTS:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            # The loader is this one module's own.
            vars(spec.loader)["exec_module"] = self._then(spec.loader.exec_module)
        return spec

    def _then(self, execute: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
        def execute_and_report(module: ModuleType) -> None:
            execute(module)
            self._loaded(module)

        return execute_and_report


# Where it happened.


def place_of_frame(frame: FrameType | None) -> str:
    """File and line of the program that called into a library."""
    first = frame
    while frame is not None and not is_program(frame.f_code):
        frame = frame.f_back
    found = frame or first
    return "?" if found is None else shown_place(found.f_code.co_filename, found.f_lineno)


def place_of_await(coroutine: Coroutine[object, object, object]) -> str:
    """File and line of the await that a suspended coroutine stands at, as deep as the program itself goes."""
    place = "?"
    inner: object = coroutine
    while inner is not None:
        frame = _frame_of(inner)
        if frame is not None and (place == "?" or is_program(frame.f_code)):
            place = shown_place(frame.f_code.co_filename, frame.f_lineno)
        inner = _awaited_by(inner)
    return place


def _frame_of(thing: object) -> FrameType | None:
    for name in ("cr_frame", "gi_frame", "ag_frame"):
        frame: object = getattr(thing, name, None)
        if isinstance(frame, FrameType):
            return frame
    return None


def _awaited_by(thing: object) -> object:
    for name in ("cr_await", "gi_yieldfrom", "ag_await"):
        inner: object = getattr(thing, name, None)
        if inner is not None:
            return inner
    return None
