"""Serialises exceptions of a program's own classes, and makes them again without their constructors.

Constructors take anything: keywords, several arguments of which one text is made, connections. So an exception is made again
without calling its class, from what its bases were given (``args``) and from its attributes. ``pickle`` would do the same, but
here everything is JSON: people read it in the journal, secrets are found in it, and nothing in it is executed. A value that
JSON cannot hold comes back as its ``repr``, and the exception as itself.

Classes and values of a program run code here that can raise anything: comparisons, constructors, ``__str__``. Each broad
``except`` is the boundary to that code. It reports by its result: a value is listed as lost, a class as one that cannot be
made, a text as recorded. ``exceptions.py`` decides which exceptions come here.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import msgspec

from bartack.runtime.protocol.frames import ErrorData, ErrorState
from bartack.runtime.protocol.values import UnsupportedTypeError, codec, encode, plain_or_repr

MAX_TEXT: Final = 16 * 1024
"""The longest text of an error, and about the most that each of its facts may take."""
_SETS: Final = (set, frozenset)

Describe = Callable[[BaseException], ErrorData]
Revive = Callable[[ErrorData], Exception]


# Out.


def attributes_of(error: BaseException) -> Iterator[tuple[str, object]]:
    """The attributes of an exception, also those in slots."""
    yield from cast("dict[str, object]", getattr(error, "__dict__", {})).items()
    for kind in type(error).__mro__:
        slots: object = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else cast("tuple[str, ...]", slots):
            mangled = f"_{kind.__name__.lstrip('_')}{name}" if _is_mangled(name) else name
            if mangled not in {"__dict__", "__weakref__"} and hasattr(error, mangled):
                yield mangled, getattr(error, mangled)


def _is_mangled(name: str) -> bool:
    return name.startswith("__") and not name.endswith("__")


def take_state(error: BaseException, facts: dict[str, object], mark: str, describe: Describe) -> ErrorState:
    """What is needed to make an exception again, beside its facts. A fact that comes back as something else is listed."""
    state = ErrorState()
    arguments: list[object] = list(error.args)
    inner = _exceptions_in(error)
    if inner:
        state.errors = [describe(one) for one in inner]
        arguments = arguments[:1]
    if isinstance(error, OSError) and len(arguments) == 2 and isinstance(error.filename, str):
        arguments.append(error.filename)
    state.args = [_take(value, str(place), state) for place, value in enumerate(arguments)]
    for name, value in attributes_of(error):
        if name == mark:
            continue
        if name.startswith("_"):
            state.hidden[name] = _take(value, name, state)
        else:
            facts[name] = _take(value, name, state)
    changed = [name for name in facts if name in state.lost]
    if changed:
        facts["not_json"] = changed
    state.lost = []
    return state


def _exceptions_in(error: BaseException) -> tuple[BaseException, ...]:
    """The exceptions of a group."""
    inner: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    return inner if isinstance(error, BaseExceptionGroup) else ()


def _take(value: object, name: str, state: ErrorState) -> object:
    """A value as JSON; what it is besides, or that it is lost, is noted."""
    known = _with_kind(value)
    if known is not None:
        plain, kind = known
        if kind:
            state.kinds[name] = kind
        return plain
    state.lost.append(name)
    return cut(plain_or_repr(value))


def _with_kind(value: object) -> tuple[object, str] | None:
    """A value as JSON, and its type if that does not follow from it; ``None`` if it would not come back as it is."""
    kind = type(value)
    try:
        data = encode(sorted(cast("set[Any]", value)) if kind in _SETS else value)
        plain: object = msgspec.json.decode(data)
        if len(data) > MAX_TEXT:
            return None
        if _is_same(plain, value):
            return plain, ""
        name = f"{kind.__module__}:{kind.__qualname__}"
        back = _bring_back(plain, name)
        return (plain, name) if _is_same(back, value) else None
    except Exception:  # noqa: BLE001 - the boundary to a program's value: it cannot be compared or encoded, and is listed as lost
        return None


def _is_same(one: object, other: object) -> bool:
    return type(one) is type(other) and bool(one == other)


def cut(value: object) -> object:
    """A value, or the beginning of its text if it is too long."""
    text = value if isinstance(value, str) else repr(value)
    return value if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"


# Back.


def remake(found: type[Exception], data: ErrorData, revive: Revive) -> Exception | None:
    """The exception that was described; ``None`` if none of its class can be made."""
    state = data.state
    assert state is not None
    arguments = tuple(_restored(value, str(place), state) for place, value in enumerate(state.args))
    error = _make(found, arguments, [revive(inner) for inner in state.errors])
    if error is None:
        return None
    for name, value in [*data.facts.items(), *state.hidden.items()]:
        try:
            object.__setattr__(error, name, _restored(value, name, state))
        except (AttributeError, TypeError):
            continue  # a property, or no slot of that name here
    return _with_text(error, data.message)


def _make(found: type[Exception], arguments: tuple[object, ...], inner: list[Exception]) -> Exception | None:
    """An exception without the constructors of its own classes: that of the class of Python below them is called."""
    base = cast("Any", next(kind for kind in found.__mro__ if kind.__module__ == "builtins"))
    given = (*arguments, inner) if issubclass(found, BaseExceptionGroup) else arguments
    for maker in (base, cast("Any", found)):
        try:
            error = maker.__new__(found, *given)
            base.__init__(error, *given)
        except Exception:  # noqa: BLE001, S112 - the boundary to a program's class: it cannot be made so, and the next way is tried
            continue
        if type(error) is found:
            if not isinstance(error, OSError):
                object.__setattr__(error, "args", given)
            return error
    return _construct(found, arguments)


def _construct(found: type[Exception], arguments: tuple[object, ...]) -> Exception | None:
    try:
        error = found(*arguments)
    except Exception:  # noqa: BLE001 - the boundary to a program's constructor: the caller falls back to a ``StepError``
        return None
    return error if type(error) is found else None


def _with_text(error: Exception, text: str) -> Exception:
    """An exception whose text can be read, also if what it makes that of did not come with it."""
    try:
        str(error)
    except Exception:  # noqa: BLE001 - the boundary to a program's __str__: the recorded text takes its place
        kind = type(error)

        def read(self: object) -> str:
            return text

        names = {"__str__": read, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
        try:
            error.__class__ = type(kind.__name__, (kind,), names)
        except TypeError:
            return error  # a class that cannot have subclasses
    return error


def _restored(value: object, name: str, state: ErrorState) -> object:
    kind = state.kinds.get(name)
    if kind is None:
        return value
    try:
        return _bring_back(value, kind)
    except Exception:  # noqa: BLE001 - the boundary to a program's class that has changed: its JSON takes its place
        return value


def _bring_back(plain: object, kind: str) -> object:
    found = find_object(kind)
    if not isinstance(found, type):
        raise UnsupportedTypeError(kind)
    if found is set or found is frozenset:
        elements = cast("list[object]", plain)
        return set(elements) if found is set else frozenset(elements)
    return codec(cast("object", found)).decode(msgspec.json.encode(plain))


def find_object(name: str) -> object:
    """What ``module:QualifiedName`` means.

    Raises:
        Exception: It is not there; whatever the import of its module raises.
    """
    module, _, qualified = name.partition(":")
    found: object = sys.modules.get(module) or importlib.import_module(module)
    for part in qualified.split("."):
        found = getattr(found, part)
    return found
