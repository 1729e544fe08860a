"""What every program has without declaring it: the functions of the library and the members of built-in kinds.

Owns names, numbers of arguments and types; what they do belongs to the runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from bartack.language.checking._types import (
    ANY,
    ARRAY,
    BOOL,
    DELIVERY,
    ERROR,
    INT,
    MAILBOX,
    NULL,
    NUMBER,
    OBJECT,
    RESULT,
    SESSION,
    SPEC,
    STRING,
    ArrayOf,
    LiteralOf,
    MapOf,
    Record,
    Scalar,
    Type,
    Union,
)

STRINGS = ArrayOf(STRING)


class LibraryParameter(NamedTuple):
    """A parameter of a signature; an untyped one accepts anything."""

    name: str
    type: Type
    required: bool = True


class Signature(NamedTuple):
    """What a call takes and returns. With `more`, any number of further arguments of the last parameter's type."""

    parameters: tuple[LibraryParameter, ...]
    result: Type
    more: bool = False

    @property
    def least(self) -> int:
        """How many arguments there must be."""
        return sum(parameter.required for parameter in self.parameters)

    def accepts_count(self, count: int) -> bool:
        """Whether a call may have this number of arguments."""
        return count >= self.least and (self.more or count <= len(self.parameters))

    def expected(self, position: int) -> LibraryParameter | None:
        """The parameter that takes the argument at this position."""
        if position < len(self.parameters):
            return self.parameters[position]
        return self.parameters[-1] if self.more and self.parameters else None

    def count_text(self) -> str:
        """How many arguments a call takes, in words."""
        least, most = self.least, len(self.parameters)
        if self.more:
            return f"at least {_counted(least)}"
        word = "or" if most == least + 1 else "to"
        return _counted(most) if least == most else f"{least} {word} {_counted(most)}"


def _counted(count: int) -> str:
    return f"{count} argument" if count == 1 else f"{count} arguments"


def _takes(result: Type, *required: Type, maybe: tuple[Type, ...] = (), more: bool = False) -> Signature:
    kinds = [(kind, True) for kind in required] + [(kind, False) for kind in maybe]
    return Signature(tuple(LibraryParameter("", kind, needed) for kind, needed in kinds), result, more)


_SIZED = Union((STRING, ARRAY, OBJECT))

FUNCTIONS: Mapping[str, Signature] = {
    "len": _takes(INT, _SIZED),
    "keys": _takes(STRINGS, OBJECT),
    "values": _takes(ARRAY, OBJECT),
    "entries": _takes(ARRAY, OBJECT),
    "has": _takes(BOOL, OBJECT, STRING),
    "without": _takes(OBJECT, OBJECT, maybe=(STRING,), more=True),
    "typeof": _takes(STRING, ANY),
    "string": _takes(STRING, ANY),
    "number": _takes(NUMBER, ANY),
    "int": _takes(INT, ANY),
    "cat": _takes(STRING, ANY),
    "json": _takes(ANY, ANY),
    "abs": _takes(NUMBER, NUMBER),
    "floor": _takes(INT, NUMBER),
    "ceil": _takes(INT, NUMBER),
    "round": _takes(INT, NUMBER),
    "min": _takes(NUMBER, NUMBER, maybe=(NUMBER,), more=True),
    "max": _takes(NUMBER, NUMBER, maybe=(NUMBER,), more=True),
    "sum": _takes(NUMBER, ARRAY),
    "sha256": _takes(STRING, STRING),
    "assert": _takes(NULL, ANY, maybe=(ANY,)),
    "spec": _takes(SPEC, ANY),
    "print": _takes(NULL, maybe=(ANY,), more=True),
    "log": _takes(NULL, maybe=(ANY,), more=True),
    "read": _takes(STRING, STRING),
    "exists": _takes(BOOL, STRING),
    "list": _takes(STRINGS, STRING),
    "write": _takes(NULL, STRING, ANY),
    "append": _takes(NULL, STRING, ANY),
    "env": _takes(ANY, STRING, maybe=(ANY,)),
    "time": _takes(NUMBER),
    "timestamp": _takes(STRING),
    "sleep": _takes(NULL, NUMBER),
    "random": _takes(NUMBER, maybe=(NUMBER, NUMBER)),
    "uuid": _takes(STRING),
    "broadcast": _takes(OBJECT, ARRAY, ANY, maybe=(OBJECT,)),
    "publish": _takes(OBJECT, STRING, ANY, maybe=(OBJECT,)),
    "monitor": _takes(ANY, STRING, maybe=(ANY,)),
    "demonitor": _takes(ANY, ANY),
    "link": _takes(NULL, STRING),
    "unlink": _takes(NULL, STRING),
    "unsafe_shell": _takes(RESULT, STRING),
    "restart": _takes(ANY, maybe=(ANY,), more=True),
    "version": _takes(INT, STRING, maybe=(INT, INT)),
}
"""The functions of the library."""

