"""Runs that survive everything: workers, steps, replay, and the process that owns a run.

What a program needs most is exported by ``bartack`` itself. Every name is loaded by its first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bartack.runtime._async_run import AsyncRun, AsyncSession
    from bartack.runtime._bodies import Retry, StepInfo, step_info
    from bartack.runtime._calls import Worker, WorkerCall
    from bartack.runtime._context import Context, SessionView
    from bartack.runtime._mailbox_client import Mailbox, Mailroom
    from bartack.runtime._members_workers import Handle
    from bartack.runtime._op import Branch
    from bartack.runtime._results import Budget, Failure, Outcome, Reply, ShellResult
    from bartack.runtime._run import Question, Run, RunState, run
    from bartack.runtime._session import Session
    from bartack.runtime._worker import step, worker

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

_HOMES: Final = {
    "_async_run": ("AsyncRun", "AsyncSession"),
    "_bodies": ("Retry", "StepInfo", "step_info"),
    "_calls": ("Worker", "WorkerCall"),
    "_context": ("Context", "SessionView"),
    "_mailbox_client": ("Mailbox", "Mailroom"),
    "_members_workers": ("Handle",),
    "_op": ("Branch",),
    "_results": ("Budget", "Failure", "Outcome", "Reply", "ShellResult"),
    "_run": ("Question", "Run", "RunState", "run"),
    "_session": ("Session",),
    "_worker": ("step", "worker"),
}


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            value: object = getattr(import_module(f"{__name__}.{home}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
