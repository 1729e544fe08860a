"""Tools of a prompt, in the worker: how a call of one is run. ``context/tool_functions.py`` makes them of functions.

A call is a branch of the worker, with a path and steps of its own. It is started by the journal, on the first run as on replay, and
runs in the middle of the prompt that its agent was asked: whatever it assigns outside itself is assigned again on replay.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Final, Protocol, TypeVar, cast

import msgspec

from bartack.errors import TypeMismatchError
from bartack.journal import BlobRef
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.exceptions import describe_error
from bartack.runtime.protocol.paths import parse_call
from bartack.runtime.protocol.steps import ToolSpec
from bartack.runtime.protocol.values import Buffer
from bartack.runtime.scheduler.operations import AnyBranch, Group, StepOp

T_co = TypeVar("T_co", covariant=True)

_PROMPT_OVER: Final = "its prompt is over"


class Tool:
    """A tool that an agent may call while it works on a prompt.

    Args:
        spec: What the agent is told of it.
        run: Runs a call: takes the arguments, an encoded object, and returns the encoded result. What it raises goes to the agent.
    """

    def __init__(self, spec: ToolSpec, run: Callable[[Buffer], Coroutine[object, object, bytes]]) -> None:
        self.spec = spec
        self.run = run


class PromptOp(StepOp[T_co]):
    """A prompt whose agent may call tools. Its outcome waits for the call that runs."""

    def __init__(self, op: StepOp[T_co], tools: dict[str, Tool]) -> None:
        super().__init__(op.step, op.args, op.decode, about=op.about, written=op.written)
        op.replace()
        self.tools = tools
        self.running: AnyBranch | None = None
        """The call that runs."""
        self.held: tuple[Buffer, BaseException | None] | None = None
        """The outcome of the prompt, if it came while a call was running."""


class Host(Protocol):
    """What the scheduler does for calls of tools."""

    def add_branch(
        self, path: str, coroutine: Coroutine[object, object, object], group: Group | None = None
    ) -> AnyBranch:
        """A branch that runs as soon as the current one waits."""
        ...

    def pack(self, data: bytes) -> tuple[msgspec.Raw | None, BlobRef | None]:
        """An encoded value for a frame."""
        ...

    def emit(self, frame: f.Returned) -> None:
        """Tell the hub, now or when the history is used up."""
        ...

    def deliver(self, op: StepOp[object], data: Buffer, error: BaseException | None) -> None:
        """A step has its outcome."""
        ...

    def cancel(self, branch: AnyBranch, scope: None, reason: str) -> None:
        """Interrupt what a branch waits for."""
        ...


class ToolBranch:
    """One call of a tool, as the group of its only branch."""

    def __init__(self, host: Host, op: PromptOp[object]) -> None:
        self._host = host
        self._op = op

    def start(self, path: str, tool: str, data: Buffer) -> None:
        """Run a call. A prompt has one at a time."""
        self._op.running = self._host.add_branch(path, _call(self._op.tools.get(tool), tool, data), self)

    def branch_ended(self, branch: AnyBranch) -> None:
        """See ``Group.branch_ended``."""
        returned = f.Returned(p=branch.path)
        if branch.error is None:
            returned.v, returned.ref = self._host.pack(cast("bytes", branch.result))
        else:
            returned.e = describe_error(branch.error, branch.path)
        self._host.emit(returned)
        op, self._op.running = self._op, None
        held, op.held = op.held, None
        if held is not None:
            self._host.deliver(op, *held)


def hold(host: Host, op: PromptOp[object], data: Buffer, error: BaseException | None) -> bool:
    """Keep the outcome of a prompt until the call that runs has ended; an error interrupts it. Whether there is one to wait for."""
    if op.running is None:
        return False
    op.held = (data, error)
    if error is not None:
        host.cancel(op.running, None, _PROMPT_OVER)
    return True


def prompt_of(path: str) -> tuple[str, int]:
    """The step of the prompt that a call belongs to; nothing has number 0."""
    place = parse_call(path)
    return ("", 0) if place is None else (place.p, place.n)


async def _call(tool: Tool | None, name: str, data: Buffer) -> bytes:
    if tool is None:
        raise TypeMismatchError("tool", "one of the prompt's", name)
    return await tool.run(data)