VALUES: Mapping[str, Type] = {"args": STRINGS}
"""The values of the library."""

NAMES = frozenset((*FUNCTIONS, *VALUES))
"""Every name of the library."""

Members = Mapping[str, "Signature | Type"]

_STRING: dict[str, Signature | Type] = {
    "length": INT,
    "trim": _takes(STRING),
    "upper": _takes(STRING),
    "lower": _takes(STRING),
    "split": _takes(STRINGS, STRING),
    "lines": _takes(STRINGS),
    "replace": _takes(STRING, STRING, STRING),
    "starts_with": _takes(BOOL, STRING),
    "ends_with": _takes(BOOL, STRING),
    "includes": _takes(BOOL, STRING),
    "index_of": _takes(INT, STRING),
    "slice": _takes(STRING, NUMBER, maybe=(NUMBER,)),
    "repeat": _takes(STRING, NUMBER),
}
TAKES_FUNCTION = frozenset(("map", "filter", "find"))
"""Members of arrays whose argument is the name of a function."""

_ARRAY: dict[str, Signature | Type] = {
    "length": INT,
    "push": _takes(ANY, maybe=(ANY,), more=True),
    "pop": _takes(ANY),
    "slice": _takes(ARRAY, NUMBER, maybe=(NUMBER,)),
    "concat": _takes(ARRAY, ARRAY),
    "includes": _takes(BOOL, ANY),
    "index_of": _takes(INT, ANY),
    "join": _takes(STRING, maybe=(STRING,)),
    "reverse": _takes(ARRAY),
    "sort": _takes(ARRAY),
    "unique": _takes(ARRAY),
    "map": _takes(ARRAY, ANY),
    "filter": _takes(ARRAY, ANY),
    "find": _takes(ANY, ANY),
}
_RESULT: dict[str, Signature | Type] = {
    **_STRING,
    "status": INT,
    "stdout": STRING,
    "stderr": STRING,
    "ok": BOOL,
}
_MAILBOX: dict[str, Signature | Type] = {
    "send": _takes(NULL, ANY, maybe=(OBJECT,)),
    "receive": _takes(ANY, maybe=(NUMBER,)),
    "call": _takes(ANY, ANY, maybe=(NUMBER,)),
    "delivery": _takes(DELIVERY, maybe=(NUMBER,)),
    "subscribe": _takes(ANY, STRING),
    "unsubscribe": _takes(ANY, STRING),
}
_DELIVERY: dict[str, Signature | Type] = {
    "value": ANY,
    "id": STRING,
    "sender": ANY,
    "attempt": INT,
    "topic": ANY,
    "reply": _takes(NULL, ANY),
    "ack": _takes(NULL),
    "nack": _takes(NULL),
}
SESSION_MEMBERS: Members = {"id": STRING, "timestamp": STRING, "dir": STRING, "mailbox": ANY}
SELF_MEMBERS = ("session", "delegate", "path", "inbox")


class Option(NamedTuple):
    """What may be written for an option: one of some words, or a number from ``least`` on; else anything."""

    words: tuple[str, ...] = ()
    least: int | None = None


_TIME = Option(least=0)
DELEGATE_OPTIONS: Mapping[str, Option] = {
    "on_failure": Option(words=("fail", "collect")),
    "timeout_ms": _TIME,
    "limit": Option(least=1),
}
SEND_OPTIONS: Mapping[str, Option] = {
    "ack": Option(words=("accepted", "delivered", "processed")),
    "timeout_ms": _TIME,
    "retries": Option(least=0),
    "deadline_ms": _TIME,
    "key": Option(),
    "on_error": Option(words=("raise", "dead_letter", "log", "ignore")),
    "not_before_ms": _TIME,
    "metadata": Option(),
}

_KINDS: Mapping[Scalar, tuple[str, Members]] = {
    STRING: ("strings", _STRING),
    RESULT: ("results", _RESULT),
    MAILBOX: ("mailboxes", _MAILBOX),
    DELIVERY: ("deliveries", _DELIVERY),
    SESSION: ("sessions", SESSION_MEMBERS),
    NUMBER: ("numbers", {}),
    INT: ("numbers", {}),
    BOOL: ("booleans", {}),
    NULL: ("null", {}),
    SPEC: ("specs", {}),
}
_LITERALS: Mapping[type, Scalar] = {str: STRING, bool: BOOL, int: NUMBER, float: NUMBER}


def members(kind: Type) -> tuple[str, Members] | None:
    """How a kind is called in the plural, and its members; None where any name may be a member."""
    if isinstance(kind, LiteralOf):
        kind = _LITERALS[type(kind.value)]
    if isinstance(kind, Scalar):
        return _KINDS.get(kind)
    return ("arrays", _ARRAY) if isinstance(kind, ArrayOf) else None


def has_fields(kind: Type) -> bool:
    """Whether values of this type have named parts that people want to reach in text."""
    return isinstance(kind, (MapOf, Record)) or kind in {RESULT, ERROR, SESSION, DELIVERY}
