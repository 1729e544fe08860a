"""What a hub and its parent programs say to each other, and the socket they say it on.

A frame is four bytes of length, most significant first, and JSON: the number of descriptors that belong to it and the message.
Descriptors travel with the frame's first byte, so they arrive in the order of the frames. Neither side ever blocks in a send:
what the socket does not take waits here, so two sides that both have much to say cannot hold each other up.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from bartack.core import typed
from bartack.supervision.process.system import system

In = TypeVar("In")

FRAME_LIMIT: Final = 64 * 1024 * 1024
"""The longest frame. A longer one cannot be ours: the other side is treated as dead."""

FDS_LIMIT: Final = 250
"""The most descriptors of one frame; the kernel passes 253 at once."""

_LENGTH: Final = struct.Struct(">I")
_CHUNK: Final = 64 * 1024
_WOULD_BLOCK: Final = {errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS, errno.ETOOMANYREFS}
"""The last two: too much, or too many descriptors, are on their way; it passes when the other side reads."""


class Fork(msgspec.Struct, frozen=True, tag="fork"):
    """Fork, and call the entry function with ``payload`` and the descriptors of the frame."""

    token: int
    payload: bytes
    env: list[tuple[bytes, bytes]]


class Exec(msgspec.Struct, frozen=True, tag="exec"):
    """Start a pipeline of commands. ``stdio`` says which descriptor of the frame is 0, 1 and 2; -1 is the null device.

    With ``relayed`` the output is a pipe, from which the parent program copies lines to the descriptor that was given.
    """

    token: int
    pipeline: list[list[bytes]]
    cwd: bytes
    env: list[tuple[bytes, bytes]]
    stdio: tuple[int, int, int]
    relayed: bool = False


class Signal(msgspec.Struct, frozen=True, tag="signal"):
    """Signal the child's own processes, not what they have started."""

    token: int
    number: int


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Ask the whole tree to end; kill what is left of it after ``grace_s`` seconds."""

    token: int
    grace_s: float


class Kill(msgspec.Struct, frozen=True, tag="kill"):
    """Kill the whole tree now."""

    token: int


class Sweep(msgspec.Struct, frozen=True, tag="sweep"):
    """Kill orphans of the child's own processes; these continue."""

    token: int


class Bye(msgspec.Struct, frozen=True, tag="bye"):
    """Kill everything and end."""


Command = Fork | Exec | Signal | Stop | Kill | Sweep | Bye


class ParentReady(msgspec.Struct, frozen=True, tag="ready"):
    """The parent program holds the lock of the tree and takes commands."""

    pid: int


class Started(msgspec.Struct, frozen=True, tag="started", omit_defaults=True):
    """A child runs. ``pidfds`` belong to the reader; empty where the system has none."""

    token: int
    pids: list[int]
    pidfds: list[int] = []


class StartFailed(msgspec.Struct, frozen=True, tag="start_failed"):
    """A child could not be started, and nothing of it is left. Nothing more is said of its token.

    ``index`` is the place of the command in its pipeline.
    """

    token: int
    errno: int
    problem: str
    index: int = 0


class Exited(msgspec.Struct, frozen=True, tag="exited"):
    """All processes that the hub asked for have ended; what they started may still be there until ``Gone``.

    A status is the exit code, or the negative number of the signal that ended it. The most memory one of them used includes
    the time before it became its program, so it is never less than that of the parent program.
    """

    token: int
    statuses: list[int]
    max_rss_kb: int
    cpu_s: float
    stopped: bool = False
    """Whether something was done to end them before the last of them had ended."""


class Gone(msgspec.Struct, frozen=True, tag="gone"):
    """The whole tree is empty. Nothing more is said of its token.

    ``leftovers`` are the names of those that outlived the child and had to be ended; ``survivors`` of those that could not be
    ended, and still live.
    """

    token: int
    leftovers: list[str]
    survivors: list[str]


class ParentDied(msgspec.Struct, frozen=True, tag="died"):
    """The parent program is dead or cannot be talked to. Its children die with it; it said all it will ever say."""


ParentEvent = ParentReady | Started | StartFailed | Exited | Gone | ParentDied


class FrameTooLargeError(OSError, ValueError):
    """A frame is longer, or has more descriptors, than any that is sent. Nothing was sent of it."""

    def __init__(self, size: int, fds: int) -> None:
        super().__init__(errno.E2BIG, f"a frame of {size} bytes with {fds} descriptors is too large")


class Received(NamedTuple, Generic[In]):
    """One message with its descriptors."""

    message: In
    fds: list[int]


class _Outgoing(NamedTuple):
    """What is left of a frame to send; ``fds`` are copies of our own, and go with its first byte."""

    data: bytes
    fds: list[int]


