"""Notices that a worker has run for long without reaching a step, and reports where it is.

The scheduler can do nothing about that: it runs in the same thread. A thread of its own looks, now and then.
"""

from __future__ import annotations

import _thread
import linecache
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Final

from bartack.runtime.protocol.frames import Slow, StackLine
from bartack.runtime.protocol.source_places import is_own

DEEPEST: Final = 30

STOPPED_S: Final = 2.0
"""A look that comes later than this, while the process has hardly computed, shows that the process was stopped."""


class SlowWatch:
    """Reports each turn of a worker that takes too long, once.

    Args:
        report: Gets the report; called in another thread.
        limit_s: How long a turn may take.
        now: Returns the time.
        computed: Returns how long the process has computed.
    """

    def __init__(
        self,
        report: Callable[[Slow], None],
        limit_s: float,
        now: Callable[[], float] = time.monotonic,
        computed: Callable[[], float] = time.process_time,
    ) -> None:
        self._report = report
        self._limit_s = limit_s
        self._now = now
        self._computed = computed
        self._looked = (now(), computed())
        self._thread_id = threading.get_ident()
        self._since = 0.0
        self._done = threading.Event()

    def start(self) -> None:
        """Begin to look; the thread ends with ``stop``, or with the process."""
        # Not a `threading.Thread`: that one waits until it runs, and the start of a worker with it. Where the system has no thread
        # left, the worker does without the report.
        with suppress(RuntimeError):
            _thread.start_new_thread(self._look, ())  # bartack: allow[unsupervised_thread] stop ends it

    def stop(self) -> None:
        """Look no more."""
        self._done.set()

    def begin_turn(self) -> None:
        """The program runs from here on."""
        self._since = self._now()

    def end_turn(self) -> None:
        """The program waits."""
        self._since = 0.0

    def check(self) -> None:
        """Report the turn that takes too long, if one does."""
        since = self._since
        took = self._now() - since
        if since and took >= self._limit_s:
            self._since = 0.0
            self._report(Slow(seconds=round(took, 1), stack=stack_of_thread(self._thread_id)))

    def look(self) -> None:
        """Check, half the limit after the last look. A process that was stopped meanwhile has not run for that long."""
        before, self._looked = self._looked, (self._now(), self._computed())
        late = self._looked[0] - before[0] - self._limit_s / 2
        if late > max(STOPPED_S, self._looked[1] - before[1]) and self._since:
            self._since += late
        self.check()

    def _look(self) -> None:
        self._looked = (self._now(), self._computed())
        while not self._done.wait(self._limit_s / 2):
            self.look()


def stack_of_thread(thread_id: int) -> list[StackLine]:
    """Where a thread is in the program, innermost last; without Bartack's own lines."""
    lines: list[StackLine] = []
    frame: FrameType | None = sys._current_frames().get(thread_id)  # noqa: SLF001 - the only way to look into a thread
    while frame is not None and len(lines) < DEEPEST:
        file = frame.f_code.co_filename
        if not is_own(file):
            text = linecache.getline(file, frame.f_lineno).strip()
            lines.append(StackLine(file, frame.f_lineno, frame.f_code.co_name, text))
        frame = frame.f_back
    return lines[::-1]
