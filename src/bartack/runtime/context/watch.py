"""The members of ``ctx`` that watch other workers, or are linked with them."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

from bartack.errors import MailboxNameError
from bartack.messaging.mailboxes import check_name
from bartack.runtime.context.mailbox import Mailbox
from bartack.runtime.context.part import Members, Seconds, encode_args, nothing, seconds_of
from bartack.runtime.context.workers import Handle
from bartack.runtime.protocol.steps import DemonitorArgs, DownArgs, LinkArgs, MonitorArgs, TrapArgs
from bartack.runtime.protocol.values import Codec, codec
from bartack.runtime.scheduler.operations import StepOp
from bartack.runtime.scheduler.scheduler import Scheduler
from bartack.supervision.supervisor.monitors import creators_stack

_TEXT: Final[Codec[str]] = codec(str)
_FLAG: Final[Codec[bool]] = codec(bool)
_OBJECT: Final[Codec[dict[str, object]]] = codec(dict[str, object])


class Watch:
    """A monitor of one worker by another, for the time of an ``async with`` block."""

    def __init__(
        self, scheduler: Scheduler, target: str, tag: str, into: str, stack: tuple[str, ...]
    ) -> None:
        self.target = target
        self.ref = ""
        """The monitor's name, since the block was entered."""
        self._scheduler = scheduler
        self._args = MonitorArgs(target=target, into=into, tag=tag, stack=stack)

    def down(self, timeout_s: Seconds) -> StepOp[dict[str, object]]:
        """Wait for the message that the target has ended. It is taken out of the mailbox it went to.

        Raises:
            ReceiveTimeoutError: It did not end in time.
            MonitorNotFoundError: The message was received before.
        """
        self._scheduler.check_here("monitor.down")
        args = DownArgs(ref=self.ref, into=self._args.into, timeout_s=seconds_of(timeout_s))
        return StepOp("down", encode_args(args), _OBJECT.decode, about=self.target)

    def close(self) -> StepOp[bool]:
        """Watch no longer, and take back a message that was not received yet; ``False`` if it had reported already."""
        self._scheduler.check_here("monitor.close")
        args = DemonitorArgs(ref=self.ref, into=self._args.into)
        return StepOp("demonitor", encode_args(args), _FLAG.decode, about=self.target)

    async def __aenter__(self) -> Self:
        """Begin to watch."""
        args = self._args
        written = encode_args([args.target, args.into, args.tag])
        self.ref = await StepOp(
            "monitor", encode_args(args), _TEXT.decode, about=self.target, written=written
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Watch no longer."""
        if not isinstance(error, GeneratorExit):  # then the worker is not run any more
            await self.close()


class WatchMembers(Members):
    """Monitors and links."""

    def monitor(
        self, target: str | Handle[object], tag: str = "", into: Mailbox | str | None = None
    ) -> Watch:
        """Watch a worker for the time of an ``async with`` block, and get one message when it has ended.

        A process outside, named as the sender of its messages, and the agent of a prompt, named by its step, can be watched, too.

        The message ``{"type": "DOWN", "monitor", "target", "incarnation", "reason", "tag", "at"}`` goes to the inbox of this
        worker. ``reason`` is ``normal``, ``error``, ``aborted``, ``lost`` for a process outside that is gone, or ``noproc`` for
        what had ended before. A worker whose
        process crashed and is started again has not ended.

        Args:
            target: The worker's handle or path, or a name that it has registered.
            tag: A word of yours that the message carries.
            into: Another mailbox for the message.
        """
        self._scheduler.check_here("ctx.monitor")
        name = _path(target)
        mailbox = into.name if isinstance(into, Mailbox) else into or f"@{self._scheduler.facts.path}"
        check_name(mailbox)
        return Watch(self._scheduler, name, tag, mailbox, creators_stack(__file__))

    def link(self, target: str | Handle[object]) -> StepOp[None]:
        """Link this worker with another: if one of them ends abnormally, the other is aborted.

        An abort is the outcome of the steps that are open, or of the next one: ``LinkedExitError``. A worker that failed or was
        cancelled before acts at once, and so does one that is not there; a normal end never does. Links have no direction, and
        linking twice is the same as once.

        Args:
            target: The worker's handle or path, or a name that it has registered.
        """
        return self._step("link", LinkArgs(target=_path(target)), nothing, _path(target))

    def unlink(self, target: str | Handle[object]) -> StepOp[None]:
        """Undo a link. Nothing of it arrives any more; a message of it that was not received yet is taken back."""
        return self._step("unlink", LinkArgs(target=_path(target)), nothing, _path(target))

    def trap(self, on: bool = True) -> StepOp[None]:
        """Get a message at the end of linked workers instead of being aborted; or, with ``False``, no longer.

        The message ``{"type": "EXIT", "from", "reason", "at"}`` goes to the inbox of this worker. ``reason`` is ``error``,
        ``aborted``, or ``noproc`` for a worker that is not there. That this worker is cancelled, or that the session fails, cannot
        be trapped.
        """
        if not isinstance(on, bool):  # pyright: ignore[reportUnnecessaryIsInstance] - programs need not be checked
            raise TypeError(f"trap is True or False, not {on!r}")
        return self._step("trap", TrapArgs(on=on), nothing, "on" if on else "off")


def _path(target: str | Handle[object]) -> str:
    path = target if isinstance(target, str) else getattr(target, "path", None)
    if not isinstance(path, str):
        raise TypeError(f"a worker is named by its handle, its path or its name, not by {target!r}")
    if not path:
        raise MailboxNameError(path, "a worker is named by its handle, its path or its name")
    return path
