"""Types and patterns at run time: whether a value is of the type that the program names, and what a pattern takes out of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from bartack.errors import LimitExceededError, PatternMismatchError, TypeMismatchError
from bartack.language import types as t
from bartack.runtime.patchwork._values import is_array, is_object, kind_of, text

Pattern = tuple[object, ...]
"""A pattern as the compiler writes it.

``("skip",)``; ``("value", binds, type?)``; ``("array", *patterns)``; ``("object", *(key, binds, type?))``.
"""

Written = t.Type | str
"""A type as the compiler writes it: simple ones by their names."""


def as_type(kind: Written) -> t.Type:
    """The type that is meant."""
    return t.BUILT_IN[kind] if isinstance(kind, str) else kind


def check(value: object, kind: Written) -> object:
    """A value of a type; results become text where a string is wanted.

    Raises:
        TypeMismatchError: It is of another type; the error names the place.
        LimitExceededError: It is nested too deeply, or contains itself.
    """
    wanted = as_type(kind)
    fault = _fault(wanted, value)
    if fault is not None:
        raise TypeMismatchError(fault.path, fault.expected, fault.found)
    return t.converted(wanted, value, kind_of, text)


def _fault(kind: t.Type, value: object) -> t.Fault | None:
    fault = t.accepts(kind, value, kind_of)
    if fault is not None and fault.too_deep:
        raise LimitExceededError("levels in one value", t.DEEPEST)
    return fault


def match(value: object, pattern: Pattern) -> list[object]:
    """The values of the names that a pattern binds, in order.

    Raises:
        PatternMismatchError: The value does not have the form of the pattern.
    """
    return list(_match(value, pattern, "$"))


def _match(value: object, pattern: Pattern, place: str) -> Iterator[object]:
    word, *parts = pattern
    if word == "value":
        yield from _bound(value, parts, place)
    elif word == "array":
        if not is_array(value):
            raise PatternMismatchError(place, "an array", t.found_text(value, kind_of))
        for index, part in enumerate(parts):
            element = value[index] if index < len(value) else None
            yield from _match(element, cast("Pattern", part), f"{place}[{index}]")
    elif word == "object":
        if not is_object(value):
            raise PatternMismatchError(place, "an object", t.found_text(value, kind_of))
        for part in parts:
            key, *rest = cast("tuple[str, object]", part)
            yield from _field(value, key, rest, place)


def _field(value: dict[str, object], key: str, rest: list[object], place: str) -> Iterator[object]:
    where = key if place == "$" else f"{place}.{key}"
    if len(rest) > 1:
        kind = as_type(cast("Written", rest[1]))
        if key not in value and t.literals_of(kind) is not None:
            raise PatternMismatchError(where, t.describe(kind), "no such field")
    yield from _bound(value.get(key), rest, where)


def _bound(value: object, rest: list[object], place: str) -> Iterator[object]:
    """A value for a name, if one is bound; its type must fit unless it is null and no literal is asked for."""
    if len(rest) > 1:
        kind = as_type(cast("Written", rest[1]))
        if value is not None or t.literals_of(kind) is not None:
            value = _fitting(value, kind, place)
    if rest[0]:
        yield value


def _fitting(value: object, kind: t.Type, place: str) -> object:
    fault = _fault(kind, value)
    if fault is not None:
        raise PatternMismatchError(place + fault.path[1:], fault.expected, fault.found)
    return t.converted(kind, value, kind_of, text)
