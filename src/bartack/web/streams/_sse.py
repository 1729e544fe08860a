"""Server-sent events: how they are written, and a response that sends them as long as its reader wants them.

A frame is made when it is sent, of what changed since the last one, so nothing waits in a queue. A reader whose socket was full
for long gets an event that makes it ask again for what it shows.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, suppress
from typing import Final, Protocol

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bartack.web._sessions import Session

COMMENT_S: Final = 15.0
"""A stream without events gets a comment this often, so that nothing in between takes it for dead."""
MOST_BYTES: Final = 64 * 1024
"""The most bytes of one frame."""
FULL_S: Final = 2.0
"""A reader that did not take a frame for this long is late."""

COMMENT: Final = b":\n\n"

_encode: Final = msgspec.json.Encoder().encode


def event(name: str, seq: int, data: object) -> bytes:
    """One event. Its data is one line of JSON, whatever the texts in it are."""
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (seq, name.encode(), _encode(data))


class EventStream(Protocol):
    """Where the events of one reader come from."""

    @property
    def poll_s(self) -> float:
        """How often it is asked for a frame although nothing was reported."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether there will be no more events."""
        ...

    def listen(self) -> AbstractContextManager[asyncio.Event]:
        """An event that is set when there may be a frame."""
        ...

    async def frame(self, *, is_late: bool) -> bytes:
        """What changed since the last frame; empty if nothing did.

        Args:
            is_late: The reader was so slow that it has to ask again for what it shows.
        """
        ...


class EventResponse(Response):
    """Sends the events of a stream until its reader leaves, its session ends or the stream is over."""

    media_type = "text/event-stream"

    def __init__(self, stream: EventStream, session: Session, hello: bytes) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._stream = stream
        self._session = session
        self._hello = hello

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        with self._session.stream():
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async with asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(self._send_all(send)),
                    tasks.create_task(_wait_until_gone(receive)),
                    tasks.create_task(_wait_until_ended(self._session)),
                ]
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in running:
                    task.cancel()
            with suppress(OSError):  # the reader may be gone
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_all(self, send: Send) -> None:
        loop, stream = asyncio.get_running_loop(), self._stream

        async def put(data: bytes) -> float:
            began = loop.time()
            await send({"type": "http.response.body", "body": data, "more_body": True})
            return loop.time() - began

        with stream.listen() as changed:
            waited = await put(self._hello)
            sent = loop.time()
            while True:
                changed.clear()
                data = await stream.frame(is_late=waited > FULL_S)
                if not data and loop.time() - sent >= COMMENT_S:
                    data = COMMENT
                if data:
                    waited = await put(data)
                    sent = loop.time()
                if stream.is_over:
                    return
                left = max(sent + COMMENT_S - loop.time(), 0.0)
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(stream.poll_s, left)):
                        await changed.wait()


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _wait_until_ended(session: Session) -> None:
    await session.ended.wait()  # bartack: allow[wait_without_deadline] its stream ends before it
