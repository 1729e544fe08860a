"""Runs workers without a hub in the process that workers are forked from, so that their code is warm.

A child shares the memory of that process until one of the two writes to it. Python writes to all code that it runs for the first
few times: it specialises the code in place. What is run here is specialised once instead of in every worker. So a worker has
less to copy before its first line, and when its session fails. ``child.py`` is the process of a worker.
"""

from __future__ import annotations

import socket
from contextlib import closing
from typing import Final

import msgspec

from bartack.errors import FrameError, SessionFailedError
from bartack.runtime.context.context import Context
from bartack.runtime.context.decorators import step, worker
from bartack.runtime.context.definitions import Worker
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.exceptions import describe_error
from bartack.runtime.protocol.scoreboard import Scoreboard
from bartack.runtime.worker_process.child import HubConnection, WorkerProcess

_PATH: Final = "warm-up"
_ORDER: Final = f.Order(path=_PATH, incarnation=1, blobs="/", workspace="/", program="/", root="/")
_WELCOME: Final = f.Welcome(run=_PATH, dir="/", workspace="/", timestamp=0, v=msgspec.Raw(b'{"args":[1]}'))
_SENT: Final = f.Answer(i=1, v=msgspec.Raw(b'"1"'))
_STEPS: Final = 3


@step
def repeat(number: int) -> int:
    """Does nothing by itself."""
    return number


@worker
async def failing(ctx: Context, number: int) -> int:
    """Does some steps and fails by itself."""
    await ctx.mailbox.here.send(number)
    for _ in range(_STEPS):
        await repeat(number)
    raise ValueError(number)


@worker
async def blocked(ctx: Context, number: int) -> int:
    """Waits for a message that does not come, because the session fails."""
    await ctx.mailbox.here.send(number)
    return await ctx.mailbox.never.receive(1, type=int)


def warm_up() -> None:
    """Run a worker that fails, and one whose session fails for that."""
    run_alone(blocked, run_alone(failing))


def run_alone(part: Worker[..., object], cause: f.ErrorData | None = None) -> f.ErrorData:
    """Run a worker whose session fails for a cause, if it does not fail by itself; returns the error that it reports."""
    cues: list[f.Frame] = [_WELCOME, f.Live(), _SENT]
    if cause is None:
        cues += [f.Answer(i=2 + place, v=msgspec.Raw(b"1")) for place in range(_STEPS)]
    else:
        failure = describe_error(SessionFailedError(_PATH, cause.type, cause.message))
        failure.cause = cause
        cues.append(f.SessionFailed(e=failure))
    ours, theirs = socket.socketpair()
    with ours, theirs, closing(Scoreboard.create()) as scoreboard:
        for cue in cues:
            ours.sendall(f.encode(cue))
        # A worker that waits for more must not wait for ever: no worker could be forked meanwhile.
        ours.shutdown(socket.SHUT_WR)
        hub = HubConnection(theirs)
        hub.send(f.Hello(path=_PATH, incarnation=1, pid=1))
        welcome = hub.next()
        if not isinstance(welcome, f.Welcome):
            raise FrameError(f"{type(welcome).__name__} instead of a welcome")
        end = WorkerProcess(_ORDER, welcome, hub, scoreboard=scoreboard).warm_up(part)
        hub.send(end)
    assert isinstance(end, f.Failed)
    return end.e
