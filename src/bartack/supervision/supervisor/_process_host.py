"""The processes of a supervisor: one parent program for all of them, started with the first.

What a process of it starts, in whatever session, ends with it; and all of them end when we are killed. Should the parent program
itself be killed, its guardian ends what it leaves; should both be killed, that is found in its control groups, and by a mark in
the environment.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from bartack.core.clock import Clock
from bartack.core.ids import new_token
from bartack.supervision.parent.client import ParentClient
from bartack.supervision.parent.wire import (
    Exited,
    Gone,
    ParentDied,
    ParentEvent,
    ParentReady,
    Started,
    StartFailed,
)
from bartack.supervision.process.cgroup import kill_dead_cgroups
from bartack.supervision.process.tree import KILL_TIMEOUT_S, find_by_environment, kill_tree
from bartack.supervision.supervisor._host_program import HOST_PROGRAM
from bartack.supervision.supervisor._restart import Intensity

MARK: Final = "BARTACK_SUPERVISOR"
"""The variable that every process below a supervisor has."""

PARENT_RESTARTS: Final = 3
PARENT_SECONDS: Final = 5.0
"""A parent program that dies more often takes its children's supervisors with it."""


class ProcessListener(Protocol):
    """Asked for a process, and is notified of its start and its end."""

    def started(self, pid: int) -> None:
        """It runs."""
        ...

    def exited(self, status: int, peak_memory_bytes: int) -> None:
        """It ended; what it started may still be there."""
        ...

    def gone(self, leftovers: Sequence[str], survivors: Sequence[str]) -> None:
        """Nothing of it is left, but ``survivors``."""
        ...

    def failed(self, problem: str) -> None:
        """It could not be started, and nothing of it is left."""
        ...

    def lost(self, *, counted: bool) -> None:
        """The parent program was killed, and it with that."""
        ...


class ProcessHost:
    """One parent program and its children, on a running loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deaths = Intensity(PARENT_RESTARTS, PARENT_SECONDS)
        self._mark = f"{os.getpid()}-{new_token()}"
        self._loop = asyncio.get_running_loop()
        self._client: ParentClient | None = None
        self._listeners: dict[int, ProcessListener] = {}
        self._tokens = 0

    def marks(self) -> dict[str, str]:
        """The variables that every process gets."""
        return {MARK: self._mark}

    def execute(
        self,
        listener: ProcessListener,
        argv: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
        stdout: int | None,
        stderr: int | None,
    ) -> int:
        """Start a command; returns the token for it."""
        return self._ask(
            listener,
            lambda client, token: client.exec(
                token, [argv], cwd, {**env, **self.marks()}, stdout=stdout, stderr=stderr
            ),
        )

    def fork(
        self, listener: ProcessListener, payload: bytes, fds: Sequence[int], env: Mapping[str, str]
    ) -> int:
        """Start a function; returns the token for it."""
        return self._ask(listener, lambda client, token: client.fork(token, payload, fds, env))

    def stop(self, token: int, grace_s: float) -> None:
        """Ask everything below ``token`` to end, and kill what does not."""
        if self._client is not None and token in self._listeners:
            self._client.stop(token, grace_s)
            self._write()

    def kill(self, token: int) -> None:
        """Kill everything below ``token``."""
        if self._client is not None and token in self._listeners:
            self._client.kill(token)
            self._write()

    async def close(self) -> None:
        """End the parent program and whatever is left below it."""
        client, self._client = self._client, None
        if client is not None:
            self._forget(client)
            await self._loop.run_in_executor(None, client.close)

    def _ask(self, listener: ProcessListener, send: Callable[[ParentClient, int], None]) -> int:
        if self._client is None:
            env = {**os.environ, **self.marks()}
            self._client = ParentClient.start(HOST_PROGRAM, "", env, os.getcwd())
            self._loop.add_reader(self._client.fileno(), self._read)
        self._tokens += 1
        token = self._tokens
        self._listeners[token] = listener
        send(self._client, token)
        self._write()
        return token

    def _write(self) -> None:
        client = self._client
        if client is None:
            return
        client.flush()
        if client.wants_write:
            self._loop.add_writer(client.fileno(), self._write)
        else:
            self._loop.remove_writer(client.fileno())

    def _read(self) -> None:
        if self._client is not None:
            for event in self._client.read_events():
                self._take(event)

    def _take(self, event: ParentEvent) -> None:
        match event:
            case ParentReady():
                return
            case Started():
                for fd in event.pidfds:
                    os.close(fd)
                self._listeners[event.token].started(event.pids[0])
            case Exited():
                self._listeners[event.token].exited(event.statuses[0], event.max_rss_kb * 1024)
            case Gone():
                self._listeners.pop(event.token).gone(event.leftovers, event.survivors)
            case StartFailed():
                self._listeners.pop(event.token).failed(event.problem)
            case ParentDied():
                self._parent_died()

    def _parent_died(self) -> None:
        """The parent program was killed: end what is left of it, then notify all listeners."""
        client, self._client = self._client, None
        if client is not None:
            self._forget(client)
            client.close()
        kill_dead_cgroups(KILL_TIMEOUT_S)
        kill_tree(*(facts.id for facts in find_by_environment(MARK, self._mark)))
        counted = not self._deaths.admit(self._clock.monotonic_ns())
        listeners = list(self._listeners.values())
        self._listeners.clear()
        for listener in listeners:
            listener.lost(counted=counted)

    def _forget(self, client: ParentClient) -> None:
        self._loop.remove_reader(client.fileno())
        self._loop.remove_writer(client.fileno())
