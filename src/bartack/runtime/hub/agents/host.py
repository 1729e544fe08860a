"""The loop of a hub, as agents that are programs see it: ``HubHost``, for ``programs.py``."""

from __future__ import annotations

import errno
import os
import selectors
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from bartack.core.accounts import Account
from bartack.core.clock import Clock
from bartack.runtime.hub.agents.bridges import Bridges, HubBridge
from bartack.runtime.hub.machine import check_room
from bartack.runtime.hub.poller import READ, WRITE, Poller
from bartack.supervision.parent.client import ParentClient
from bartack.supervision.parent.wire import (
    Exited,
    Gone,
    ParentDied,
    ParentEvent,
    Started,
    StartFailed,
)
from bartack.supervision.process.limits import files_limit

if TYPE_CHECKING:
    from bartack.agents.process.process import AgentProcess

Show = Callable[[Literal["note"], str, str], None]


class HubHost:
    """The loop of a hub, as agents see it: a poller to wait with, and a keeper that starts processes."""

    def __init__(
        self,
        poller: Poller,
        keeper: Callable[[], ParentClient | None],
        new_token: Callable[[], int],
        show: Show,
        clock: Clock,
        account: Account | None = None,
        bridges: Bridges | None = None,
    ) -> None:
        self._account = account
        self._bridges = bridges
        self.clock = clock
        self.show = show
        self._poller = poller
        self._keeper = keeper
        self._new_token = new_token
        self._owners: dict[int, AgentProcess[Any]] = {}
        self._watched: dict[int, tuple[int, Callable[[], None]]] = {}

    @property
    def alive(self) -> bool:
        """Whether a process of an agent is left."""
        return bool(self._owners)

    def start(
        self,
        owner: AgentProcess[Any],
        argv: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
        fds: tuple[int, int, int],
        *,
        relayed: bool = False,
    ) -> int:
        """See ``Host.start``."""
        number = self._new_token()
        check_room(max(fds), files_limit())
        if self._account is not None:
            # The agent may open them again, as /dev/stdin.
            for fd in fds:
                os.fchown(fd, self._account.uid, -1)
        stdin, stdout, stderr = fds
        keeper = self._keeper()
        if keeper is None:
            raise OSError(errno.ESRCH, "the program that runs commands died too often")
        keeper.exec(number, [argv], cwd, env, stdin=stdin, stdout=stdout, stderr=stderr, relayed=relayed)
        self._owners[number] = owner
        return number

    def stop(self, number: int, grace_s: float) -> None:
        """See ``Host.stop``."""
        keeper = self._keeper()
        if keeper is not None:
            keeper.stop(number, grace_s)

    def sweep(self, number: int) -> None:
        """See ``Host.sweep``."""
        keeper = self._keeper()
        if keeper is not None:
            keeper.sweep(number)

    def watch(self, fd: int, ready: Callable[[], None], *, write: bool = False) -> None:
        """See ``Host.watch``."""

        def call(events: int) -> None:
            ready()

        events = WRITE if write else READ
        self._watched[fd] = (events, ready)
        self._poller.register(fd, events, call)

    def unwatch(self, fd: int) -> None:
        """See ``Host.unwatch``."""
        del self._watched[fd]
        self._poller.unregister(fd)

    def open_bridge(self, on_bytes: Callable[[bytes], None], on_closed: Callable[[], None]) -> HubBridge:
        """See ``BridgeHost.open_bridge``."""
        if self._bridges is None:
            raise OSError(errno.ENOTCONN, "this loop has no socket that a bridge could connect to")
        return self._bridges.open(on_bytes, on_closed)

    def event(self, event: ParentEvent) -> bool:
        """Handle a report of the keeper; ``False`` if it is not about the process of an agent."""
        number = getattr(event, "token", None)
        owner = self._owners.get(number) if isinstance(number, int) else None
        if owner is None or number is None:
            return False
        match event:
            case Started(pids=pids, pidfds=pidfds):
                for fd in pidfds:
                    os.close(fd)
                owner.started(pids[0])
            case Exited(statuses=statuses):
                owner.exited(statuses[-1])
            case Gone(leftovers=leftovers):
                del self._owners[number]
                owner.gone(leftovers)
            case StartFailed(problem=problem):
                del self._owners[number]
                owner.failed(problem)
            case _:
                return False
        return True

    def pump(self, timeout_s: float) -> None:
        """Wait for agents and their keeper only: the run is over."""
        keeper = self._keeper()
        if keeper is None:
            self.all_lost()
            return
        with selectors.DefaultSelector() as selector:
            selector.register(keeper, READ)
            for fd, (events, ready) in self._watched.items():
                selector.register(fd, events, ready)
            for key, _ in selector.select(timeout_s):
                if key.data is None:
                    for event in keeper.read_events():
                        if isinstance(event, ParentDied):
                            self.all_lost()
                        else:
                            self.event(event)
                elif key.fd in self._watched:
                    key.data()

    def all_lost(self) -> None:
        """The keeper died, and every agent with it."""
        owners, self._owners = list(self._owners.values()), {}
        for owner in owners:
            owner.exited(None)
            owner.gone()
