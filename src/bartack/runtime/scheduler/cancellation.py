"""How a wait of a branch ends: with its outcome, because something interrupts it, or because the session failed.

Three things interrupt a wait: a deadline of a block around it, the failure of another branch of its group, and a prompt that
ends while one of its tools runs. The interruption is remembered in the branch until it is raised there, so a branch that does
not wait is interrupted at its next await, and ``Branch.settle`` knows which block it is for.

An interrupted step is not gone: its outcome is whatever the hub or the body answers, mostly a ``StepCancelledError``. That
answer is recorded like every outcome, and replay takes it from there. So nothing here is recorded except that a deadline passed
or its block was left in time.

The failure of the session is different: it ends every wait at once, without an answer. It is final, so after it only steps of
the clean-up are done. ``scheduler.py`` decides when the calls here happen; ``branches.py`` has the groups and blocks that make
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from bartack.errors import StepCancelledError
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.exceptions import mark_origin, revive_failure
from bartack.runtime.protocol.values import Buffer
from bartack.runtime.scheduler.operations import (
    AnyBranch,
    Counted,
    Deadline,
    LocalOp,
    PromptOp,
    Scope,
    WorkOp,
)
from bartack.runtime.scheduler.replay_log import Key
from bartack.runtime.scheduler.requests import Requests
from bartack.runtime.scheduler.run_queue import RunQueue
from bartack.runtime.state.links import DEADLINE

_NULL: Final = msgspec.Raw(b"null")
_PROMPT_OVER: Final = "its prompt is over"
_CANCELLED: Final = "cancelled"
"""The reason the hub gives for a step that came cancelled already; the branch knows a better one."""


class Cancellation:
    """Ends the waits of the branches of one worker."""

    def __init__(self, queue: RunQueue, requests: Requests) -> None:
        self.failure: f.ErrorData | None = None
        """The failure of the session, once the program knows of it."""
        self.deadlines: dict[Key, Deadline] = {}
        """The blocks with a deadline that have not been left."""
        self._queue = queue
        self._requests = requests

    def deliver(self, op: Counted[object], data: Buffer, error: BaseException | None) -> None:
        """A step has its outcome: its branch continues with it."""
        if isinstance(op, PromptOp) and self._hold(op, data, error):
            return
        if error is not None and op.cancelled:
            error = _with_own_reason(op, error)
        self._queue.wake(op.branch, data, error)

    def cancel(self, branch: AnyBranch, scope: Scope | None, reason: str) -> None:
        """Interrupt the wait of a branch, or its next one; for a scope of it, or (None) for the whole branch."""
        if branch.done or self.failure is not None:
            return
        branch.interruptions.append((scope, reason))
        op = branch.op
        if isinstance(op, LocalOp):
            wake_up = op.interrupt(branch, reason)
            if wake_up is not None:
                self._queue.wake(branch, *wake_up)
        elif isinstance(op, Counted) and not op.cancel_reason:
            op.cancel_reason = reason
            if isinstance(op, PromptOp) and op.held is not None and op.running is not None:
                self.cancel(op.running, None, reason)  # its agent has finished, only the tool still runs
            else:
                self._requests.give_up(op)

    # Blocks with a deadline.

    def enter(self, deadline: Deadline) -> None:
        """A branch enters a block with a deadline."""
        self.deadlines[deadline.step] = deadline
        deadline.branch.scopes.append(deadline)
        self._requests.submit(deadline.step, deadline)

    def leave(self, deadline: Deadline) -> None:
        """A branch leaves the block."""
        deadline.left = True
        deadline.branch.leave(deadline)
        self.deadlines.pop(deadline.step, None)
        if not deadline.fired and self._queue.fatal is None:
            path, n = deadline.step
            cleanup = self.failure is not None
            note = f.Note(p=path, n=n, step="timeout", fp=deadline.fp, v=_NULL, cleanup=cleanup)
            self._requests.submit((path, -n), note)

    def fire(self, deadline: Deadline | None) -> None:
        """The time of a block is over, unless it was left before."""
        if deadline is not None and not deadline.left:
            deadline.fired = True
            self.cancel(deadline.branch, deadline, f"{DEADLINE} {deadline.seconds:g} s passed")

    # The failure of the session.

    def fail_all(self, failure: f.ErrorData, but: Sequence[int] = ()) -> None:
        """The session failed: every wait ends now, except for the requests that are answered next."""
        self.failure = failure
        spared = self._requests.drop_all(but)
        self._requests.executor.abandon()
        for branch in list(self._queue.branches.values()):
            branch.interruptions.clear()
            op = branch.op
            if op in spared:
                continue
            if isinstance(op, WorkOp) and op.phase == "asked":
                self._requests.send(f.Cancel(p=op.p, n=op.n, unbegun=True))
            if isinstance(op, Counted):
                error = revive_failure(failure)
                if not (isinstance(op, PromptOp) and self._hold(op, b"", error)):
                    self._queue.wake(branch, None, error)

    def _hold(self, op: PromptOp[object], data: Buffer, error: BaseException | None) -> bool:
        """Keep the outcome of a prompt until the tool call that runs has ended, if one does; an error interrupts the call."""
        if op.running is None:
            return False
        op.held = (data, error)
        if error is not None:
            self.cancel(op.running, None, _PROMPT_OVER)
        return True


def _with_own_reason(op: Counted[object], error: BaseException) -> BaseException:
    """The error of a step that came cancelled to the hub, which does not know why."""
    interruptions = op.branch.interruptions
    if interruptions and isinstance(error, StepCancelledError) and error.reason == _CANCELLED:
        return mark_origin(StepCancelledError(interruptions[0][1]), (op.p, op.n))
    return error
