"""A server of ``bartack web`` for a benchmark, in a process of its own, and a browser that only asks.

``python -m bench._web WORKSPACE PATH FRAME_S`` serves until its standard input ends; its first line says where, with which cookie,
and by which link a real browser gets to the path. Events come every FRAME_S seconds.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import uvicorn

from bartack.resilience.loopback import open_listener
from bartack.web import Site, make_app
from bartack.web._sessions import COOKIE
from bartack.web.following import _follow
from bench._events import LIMIT_S, read_events

TICKS: Final = os.sysconf("SC_CLK_TCK")


class Answer(NamedTuple):
    """An answer, and how long it took."""

    status: int
    body: bytes
    took_s: float

    @property
    def json(self) -> Any:
        """What it says."""
        return json.loads(self.body)


class WebServer:
    """A server that is running.

    Args:
        workspace: What it shows.
        to: Where its link leads.
        frame_s: How often pages get events at most.

    Attributes:
        link: Enters a real browser, once.
        origin: Where its pages are.
    """

    def __init__(self, workspace: str, to: str = "/", frame_s: float = _follow.FRAME_S) -> None:
        self._workspace = workspace
        self._to = to
        self._frame_s = frame_s

    def __enter__(self) -> Self:
        words = [sys.executable, "-m", "bench._web", self._workspace, self._to, str(self._frame_s)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        facts = json.loads(self._process.stdout.readline())
        self._port: int = facts["port"]
        self.origin: str = f"http://{facts['host']}"
        self.link: str = f"{self.origin}/enter#{facts['code']}"
        self._headers = {"Host": facts["host"], "Cookie": facts["cookie"]}
        self._connection = self._connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self._port, timeout=LIMIT_S)

    def get(self, path: str) -> Answer:
        """Ask for something."""
        began = time.perf_counter()
        self._connection.request("GET", path, headers=self._headers)
        answer = self._connection.getresponse()
        body = answer.read()
        return Answer(answer.status, body, time.perf_counter() - began)

    def events(self, path: str) -> Iterator[tuple[str, int, float]]:
        """The events of a stream: see ``read_events``."""
        return read_events(self._port, self._headers, path)

    @contextmanager
    def watch(self, path: str) -> Generator[None]:
        """Have a process read a stream, as a page does, from its first event on until the block is left."""
        words = [sys.executable, "-m", "bench._events", str(self._port), json.dumps(self._headers), path]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as page:
            try:
                assert page.stdout is not None
                page.stdout.readline()
                yield
            finally:
                page.kill()

    def cpu_s(self) -> float:
        """Processor time that it has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident_mb(self) -> float:
        """Memory that it takes."""
        return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * 4096 / 1e6


def serve(workspace: str, to: str, frame_s: float) -> None:
    """Serve a workspace until the standard input ends."""
    setattr(_follow, "FRAME_S", frame_s)  # noqa: B010 - it is final for all but this benchmark
    with open_listener(port=0) as listener:
        port = listener.getsockname()[1]
        site = Site([Path(workspace)], port=port)
        token = site.sessions.enter(site.sessions.new_code()).token
        code = site.sessions.new_code(to)
        config = uvicorn.Config(make_app(site), access_log=False, lifespan="on", log_config=None, ws="none")
        server = uvicorn.Server(config)

        async def run() -> None:
            loop = asyncio.get_running_loop()
            loop.add_reader(sys.stdin.fileno(), lambda: setattr(server, "should_exit", True))
            facts = {"port": port, "host": site.host, "cookie": f"{COOKIE}={token}", "code": code}
            print(json.dumps(facts), flush=True)
            await server.serve(sockets=[listener])

        asyncio.run(run())


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], float(sys.argv[3]))
