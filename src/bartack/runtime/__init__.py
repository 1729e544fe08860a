"""Runs that survive everything: workers, steps, replay, and the process that owns a run.

What a program needs most is exported by ``bartack`` itself. Every name is loaded by its first use.

Read ``kernel/core.py`` (decisions), ``hub/hub.py`` (the process that owns a run), ``scheduler/scheduler.py`` (a worker).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bartack._lazy import lazy

if TYPE_CHECKING:
    from bartack.runtime.client.asynchronous.run import AsyncRun
    from bartack.runtime.client.asynchronous.session import AsyncSession
    from bartack.runtime.client.run import Question, Run, RunState, run
    from bartack.runtime.client.session import Session
    from bartack.runtime.context.context import Context, SessionView
    from bartack.runtime.context.decorators import step, worker
    from bartack.runtime.context.definitions import Worker, WorkerCall
    from bartack.runtime.context.mailbox import Mailbox, Mailroom
    from bartack.runtime.context.workers import Handle
    from bartack.runtime.scheduler.body import Retry, StepInfo, step_info
    from bartack.runtime.scheduler.operations import Branch
    from bartack.runtime.scheduler.results import Budget, Failure, Outcome, Reply, ShellResult

__all__ = [
    "AsyncRun",
    "AsyncSession",
    "Branch",
    "Budget",
    "Context",
    "Failure",
    "Handle",
    "Mailbox",
    "Mailroom",
    "Outcome",
    "Question",
    "Reply",
    "Retry",
    "Run",
    "RunState",
    "Session",
    "SessionView",
    "ShellResult",
    "StepInfo",
    "Worker",
    "WorkerCall",
    "run",
    "step",
    "step_info",
    "worker",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "client.asynchronous.run": "AsyncRun",
        "client.asynchronous.session": "AsyncSession",
        "client.run": "Question Run RunState run",
        "client.session": "Session",
        "context.context": "Context SessionView",
        "context.decorators": "step worker",
        "context.definitions": "Worker WorkerCall",
        "context.mailbox": "Mailbox Mailroom",
        "context.workers": "Handle",
        "scheduler.body": "Retry StepInfo step_info",
        "scheduler.operations": "Branch",
        "scheduler.results": "Budget Failure Outcome Reply ShellResult",
    },
)
