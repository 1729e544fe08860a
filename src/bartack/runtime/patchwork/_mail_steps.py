"""Messages to many, monitors and links: functions of the library that are steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from bartack.errors import TypeMismatchError
from bartack.runtime.context.part import encode_args
from bartack.runtime.patchwork._caller import Caller
from bartack.runtime.patchwork._mailboxes import (
    SEND_OPTIONS,
    MailboxValue,
    options_of,
    send_options,
    string_of,
)
from bartack.runtime.patchwork._values import is_array, is_object, mismatch, plain, received
from bartack.runtime.protocol.steps import DemonitorArgs, MonitorArgs
from bartack.runtime.protocol.values import Codec, codec
from bartack.runtime.scheduler.operations import StepOp

if TYPE_CHECKING:
    from bartack.messaging import SendOptions

_TEXT: Final[Codec[str]] = codec(str)
_FLAG: Final[Codec[bool]] = codec(bool)


def _cast_options(options: object, what: str, strategy: str) -> tuple[str, SendOptions]:
    given = dict(options_of(options, what, SEND_OPTIONS | {"strategy"}))
    chosen = string_of(given.pop("strategy", strategy), f"the option strategy of {what}")
    return chosen, send_options(given, what)


def broadcast(rt: Caller, names: object, value: object, options: object = None) -> object:
    """``broadcast(names, v, options?)``."""
    if not is_array(names):
        raise mismatch("the mailboxes of broadcast()", "an array", names)
    recipients = [_mailbox_name(name) for name in names]
    strategy, given = _cast_options(options, "broadcast()", "all_or_nothing")
    result = rt.perform(rt.ctx.broadcast(recipients, plain(value), strategy, **given))
    return _broadcast_result(result)


def publish(rt: Caller, topic: object, value: object, options: object = None) -> object:
    """``publish(topic, v, options?)``."""
    strategy, given = _cast_options(options, "publish()", "best_effort")
    name = string_of(topic, "the topic of publish()")
    result = rt.perform(rt.ctx.publish(name, plain(value), strategy, **given))
    return _broadcast_result(result)


def _mailbox_name(name: object) -> str:
    return (
        name.mailbox.name if isinstance(name, MailboxValue) else string_of(name, "a mailbox of broadcast()")
    )


def _broadcast_result(result: msgspec.Struct) -> object:
    reported = received(msgspec.to_builtins(result))
    assert is_object(reported)
    return {"ok": reported["ok"], "results": reported["results"]}


def monitor(rt: Caller, target: object, mailbox: object = None) -> object:
    """``monitor(target, mailbox?)``: a message when a worker ends; yields the ref."""
    if mailbox is not None and not isinstance(mailbox, MailboxValue):
        raise mismatch("the mailbox of monitor()", "a mailbox", mailbox)
    into = rt.inbox.mailbox.name if mailbox is None else mailbox.mailbox.name
    name = string_of(target, "the target of monitor()")
    args = MonitorArgs(target=name, into=into)
    ref = rt.perform(StepOp("monitor", encode_args(args), _TEXT.decode, about=name))
    rt.monitors[ref] = into
    return ref


def demonitor(rt: Caller, ref: object) -> object:
    """``demonitor(ref)``: no message any more; yields whether the monitor was there."""
    name = string_of(ref, "the ref of demonitor()")
    into = rt.monitors.pop(name, None)
    if into is None:
        raise TypeMismatchError("the ref of demonitor()", "what monitor() gave", repr(name))
    args = DemonitorArgs(ref=name, into=into)
    return rt.perform(StepOp("demonitor", encode_args(args), _FLAG.decode, about=name))


def link(rt: Caller, path: object) -> None:
    """``link(path)``: the abnormal end of one of two workers is thrown in the other."""
    rt.perform(rt.ctx.link(string_of(path, "the path of link()")))


def unlink(rt: Caller, path: object) -> None:
    """``unlink(path)``: not any more."""
    rt.perform(rt.ctx.unlink(string_of(path, "the path of unlink()")))
