"""The values of Patchwork: what kinds there are, when two are equal, what is true, how one looks as text and as JSON.

JSON values are Python's own: ``None``, ``bool``, ``str``, ``list``, ``dict``. A number is an ``int`` while it is integral and at
most 2^53, else a ``float``; ``number`` makes it so. Everything else is opaque: results of commands, and the classes below.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from typing import Final, TypeGuard, cast

import msgspec

from bartack.errors import BartackError, LimitExceededError, NumberError, TypeMismatchError
from bartack.runtime.protocol.values import DEEPEST
from bartack.runtime.scheduler.results import ShellResult

EXACT: Final = 2**53

_encode: Final = msgspec.json.Encoder().encode


class Caught:
    """An error that a program has caught."""

    __slots__ = ("at", "error", "fields")

    def __init__(self, error: BartackError, at: str, fields: dict[str, object]) -> None:
        self.error = error
        self.at = at
        self.fields = fields

    @property
    def kind(self) -> str:
        """The name of its class."""
        return type(self.error).__name__

    def plain(self) -> dict[str, object]:
        """What becomes of it where JSON is needed."""
        return {
            "kind": self.kind,
            "message": self.error.message,
            "value": plain(self.fields.get("thrown")),
        }


class SessionValue:
    """``self.session``."""

    __slots__ = ("directory", "id", "mailbox", "timestamp")

    def __init__(self, session_id: str, timestamp: str, directory: str, mailbox: MailboxesValue) -> None:
        self.id = session_id
        self.timestamp = timestamp
        self.directory = directory
        self.mailbox = mailbox

    def plain(self) -> dict[str, object]:
        """What becomes of it where JSON is needed."""
        return {"id": self.id, "timestamp": self.timestamp, "dir": self.directory}


class MailboxesValue:
    """``self.session.mailbox``: the mailboxes of the session, by name."""

    __slots__ = ("find",)

    def __init__(self, find: Callable[[object], object]) -> None:
        self.find = find


# Kinds.


def is_array(value: object) -> TypeGuard[list[object]]:
    """Whether a value is an array."""
    return type(value) is list


def is_object(value: object) -> TypeGuard[dict[str, object]]:
    """Whether a value is an object."""
    return type(value) is dict


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a number."""
    return type(value) is int or type(value) is float


def kind_of(value: object) -> str:
    """The result of ``typeof`` for a value."""
    name = _KINDS.get(type(value))
    return name if name is not None else cast("str", getattr(value, "kind_name", "object"))


_KINDS: Final[dict[type, str]] = {
    type(None): "null",
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    ShellResult: "result",
    Caught: "error",
    SessionValue: "session",
    MailboxesValue: "mailbox",
}


def mismatch(what: str, expected: str, value: object) -> TypeMismatchError:
    """The error for a value of a wrong kind."""
    return TypeMismatchError(what, expected, kind_of(value))


# Numbers.


def number(value: float) -> int | float:
    """A number in its one form.

    Raises:
        NumberError: It is not finite.
    """
    if type(value) is int:
        return value if -EXACT <= value <= EXACT else _rounded(value)
    if not math.isfinite(value):
        raise NumberError("the result is not a finite number")
    return int(value) if value == math.floor(value) and -EXACT <= value <= EXACT else value


def _rounded(value: int) -> int | float:
    try:
        return number(float(value))
    except OverflowError:
        raise NumberError("the result is not a finite number") from None


def integer(value: object, what: str) -> int:
    """A number that must be integral.

    Raises:
        TypeMismatchError: It is something else.
    """
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer():
        return int(value)
    raise (
        mismatch(what, "an integer", value)
        if not is_number(value)
        else TypeMismatchError(what, "an integer", text(value))
    )


# Truth and equality.


def truth(value: object) -> bool:
    """Whether a value counts as true."""
    if isinstance(value, ShellResult):
        return value.status == 0
    return bool(value) if type(value) in _MAYBE_FALSE else True


_MAYBE_FALSE: Final = frozenset((type(None), bool, int, float, str, list))


def equal(left: object, right: object) -> bool:
    """Whether two values are the same: deep, without converting anything."""
    waiting = [(left, right)]
    met: set[tuple[int, int]] = set()
    while waiting:
        one, other = waiting.pop()
        inside = _inside(one, other)
        if inside is None:
            if not _same(one, other):
                return False
        elif len(inside[0]) != len(inside[1]):
            return False
        elif (id(one), id(other)) not in met:
            # A value may contain itself: what was met is not looked at again.
            met.add((id(one), id(other)))
            waiting += zip(*inside, strict=True)
    return True


