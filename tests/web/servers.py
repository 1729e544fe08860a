"""A real server in a process of its own, and plain connections to it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.waiting import PATIENCE_S

from bartack.web import ControlRequest, ask_server
from bartack.web._sessions import COOKIE


class Answer(NamedTuple):
    """What a server has answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)


class WebServer:
    """``bartack web`` for a workspace; a context manager.

    Args:
        workspace: What it shows.
        options: Further options of the command.
        state: The state home, if it is not that of the test.
    """

    def __init__(self, workspace: Path, *options: str, state: Path | None = None) -> None:
        command = [sys.executable, "-m", "bartack", "web", "--port", "0", "--no-open", "--json", *options]
        self._state = Path(os.environ["XDG_STATE_HOME"]) if state is None else state
        self.process = subprocess.Popen(
            command,
            cwd=workspace,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "XDG_STATE_HOME": str(self._state)},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate(timeout=PATIENCE_S)[1]
        self.facts: dict[str, Any] = json.loads(line)
        self.link: str = self.facts["url"]
        self.origin, _, self.code = self.link.partition("/enter#")
        self.host = self.origin.removeprefix("http://")
        self.port = int(self.host.rpartition(":")[2])
        self.cookie = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.kill()
        self.process.communicate(timeout=PATIENCE_S)

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        address: str = "127.0.0.1",
    ) -> Answer:
        """Send a request as a page of the server would, on a connection of its own."""
        given = {"Host": self.host, "Origin": self.origin, "Content-Type": "application/json"}
        given |= {"Cookie": f"{COOKIE}={self.cookie}"} if self.cookie else {}
        connection = http.client.HTTPConnection(address, self.port, timeout=PATIENCE_S)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            data = b"" if body is None else json.dumps(body).encode()
            for name, value in {**given, **(headers or {})}.items():
                connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(data)))
            connection.endheaders(data)
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def enter(self, code: str | None = None) -> Answer:
        """Exchange a code for a session; later requests belong to it."""
        answer = self.ask("POST", "/enter", {"code": self.code if code is None else code})
        found = answer.headers.get("set-cookie", "")
        self.cookie = found.partition("=")[2].partition(";")[0] or self.cookie
        return answer

    def new_link(self, *workspaces: Path) -> str:
        """Another link, into a server that shows these workspaces, too."""
        request = ControlRequest("link", [str(workspace) for workspace in workspaces])
        answer = ask_server(request, self._state / "bartack" / "web.sock")
        assert answer is not None
        return answer.url

    @property
    def csrf(self) -> str:
        """The token of the session, from a page."""
        page = self.ask("GET", "/").body.decode()
        return page.partition('name="csrf" value="')[2].partition('"')[0]

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal, and wait for the end: the exit code, and what it wrote."""
        self.process.send_signal(number)
        _, written = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, written
