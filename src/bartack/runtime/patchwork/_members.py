"""Members after a dot: fields and properties, and the built-in methods of strings, arrays and results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol, cast

from bartack.errors import LimitExceededError, TypeMismatchError
from bartack.runtime.patchwork import _operators as op
from bartack.runtime.patchwork._delegate import SpecMaker
from bartack.runtime.patchwork._values import (
    Caught,
    MailboxesValue,
    SessionValue,
    equal,
    integer,
    is_array,
    is_number,
    is_object,
    kind_of,
    mismatch,
    text,
    truth,
)
from bartack.runtime.scheduler.results import ShellResult

LONGEST_TEXT: Final = 256 * 1024 * 1024


class Applier(Protocol):
    """Applies a function of the program."""

    def __call__(self, function: object, argument: object) -> object:
        """What the function makes of the argument."""
        ...


class Methodical(Protocol):
    """An opaque value with methods of its own."""

    def call_method(self, name: str, arguments: tuple[object, ...]) -> object:
        """Call one of its methods."""
        ...

    def member(self, name: str) -> object:
        """One of its properties."""
        ...


def member(value: object, name: str, what: str) -> object:
    """``value.name``.

    Raises:
        TypeMismatchError: Values of this kind have no such member.
    """
    if is_object(value):
        return value.get(name)
    if name == "length" and (isinstance(value, str) or is_array(value)):
        return len(value)
    reader = next((read for kind, read in _READERS if isinstance(value, kind)), None)
    if reader is not None:
        return reader(value, name)
    if hasattr(value, "call_method"):
        return _methodical(value).member(name)
    raise mismatch(what, f"something with a member {name!r}", value)


def set_member(value: object, name: str, new: object, what: str) -> object:
    """``value.name = new``."""
    if not is_object(value):
        raise mismatch(what, "an object", value)
    value[name] = new
    return new


def grow_member(value: object, name: str, added: object, what: str) -> object:
    """``value.name += added``."""
    if is_object(value) and op.texts(value.get(name), added):
        return _grow(value, name, added)
    return set_member(value, name, op.add(member(value, name, what), added), what)


def grow_index(value: object, key: object, added: object, what: str) -> object:
    """``value[key] += added``."""
    old = op.index(value, key, what)
    if is_object(value) and op.texts(old, added):
        del old
        return _grow(value, text(key), added)
    if is_array(value) and op.texts(old, added):
        del old
        return _grow(value, integer(key, "an index"), added)
    return op.set_index(value, key, op.add(old, added), what)


def _grow(value: dict[str, object] | list[object], key: str | int, added: object) -> object:
    """Let a text inside a value grow: for a moment it is nowhere else."""
    inside = cast("dict[str | int, object]", value)
    box = [inside[key], None, added]
    inside[key] = None
    inside[key] = op.grown(box)
    return inside[key]


def _member_of_result(value: ShellResult, name: str) -> object:
    match name:
        case "status":
            return value.status
        case "stdout":
            return value.stdout
        case "stderr":
            return value.stderr
        case "ok":
            return value.status == 0
        case "length":
            return len(text(value))
        case _:
            raise TypeMismatchError("a result", "status, stdout, stderr, ok or length", repr(name))


def _member_of_error(value: Caught, name: str) -> object:
    match name:
        case "kind":
            return value.kind
        case "message":
            return value.error.message
        case "code":
            return value.error.code
        case "at":
            return value.at
        case "value":
            return value.fields.get("thrown")
        case _:
            return value.fields.get(name)


def _member_of_session(value: SessionValue, name: str) -> object:
    match name:
        case "id":
            return value.id
        case "timestamp":
            return value.timestamp
        case "dir":
            return value.directory
        case "mailbox":
            return value.mailbox
        case _:
            raise TypeMismatchError("the session", f"a member {name!r}", "id, timestamp, dir and mailbox")


def _member_of_mailboxes(value: MailboxesValue, name: str) -> object:
    return value.find(name)


_READERS: Final[tuple[tuple[type, Callable[..., object]], ...]] = (
    (ShellResult, _member_of_result),
    (Caught, _member_of_error),
    (SessionValue, _member_of_session),
    (MailboxesValue, _member_of_mailboxes),
)


def _methodical(value: object) -> Methodical:
    return value  # type: ignore[return-value]  # - a value with call_method is one


# Methods.


def call_method(value: object, name: str, arguments: tuple[object, ...], apply: Applier, what: str) -> object:
    """``value.name(arguments)``.

    Raises:
        TypeMismatchError: Values of this kind have no such method, or it takes other arguments.
    """
    if is_array(value):
        if name in _ARRAY_APPLIED:
            return _ARRAY_APPLIED[name](value, _one(name, arguments), apply)
        if name in _ARRAY:
            return _ARRAY[name](value, _Arguments(name, arguments))
    elif isinstance(value, str | ShellResult):
        if name == "lines":
            _Arguments(name, arguments).none()
            return list(op.lines(value.stdout if isinstance(value, ShellResult) else value))
        if name in _STRING:
            return _STRING[name](text(value), _Arguments(name, arguments))
    elif hasattr(value, "call_method"):
        return _methodical(value).call_method(name, arguments)
    elif is_object(value):
        raise TypeMismatchError(what, "a function", f"the field {name!r} of an object")
    elif isinstance(value, MailboxesValue):
        raise TypeMismatchError(what, "a mailbox", "a method of all mailboxes")
    raise mismatch(what, f"something with a method {name}()", value)


def _one(name: str, arguments: tuple[object, ...]) -> object:
    if len(arguments) != 1:
        raise TypeMismatchError(f"{name}()", "one function", f"{len(arguments)} arguments")
    function = arguments[0]
    if not callable(function) and not isinstance(function, SpecMaker):
        raise mismatch(f"{name}()", "the name of a fun or worker", function)
    return function


class _Arguments:
    """The arguments of a method, taken one by one with their kinds."""

    def __init__(self, method: str, values: tuple[object, ...]) -> None:
        self._method = method
        self.values = values

    def none(self) -> None:
        """Raise if there is an argument."""
        self.count(0, 0)

    def count(self, least: int, most: int) -> None:
        """Raise unless the number of arguments is in this range."""
        if not least <= len(self.values) <= most:
            expected = str(least) if least == most else f"{least} to {most}"
            raise TypeMismatchError(f"{self._method}()", f"{expected} arguments", str(len(self.values)))

    def text(self, place: int, *, of: int = 1) -> str:
        """One that must be a string."""
        self.count(of, of)
        value = self.values[place]
        if not isinstance(value, str | ShellResult):
            raise mismatch(f"argument {place + 1} of {self._method}()", "string", value)
        return text(value)

    def slice(self, length: int) -> slice:
        """The bounds of a slice."""
        self.count(1, 2)
        return op.slice_bounds(length, self.values[0], self.values[1] if len(self.values) > 1 else None)


def _split(value: str, given: _Arguments) -> object:
    separator = given.text(0)
    return list(value) if not separator else value.split(separator)


def _replace(value: str, given: _Arguments) -> object:
    old = given.text(0, of=2)
    if not old:
        raise TypeMismatchError("argument 1 of replace()", "a string that is not empty", '""')
    return _limited(value.replace(old, given.text(1, of=2)))


def _repeat(value: str, given: _Arguments) -> object:
    given.count(1, 1)
    times = integer(given.values[0], "argument 1 of repeat()")
    if times < 0:
        raise TypeMismatchError("argument 1 of repeat()", "a number from 0", str(times))
    if not value:
        return ""
    if len(value) * times > LONGEST_TEXT:
        raise LimitExceededError("characters in one string", LONGEST_TEXT)
    return value * times


def _limited(value: str) -> str:
    if len(value) > LONGEST_TEXT:
        raise LimitExceededError("characters in one string", LONGEST_TEXT)
    return value


def _simple(change: Callable[[str], object]) -> Callable[[str, _Arguments], object]:
    def method(value: str, given: _Arguments) -> object:
        given.none()
        return change(value)

    return method


_STRING: Final[Mapping[str, Callable[[str, _Arguments], object]]] = {
    "trim": _simple(str.strip),
    "upper": _simple(str.upper),
    "lower": _simple(str.lower),
    "split": _split,
    "replace": _replace,
    "starts_with": lambda value, given: value.startswith(given.text(0)),
    "ends_with": lambda value, given: value.endswith(given.text(0)),
    "includes": lambda value, given: given.text(0) in value,
    "index_of": lambda value, given: value.find(given.text(0)),
    "slice": lambda value, given: value[given.slice(len(value))],
    "repeat": _repeat,
}


def _push(value: list[object], given: _Arguments) -> object:
    value.extend(given.values)
    return None


def _pop(value: list[object], given: _Arguments) -> object:
    given.none()
    return value.pop() if value else None


def _concat(value: list[object], given: _Arguments) -> object:
    given.count(1, 1)
    other = given.values[0]
    if not is_array(other):
        raise mismatch("argument 1 of concat()", "array", other)
    return [*value, *other]


def index_of(value: list[object], wanted: object) -> int:
    """Where an element is; -1 if it is not there."""
    return next((place for place, element in enumerate(value) if equal(element, wanted)), -1)


def _index_of(value: list[object], given: _Arguments) -> int:
    given.count(1, 1)
    return index_of(value, given.values[0])


def _join(value: list[object], given: _Arguments) -> object:
    separator = given.text(0) if given.values else ", "
    return _limited(separator.join(map(text, value)))


def _reverse(value: list[object], given: _Arguments) -> object:
    given.none()
    return value[::-1]


def _sort(value: list[object], given: _Arguments) -> object:
    given.none()
    numbers = [element for element in value if is_number(element)]
    texts = [element for element in value if isinstance(element, str)]
    if len(numbers) == len(value):
        return sorted(numbers)
    if len(texts) == len(value):
        return sorted(texts)
    kinds = " and ".join(dict.fromkeys(map(kind_of, value)))
    raise TypeMismatchError("sort()", "all numbers or all strings", kinds)


def _unique(value: list[object], given: _Arguments) -> object:
    given.none()
    seen: dict[object, list[object]] = {}
    found: list[object] = []
    for element in value:
        same = seen.setdefault(_sort_of(element), [])
        # What has the same key is nearly always equal; it is compared for results of commands and for very deep values.
        if index_of(same, element) < 0:
            same.append(element)
            found.append(element)
    return found


_DEEPEST_KEY: Final = 100
_LARGEST_KEY: Final = 1_000_000


class _NoKey(Exception):  # noqa: N818 - it never leaves this module
    """A value is too deep or too large for a key."""


def _sort_of(element: object) -> object:
    """What equal values have in common; different ones hardly ever do. None for a value that cannot be looked through."""
    if isinstance(element, ShellResult):
        return id(element)
    try:
        return _Key().of(element, 0)
    except _NoKey:
        return None


class _Key:
    """Makes the key of one value, and counts how much of it was looked at: a value may contain itself."""

    def __init__(self) -> None:
        self._left = _LARGEST_KEY

    def of(self, value: object, depth: int) -> object:
        if isinstance(value, bool) or value is None:
            # 1 and true are equal in Python, and not here.
            return (value,)
        if isinstance(value, str | int | float):
            return value
        if isinstance(value, ShellResult):
            return text(value)
        if not is_array(value) and not is_object(value):
            return id(value)
        self._left -= len(value) + 1
        if depth > _DEEPEST_KEY or self._left < 0:
            raise _NoKey
        if isinstance(value, list):
            return ("array", *[self.of(part, depth + 1) for part in value])
        return frozenset((key, self.of(part, depth + 1)) for key, part in value.items())


_ARRAY: Final[Mapping[str, Callable[[list[object], _Arguments], object]]] = {
    "push": _push,
    "pop": _pop,
    "slice": lambda value, given: value[given.slice(len(value))],
    "concat": _concat,
    "includes": lambda value, given: _index_of(value, given) >= 0,
    "index_of": _index_of,
    "join": _join,
    "reverse": _reverse,
    "sort": _sort,
    "unique": _unique,
}


def _find(value: list[object], function: object, apply: Applier) -> object:
    return next((element for element in list(value) if truth(apply(function, element))), None)


_ARRAY_APPLIED: Final[Mapping[str, Callable[[list[object], object, Applier], object]]] = {
    "map": lambda value, function, apply: [apply(function, element) for element in list(value)],
    "filter": lambda value, function, apply: [
        element for element in list(value) if truth(apply(function, element))
    ],
    "find": _find,
}
