"""A connection to the hub of a run on another machine, through the database in which the run is kept.

To a client it is a socket like that of a hub on this machine. Two threads serve its other end: one stores each frame that arrives
as a request (``bartack.depot.asking``), the other one returns the answers. The connection ends when the client closes it, or when
no process answers requests any more. A client that loses it finds out what became of its request as with a socket: it sends the
request again, with the same id, or looks into the journal.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from bartack.core import typed
from bartack.depot.asking import LEAVE, Answered, Questioner, StoredRequest
from bartack.errors import BartackError, DepotError, DepotUnavailableError, FrameError, RequestLateError
from bartack.journal.contract import INLINE_LIMIT
from bartack.runtime.kernel.outcome import describe
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.requests import Request, new_request_id
from bartack.runtime.rundir.find import check_not_ended, read_state
from bartack.runtime.rundir.inside import check_outside
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.presence import open_connection

if TYPE_CHECKING:
    from bartack.journal import Blobs

LATE_S: Final = 300.0
"""How long a request may wait until a hub begins with it, besides the time that it may take."""
LEAVING_S: Final = 60.0
LOOK_S: Final = 1.0
AGAIN_S: Final = 30.0
"""How long a database that does not answer is asked again."""
_ALONE: Final = frozenset(
    {"send", "answer", "fail", "cancel", "interrupt", "state", "ps", "stats", "peek", "mailboxes"}
)
"""Requests that need no connection of their own to the hub: nothing of them belongs to the process that asks."""


def connect(run: RunDir, *, wakes: bool = False) -> socket.socket:
    """Connect to the hub of a run, here or on another machine.

    Args:
        run: The run.
        wakes: Connect to its next hub if nodes let it rest, or have it in their queue. The first request lets them continue it.

    Raises:
        RunNotActiveError: No process runs it.
        HubStoppedError: The process that runs it is stopped, and was not continued within ``hub_join``.
        PeerRefusedError: This process belongs to a run.
        DepotError: Its database does not answer.
    """
    questioner = run.questioner()
    if questioner is None or (questioner.standing() != "owned" and not (wakes and run.is_wakeable())):
        return open_connection(run)
    check_outside(f"a request to {run.id}", run)
    ours, theirs = socket.socketpair()
    _Bridge(run.open_blobs(), questioner, theirs, run.id)
    return ours


def store(run: RunDir, request: str, do: str, asked: Request, value: bytes) -> bool:
    """Keep a request in the database of a run for the next process that runs it; ``False`` if the run is not kept in one.

    A run that rests continues with it, if it is for nodes. A request of this id that was carried out before stays so.

    Raises:
        RunNotActiveError: The run has ended for good.
        PeerRefusedError: This process belongs to a run.
        DepotError: The database does not answer.
    """
    questioner = run.questioner()
    if questioner is None:
        return False
    check_outside(f"a request to {run.id}", run)
    check_not_ended(run, read_state(run))
    questioner.ask(StoredRequest(request, do, msgspec.json.encode(asked), value))
    return True


class _Bridge:
    """Serves the other end of a connection; see the module."""

    def __init__(self, blobs: Blobs, questioner: Questioner, sock: socket.socket, run: str) -> None:
        self._blobs = blobs
        self._questioner = questioner
        self._sock = sock
        self._run = run
        self._client = new_request_id()
        self._open: dict[str, int] = {}
        self._changed = threading.Condition()
        self._ends = False
        self._has_own = False
        """Whether the hub's machine has a connection for this client alone."""
        self._answering = threading.Thread(target=self._answer_all, name="bartack-answers", daemon=True)
        self._answering.start()
        threading.Thread(  # bartack: allow[unsupervised_thread] it ends with the connection of its client
            target=self._ask_all, name="bartack-requests", daemon=True
        ).start()

    # What the client sends.

    def _ask_all(self) -> None:
        frames = f.FrameReader()
        with suppress(OSError, FrameError):
            while data := self._sock.recv(256 * 1024):
                for body in frames.feed(data):
                    frame = f.decode_to_hub(body)
                    if isinstance(frame, f.Ask):
                        self._ask(frame)
        self._end()
        with suppress(DepotError):
            self._leave()
        self._answering.join()  # bartack: allow[wait_without_deadline] it ends within a second
        self._sock.close()

    def _ask(self, frame: f.Ask) -> None:
        client, number = ("", 1) if frame.do in _ALONE else (self._client, frame.i)
        self._has_own = self._has_own or bool(client)
        value = None if frame.v is None else bytes(frame.v)
        if frame.ref is not None:
            value = self._blobs.get(frame.ref)
        request = StoredRequest(frame.id or new_request_id(), frame.do, bytes(frame.a), value, client, number)
        asked = typed.decode(request.args, type=Request)
        late_s = LATE_S + (asked.timeout_s or 0.0)
        try:
            found = self._store(request, late_s)
        except BartackError as error:
            self._send(f.Refusal(i=frame.i, e=describe(error)))
            return
        with self._changed:
            self._open[request.id] = frame.i
            self._changed.notify()
        self._take(request.id, found)

    def _store(self, request: StoredRequest, late_s: float) -> Answered:
        """Store a request. Its id makes it one, however often it is sent, so a database that is away is asked again."""
        until = time.monotonic() + AGAIN_S
        while True:
            try:
                return self._questioner.ask(request, late_s)
            except DepotUnavailableError:
                if self._ends or time.monotonic() >= until:
                    raise
            select.select([], [], [], LOOK_S)

    def _leave(self) -> None:
        """Let the process that answers close the connection that it has for this client: what the client holds goes back."""
        for request in list(self._open):
            self._questioner.withdraw(request)
        if self._has_own:
            leave = StoredRequest(new_request_id(), LEAVE, b"{}", client=self._client)
            self._questioner.ask(leave, LEAVING_S)

    # What the hub answers.

    def _answer_all(self) -> None:
        with suppress(BartackError), self._questioner.watch() as watch:
            while not self._ends:
                with self._changed:
                    self._changed.wait_for(lambda: self._open or self._ends)
                with suppress(DepotUnavailableError):
                    self._look()
                watch.wait(LOOK_S)
        self._end()

    def _look(self) -> None:
        waiting = list(self._open)
        for request, found in self._questioner.look(waiting).items():
            self._take(request, found)
        if self._open and not self._questioner.standing():
            for request in list(self._open):
                self._questioner.withdraw(request)
            self._end()

    def _take(self, request: str, found: Answered) -> None:
        if found.state == "open":
            return
        with self._changed:
            number = self._open.pop(request, None)
        if number is None:
            return
        match found.state:
            case "done":
                self._send(self._answer(number, found.answer))
            case "refused":
                self._send(f.Refusal(i=number, e=typed.decode(found.answer, type=f.ErrorData)))
            case _:
                self._send(f.Refusal(i=number, e=describe(RequestLateError(self._run))))

    def _answer(self, number: int, value: bytes) -> f.Answer:
        if len(value) > INLINE_LIMIT:
            return f.Answer(i=number, ref=self._blobs.put(value))
        return f.Answer(i=number, v=msgspec.Raw(value))

    def _send(self, frame: f.Frame) -> None:
        with suppress(OSError):
            self._sock.sendall(f.encode(frame))

    def _end(self) -> None:
        """The client sees the end of the connection."""
        with self._changed:
            self._ends = True
            self._changed.notify_all()
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