class Channel(Generic[In]):
    """Frames over one stream socket, without blocking.

    Attributes:
        alive: Whether the other side can still send. Once it cannot, it is dead: there is no second connection.
    """

    def __init__(self, sock: socket.socket, decoder: msgspec.json.Decoder[tuple[int, In]]) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._decoder = decoder
        self._encoder = msgspec.json.Encoder()
        self._outgoing: deque[_Outgoing] = deque()
        self._buffer = bytearray()
        self._fds: deque[int] = deque()
        self._broken = False
        self.alive = True

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    @property
    def wants_write(self) -> bool:
        """Whether something waits until the socket takes more."""
        return bool(self._outgoing)

    def send(self, message: msgspec.Struct, fds: Sequence[int] = ()) -> None:
        """Send as soon as the other side reads. ``fds`` stay the caller's, who may close them at once.

        To a dead side nothing is sent; ``receive`` reports that it is dead.
        """
        body = self._encoder.encode((len(fds), message))
        if len(body) > FRAME_LIMIT or len(fds) > FDS_LIMIT:
            raise FrameTooLargeError(len(body), len(fds))
        data = _LENGTH.pack(len(body)) + body
        sent = 0 if self._outgoing else self._transmit(data, fds)
        if sent < len(data) and not self._broken:
            self._outgoing.append(_Outgoing(data[sent:], [] if sent else [os.dup(fd) for fd in fds]))

    def flush(self) -> None:
        """Send what waits, as far as the socket takes it."""
        while self._outgoing:
            data, fds = self._outgoing[0]
            sent = self._transmit(data, fds)
            if not sent and not self._broken:
                return
            _close_all(fds)
            self._outgoing.popleft()
            if self._broken:
                self._drop_outgoing()
            elif sent < len(data):
                self._outgoing.appendleft(_Outgoing(data[sent:], []))

    def _transmit(self, data: bytes, fds: Sequence[int]) -> int:
        if self._broken:
            return 0
        try:
            return socket.send_fds(self._socket, [data], list(fds)) if fds else self._socket.send(data)
        except OSError as error:
            # Whatever else goes wrong on this socket is the other side's death; what it said before can still be read.
            self._broken = error.errno not in _WOULD_BLOCK
            return 0

    def receive(self) -> list[Received[In]]:
        """Every message that has arrived; ``alive`` is false afterwards if there will be no more.

        With many descriptors only the first ones: all at once might be more than this process may have open, and then the kernel
        drops some. The socket stays readable for the rest.
        """
        taken: list[Received[In]] = []
        held = 0
        while self.alive and held < FDS_LIMIT and self._fill():
            if self._fds:
                found = self._take_frames()
                held += sum(len(received.fds) for received in found)
                taken += found
        return [*taken, *self._take_frames()]

    def _fill(self) -> bool:
        """Read once; return whether there may be more."""
        try:
            data, fds, flags, _ = socket.recv_fds(self._socket, _CHUNK, FDS_LIMIT, system.RECEIVE_FLAGS)
        except OSError as error:
            self.alive = error.errno in {errno.EAGAIN, errno.EWOULDBLOCK}
            return False
        for fd in fds:
            os.set_inheritable(fd, False)
        self._fds.extend(fds)
        self._buffer += data
        # A descriptor that was lost would put all later ones with the wrong frames.
        self.alive = bool(data) and not flags & socket.MSG_CTRUNC
        return self.alive

    def _take_frames(self) -> list[Received[In]]:
        taken: list[Received[In]] = []
        start = 0
        with memoryview(self._buffer) as view:
            while len(view) - start >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(view, start)
                end = start + _LENGTH.size + length
                if length > FRAME_LIMIT:
                    self.alive = False
                if length > FRAME_LIMIT or end > len(view):
                    break
                received = self._decode(view[start + _LENGTH.size : end])
                if received is None:
                    break
                taken.append(received)
                start = end
        del self._buffer[:start]
        return taken

    def _decode(self, body: memoryview) -> Received[In] | None:
        try:
            count, message = self._decoder.decode(body)
            return Received(message, [self._fds.popleft() for _ in range(count)])
        except (msgspec.DecodeError, IndexError):
            self.alive = False
            return None
        finally:
            body.release()

    def close(self) -> None:
        """Close the socket and every descriptor that is still on its way."""
        self._drop_outgoing()
        _close_all(self._fds)
        self._fds.clear()
        self._socket.close()
        self.alive = False

    def _drop_outgoing(self) -> None:
        for frame in self._outgoing:
            _close_all(frame.fds)
        self._outgoing.clear()


def _close_all(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)


COMMANDS: Final[msgspec.json.Decoder[tuple[int, Command]]] = typed.decoder(tuple[int, Command])
EVENTS: Final[msgspec.json.Decoder[tuple[int, ParentEvent]]] = typed.decoder(tuple[int, ParentEvent])
