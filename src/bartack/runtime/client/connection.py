"""A blocking connection to a hub, for processes that are not its workers."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Generator
from types import TracebackType
from typing import Self

import msgspec

from bartack.errors import DeadlineExceededError, RunNotActiveError, SessionFailedError
from bartack.journal import INLINE_LIMIT, BlobRef, open_blobs
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.exceptions import revive_error, revive_failure
from bartack.runtime.protocol.requests import LEASE_S, Request
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.presence import check_continues, join_limit_s, open_connection, peer_pid


class HubClient:
    """Asks the hub of a run for things, one after the other.

    Raises:
        RunNotActiveError: Nobody runs the run.
        HubStoppedError: The process that runs it is stopped, and was not continued within ``hub_join``.
    """

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._blobs = open_blobs(str(run.path))
        self._frames = f.FrameReader()
        self._waiting: list[bytes] = []
        self._number = 0
        self._asked = ""
        self._sending = threading.Lock()
        self.failure: SessionFailedError | None = None
        self._sock = open_connection(run)
        self._hub_pid = peer_pid(self._sock)
        self._look_s = join_limit_s()
        self._sock.settimeout(self._look_s)
        hello = f.Hello(role="foreign", pid=os.getpid(), token=os.environ.get("BARTACK_STEP_TOKEN", ""))
        self._send(hello)

    def ask(
        self,
        do: str,
        request: Request | None = None,
        value: bytes | None = None,
        timeout_s: float | None = None,
    ) -> bytes:
        """Ask for something and wait for the answer, as encoded JSON.

        Raises:
            BartackError: As the hub says.
            RunNotActiveError: The hub is gone.
            HubStoppedError: The hub is stopped.
            TimeoutError: No answer came in time.
        """
        self._number += 1
        self._asked = do
        ref: BlobRef | None = None
        if value is not None and len(value) > INLINE_LIMIT:
            ref, value = self._blobs.put(value), None
        raw = None if value is None else msgspec.Raw(value)
        arguments = msgspec.Raw(msgspec.json.encode(request or Request()))
        self._send(f.Ask(i=self._number, do=do, a=arguments, v=raw, ref=ref))
        return self._answer(self._number, timeout_s)

    @contextlib.contextmanager
    def renewing(self) -> Generator[None]:
        """Keep what is held for as long as this block takes, however long the caller is busy in it."""
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

    def wait_closed(self, timeout_s: float | None) -> bool:
        """Wait until the hub is gone, or the session fails; ``False`` if neither happened in time."""
        self._sock.settimeout(timeout_s)
        try:
            while self.failure is None:
                self._take(self._receive())
        except TimeoutError:
            return False
        except RunNotActiveError:
            return True
        finally:
            self._sock.settimeout(self._look_s)
        return True

    def poll(self) -> None:
        """Take what the hub has said unasked, without waiting."""
        self._sock.setblocking(False)
        try:
            while self.failure is None:
                self._take(self._receive())
        except (BlockingIOError, RunNotActiveError):
            return
        finally:
            self._sock.settimeout(self._look_s)

    def close(self) -> None:
        """Leave; what was held goes back."""
        self._sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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
        """The next frame. A hub that says nothing for long may have a reason, unless it is stopped."""
        while True:
            if until is not None:
                self._sock.settimeout(max(min(until - time.monotonic(), self._look_s), 0.001))
            try:
                return self._receive()
            except TimeoutError:
                check_continues(self._run, self._hub_pid, 0.0, self._asked)
                if until is not None and time.monotonic() >= until:
                    raise

    def _load(self, frame: f.Answer) -> bytes:
        if frame.ref is not None:
            return self._blobs.get(frame.ref)
        return b"null" if frame.v is None else bytes(frame.v)

    def _take(self, frame: f.ToPeer) -> None:
        if isinstance(frame, f.SessionFailed) and self.failure is None:
            self.failure = revive_failure(frame.e)

    def _send(self, frame: f.Frame) -> None:
        try:
            with self._sending:
                self._sock.sendall(f.encode(frame))
        except TimeoutError:
            check_continues(self._run, self._hub_pid, 0.0, self._asked)
            raise DeadlineExceededError("hub_join", self._look_s, "the setting hub_join") from None
        except OSError:
            raise RunNotActiveError(self._run.id, "its process is gone") from None

    def _receive(self) -> f.ToPeer:
        while not self._waiting:
            try:
                data = self._sock.recv(256 * 1024)
            except (TimeoutError, BlockingIOError):
                raise
            except OSError:
                data = b""
            if not data:
                raise RunNotActiveError(self._run.id, "its process is gone")
            self._waiting = self._frames.feed(data)
        return f.decode_to_peer(self._waiting.pop(0))
