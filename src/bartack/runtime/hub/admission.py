"""Finds out what a foreign process is: outside every run, a command of this run, or another process inside a run.

The kernel (the peer's credentials) and its ancestors show it, before its hello is answered. This keeps an agent from answering its
own questions, or those of another run, by accident or on purpose. It is not a boundary between processes of one user.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from bartack.core.accounts import Account
from bartack.core.sockets import peer_of
from bartack.runtime.hub.connection import Connection
from bartack.runtime.kernel.turn import FOREIGN, Peer
from bartack.runtime.protocol.frames import PROTOCOL, Hello
from bartack.runtime.protocol.requests import NO_RIGHTS, STEP_RIGHTS
from bartack.runtime.rundir.inside import UNKNOWN, Inside, find_in_line, is_allowed, reason_of
from bartack.runtime.state.run_state import State
from bartack.supervision.process.facts import ProcessFacts
from bartack.supervision.process.line import read_line


class Gatekeeper:
    """Decides what a process may ask for when it sends its hello.

    Args:
        step_of: The key of the step that a token belongs to.
        state: The run that it asks something of.
        guest: The user that the run's processes have, if it is not that of the hub: it has the rights of step tokens only.
    """

    def __init__(
        self, step_of: Callable[[str], str | None], state: State, guest: Account | None = None
    ) -> None:
        self._step_of = step_of
        self._state = state
        self._guest = None if guest is None else guest.uid

    def is_ours(self, connection: Connection, hello: Hello) -> bool:
        """Whether a process is this user's or the run's own, and speaks our protocol."""
        _, uid = peer_of(connection.sock)
        return uid in {os.getuid(), self._guest} and hello.proto == PROTOCOL

    def admit(self, connection: Connection, hello: Hello, parents: set[int]) -> Peer | None:
        """The peer, with its rights; ``None`` if it is another user's, or speaks another protocol."""
        pid, uid = peer_of(connection.sock)
        if uid not in {os.getuid(), self._guest} or hello.proto != PROTOCOL:
            return None
        # A process without a number is outside the namespace of this one, so no run of this namespace started it.
        line = read_line(pid) if pid else []
        started = f"@{line[0].started}" if line else ""
        peer = Peer(connection.number, name=f"{FOREIGN}{pid}{started}")
        inside = self._place(line, parents)
        if uid == self._guest:
            inside = inside or Inside(UNKNOWN, "it runs as the user of its processes")
        if inside is not None and (uid == self._guest or not is_allowed(inside, self._state.run)):
            known = inside.run == self._state.run_id and hello.token and self._step_of(hello.token)
            peer.rights = STEP_RIGHTS if known else NO_RIGHTS
            peer.inside = reason_of(inside)
        else:
            peer.role = hello.by
        return peer

    def _place(self, line: list[ProcessFacts] | None, parents: set[int]) -> Inside | None:
        """The run that a process belongs to: this one, if a parent program of it or its hub is anywhere above it."""
        if line is None:
            return Inside(UNKNOWN, "it ended before it could be placed")
        if any(facts.pid in parents for facts in line) or any(facts.pid == os.getpid() for facts in line[1:]):
            return Inside(self._state.run_id, "a process of that run started it")
        return find_in_line(line)
