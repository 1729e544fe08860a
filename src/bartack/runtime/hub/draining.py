"""A hub that its node asks to stop does so when no step is under way that has an effect outside (``kernel/idle.py`` says which).

From then on it begins none (``kernel/jobs.py``), so each branch of a worker ends at most the one that it is in. The processes are
looked at, too: a worker begins a body without asking, and its hub learns that from its scoreboard. The deadline is the node's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bartack.runtime.hub.worker_processes import WorkerProcesses
from bartack.runtime.kernel.core import Core
from bartack.runtime.kernel.idle import find_effects

LOOK_S: Final = 0.02
"""The time between two looks."""
BUSY_S: Final = 5.0
"""How long it waits for workers that compute, or replay, and are not in a step: one may be coming to its next step."""
LOOKS: Final = 2
"""How many looks in a row have to find every worker asleep: one may fall between the end of a body and its report."""


class Draining:
    """See the module.

    Attributes:
        is_asked: Whether the hub is to stop.

    Args:
        core: The core of the run.
        workers: The processes of its workers.
        note: Takes what the hub waits for.
    """

    def __init__(self, core: Core, workers: WorkerProcesses, note: Callable[[str], object]) -> None:
        self.is_asked = False
        self._core = core
        self._workers = workers
        self._note = note
        self._noted: list[str] = []
        self._asleep = 0
        self._without_since: float | None = None

    def ask(self) -> None:
        """The hub is to stop."""
        self.is_asked = True
        self._core.jobs.drains = True

    def is_due(self, now: float, *, is_quiet: bool) -> bool:
        """Whether this is the moment to stop.

        Args:
            now: Seconds, by the clock of the hub.
            is_quiet: Whether nothing came in this turn, and nothing that was decided before is still to be done.
        """
        if not self.is_asked:
            return False
        effects = find_effects(self._core)
        if effects:
            self._asleep, self._without_since = 0, None
            if effects != self._noted:
                self._noted = effects
                self._note(", ".join(effects))
            return False
        if self._without_since is None:
            self._without_since = now
        if is_quiet:
            self._asleep = self._asleep + 1 if self._are_asleep() else 0
        return self._asleep >= LOOKS or now - self._without_since >= BUSY_S

    def _are_asleep(self) -> bool:
        """Whether every worker has come to where it was and waits for the hub."""
        for number in self._workers.connection_numbers():
            self._workers.read_scoreboard(number)
        self._core.settle()
        is_idle = not self._core.processes.absent and not find_effects(self._core)
        return is_idle and self._workers.are_asleep()
