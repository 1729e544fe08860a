"""A site that is served in the loop of a test, without a socket: requests, and streams whose reader can be slow."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from starlette.types import Message

from bartack.web import Site, make_app
from bartack.web._sessions import COOKIE, Session

LIMIT_S = 20.0
"""How long a test waits for something that has to happen."""


class Answer(NamedTuple):
    """The answer to a request."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """What it says."""
        return json.loads(self.body)


class Event(NamedTuple):
    """One event of a stream."""

    name: str
    id: int
    data: Any


class Reader:
    """Reads a stream of events. While it is paused, the other side cannot send."""

    def __init__(self) -> None:
        self.status = 0
        self.raw: list[bytes] = []
        self.comments = 0
        self.is_over = False
        self._text = b""
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._free = asyncio.Event()
        self._free.set()
        self._gone = asyncio.Event()
        self._asked = False

    def pause(self) -> None:
        """Take nothing from now on."""
        self._free.clear()

    def go_on(self) -> None:
        """Take what comes again."""
        self._free.set()

    def leave(self) -> None:
        """Close the connection."""
        self._gone.set()

    async def receive(self) -> Message:
        """See ASGI."""
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """See ASGI."""
        await self._free.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        body: bytes = message.get("body", b"")
        self.raw.append(body)
        self._text += body
        while b"\n\n" in self._text:
            block, self._text = self._text.split(b"\n\n", 1)
            self._take(block)
        if not message.get("more_body"):
            self.is_over = True
            self._events.put_nowait(None)

    def _take(self, block: bytes) -> None:
        if block.startswith(b":"):
            self.comments += 1
            return
        members = dict(line.split(b": ", 1) for line in block.split(b"\n"))
        assert set(members) == {b"id", b"event", b"data"}, block
        self._events.put_nowait(
            Event(members[b"event"].decode(), int(members[b"id"]), json.loads(members[b"data"]))
        )

    async def next(self) -> Event:
        """The next event."""
        async with asyncio.timeout(LIMIT_S):
            found = await self._events.get()
        assert found is not None, "the stream is over"
        return found

    async def until(self, fits: Callable[[Event], bool]) -> Event:
        """The next event that fits."""
        while not fits(found := await self.next()):
            pass
        return found

    async def named(self, name: str) -> Event:
        """The next event with a name."""
        return await self.until(lambda found: found.name == name)

    async def end(self) -> None:
        """Wait until the stream is over."""
        async with asyncio.timeout(LIMIT_S):
            while await self._events.get() is not None:
                pass


class Served:
    """A site that is served."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.app = make_app(site)
        token = site.sessions.enter(site.sessions.new_code()).token
        found = site.sessions.find(token)
        assert found is not None
        self.session: Session = found
        self._cookie = f"{COOKIE}={token}"

    def _scope(self, path: str) -> dict[str, Any]:
        parts = urlsplit(path)
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": unquote(parts.path),
            "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(),
            "root_path": "",
            "headers": [(b"host", self.site.host.encode()), (b"cookie", self._cookie.encode())],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 8054),
            "state": {},
        }

    async def get(self, path: str) -> Answer:
        """Ask for something."""
        sent: list[Message] = []
        asked = iter([{"type": "http.request", "body": b"", "more_body": False}])

        async def receive() -> Message:
            found = next(asked, None)
            if found is None:
                await asyncio.Event().wait()
            return found or {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        async with asyncio.timeout(LIMIT_S):
            await self.app(self._scope(path), receive, send)
        headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], headers, b"".join(message.get("body", b"") for message in sent[1:]))

    @asynccontextmanager
    async def stream(self, path: str) -> AsyncGenerator[Reader]:
        """Open a stream; it is closed at the end."""
        reader = Reader()
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self._run(path, reader))
            try:
                yield reader
            finally:
                reader.go_on()
                reader.leave()
                async with asyncio.timeout(LIMIT_S):
                    await task

    async def _run(self, path: str, reader: Reader) -> None:
        await self.app(self._scope(path), reader.receive, reader.send)


@asynccontextmanager
async def serve(site: Site) -> AsyncGenerator[Served]:
    """Serve a site."""
    served = Served(site)
    async with served.app.router.lifespan_context(served.app):
        yield served


def run(work: Callable[[], Awaitable[None]]) -> None:
    """Run a test in a loop of its own."""

    async def limited() -> None:
        async with asyncio.timeout(60):
            await work()

    asyncio.run(limited())


async def until(is_so: Callable[[], object]) -> None:
    """Wait for something that changes in this loop without an event of its own."""
    async with asyncio.timeout(LIMIT_S):
        while not is_so():  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.01)