def _inside(one: object, other: object) -> tuple[list[object], list[object]] | None:
    """What two arrays, or two objects, hold, in an order that fits; lists of different lengths if they differ."""
    if is_array(one) and is_array(other):
        return one, other
    if is_object(one) and is_object(other):
        if one.keys() != other.keys():
            return [one], []
        return list(one.values()), [other[key] for key in one]
    return None


def _same(one: object, other: object) -> bool:
    if isinstance(one, str | ShellResult) and isinstance(other, str | ShellResult):
        if isinstance(one, ShellResult) and isinstance(other, ShellResult):
            return one is other
        return text(one) == text(other)
    if is_number(one) and is_number(other):
        return one == other
    if type(one) is not type(other):
        return False
    return one is other if not isinstance(one, bool | type(None)) else one == other


# Text and JSON.


def text(value: object) -> str:
    """The string form of a value.

    Raises:
        TypeMismatchError: It has none.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, ShellResult):
        return value.stdout.rstrip("\n")
    if is_number(value) and not isinstance(value, bool):
        return number_text(value)
    if isinstance(value, Caught):
        return value.error.message
    return compact(value)


def number_text(value: float) -> str:
    """A number in the shortest digits that read back."""
    return _encode(value).decode().removesuffix(".0")


def compact(value: object) -> str:
    """A value as JSON on one line."""
    return encoded(value).decode()


def pretty(value: object) -> str:
    """A value as readable JSON, without a final newline."""
    return msgspec.json.format(encoded(value), indent=2).decode()


def encoded(value: object) -> bytes:
    """A value as compact JSON."""
    sound = plain(value)
    try:
        return _encode(sound)
    except (UnicodeEncodeError, ValueError) as error:
        raise TypeMismatchError("$", "a JSON value", str(error)) from None


class _Opaque(Exception):  # noqa: N818 - it never leaves this module
    """A value without a JSON form; its place is put together on the way out."""

    def __init__(self, value: object) -> None:
        self.value = value
        self.place = ""


def plain(value: object) -> object:
    """A copy of a value as JSON: what is opaque becomes the object that stands for it.

    Raises:
        TypeMismatchError: There is something in it that has no JSON form.
        LimitExceededError: It is nested too deeply, or contains itself.
    """
    try:
        return _plain(value, 0)
    except _Opaque as found:
        raise mismatch(f"${found.place}", "a JSON value", found.value) from None


def _plain(value: object, depth: int) -> object:
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if is_array(value):
        return _plain_array(value, depth)
    if is_object(value):
        return _plain_object(value, depth)
    if isinstance(value, ShellResult):
        return {"status": value.status, "stdout": value.stdout, "stderr": value.stderr}
    if isinstance(value, Caught | SessionValue):
        return value.plain()
    raise _Opaque(value)


def _plain_array(value: list[object], depth: int) -> object:
    _check_depth(depth)
    made: list[object] = []
    try:
        for element in value:
            made.append(_plain(element, depth + 1))  # noqa: PERF401 - their number is the place of a failure
    except _Opaque as found:
        found.place = f"[{len(made)}]{found.place}"
        raise
    return made


def _plain_object(value: dict[str, object], depth: int) -> object:
    _check_depth(depth)
    made: dict[str, object] = {}
    key = ""
    try:
        for key, member in value.items():
            made[key] = _plain(member, depth + 1)
    except _Opaque as found:
        found.place = f".{key}{found.place}"
        raise
    return made


def _check_depth(depth: int) -> None:
    if depth > DEEPEST:
        raise LimitExceededError("levels in one value", DEEPEST)


def received(value: object) -> object:
    """A JSON value that came from outside, with its numbers in their one form."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return number(value)
    if is_array(value):
        return [received(element) for element in value]
    if is_object(value):
        return {key: received(member) for key, member in value.items()}
    raise mismatch("$", "a JSON value", value)


def decoded(data: bytes | bytearray | memoryview | msgspec.Raw) -> object:
    """A value from JSON that is known to be sound."""
    return received(msgspec.json.decode(data))


# Time.


def iso_text(moment: datetime.datetime) -> str:
    """A moment as ISO 8601 text in UTC, with milliseconds."""
    return moment.astimezone(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def milliseconds_of(moment: datetime.datetime) -> int:
    """A moment in milliseconds since 1970."""
    return (moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(milliseconds=1)
