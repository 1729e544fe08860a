"""One connection of the hub: bytes in, frames out, without ever blocking.

What is to be sent waits in a queue; a history is a generator in that queue, drawn only as fast as the other side reads. Urgent
frames overtake what waits, but never cut a frame in two.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from bartack.runtime.hub.poller import READ
from bartack.runtime.protocol.frames import FrameReader

READ_SIZE: Final = 256 * 1024
HIGH_WATER: Final = 4 * 1024 * 1024
"""While more than this waits to be sent, the hub does not read from the peer."""

_buffer: Final = bytearray(READ_SIZE)
_view: Final = memoryview(_buffer)


class Connection:
    """A socket with a queue of frames to send."""

    def __init__(
        self,
        number: int,
        sock: socket.socket,
        worker: tuple[str, int] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        sock.setblocking(False)
        self._now = now
        self.worker = worker
        """The process at the other end, if it is a worker's: its path, and its number."""
        self.greeted = False
        self.opened_at = now()
        self.stuck_since: float | None = None
        """Since when the other side has not read anything that waits for it."""
        self.number = number
        self.sock = sock
        self.closing = False
        self.events = READ
        """What the loop waits for."""
        self.waiting_bytes = 0
        self._reader = FrameReader()
        self._queue: deque[bytes | Iterator[bytes]] = deque()
        self._current = memoryview(b"")

    def fileno(self) -> int:
        """The descriptor of the socket."""
        return self.sock.fileno()

    @property
    def wants_write(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._current) or bool(self._queue)

    @property
    def wants_read(self) -> bool:
        """Whether the peer may send more."""
        return self.waiting_bytes < HIGH_WATER

    def receive(self) -> list[bytes] | None:
        """The frames that arrived; ``None`` when the other side is gone. Any error on the socket counts as that.

        Raises:
            FrameError: The bytes are not a frame.
        """
        try:
            size = self.sock.recv_into(_buffer)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            return None
        return self._reader.feed(_view[:size]) if size else None

    @property
    def at_rest(self) -> bool:
        """Whether nothing waits to be sent, and the loop waits for the peer's next frame."""
        return not (self._queue or self._current or self.closing) and self.events == READ

    def send(self, data: bytes, *, urgent: bool = False) -> bool:
        """Send a frame, now or when the socket takes it; ``True`` if the whole frame was sent and nothing else waits."""
        if not self._queue and not self._current:
            # Most frames are short, and go out at once; what is left of one that does not waits.
            try:
                sent = self.sock.send(data)
            except OSError:
                sent = 0  # why it is not taken is found out below
            if sent == len(data):
                self.stuck_since = None
                return True
            if sent:
                self._current = memoryview(data)[sent:]
                return False
        if urgent:
            self._queue.appendleft(data)
        else:
            self._queue.append(data)
        self.waiting_bytes += len(data)
        self.flush()
        return False

    def stream(self, frames: Iterator[bytes]) -> None:
        """Send frames that are made as fast as the other side reads them."""
        self._queue.append(frames)
        self.flush()

    def flush(self) -> bool:
        """Send what waits, as far as the socket takes it; ``False`` when the other side is gone."""
        while self._current or self._take():
            try:
                sent = self.sock.send(self._current)
            except (BlockingIOError, InterruptedError):
                self.stuck_since = self.stuck_since or self._now()
                return True
            except OSError:
                self._queue.clear()
                self._current = memoryview(b"")
                self.waiting_bytes = 0
                return False
            self._current = self._current[sent:]
            self.stuck_since = None
        return True

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()

    def _take(self) -> bool:
        while self._queue:
            head = self._queue[0]
            if isinstance(head, bytes):
                self._queue.popleft()
                self.waiting_bytes -= len(head)
                self._current = memoryview(head)
                return True
            frame = next(head, None)
            if frame is None:
                self._queue.popleft()
                continue
            self._current = memoryview(frame)
            return True
        return False
