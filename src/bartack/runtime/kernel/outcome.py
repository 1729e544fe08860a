"""The one place where the outcome of a step is made.

The desks decide outcomes; ``turn.py`` records them and reports them to the worker. ``step_finished`` and ``step_failed`` take the
step in any form in which the kernel knows it: as a worker asked for it, as it is open, or as its worker reported it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from bartack.errors import BartackError, WorkerError
from bartack.runtime.protocol import frames as f
from bartack.runtime.state.entries import StepFailed, StepFinished
from bartack.runtime.state.units import Units
from bartack.runtime.state.worker_state import OpenStep


class StepRef(NamedTuple):
    """A step of which only the journal knows."""

    p: str
    n: int
    step: str
    fp: str
    cleanup: bool = False


KnownStep = f.Step | f.Done | f.Note | OpenStep | StepRef


def step_finished(
    step: KnownStep,
    *,
    about: str = "",
    by: str = "",
    usd: float = 0.0,
    usd_estimated: bool = False,
    used: Units | None = None,
    took_us: int = 0,
) -> StepFinished:
    """A step has a value."""
    return StepFinished(
        p=step.p,
        n=step.n,
        step=step.step,
        fp=step.fp,
        about=about,
        by=by,
        usd=usd,
        usd_estimated=usd_estimated,
        used=used,
        cleanup=step.cleanup,
        took_us=took_us,
    )


def step_failed(
    step: KnownStep,
    error: BartackError | f.ErrorData,
    worker: str = "",
    *,
    about: str = "",
    usd: float = 0.0,
    usd_estimated: bool = False,
    used: Units | None = None,
    took_us: int = 0,
    late: bool = False,
) -> StepFailed:
    """A step failed; ``worker``: whose it is, if the error does not have that yet."""
    return StepFailed(
        p=step.p,
        n=step.n,
        step=step.step,
        fp=step.fp,
        about=about,
        error=error if isinstance(error, f.ErrorData) else describe(error, worker),
        usd=usd,
        usd_estimated=usd_estimated,
        used=used,
        cleanup=step.cleanup,
        took_us=took_us,
        late=late,
    )


def describe(error: BaseException, worker: str = "") -> f.ErrorData:
    """An error of Bartack as it is sent to another process."""
    facts = {name: _finite(value) for name, value in vars(error).items() if not name.startswith("_")}
    code = error.code if isinstance(error, BartackError) else ""
    return f.ErrorData(
        type=f"{type(error).__module__}:{type(error).__qualname__}",
        message=str(error),
        code=code,
        facts=facts,
        worker=worker,
    )


def worker_error(path: str, cause: f.ErrorData) -> f.ErrorData:
    """What the failure of a worker is for the step that waits for it."""
    error = describe(WorkerError(path, cause.type.rpartition(":")[2], cause.message), path)
    error.cause = cause
    return error


def _finite(value: object) -> object:
    """A fact in a form that JSON has."""
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value
