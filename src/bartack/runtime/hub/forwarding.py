"""Hands the requests to a run that came through a database to its hub, and stores the answers.

This is done by the process that owns the run in the database: a node, or the process of the hub itself. For the hub it is a process
outside like others. It has one connection for each client that needs one of its own, since what a client holds goes back with its
connection, and one for all the others of a role of the database. The hub records the role, which the database has checked.

**Each request is carried out once.** It comes to the hub under its id, and what it causes and its outcome are one line of the
journal (``kernel/requests.py``). If this process dies before the answer is stored, the next owner hands the request over again, and
its hub answers with the outcome that is recorded. Without a hub the outcome is read from the journal (``finish``).

**Answers and messages for a run that rests** come into its inbox before its hub begins (``leave``), under the same ids. So a hub
that has nothing else to do finds them in its first turn, and cannot stop before they arrive.
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from contextlib import suppress
from typing import Final

import msgspec

from bartack.core import typed
from bartack.core.closing import Closing
from bartack.core.readable import wait_readable
from bartack.depot.asking import LEAVE, Answerer, RequestState, StoredRequest
from bartack.errors import BartackError, DepotError, FrameError, RunNotActiveError
from bartack.journal.contract import INLINE_LIMIT
from bartack.runtime.kernel.outcome import describe
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.requests import BY_ID, Request, signed
from bartack.runtime.rundir.find import TERMINAL, read_state, status_of
from bartack.runtime.rundir.inbox import find_left, leave_answer, leave_message
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.presence import open_connection
from bartack.runtime.state import entries as e
from bartack.runtime.state.run_state import State

AGAIN_S: Final = 0.2
"""How long to wait before something is tried again that was not possible."""
REPEAT_S: Final = 1.0
"""How often a hub looks that owns its run itself: a notification may be lost."""
IDLE_S: Final = 1.0
"""How long the connection for all clients is kept that nothing is waited for on."""
GONE_S: Final = 60.0
"""How long a connection for one client is kept without a request: its client is gone, and what it held has gone back."""
STUCK_S: Final = 30.0
"""How long a hub may take to read what it is sent."""
_LEFT: Final = frozenset({"answer", "send"})
"""Requests that can wait for a hub in the inbox."""


_Party = tuple[str, str]
"""For whom a connection is: a client that has one of its own, or nothing, and a role."""


class _Connection:
    """A connection to the hub, with the requests that have no answer yet."""

    def __init__(self, sock: socket.socket, idle_s: float) -> None:
        self.sock = sock
        self.frames = f.FrameReader()
        self.waiting: dict[int, str] = {}
        self._idle_s = idle_s
        self._used = time.monotonic()

    def use(self) -> None:
        """Something came or went over it."""
        self._used = time.monotonic()

    def is_idle(self) -> bool:
        """Whether it need not be kept."""
        return not self.waiting and time.monotonic() - self._used > self._idle_s


class RequestForwarder(Closing):
    """See the module. ``leave`` comes before the hub begins, ``start`` after that, and ``finish`` when it is gone.

    Args:
        run: The run, with its directory on this machine.
        answerer: Where its requests are.
        look_s: Look for requests that often without being woken; by default never.
    """

    def __init__(self, run: RunDir, answerer: Answerer, look_s: float | None = None) -> None:
        self._run = run
        self._blobs = run.open_blobs()
        self._answerer = answerer
        self._look_s = look_s
        self._numbers = itertools.count(1)
        self._connections: dict[_Party, _Connection] = {}
        self._handed: set[str] = set()
        self._unsettled: list[tuple[str, RequestState, bytes]] = []
        self._found: set[str] = set()
        """The requests that were there before the hub began."""
        self._is_asked = True
        self._ends = False
        self._waking = threading.Lock()
        self._reader = self._writer = -1
        self._thread: threading.Thread | None = None

    # Without a hub.

    def leave(self) -> None:
        """Settle what the journal has an outcome of already, and put answers and messages into the inbox.

        Raises:
            DepotError: The database does not answer.
        """
        requests = self._answerer.open()
        if self._run.is_of_node:
            # Whatever is there was a request, and is none any more or comes again.
            for found in find_left(self._run)[0]:
                os.unlink(found.path)
        if not requests:
            return
        self._found = {request.id for request in requests}
        state = read_state(self._run)
        there = {found.left.id for found in find_left(self._run)[0]}
        for request in requests:
            if not self._settle_known(state, request) and request.asks in _LEFT and request.id not in there:
                try:
                    self._leave(state, request)
                except BartackError as error:
                    self._settle(request.id, "refused", msgspec.json.encode(describe(error)))

    def _leave(self, state: State, request: StoredRequest) -> None:
        asked = typed.decode(request.args, type=Request)
        value = request.value or b"null"
        question = state.questions.get(asked.question)
        if request.asks == "send":
            by = signed("", request.by)
            leave_message(self._run, asked.mailbox, request.id, value, asked.key, by)
        elif question is None or not question.by_agent:
            by = signed(asked.by, request.by)
            leave_answer(self._run, state, asked.question, value, request.id, by)

    def finish(self, *, rests: bool) -> None:
        """The hub is gone: settle what the journal has an outcome of, and refuse what a next hub would not carry out either.

        Args:
            rests: No hub is going to run the run, unless there is something to do.

        Raises:
            DepotError: The database does not answer.
        """
        self.close()
        requests = self._answerer.open()
        if not requests:
            return
        state = read_state(self._run)
        status = status_of(self._run, state, active=False)
        for request in requests:
            is_new = request.asks in _LEFT and request.id not in self._found and status not in TERMINAL
            if not self._settle_known(state, request) and rests and not is_new:
                error = RunNotActiveError(self._run.id, status)
                self._settle(request.id, "refused", msgspec.json.encode(describe(error)))

    def _settle_known(self, state: State, request: StoredRequest) -> bool:
        """Whether the journal has the outcome of a request. It is stored then."""
        place = state.requests.place_of(request.id)
        if not place:
            return False
        with self._run.open_reader() as reader:
            entry = next(reader.read(place))
            taken = entry.decode(e.RequestTaken)
            if taken.error is not None:
                self._settle(request.id, "refused", msgspec.json.encode(taken.error))
            else:
                self._settle(request.id, "done", reader.load_value(entry) or b"null")
        return True

    # With a hub.

    def start(self) -> None:
        """Hand requests over from now on."""
        with self._waking:
            self._reader, self._writer = os.pipe()
            for fd in (self._reader, self._writer):
                os.set_blocking(fd, False)
        name = f"bartack requests {self._run.id}"
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """There may be a request; from any thread."""
        self._is_asked = True
        with self._waking, suppress(BlockingIOError):
            if self._writer >= 0:
                os.write(self._writer, b"x")

    def close(self) -> None:
        """Hand nothing over any more."""
        if self._ends:
            return
        self._ends = True
        self.wake()
        if self._thread is not None:
            self._thread.join(STUCK_S)
            if self._thread.is_alive():
                return  # it waits for a hub that is stopped, and ends with this process
        for connection in self._connections.values():
            connection.sock.close()
        with self._waking:
            for fd in (self._reader, self._writer):
                if fd >= 0:
                    os.close(fd)
            self._reader = self._writer = -1

    def _work(self) -> None:
        while not self._ends:
            with suppress(DepotError):
                self._look()
            by_fd = {one.sock.fileno(): party for party, one in self._connections.items()}
            wait_s = AGAIN_S if self._unsettled or self._is_asked else self._look_s
            if by_fd and wait_s is None:
                wait_s = IDLE_S
            ready = wait_readable([self._reader, *by_fd], wait_s)
            if not ready:
                self._is_asked = self._is_asked or self._look_s is not None
                for party in [party for party, one in self._connections.items() if one.is_idle()]:
                    self._drop(party)
            for fd in ready:
                if fd == self._reader:
                    os.read(self._reader, 4096)
                else:
                    self._receive(by_fd[fd])

    def _look(self) -> None:
        unsettled, self._unsettled = self._unsettled, []
        for settled, state, answer in unsettled:
            self._settle(settled, state, answer)
        if not self._is_asked or self._ends:
            return
        self._is_asked = False
        try:
            for request in self._answerer.open():
                if request.id not in self._handed and not self._ends:
                    self._hand_over(request)
        except (BartackError, OSError):
            self._is_asked = True  # no hub listens yet, or any more, or the database does not answer

    def _hand_over(self, request: StoredRequest) -> None:
        party = request.client, request.by
        if request.asks == LEAVE:
            self._drop(party)
            self._settle(request.id, "done", b"null")
            return
        connection = self._connections.get(party)
        if connection is None:
            sock = open_connection(self._run)
            sock.settimeout(STUCK_S)
            connection = self._connections[party] = _Connection(sock, GONE_S if request.client else IDLE_S)
            sock.sendall(f.encode(f.Hello(role="foreign", pid=os.getpid(), by=request.by)))
        connection.use()
        number = request.number if request.client else next(self._numbers)
        frame = self._frame(request, number)
        try:
            connection.sock.sendall(f.encode(frame))
        except OSError:
            self._drop(party)
            raise
        self._handed.add(request.id)
        if number:
            connection.waiting[number] = request.id
        else:
            self._settle(request.id, "done", b"null")

    def _frame(self, request: StoredRequest, number: int) -> f.Ask:
        args, value, ref = request.args, request.value, None
        if value is not None and len(value) > INLINE_LIMIT:
            ref, value = self._blobs.put(value), None
        raw = None if value is None else msgspec.Raw(value)
        by_id = request.id if request.asks in BY_ID else ""
        return f.Ask(i=number, do=request.asks, a=msgspec.Raw(args), v=raw, ref=ref, id=by_id)

    def _receive(self, party: _Party) -> None:
        connection = self._connections[party]
        try:
            data = connection.sock.recv(256 * 1024)
            bodies = connection.frames.feed(data) if data else None
        except (OSError, FrameError):
            bodies = None
        if bodies is None:
            self._drop(party)
            self._is_asked = True
            return
        connection.use()
        for body in bodies:
            self._take(connection, f.decode_to_peer(body))

    def _take(self, connection: _Connection, frame: f.ToPeer) -> None:
        if isinstance(frame, f.Answer):
            request = connection.waiting.pop(frame.i, "")
            value = bytes(frame.v) if frame.v is not None else b"null"
            answer = value if frame.ref is None else self._blobs.get(frame.ref)
            self._settle(request, "done", answer)
        elif isinstance(frame, f.Refusal):
            request = connection.waiting.pop(frame.i, "")
            self._settle(request, "refused", msgspec.json.encode(frame.e))

    def _drop(self, party: _Party) -> None:
        """Close a connection. What has no answer is handed over again, if there is a hub."""
        connection = self._connections.pop(party, None)
        if connection is not None:
            connection.sock.close()
            self._handed.difference_update(connection.waiting.values())

    def _settle(self, request: str, state: RequestState, answer: bytes) -> None:
        if not request:
            return
        try:
            self._answerer.settle(request, state, answer)
            self._handed.discard(request)
        except DepotError:
            self._unsettled.append((request, state, answer))
