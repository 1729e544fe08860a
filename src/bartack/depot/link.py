"""Between a node and the hub of a run that it owns: how the hub appends to a journal in a database without knowing the database.

Only the node has the credentials of the database. A hub is started with three descriptors (``LinkFds``), which no process below it
inherits:

- *commits*, a socket: one commit to the node, one answer back. The node puts the commits of all its hubs into one statement;
- *calls*, a socket: large values, the summary of the run, its program. Each call is answered before the next one;
- *life*, a pipe. When the node is gone it ends, and the hub kills itself at once: its lease is over soon, and another node may own
  the run then. A byte in it asks the hub to stop when no step is in flight (``runtime/hub/draining.py``).

The directory of the run on the node's machine is up to date when its hub starts, so the hub fetches nothing but large values.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from bartack.core.closing import Closing
from bartack.depot.taken import HOLD_S
from bartack.errors import (
    BartackError,
    BlobCorruptError,
    BlobMissingError,
    BlobTooLargeError,
    DepotUnavailableError,
    JournalCorruptError,
    JournalOwnershipLostError,
    JournalPoisonedError,
    NodeLostError,
)
from bartack.journal import BlobRef
from bartack.journal.mirror import End, FetchedBlobs
from bartack.journal.shared import Commit, lock_directory, open_shared

if TYPE_CHECKING:
    from pathlib import Path

    from bartack.core.clock import Clock
    from bartack.journal import Entry
    from bartack.journal.shared import SharedJournal
    from bartack.journal.veil import Veil
    from bartack.telemetry import Telemetry

_HEAD: Final = struct.Struct(">Q")
_LARGEST: Final = 1 << 32
AGAIN_S: Final = 0.2
_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.decode


class LinkFds(NamedTuple):
    """The hub's ends of a link."""

    commits: int
    calls: int
    life: int


def _send(end: socket.socket, message: object) -> None:
    data = _encode(message)
    end.sendall(_HEAD.pack(len(data)) + data)


def _receive(end: socket.socket, kind: Any = Any) -> Any:
    """The next message; ``None`` if the other side is gone, or sends something else."""
    head = _receive_exactly(end, _HEAD.size)
    if not head:
        return None
    (size,) = _HEAD.unpack(head)
    if size > _LARGEST:
        return None
    data = _receive_exactly(end, size)
    try:
        return _decode(data, type=kind) if data else None
    except msgspec.DecodeError:
        return None


