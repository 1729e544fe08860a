"""The functions of the library that are steps: what each asks of the world, and what it makes of the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from bartack.errors import TypeMismatchError
from bartack.runtime.patchwork import _mail_steps
from bartack.runtime.patchwork._caller import Caller
from bartack.runtime.patchwork._library import cat
from bartack.runtime.patchwork._mailboxes import milliseconds
from bartack.runtime.patchwork._values import integer, iso_text, milliseconds_of, mismatch, pretty, text
from bartack.runtime.scheduler.results import ShellResult


def _text(value: object, what: str) -> str:
    if not isinstance(value, str | ShellResult):
        raise mismatch(what, "string", value)
    return text(value)


def _print(rt: Caller, *parts: object) -> None:
    rt.out("print", *parts)


def _log(rt: Caller, *parts: object) -> None:
    rt.out("log", *parts)


# Files.


def _read(rt: Caller, path: object) -> object:
    return rt.perform(rt.ctx.read(_text(path, "the path of read()")))


def _exists(rt: Caller, path: object) -> object:
    return rt.perform(rt.ctx.exists(_text(path, "the path of exists()")))


def _list(rt: Caller, pattern: object) -> object:
    return rt.perform(rt.ctx.list(_text(pattern, "the pattern of list()")))


def _content(value: object) -> str:
    return text(value) if isinstance(value, str | ShellResult) else pretty(value) + "\n"


def _write(rt: Caller, path: object, value: object) -> None:
    rt.perform(rt.ctx.write(_text(path, "the path of write()"), _content(value)))


def _append(rt: Caller, path: object, value: object) -> None:
    rt.perform(rt.ctx.append(_text(path, "the path of append()"), _content(value)))


def _line(value: object) -> str:
    written = text(value) if not isinstance(value, str | ShellResult) else cat(value)
    return written if written.endswith("\n") else written + "\n"


def _write_line(rt: Caller, value: object, path: object) -> None:
    rt.perform(rt.ctx.write(_text(path, "a file"), _line(value)))


def _append_line(rt: Caller, value: object, path: object) -> None:
    rt.perform(rt.ctx.append(_text(path, "a file"), _line(value)))


# Time and randomness.


def _env(rt: Caller, name: object, default: object = None) -> object:
    found = rt.perform(rt.ctx.env(_text(name, "the name of env()")))
    return default if found is None else found


def _time(rt: Caller) -> object:
    return milliseconds_of(rt.perform(rt.ctx.now()))


def _timestamp(rt: Caller) -> object:
    return iso_text(rt.perform(rt.ctx.now()))


def _sleep(rt: Caller, duration_ms: object) -> None:
    rt.perform(rt.ctx.sleep(milliseconds(duration_ms, "the duration of sleep()")))


def _random(rt: Caller, *bounds: object) -> object:
    if not bounds:
        return rt.perform(rt.ctx.random())
    if len(bounds) != 2:
        raise TypeMismatchError("random()", "no arguments or two", str(len(bounds)))
    first, last = (integer(bound, "a bound of random()") for bound in bounds)
    if first > last:
        raise TypeMismatchError(
            "random()", "a first number that is not more than the last", f"{first} and {last}"
        )
    return rt.perform(rt.ctx.random(first, last))


def _uuid(rt: Caller) -> object:
    return str(rt.perform(rt.ctx.uuid()))


def _restart(rt: Caller, *arguments: object) -> None:
    """``restart(v…)``: end the history of this worker; what it held is done, as at its end."""
    rt.scheduler.check_restart()
    rt.hold(None)
    rt.perform(rt.ctx.restart_step(arguments, {}))


def _version(rt: Caller, name: object, latest: object = 1, oldest: object = 0) -> object:
    """``version(name, latest?, oldest?)``: 0 in a history from before the first version."""
    numbers = integer(latest, "the latest version"), integer(oldest, "the oldest version")
    try:
        asked = rt.ctx.version(_text(name, "the name of version()"), numbers[0], oldest=numbers[1])
    except ValueError as error:
        raise TypeMismatchError("version()", "a name and versions in order", str(error)) from None
    return rt.perform(asked)


def _unsafe_shell(rt: Caller, written: object) -> object:
    return rt.unsafe_shell(_text(written, "the text of unsafe_shell()"))


STEPS: Final[Mapping[str, Callable[..., object]]] = {
    "print": _print,
    "log": _log,
    "read": _read,
    "exists": _exists,
    "list": _list,
    "write": _write,
    "append": _append,
    "write_line": _write_line,
    "append_line": _append_line,
    "env": _env,
    "time": _time,
    "timestamp": _timestamp,
    "sleep": _sleep,
    "random": _random,
    "uuid": _uuid,
    "unsafe_shell": _unsafe_shell,
    "restart": _restart,
    "version": _version,
    "broadcast": _mail_steps.broadcast,
    "publish": _mail_steps.publish,
    "monitor": _mail_steps.monitor,
    "demonitor": _mail_steps.demonitor,
    "link": _mail_steps.link,
    "unlink": _mail_steps.unlink,
}
"""The functions by their names. The two for whole lines are what ``>`` and ``>>`` with a file mean."""
