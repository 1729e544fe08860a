"""The two parent programs of a run: the zygote forks workers, the keeper runs commands.

Nothing that the hub starts can outlive it, because a parent program kills its descendants when the hub is gone. ``Parents`` starts
both and replaces one that died, up to ``PARENT_RESTARTS``. What their events mean is decided in ``worker_processes.py`` and
``commands.py``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Literal

from bartack.core.accounts import Account
from bartack.core.disk import is_disk_trouble
from bartack.runtime.hub.poller import READ, Poller
from bartack.runtime.protocol.requests import PARENT_OF_COMMANDS, PARENT_OF_WORKERS, Process
from bartack.runtime.rundir.inside import ZYGOTE
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.run_state import State
from bartack.supervision import Intensity
from bartack.supervision.parent.client import KEEPER, ParentClient
from bartack.supervision.parent.fence import Fence
from bartack.supervision.process.tree import kill_descendants

PARENT_RESTARTS: Final = (3, 5.0)
"""How many times within how many seconds a parent program is restarted; once more fails the session."""

NAMES: Final[dict[str, Literal["parent of workers", "parent of commands"]]] = {
    ZYGOTE: PARENT_OF_WORKERS,
    KEEPER: PARENT_OF_COMMANDS,
}


class Parents:
    """Starts, replaces and stops the parent programs.

    Args:
        run: The run that they work for.
        state: What the journal of the run adds up to.
        poller: Where their events are waited for.
        ready: Called when one of them has events.
        note: Writes a note for people.
        account: The user that processes of the run have, if it is not the hub's.
        lease: The descriptor of a lease page that both heed, if there is one.
    """

    def __init__(
        self,
        run: RunDir,
        state: State,
        poller: Poller,
        *,
        ready: Callable[[ParentClient], None],
        note: Callable[[str], None],
        account: Account | None = None,
        lease: int | None = None,
    ) -> None:
        self._run, self._state, self._poller = run, state, poller
        self._lease = lease
        self._ready, self._note, self._account = ready, note, account
        self._fence: Fence | None = None
        self._soft_files = 0
        self._clients: dict[str, ParentClient] = {}
        self._started: dict[str, int] = {}
        self.limit = PARENT_RESTARTS
        """How many restarts within how many seconds are allowed."""
        self._deaths = {module: Intensity(*self.limit) for module in NAMES}
        self.spared: set[int] = set()
        """Processes below the hub that are not part of the run, and outlive it."""

    @property
    def zygote(self) -> ParentClient | None:
        """The program that forks workers, unless it died too often."""
        return self._clients.get(ZYGOTE)

    @property
    def keeper(self) -> ParentClient | None:
        """The program that runs commands, unless it died too often."""
        return self._clients.get(KEEPER)

    @property
    def pids(self) -> set[int]:
        """The processes directly below the hub."""
        return {parent.pid for parent in self._clients.values()}

    def open(self, soft_files: int) -> None:
        """Start both; ``soft_files``: how many files their children can open."""
        self._soft_files = soft_files
        if self._account is not None:
            self._fence = Fence.open(str(self._run.tree_lock))
        for module in NAMES:
            self._clients[module] = self._start(module)

    def replace(self, parent: ParentClient) -> tuple[str, int, bool]:
        """A parent program was killed, and all below it with it: start another one in its place.

        Returns:
            Its module, how often it died lately, and whether another one was started.
        """
        module = next(name for name, client in self._clients.items() if client is parent)
        del self._clients[module]
        self.unregister(parent)
        parent.close(0.0)
        kill_descendants(keep=[*(other.pid for other in self._clients.values()), *self.spared])
        if self._fence is not None:
            self._fence.kill(module)
        now_ns = time.monotonic_ns()
        restarted = self._deaths[module].admit(now_ns) and self._restart(module)
        return module, self._deaths[module].count(now_ns), restarted

    def processes(self) -> Iterable[Process]:
        """Both as ``bartack ps`` shows them."""
        return [
            Process(NAMES[module], parent.program_pid, under="hub", started=self._started[module])
            for module, parent in self._clients.items()
        ]

    def unregister(self, parent: ParentClient) -> None:
        """Wait for no more events of a parent program."""
        try:
            self._poller.unregister(parent)
        except (KeyError, ValueError):
            return

    def close(self) -> None:
        """Stop both, and kill what they leave running."""
        for parent in self._clients.values():
            self.unregister(parent)
            parent.close()
        kill_descendants(keep=self.spared)
        if self._fence is not None:
            self._fence.close()

    def _restart(self, module: str) -> bool:
        """Start a parent program again; not if the system has nothing left for it."""
        try:
            self._clients[module] = self._start(module)
        except OSError as error:
            if is_disk_trouble(error):
                raise
            self._note(f"{NAMES[module]} cannot be started: {error.strerror or error}")
            return False
        return True

    def _start(self, module: str) -> ParentClient:
        account, run = self._account, self._state.run
        assert run is not None
        environ = os.environ if account is None else account.environment(os.environ)
        seed = self._run.seed(self._state)
        env = {**environ, **self._run.environment(self._state), "PYTHONHASHSEED": str(seed)}
        tree_lock = str(self._run.tree_lock)
        files, lease = self._soft_files, self._lease
        start = partial(ParentClient.start, module, tree_lock, env, run.workspace, files=files, lease=lease)
        if self._fence is None:
            parent = start()
        else:
            # Another user must not hold our terminal, from which it could read.
            with open(os.devnull, "wb") as null, self._fence.around(module):
                parent = start(stdout=null.fileno(), stderr=null.fileno(), account=account)
        self._started[module] = time.time_ns() // 1000

        def ready(events: int) -> None:
            self._ready(parent)

        self._poller.register(parent, READ, ready)
        return parent
