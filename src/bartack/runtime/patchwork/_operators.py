"""The operators of Patchwork on its values: pure functions that give a value or throw."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from bartack.errors import IndexRangeError, LimitExceededError, NumberError, TypeMismatchError
from bartack.runtime.patchwork._values import (
    MailboxesValue,
    equal,
    integer,
    is_array,
    is_number,
    is_object,
    kind_of,
    mismatch,
    number,
    text,
)
from bartack.runtime.scheduler.results import ShellResult

LONGEST_RANGE: Final = 10_000_000


def differ(left: object, right: object) -> bool:
    """``left != right``."""
    return not equal(left, right)


def add(left: object, right: object) -> object:
    """``left + right``: the sum of numbers, or the texts of both joined."""
    if is_number(left) and is_number(right):
        return number(left + right)
    if isinstance(left, str | ShellResult) or isinstance(right, str | ShellResult):
        return text(left) + text(right)
    raise TypeMismatchError(
        "+", "two numbers, or a string on one side", f"{kind_of(left)} and {kind_of(right)}"
    )


def texts(left: object, right: object) -> bool:
    """Whether ``left += right`` makes a text longer."""
    return type(left) is str and type(right) is str


def grown(box: list[object]) -> str:
    """A text with another after it. The box is the only owner of the first: it grows where it is, and is not copied.

    In the box are the text, anything, and what is added.
    """
    left, _, right = box
    assert isinstance(left, str)
    assert isinstance(right, str)
    box.clear()
    # Python lets a text grow in place if it is in one variable, and in no other.
    left += right
    return left


def subtract(left: object, right: object) -> object:
    """``left - right``."""
    one, other = _numbers("-", left, right)
    return number(one - other)


def multiply(left: object, right: object) -> object:
    """``left * right``."""
    one, other = _numbers("*", left, right)
    return number(one * other)


def divide(left: object, right: object) -> object:
    """``left / right``."""
    one, other = _numbers("/", left, right)
    if other == 0:
        raise NumberError("division by 0")
    try:
        return number(one / other)
    except OverflowError:
        raise NumberError("the result is not a finite number") from None


def remainder(left: object, right: object) -> object:
    """``left % right``, with the sign of the divisor."""
    one, other = _numbers("%", left, right)
    if other == 0:
        raise NumberError("remainder of a division by 0")
    return number(one % other)


def negate(value: object) -> object:
    """``-value``."""
    if not is_number(value):
        raise mismatch("-", "a number", value)
    return number(-value)


def increase(value: object, by: int) -> object:
    """What ``++`` and ``--`` make of a value."""
    if not is_number(value):
        raise mismatch("++" if by > 0 else "--", "a number", value)
    return number(value + by)


def _numbers(operator: str, left: object, right: object) -> tuple[float, float]:
    if is_number(left) and is_number(right):
        return left, right
    raise TypeMismatchError(operator, "two numbers", f"{kind_of(left)} and {kind_of(right)}")


def less(left: object, right: object) -> bool:
    """``left < right``: of two numbers or two strings."""
    return _compared("<", left, right) < 0


def at_most(left: object, right: object) -> bool:
    """``left <= right``."""
    return _compared("<=", left, right) <= 0


def greater(left: object, right: object) -> bool:
    """``left > right``."""
    return _compared(">", left, right) > 0


def at_least(left: object, right: object) -> bool:
    """``left >= right``."""
    return _compared(">=", left, right) >= 0


def _compared(operator: str, left: object, right: object) -> int:
    """How two numbers or two strings stand to each other: below 0, 0 or above 0."""
    if is_number(left) and is_number(right):
        return (left > right) - (left < right)
    one, other = _text_or_none(left), _text_or_none(right)
    if one is None or other is None:
        raise TypeMismatchError(
            operator, "two numbers or two strings", f"{kind_of(left)} and {kind_of(right)}"
        )
    return (one > other) - (one < other)


def _text_or_none(value: object) -> str | None:
    return text(value) if isinstance(value, str | ShellResult) else None


# Ranges and loops.


def span(low: object, high: object) -> range:
    """``low...high`` with both ends."""
    return range(integer(low, "the start of a range"), integer(high, "the end of a range") + 1)


def materialised(numbers: range) -> list[object]:
    """A range as an array."""
    # Not len(): it cannot return the length of a range beyond the machine's integers.
    if numbers.stop - numbers.start > LONGEST_RANGE:
        raise LimitExceededError("elements in a range", LONGEST_RANGE)
    return list(numbers)


def iterate(value: object) -> Iterable[object]:
    """What a ``for`` loop walks over, as it is now."""
    if isinstance(value, range):
        return value
    if is_array(value):
        return list(value)
    if isinstance(value, str):
        return lines(value)
    if isinstance(value, ShellResult):
        return lines(value.stdout)
    if is_object(value):
        return list(value)
    raise mismatch("for", "an array, range, string, result or object", value)


def lines(value: str) -> list[str]:
    """The lines of a text; a final newline begins no line."""
    if not value:
        return []
    found = value.split("\n")
    if not found[-1]:
        found.pop()
    return [line.removesuffix("\r") for line in found]


# Indexing.


def index(value: object, key: object, what: str) -> object:
    """``value[key]``.

    Raises:
        TypeMismatchError: The value has no elements, or the key is of a wrong kind.
    """
    if is_array(value):
        place = _place(len(value), key)
        return None if place is None else value[place]
    if is_object(value):
        if not isinstance(key, str | ShellResult):
            raise mismatch(f"the key of {what}", "string", key)
        return value.get(text(key))
    if isinstance(value, MailboxesValue):
        return value.find(key)
    if isinstance(value, str | ShellResult):
        characters = text(value)
        place = _place(len(characters), key)
        return None if place is None else characters[place]
    raise mismatch(what, "an array, object or string", value)


def set_index(value: object, key: object, new: object, what: str) -> object:
    """``value[key] = new``."""
    if is_array(value):
        place = _place(len(value), key)
        if place is None:
            raise IndexRangeError(integer(key, "an index"), len(value))
        value[place] = new
        return new
    if is_object(value):
        if not isinstance(key, str | ShellResult):
            raise mismatch(f"the key of {what}", "string", key)
        value[text(key)] = new
        return new
    raise mismatch(what, "an array or object", value)


def _place(length: int, key: object) -> int | None:
    """Where an index points to; negative ones count from the end."""
    wanted = integer(key, "an index")
    place = wanted + length if wanted < 0 else wanted
    return place if 0 <= place < length else None


# For the library.


def round_half_away(value: float) -> float:
    """The nearest integer; halves go away from zero."""
    # The fraction of a double is exact; adding 0.5 is not: it would make 1 of the largest number below one half.
    fraction, whole = math.modf(value)
    return whole + math.copysign(1, value) if abs(fraction) >= 0.5 else whole


def slice_bounds(length: int, start: object, end: object) -> slice:
    """The part of a text or array that ``slice`` means."""
    first = integer(start, "the start of a slice")
    last = length if end is None else integer(end, "the end of a slice")
    first = max(first + length, 0) if first < 0 else first
    last = max(last + length, 0) if last < 0 else last
    return slice(first, max(first, last))


# Text, arrays and objects with values in them.


def join(*parts: object) -> str:
    """Text with values in it."""
    return "".join([part if isinstance(part, str) else text(part) for part in parts])


def spliced(value: object) -> str:
    """``$@{xs}`` in text."""
    return ", ".join(map(text, _array(value, "$@{…}")))


def elements(value: object) -> Iterable[object]:
    """``...xs`` in an array."""
    return _array(value, "... in an array")


def fields(value: object) -> dict[str, object]:
    """``...o`` in an object."""
    if not is_object(value):
        raise mismatch("... in an object", "an object", value)
    return value


def _array(value: object, what: str) -> Iterable[object]:
    if not is_array(value):
        raise mismatch(what, "an array", value)
    return value
