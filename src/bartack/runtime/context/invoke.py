"""One invocation of a worker: what its process needs to run it, wherever that process is, and how it reports the end."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Final, cast

from bartack.errors import SessionFailedError
from bartack.runtime.context.context import Context
from bartack.runtime.context.definitions import Worker
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.exceptions import describe_error, origin_of
from bartack.runtime.protocol.values import Buffer
from bartack.runtime.scheduler.scheduler import Facts, Scheduler

_SESSION_FAILED: Final = f"{SessionFailedError.__module__}:{SessionFailedError.__qualname__}"


def facts_of(welcome: f.Welcome, path: str, worker: Worker[..., object]) -> Facts:
    """What a worker knows of itself and its session."""
    return Facts(
        run=welcome.run,
        run_dir=welcome.dir,
        workspace=welcome.workspace,
        path=path,
        name=worker.name,
        timestamp=welcome.timestamp,
        rewinds=welcome.rewinds,
        first=welcome.first,
        agent=worker.agent,
        argv=tuple(welcome.argv),
        versions=welcome.versions,
    )


def call_worker(
    worker: Worker[..., object], scheduler: Scheduler, arguments: Buffer
) -> Coroutine[object, object, object]:
    """The worker's function, called with encoded arguments.

    Raises:
        TypeMismatchError: They do not fit.
    """
    ctx = Context(scheduler, worker)
    args, kwargs = worker.shape.decode(arguments)
    if worker.timeout_s is not None:
        return _limited(worker, worker.timeout_s, ctx, args, kwargs)
    return cast("Coroutine[object, object, object]", worker.function(ctx, *args, **kwargs))


def report_end(worker: Worker[..., object], scheduler: Scheduler) -> f.Result | f.Failed:
    """How the worker ended, for the hub.

    Raises:
        TypeMismatchError: Its result is not of the annotated type.
        MessageValueError: Its result cannot be serialised.
    """
    path = scheduler.facts.path
    if scheduler.fatal is not None:
        return f.Failed(e=describe_error(scheduler.fatal, path), fatal=True)
    value, error = scheduler.outcome
    if scheduler.aborted and type(error) is SessionFailedError:
        # The hub knows the failure and only waits for a report. It is short, because all workers send one at once.
        return f.Failed(e=f.ErrorData(type=_SESSION_FAILED, message=error.message))
    if error is not None:
        return f.Failed(e=describe_error(error, path), origin=origin_of(error))
    v, ref = scheduler.requests.pack(
        worker.shape.result.encode(value, f"the result of {worker.name}", worker.function)
    )
    return f.Result(v=v, ref=ref)


async def _limited(
    worker: Worker[..., object], seconds: float, ctx: Context, args: list[object], kwargs: dict[str, object]
) -> object:
    """A worker with a limit for all of its time."""
    async with ctx.timeout(seconds):
        return await worker.function(ctx, *args, **kwargs)
