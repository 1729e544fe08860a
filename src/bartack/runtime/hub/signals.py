"""Signals of the hub's process: Ctrl-C and SIGTERM stop the run so that it can be resumed, a second one ends the process."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from types import FrameType

from bartack.runtime.hub.poller import READ, Poller
from bartack.runtime.kernel.actions import InterruptHub


class Signals:
    """Catches signals while its block is active, and wakes the poller for each.

    Attributes:
        seen: The numbers of the signals that ask the hub to stop, oldest first.
    """

    def __init__(self, poller: Poller, continued: Callable[[], None]) -> None:
        self.seen: list[int] = []
        self._poller = poller
        self._continued = continued
        self._previous: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def __enter__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        self._poller.register(self._read, READ, self._wake)
        # A terminal that is closed stops the run, too, unless the caller ignores that signal (nohup).
        hangup = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
        for number in (signal.SIGINT, signal.SIGTERM, *hangup):
            self._previous[number] = signal.signal(number, self._note)
        self._previous[signal.SIGCONT] = signal.signal(signal.SIGCONT, self._note_continued)
        self._old_fd = signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)

    def __exit__(self, *problem: object) -> None:
        signal.set_wakeup_fd(self._old_fd)
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._read.close()
        self._write.close()

    def interrupt(self, action: InterruptHub) -> None:
        """Perform ``InterruptHub``: like Ctrl-C."""
        self.seen.append(signal.SIGINT)

    def _wake(self, events: int) -> None:
        self._read.recv(64)

    def _note_continued(self, number: int, frame: FrameType | None) -> None:
        self._continued()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.seen:
            # The second request: the parent programs terminate everything when this process is gone.
            os._exit(128 + number)
        self.seen.append(number)
