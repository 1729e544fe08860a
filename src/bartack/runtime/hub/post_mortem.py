"""What is known of a worker's process when it is gone: how long it lived, how much memory it took, what it wrote last.

The standard error of a worker is a pipe to the hub, which passes the bytes on and keeps the last of them. So it also has what the
interpreter or a C library writes while the process dies, which no code in the worker would see.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

from bartack.core.redact import Redactor
from bartack.runtime.kernel.workers import NOTHING_KNOWN, ProcessEnd
from bartack.supervision.process.memory import count_oom_kills

TAIL_BYTES: Final = 4096
"""Bytes that are kept of what a process wrote last."""
_CHUNK: Final = 64 * 1024


class _Life:
    def __init__(self, reader: int) -> None:
        self.reader = reader
        self.began = time.monotonic()
        self.began_us = time.time_ns() // 1000
        self.pid = 0
        self.peak_memory_bytes = 0
        self.tail = b""


class PostMortem:
    """Follows the processes of a run's workers from their start to their end.

    Args:
        watch: Has a function called whenever a descriptor can be read.
        unwatch: Ends that.
        pass_on: Takes the bytes that they write to standard error.
    """

    def __init__(
        self,
        watch: Callable[[int, Callable[[], None]], None],
        unwatch: Callable[[int], None],
        pass_on: Callable[[bytes], None],
    ) -> None:
        self._watch = watch
        self._unwatch = unwatch
        self._pass_on = pass_on
        self._lives: dict[int, _Life] = {}
        self._oom_kills = count_oom_kills()

    def begin(self, token: int) -> int:
        """A process is about to start; returns the descriptor of its standard error. The caller closes that."""
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        life = self._lives[token] = _Life(reader)

        def ready() -> None:
            self._read(life)

        self._watch(reader, ready)
        return writer

    def started(self, token: int, pid: int) -> None:
        """A process runs."""
        if token in self._lives:
            self._lives[token].pid = pid

    def began_us(self, token: int) -> int:
        """When a process was started: microseconds since 1970, UTC."""
        return self._lives[token].began_us if token in self._lives else 0

    def exited(self, token: int, max_rss_kb: int) -> None:
        """A process has ended; what it started may still be there."""
        if token in self._lives:
            self._lives[token].peak_memory_bytes = max_rss_kb * 1024

    def end(self, token: int) -> ProcessEnd:
        """Nothing of a process is left: all that is known of it."""
        life = self._lives.pop(token, None)
        if life is None:
            return NOTHING_KNOWN
        self._read_rest(life)
        text = life.tail.decode("utf-8", "replace")
        return ProcessEnd(
            pid=life.pid,
            uptime_s=time.monotonic() - life.began,
            peak_memory_bytes=life.peak_memory_bytes,
            stderr_tail=Redactor(os.environ).redact_text(text) if text else "",
        )

    def reason_of(self, reason: str) -> str:
        """Why a process ended: ``oom`` if it was killed and the kernel has counted one more for want of memory."""
        if reason != "signal:SIGKILL":
            return reason
        before, self._oom_kills = self._oom_kills, count_oom_kills()
        more = before is not None and self._oom_kills is not None and self._oom_kills > before
        return "oom" if more else reason

    def close(self) -> None:
        """Read what is left in all pipes, and close them."""
        for token in list(self._lives):
            self._read_rest(self._lives.pop(token))

    def _read(self, life: _Life) -> bool:
        """Read once; returns whether there may be more."""
        if life.reader < 0:
            return False  # its rest was read since the poller found it ready
        try:
            data = os.read(life.reader, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._close(life)
            return False
        life.tail = (life.tail + data)[-TAIL_BYTES:]
        self._pass_on(data)
        return True

    def _read_rest(self, life: _Life) -> None:
        while self._read(life):
            pass
        self._close(life)

    def _close(self, life: _Life) -> None:
        if life.reader >= 0:
            self._unwatch(life.reader)
            os.close(life.reader)
            life.reader = -1
