"""Calls of a prompt's tools, in the worker: how one is run. ``context/tool_functions.py`` makes tools of functions.

A call is a branch of the worker, with a path and steps of its own. The journal starts it, on the first run as on replay, and it
runs in the middle of the prompt that its agent was asked: whatever it assigns outside itself is assigned again on replay.
"""

from __future__ import annotations

from typing import cast

from bartack.errors import TypeMismatchError
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.exceptions import describe_error
from bartack.runtime.protocol.paths import parse_call
from bartack.runtime.protocol.values import Buffer
from bartack.runtime.scheduler.cancellation import Cancellation
from bartack.runtime.scheduler.operations import AnyBranch, PromptOp, Tool
from bartack.runtime.scheduler.requests import Requests
from bartack.runtime.scheduler.run_queue import RunQueue


class ToolCalls:
    """Runs the calls that agents make while branches of one worker wait for their prompts."""

    def __init__(self, queue: RunQueue, requests: Requests, cancellation: Cancellation) -> None:
        self._queue = queue
        self._requests = requests
        self._cancellation = cancellation

    def start(self, path: str, tool: str, data: Buffer) -> bool:
        """Run a call, of which a prompt has one at a time; ``False`` if no branch waits for its prompt."""
        place = parse_call(path)
        op = None if place is None else self._queue.open_step(place.p, place.n)
        if not isinstance(op, PromptOp):
            return False
        op.running = self._queue.add(path, _call(op.tools.get(tool), tool, data), _Call(self, op))
        return True

    def returned(self, op: PromptOp[object], branch: AnyBranch) -> None:
        """A call has ended: the agent gets its result, and the branch the prompt's outcome if that came meanwhile."""
        frame = f.Returned(p=branch.path)
        if branch.error is None:
            frame.v, frame.ref = self._requests.pack(cast("bytes", branch.result))
        else:
            frame.e = describe_error(branch.error, branch.path)
        self._requests.submit((frame.p, frame.n), frame)
        op.running = None
        held, op.held = op.held, None
        if held is not None:
            self._cancellation.deliver(op, *held)


class _Call:
    """One call, as the group of its only branch."""

    def __init__(self, calls: ToolCalls, op: PromptOp[object]) -> None:
        self._calls = calls
        self._op = op

    def branch_ended(self, branch: AnyBranch) -> None:
        """See ``Group.branch_ended``."""
        self._calls.returned(self._op, branch)


async def _call(tool: Tool | None, name: str, data: Buffer) -> bytes:
    if tool is None:
        raise TypeMismatchError("tool", "one of the prompt's", name)
    return await tool.run(data)
