"""The boundary between a node and one run: whatever a run makes the hubs raise is reported, and never ends the node.

What is expected is a value already (``_hubs.py``). The rest is a fault of Bartack or of the machine. The run that shows it is held
with the error as its reason; the other runs of the node continue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from bartack.depot import Job
from bartack.node._core import Ending
from bartack.node._hubs import Hub, Hubs

Report = Callable[[str, str], object]
"""Takes a run, and what is wrong with it."""
T = TypeVar("T")


def describe_fault(error: Exception) -> str:
    """An error that was not expected, as the reason of a run."""
    return f"internal error, {type(error).__name__}: {error}"


class GuardedHub:
    """See ``Hub``."""

    def __init__(self, hub: Hub, run: str, report: Report) -> None:
        self._hub = hub
        self._run = run
        self._report = report

    @property
    def fd(self) -> int | None:
        """See ``Hub.fd``."""
        return self._hub.fd

    def is_gone(self) -> bool:
        """See ``Hub.is_gone``. One that cannot be watched counts as gone: if it runs, the next start of its run meets it."""
        try:
            return self._hub.is_gone()
        except Exception as error:  # noqa: BLE001 - the boundary: see the module
            self._report(self._run, describe_fault(error))
            return True

    def terminate(self) -> None:
        """See ``Hub.terminate``."""
        try:
            self._hub.terminate()
        except Exception as error:  # noqa: BLE001 - the boundary: see the module
            self._report(self._run, describe_fault(error))

    def close(self) -> None:
        """See ``Hub.close``."""
        self._hub.close()


class GuardedHubs:
    """See ``Hubs``.

    Args:
        hubs: The hubs.
        report: Takes what a question to them has raised. What a start or an end has raised is the problem of its run.
    """

    def __init__(self, hubs: Hubs, report: Report) -> None:
        self._hubs = hubs
        self._report = report

    def start(self, job: Job) -> Hub | Ending:
        """See ``Hubs.start``."""
        try:
            started = self._hubs.start(job)
        except Exception as error:  # noqa: BLE001 - the boundary: see the module
            return Ending(problem=describe_fault(error))
        return started if isinstance(started, Ending) else GuardedHub(started, job.run, self._report)

    def find(self, job: Job) -> Hub | None:
        """See ``Hubs.find``."""
        try:
            found = self._hubs.find(job)
        except Exception as error:  # noqa: BLE001 - the boundary: see the module
            self._report(job.run, describe_fault(error))
            return None
        return None if found is None else GuardedHub(found, job.run, self._report)

    def ending(self, job: Job, *, rebooted: bool = False) -> Ending:
        """See ``Hubs.ending``."""
        try:
            return self._hubs.ending(job, rebooted=rebooted)
        except Exception as error:  # noqa: BLE001 - the boundary: see the module
            return Ending(problem=describe_fault(error))

    def outcome(self, job: Job, since_us: int) -> str:
        """See ``Hubs.outcome``."""
        return self._ask(job, lambda: self._hubs.outcome(job, since_us), otherwise="")

    def is_asking(self, job: Job) -> bool:
        """See ``Hubs.is_asking``."""
        return self._ask(job, lambda: self._hubs.is_asking(job), otherwise=False)

    def has_mail(self, job: Job, since_us: int) -> bool:
        """See ``Hubs.has_mail``."""
        return self._ask(job, lambda: self._hubs.has_mail(job, since_us), otherwise=False)

    def _ask(self, job: Job, ask: Callable[[], T], otherwise: T) -> T:
        try:
            return ask()
        except Exception as error:  # noqa: BLE001 - the boundary: see the module
            self._report(job.run, describe_fault(error))
            return otherwise