def _receive_exactly(end: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        try:
            piece = end.recv(min(size - len(found), 1 << 20))
        except OSError:  # cut, or closed by another thread
            return b""
        if not piece:
            return b""
        found += piece
    return bytes(found)


# The hub's side.


class HubLink:
    """The link, in the process of the hub. It kills this process when the node is gone.

    Attributes:
        drains: A descriptor that is readable when the node asks the hub to stop.

    Args:
        fence: The number of the node's ownership of the run.
        fds: The descriptors, which belong to this object.
        gone: Called in a thread when the node is gone.
        seen_us: When a hub of an earlier owner was last seen alive, by the clock of the database; ``None`` if none ever was.
    """

    def __init__(
        self,
        fence: int,
        fds: LinkFds,
        gone: Callable[[], object] | None = None,
        seen_us: int | None = None,
    ) -> None:
        self.fence = fence
        self.seen_us = seen_us
        for fd in fds:
            os.set_inheritable(fd, False)
        self._commits = socket.socket(fileno=fds.commits)
        self._calls = socket.socket(fileno=fds.calls)
        self._calling = threading.Lock()
        self._is_shown_alive = False
        self._gone = gone or _die
        self.drains, self._drain = os.pipe()
        threading.Thread(  # bartack: allow[unsupervised_thread] it ends with the node, and this process with it
            target=self._watch, args=(fds.life,), name="bartack-link", daemon=True
        ).start()

    def _watch(self, life: int) -> None:
        while os.read(life, 1):
            os.write(self._drain, b"x")
        self._gone()

    def call(self, *words: object) -> Any:
        """Ask the node for something, and wait for the answer.

        Raises:
            JournalOwnershipLostError: The node is gone.
        """
        with self._calling:
            try:
                _send(self._calls, words)
            except OSError:
                found = None
            else:
                found = _receive(self._calls)
        if found is None:
            raise JournalOwnershipLostError("the run", "its node is gone")
        return found[0]

    def note_waiting(self, what: str) -> None:
        """Let the node know what a hub that is to stop waits for."""
        self.call("waits", what)

    def show_alive(self) -> None:
        """Let others know that a hub runs the run."""
        if not self._is_shown_alive:
            self._is_shown_alive = True
            self.call("alive")

    def mark(self, summary: bytes) -> None:
        """Keep what lists show of the run."""
        self.call("mark", summary)

    def keep_program(self, program: bytes) -> None:
        """Keep another program with the run."""
        self.call("program", program)

    def blobs(self, directory: Path, veil: Veil | None = None) -> FetchedBlobs:
        """The large values of the run."""
        return FetchedBlobs(str(directory), _LinkSource(self), veil=veil)

    def open_journal(
        self,
        directory: Path,
        telemetry: Telemetry,
        each: Callable[[Entry], None] | None,
        veil: Veil | None,
        clock: Clock | None = None,
    ) -> SharedJournal:
        """Own the journal of the run, whose copy is in ``directory``; see ``open_shared``."""
        lock = lock_directory(directory)
        carrier = LinkCarrier(self._commits, self.fence, str(directory))
        return open_shared(
            directory,
            lock,
            carrier,
            _LinkSource(self),
            clock=clock,
            telemetry=telemetry,
            each=each,
            veil=veil,
            check_blobs=True,
        )


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class LinkCarrier:
    """See ``Carrier``: to the node.

    Args:
        end: The socket of commits.
        fence: The number of the node's ownership.
        name: What errors call the run.
    """

    def __init__(self, end: socket.socket, fence: int, name: str) -> None:
        self.fence = fence
        self._end = end
        self._name = name

    def send(self, commit: Commit) -> None:
        """See ``Carrier.send``."""
        # A node that is gone takes this process with it.
        with suppress(OSError):
            _send(self._end, commit)

    def fileno(self) -> int:
        """See ``Carrier.fileno``."""
        return self._end.fileno()

    def take(self) -> bool:
        """See ``Carrier.take``."""
        try:
            if not self._end.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                raise JournalOwnershipLostError(self._name, "its node is gone")
        except BlockingIOError:
            return False
        except ConnectionError:
            raise JournalOwnershipLostError(self._name, "its node is gone") from None
        outcome = _receive(self._end)
        match outcome:
            case ["written"]:
                return True
            case ["failed", str(problem)]:
                raise JournalPoisonedError(self._name, problem)
            case _:
                raise NodeLostError(self._name, "it has another owner")

    def close(self) -> None:
        """See ``Carrier.close``. The node ends the ownership when this process has ended."""


class _LinkSource:
    """See ``Source``: the copy is up to date already, and large values come from the node."""

    name = "the database"

    def __init__(self, link: HubLink) -> None:
        self._link = link

    def end(self) -> End:
        """See ``Source.end``."""
        return End()

    def has(self, end: End) -> bool:
        """See ``Source.has``: the node has compared it."""
        return True

    def rows(self, after: int) -> Iterator[bytes]:
        """See ``Source.rows``: the node has fetched them."""
        return iter(())

    def check_size(self, size: int) -> None:
        """See ``Source.check_size``."""
        refusal = self._link.call("fits", size)
        if refusal is not True:
            raise BlobTooLargeError(*refusal)

    def fetch_blob(self, ref: BlobRef) -> bytes | None:
        """See ``Source.fetch_blob``."""
        found: bytes | None = self._link.call("blob", ref.sha256, ref.size)
        return found


# The node's side.

Answer = Callable[[BartackError | None], None]
Calls = Callable[[str, Sequence[Any]], object]


class NodeLink(Closing):
    """The link to one hub, in the process of the node.

    Attributes:
        fds: The hub's ends, until it has them.
        given_up: What was away for too long, so that the hub has to end.
        damaged: What is wrong with the journal of the run, so that a person has to look.

    Args:
        take: Takes a commit, and calls its second argument when it is known what became of it, in whatever thread.
        call: Carries out a call of the hub; its result is the answer.
        hold_s: How long a call waits for a database or an object store that does not answer.
    """

    def __init__(self, take: Callable[[Commit, Answer], None], call: Calls, hold_s: float = HOLD_S) -> None:
        self.given_up: DepotUnavailableError | None = None
        self.damaged: JournalCorruptError | None = None
        self._take = take
        self._call = call
        self._hold_s = hold_s
        self._commits, commits = socket.socketpair()
        self._calls, calls = socket.socketpair()
        life, self._life = os.pipe()
        self.fds = LinkFds(commits.detach(), calls.detach(), life)
        self._threads: list[threading.Thread] = []
        self._is_cut = False
        self._is_closed = False
        self._closes = threading.Event()
        self._mutex = threading.Lock()

    @contextmanager
    def starting(self) -> Generator[LinkFds]:
        """Start the process of the hub in this block, with these descriptors. Meanwhile nothing closes them.

        Raises:
            JournalOwnershipLostError: The link is closed.
        """
        with self._mutex:
            if self._is_cut:
                # The numbers of its descriptors may be those of others by now.
                raise JournalOwnershipLostError("the run", "its node ends")
            yield self.fds
            self._started()

    def _started(self) -> None:
        self._close_theirs()
        for work in (self._take_commits, self._answer_calls):
            thread = threading.Thread(target=work, name="bartack-hub-link", daemon=True)
            thread.start()
            self._threads.append(thread)

    def _close_theirs(self) -> None:
        for fd in self.fds:
            os.close(fd)
        self.fds = LinkFds(-1, -1, -1)

    def _take_commits(self) -> None:
        while (found := _receive(self._commits, Commit)) is not None:
            self._take(found, self._answer)
        with suppress(OSError):
            self._commits.shutdown(socket.SHUT_RDWR)

    def _answer(self, error: BartackError | None) -> None:
        outcome = ["written"]
        if isinstance(error, JournalOwnershipLostError):
            outcome = ["lost"]
        elif error is not None:
            if isinstance(error, DepotUnavailableError):
                self.given_up = error
            elif isinstance(error, JournalCorruptError):
                self.damaged = error
            outcome = ["failed", str(error)]
        with suppress(OSError):  # the hub is gone
            _send(self._commits, outcome)

    def _answer_calls(self) -> None:
        while (found := _receive(self._calls)) is not None:
            try:
                answer = self._carry_out(found[0], found[1:])
            except (BlobMissingError, BlobCorruptError):
                answer = None
            except Exception:  # noqa: BLE001 - the boundary of the thread: the end of its socket notifies the hub
                break
            with suppress(OSError):
                _send(self._calls, [answer])
        with suppress(OSError):
            self._calls.shutdown(socket.SHUT_RDWR)

    def _carry_out(self, what: str, words: Sequence[Any]) -> object:
        """Carry out a call, after as many attempts as it takes: while the database is away, the lease decides what continues."""
        limit = time.monotonic() + self._hold_s
        while True:
            try:
                return self._call(what, words)
            except DepotUnavailableError as error:
                if self._closes.wait(AGAIN_S):
                    raise
                if time.monotonic() >= limit:
                    self.given_up = error
                    raise

    def drain(self) -> None:
        """Ask the hub to stop when no step is in flight; one that has not begun yet finds it when it does."""
        with self._mutex:
            if not self._is_cut:
                os.write(self._life, b"x")

    def cut(self) -> None:
        """Have a hub that still runs kill itself, and wait for nothing; ``close`` has to follow."""
        with self._mutex:
            if self._is_cut:
                return
            self._is_cut = True
            self._closes.set()
            if self.fds.life >= 0:
                self._close_theirs()
            os.close(self._life)

    def close(self) -> None:
        """End the link: a hub that still runs kills itself."""
        self.cut()
        with self._mutex:
            if self._is_closed:
                return
            self._is_closed = True
        for end in (self._commits, self._calls):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        self._commits.close()
        self._calls.close()
