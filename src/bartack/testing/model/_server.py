"""``ModelServer``: the scripted model server as tests see it. How it answers: ``_director.py``; how it speaks: ``_http.py``."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from bartack.testing.model._director import Director
from bartack.testing.model._hold import Hold
from bartack.testing.model._http import HttpServer, Shared, serve
from bartack.testing.model._record import ModelRequest, RequestLog
from bartack.testing.model._script import TokenUsage, invalid, load_scripts, read_scripts


class ModelServer:
    """A model server that answers from scripts, on the loopback interface, for agents such as Claude Code and Codex.

    A prompt with ``[[script:NAME]]`` in it is answered by the steps of that script, one step for each request. It is a context
    manager and listens while it is entered. At the exit it raises an ``AssertionError`` if a step did not get what it expects.

    Args:
        scripts: The steps of each script, by name; or a TOML or JSON file of them.
        rules: Regular expressions of prompts without such a mark, each with the script that answers them; the first that is found
            in the prompt counts.
        port: Where to listen; 0 for a free port.
        cwd: What ``{{cwd}}`` in the strings of a step is replaced with; by default the directory that the agent names to its model.
            ``{{result.NAME}}`` is replaced with a member of the newest tool result that is JSON and has it, such as ``runs.0.run``.
        bodies: Whether to keep the bodies of requests.
        on_request: Called with every request as soon as it is answered.

    Raises:
        ScriptError: A script is invalid.
    """

    def __init__(
        self,
        scripts: Mapping[str, Sequence[Mapping[str, object]]] | Path,
        *,
        rules: Mapping[str, str] | None = None,
        port: int = 0,
        cwd: str | Path = "",
        bodies: bool = False,
        on_request: Callable[[ModelRequest], None] | None = None,
    ) -> None:
        self._scripts = load_scripts(scripts) if isinstance(scripts, Path) else read_scripts(scripts)
        self._port = port
        self._log = RequestLog(on_request)
        compiled = [(re.compile(pattern), name) for pattern, name in (rules or {}).items()]
        director = Director(self._scripts, str(cwd), compiled)
        self._shared = Shared(director, self._log, keep_bodies=bodies)
        self._stops: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        try:
            server = HttpServer(self._port, self._shared)
        except OSError as error:
            raise invalid(f"cannot listen on port {self._port}: {error}") from error
        self._port = int(server.server_address[1])
        self._stops.append(serve(server))
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        self.close()
        if kind is None:
            self.check()

    def close(self) -> None:
        """Stop listening and end all connections."""
        while self._stops:
            self._stops.pop()()

    def listen_on(self, listener: socket.socket) -> None:
        """Serve a listening socket, too, such as one of another network namespace. The server closes it."""
        self._stops.append(serve(HttpServer(self._port, self._shared, listener)))

    @property
    def url(self) -> str:
        """Where it is. Agents with the Messages API get this address, others get it with ``/v1``."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._port

    @property
    def requests(self) -> list[ModelRequest]:
        """The requests so far, in the order in which they came."""
        return self._log.requests

    @property
    def problems(self) -> list[str]:
        """What steps expected and did not get, and scripts that prompts named and that are not there."""
        return self._log.problems

    @property
    def usage(self) -> TokenUsage:
        """The tokens that the agents were charged with: those of broken replies count as far as they were reported."""
        return self._log.usage

    def requests_of(self, script: str) -> list[ModelRequest]:
        """The requests that a script answered."""
        return [request for request in self.requests if request.script == script]

    def wait_for(
        self, wanted: Callable[[ModelRequest], object], *, timeout_s: float = 30.0, count: int = 1
    ) -> ModelRequest:
        """Wait until a request has come for which ``wanted`` is true, or ``count`` of them; the last of these.

        Requests that came before the call count. A request is looked at when it comes and when it is answered.

        Raises:
            TimeoutError: It has not come in time. The message shows the last requests.
        """
        return self._log.wait_for(wanted, timeout_s, count)

    def hold(self, script: str, step: int = 0, *, after: int = 0) -> Hold:
        """Stop a step before it is answered, or after a number of events of its stream, until the hold is released."""
        if script not in self._scripts:
            raise invalid(f"there is no script {script!r}; there are {sorted(self._scripts)}")
        return self._shared.holds.add(Hold(script, step, after))

    def check(self) -> None:
        """Check that every step got what it expects.

        Raises:
            AssertionError: A step did not. The message has the differences.
        """
        if self.problems:
            raise AssertionError("\n".join(self.problems))
