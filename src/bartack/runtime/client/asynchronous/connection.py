"""A connection to a hub on an asyncio loop, for processes that are not its workers. Its blocking twin is ``connection.py``.

Like there, a request that changes the run is sent again if the connection is lost meanwhile and a hub runs the run.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final, Self, TypeVar

from bartack.core import typed
from bartack.errors import FrameError, HubStoppedError, RunNotActiveError
from bartack.journal.contract import INLINE_LIMIT
from bartack.runtime.client import requests
from bartack.runtime.client.peer import HubPeer, encode_request
from bartack.runtime.client.remote import connect
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.exceptions import revive_error
from bartack.runtime.protocol.requests import LEASE_S, Request
from bartack.runtime.protocol.steps import Held
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.presence import check_continues, join_limit_s, peer_pid

T = TypeVar("T")


class AsyncHubClient(HubPeer, asyncio.Protocol):
    """Sends requests to the hub of a run, any number at the same time. Made by ``open``."""

    def __init__(self, run: RunDir, hub_pid: int) -> None:
        super().__init__(run)
        self._hub_pid = hub_pid
        self._waiting: dict[int, asyncio.Future[f.Answer]] = {}
        self._abandoned: set[int] = set()
        """Cancelled receives: a message that arrives for one goes back."""
        self._crossed: dict[int, f.Answer] = {}
        """Answers to requests that were cancelled, but whose tasks have not run since."""
        self._transport: asyncio.Transport | None = None
        self._renewal: asyncio.TimerHandle | None = None
        self._held = 0
        self._connecting = asyncio.Lock()
        self._closed = asyncio.Event()
        """The transport has reported that the connection is lost; set before there is one."""
        self._closed.set()
        self._has_left = False

    @classmethod
    async def open(cls, run: RunDir) -> Self:
        """Join a run.

        Raises:
            RunNotActiveError: No process runs it.
            HubStoppedError: The process that runs it is stopped, and was not continued within ``hub_join``.
        """
        sock = await asyncio.to_thread(connect, run, wakes=True)
        hub_pid = peer_pid(sock)
        loop = asyncio.get_running_loop()
        _, client = await loop.create_unix_connection(lambda: cls(run, hub_pid), sock=sock)
        return client

    async def do(self, call: requests.HubCall[T]) -> T:
        """Send a request and wait for its result. Raises what ``ask`` raises."""
        return call.decode(await self.ask(call.do, call.request, call.value))

    async def ask(self, do: str, request: Request | None = None, value: bytes | None = None) -> bytes:
        """Send a request and wait for the answer, as encoded JSON. Cancelling it loses no message.

        Raises:
            BartackError: The hub refused the request.
            RunNotActiveError: The hub is gone.
            HubStoppedError: The hub is stopped.
        """
        if value is not None and len(value) > INLINE_LIMIT:
            frame = await asyncio.to_thread(self._frame, do, request, value)
        else:
            frame = self._frame(do, request, value)
        try:
            return await self._exchange(frame, do)
        except RunNotActiveError:
            if not frame.id or self._has_left:
                raise
        await self._reconnect()
        return await self._exchange(frame, do)

    async def _reconnect(self) -> None:
        """Connect to the hub again, unless another task has done so. Messages that this process held have gone back.

        Raises:
            RunNotActiveError: No process runs the run.
        """
        async with self._connecting:
            if self._transport is None or self._transport.is_closing():
                await self._closed.wait()  # bartack: allow[wait_without_deadline] the loop closes it now
                sock = await asyncio.to_thread(connect, self._run, wakes=True)
                self._hub_pid = peer_pid(sock)
                loop = asyncio.get_running_loop()
                await loop.create_unix_connection(lambda: self, sock=sock)

    async def _exchange(self, frame: f.Ask, do: str) -> bytes:
        number = frame.i
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._send(frame)
            answered = await self._answered(answer, do)
            if answered.ref is not None:
                return await asyncio.to_thread(self._load, answered)
            return self._load(answered)
        except (asyncio.CancelledError, HubStoppedError):
            if do in _WAITING:
                with contextlib.suppress(RunNotActiveError):
                    # Under the same number: the first answer counts, a message or that there will be none.
                    self._send(f.Ask(i=number, do="forget", a=encode_request(Request(number=number))))
            if do == "receive":
                self._give_back(number, answer)
            raise
        finally:
            self._waiting.pop(number, None)
            self._crossed.pop(number, None)

    async def _answered(self, answer: asyncio.Future[f.Answer], do: str) -> f.Answer:
        """The answer, however long that takes, unless the hub is stopped."""
        while not answer.done():
            await asyncio.wait([answer], timeout=join_limit_s())
            if not answer.done():
                check_continues(self._run, self._hub_pid, 0.0, do)
        return await answer

    async def receive(self, mailbox: str, timeout_s: float | None) -> Held:
        """Take the oldest message, to be acknowledged."""
        held = await self.do(requests.receive(mailbox, timeout_s))
        self._held += 1
        if self._renewal is None:
            self._renew()
        return held

    def settle(self, message_id: str, *, ok: bool) -> None:
        """Acknowledge a held message, or give it back. It does not wait, so it cannot be cancelled halfway."""
        self._held -= 1
        with contextlib.suppress(RunNotActiveError):
            self._send(f.Ask(i=0, do="ack", a=encode_request(Request(id=message_id, ok=ok))))

    def close(self) -> None:
        """Leave the run; held messages go back."""
        self._has_left = True
        if self._renewal is not None:
            self._renewal.cancel()
        if self._transport is not None:
            self._transport.close()

    # Called by the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._frames = f.FrameReader()
        self._closed.clear()
        self._send(self._hello())

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        try:
            for body in self._frames.feed(data):
                self._take(f.decode_to_peer(body))
        except FrameError:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        self._transport = None
        self._closed.set()
        self._held = 0
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(self._gone())

    # Inside.

    def _take(self, frame: f.ToPeer) -> None:
        if isinstance(frame, f.SessionFailed):
            self._note_failure(frame)
        elif isinstance(frame, f.Answer) and frame.i in self._abandoned:
            self._abandoned.discard(frame.i)
            self._return(frame)
        elif isinstance(frame, f.Answer | f.Refusal):
            answer = self._waiting.get(frame.i)
            if answer is None:
                return
            if answer.done():
                if isinstance(frame, f.Answer):
                    self._crossed.setdefault(frame.i, frame)
            elif isinstance(frame, f.Answer):
                answer.set_result(frame)
            else:
                answer.set_exception(revive_error(frame.e))

    def _give_back(self, number: int, answer: asyncio.Future[f.Answer]) -> None:
        """A receive was cancelled: its message is there and goes back, or does when it comes."""
        crossed = self._crossed.get(number)
        if crossed is not None:
            self._return(crossed)
        elif answer.done() and not answer.cancelled() and answer.exception() is None:
            self._return(answer.result())  # bartack: allow[wait_without_deadline] it is done
        elif not answer.done() or answer.cancelled():
            self._abandoned.add(number)

    def _return(self, frame: f.Answer) -> None:
        data = frame.v if frame.ref is None else self._blobs.get(frame.ref)
        if data is not None and bytes(data) != b"null":
            self._held += 1
            self.settle(typed.decode(data, type=Held).id, ok=False)

    def _renew(self) -> None:
        self._renewal = None
        if self._held > 0 and self._transport is not None:
            self._send(f.Ask(i=0, do="renew"))
            self._renewal = asyncio.get_running_loop().call_later(LEASE_S / 3, self._renew)

    def _send(self, frame: f.Frame) -> None:
        if self._transport is None or self._transport.is_closing():
            raise self._gone()
        self._transport.write(f.encode(frame))


_WAITING: Final = frozenset({"send", "call", "receive"})
"""Requests that the hub may answer much later."""
