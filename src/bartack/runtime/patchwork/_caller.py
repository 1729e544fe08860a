"""What the steps of a program need of the worker that calls them. ``_runtime.py`` is the one that there is."""

from __future__ import annotations

from typing import Protocol, TypeVar

from bartack.runtime.context.context import Context
from bartack.runtime.patchwork._mailboxes import DeliveryValue, MailboxValue
from bartack.runtime.patchwork._program import Declaration
from bartack.runtime.scheduler.operations import Op
from bartack.runtime.scheduler.results import ShellResult
from bartack.runtime.scheduler.scheduler import Scheduler

T = TypeVar("T")


class Caller(Protocol):
    """A worker that performs steps."""

    ctx: Context
    scheduler: Scheduler
    inbox: MailboxValue
    monitors: dict[str, str]
    """The mailboxes that the monitors of this worker report to, by their refs."""

    @property
    def site(self) -> Declaration:
        """The declaration whose code runs."""
        ...

    def perform(self, operation: Op[T]) -> T:
        """Perform an operation; if it is a step, it stands where the code that runs stands."""
        ...

    def out(self, channel: str, *parts: object) -> None:
        """Print or log."""
        ...

    def hold(self, delivery: DeliveryValue | None) -> None:
        """The worker takes a delivery, or none more; the one before is acknowledged."""
        ...

    def unsafe_shell(self, text: str) -> ShellResult:
        """Let ``/bin/sh`` read a text."""
        ...
