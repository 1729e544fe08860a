"""A blocking connection to a hub, for processes that are not its workers. Its asyncio twin is ``asynchronous/connection.py``.

If the connection is lost while a request is under way that changes the run, and a hub runs the run, the request is sent again over
another connection, with the same id: the hub carries it out once (``kernel/requests.py``).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Generator
from typing import TypeVar

from bartack.core.closing import Closing
from bartack.errors import DeadlineExceededError, RunNotActiveError
from bartack.runtime.client.peer import HubPeer
from bartack.runtime.client.remote import connect
from bartack.runtime.client.requests import HubCall
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.exceptions import revive_error
from bartack.runtime.protocol.requests import LEASE_S, Request
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.presence import check_continues, join_limit_s, peer_pid

T = TypeVar("T")


class HubClient(HubPeer, Closing):
    """Sends requests to the hub of a run, one after the other.

    Args:
        run: The run.
        wakes: A request lets nodes continue a run that rests.

    Raises:
        RunNotActiveError: No process runs the run.
        HubStoppedError: The process that runs it is stopped, and was not continued within ``hub_join``.
    """

    def __init__(self, run: RunDir, *, wakes: bool = False) -> None:
        super().__init__(run)
        self._wakes = wakes
        self._waiting: list[bytes] = []
        self._asked = ""
        self._sending = threading.Lock()
        self._look_s = join_limit_s()
        self._connect()

    def _connect(self) -> None:
        self._sock = connect(self._run, wakes=self._wakes)
        self._hub_pid = peer_pid(self._sock)
        self._sock.settimeout(self._look_s)
        self._send(self._hello())

    def do(self, call: HubCall[T]) -> T:
        """Send a request and wait for its result. Raises what ``ask`` raises."""
        return call.decode(self.ask(call.do, call.request, call.value))

    def ask(
        self,
        do: str,
        request: Request | None = None,
        value: bytes | None = None,
        timeout_s: float | None = None,
        by_id: str = "",
    ) -> bytes:
        """Send a request and wait for the answer, as encoded JSON.

        Args:
            do: What to ask for.
            request: Its arguments.
            value: The encoded value that it carries.
            timeout_s: How long to wait.
            by_id: The id of the request, if it may be sent again later.

        Raises:
            BartackError: The hub refused the request.
            RunNotActiveError: The hub is gone.
            HubStoppedError: The hub is stopped.
            TimeoutError: No answer came in time.
        """
        self._asked = do
        frame = self._frame(do, request, value, by_id)
        try:
            return self._exchange(frame, timeout_s)
        except RunNotActiveError:
            if not frame.id or not self._is_lost:
                raise
        self._reconnect()
        return self._exchange(frame, timeout_s)

    def _exchange(self, frame: f.Ask, timeout_s: float | None) -> bytes:
        self._send(frame)
        return self._answer(frame.i, timeout_s)

    def _reconnect(self) -> None:
        """Connect to the hub again. Messages that this process held have gone back.

        Raises:
            RunNotActiveError: No process runs the run.
        """
        self._sock.close()
        self._frames, self._waiting = f.FrameReader(), []
        self._connect()
        self._is_lost = False

    @contextlib.contextmanager
    def renewing(self) -> Generator[None]:
        """Keep held messages while this block is executed, however long it takes."""
        done = threading.Event()

        def renew() -> None:
            while not done.wait(LEASE_S / 3):
                with contextlib.suppress(RunNotActiveError):
                    self._send(f.Ask(i=0, do="renew"))

        thread = threading.Thread(target=renew, name="bartack lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join(LEASE_S)

    def poll(self) -> None:
        """Read what the hub has sent without a request; never waits."""
        self._sock.setblocking(False)
        try:
            while self.failure is None:
                self._take(self._receive())
        except (BlockingIOError, RunNotActiveError):
            return
        finally:
            self._sock.settimeout(self._look_s)

    def close(self) -> None:
        """Leave the run; held messages go back."""
        self._sock.close()

    def _answer(self, number: int, timeout_s: float | None) -> bytes:
        until = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            while True:
                frame = self._receive_by(until)
                if isinstance(frame, f.Answer) and frame.i == number:
                    return self._load(frame)
                if isinstance(frame, f.Refusal) and frame.i == number:
                    raise revive_error(frame.e)
                self._take(frame)
        finally:
            if until is not None:
                self._sock.settimeout(self._look_s)

    def _receive_by(self, until: float | None) -> f.ToPeer:
        """The next frame. A hub that is silent for long is waited for, unless it is stopped."""
        while True:
            if until is not None:
                self._sock.settimeout(max(min(until - time.monotonic(), self._look_s), 0.001))
            try:
                return self._receive()
            except TimeoutError:
                check_continues(self._run, self._hub_pid, 0.0, self._asked)
                if until is not None and time.monotonic() >= until:
                    raise

    def _take(self, frame: f.ToPeer) -> None:
        if isinstance(frame, f.SessionFailed):
            self._note_failure(frame)

    def _send(self, frame: f.Frame) -> None:
        try:
            with self._sending:
                self._sock.sendall(f.encode(frame))
        except TimeoutError:
            check_continues(self._run, self._hub_pid, 0.0, self._asked)
            raise DeadlineExceededError("hub_join", self._look_s, "the setting hub_join") from None
        except OSError:
            raise self._gone() from None

    def _receive(self) -> f.ToPeer:
        while not self._waiting:
            try:
                data = self._sock.recv(256 * 1024)
            except (TimeoutError, BlockingIOError):
                raise
            except OSError:
                data = b""
            if not data:
                raise self._gone()
            self._waiting = self._frames.feed(data)
        return f.decode_to_peer(self._waiting.pop(0))
