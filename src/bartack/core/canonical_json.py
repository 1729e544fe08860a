"""Canonical JSON (RFC 8785): equal values have equal bytes, so that they can be compared by their checksum.

Most values are *plain*: only built-in types, whose numbers and key order a common encoder writes just as RFC
8785 wants them. ``msgspec`` writes those, many times faster than Python code could. Everything else
goes through ``_encode_slowly``, which is the rule; the short way is taken only where both give the same
bytes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import cast

from bartack.errors import CanonicalJsonError

INT_LIMIT = 2**53 - 1
"""The greatest integer that every JSON reader keeps exactly."""

DEPTH_LIMIT = 1000
"""Arrays and objects may be nested this deep."""

_WORDS: frozenset[type] = frozenset({str, bool, type(None)})

# The first byte in UTF-8 of every character beyond U+FFFF.
_ASTRAL = (b"\xf0", b"\xf1", b"\xf2", b"\xf3", b"\xf4")


def canonical(value: object) -> bytes:
    """The canonical JSON of a value.

    Raises:
        CanonicalJsonError: It has none; ``place`` says which part is to blame.
    """
    try:
        plain = _plain(value)
        encoded = _encoder()(plain)
        if not _has_astral(encoded) or _is_in_order(plain):
            return encoded
    except (_NotPlainError, RecursionError, UnicodeEncodeError):
        pass
    return _encode_slowly(value)


@functools.cache
def _encoder() -> Callable[[object], bytes]:
    import msgspec  # noqa: PLC0415 - slow to import; most who import this package never need it here

    return msgspec.json.Encoder(order="sorted").encode


class _NotPlainError(Exception):
    """The value has to be written by the letter, or not at all."""


def _plain(value: object) -> object:
    """The value as the common encoder may have it: itself, or a copy with whole floats as integers."""
    kind = type(value)
    if kind in _WORDS:
        return value
    if kind is dict:
        return _plain_dict(cast("dict[object, object]", value))
    if kind is list or kind is tuple:
        return _plain_list(cast("list[object]", value))
    if kind is int:
        if -INT_LIMIT <= cast("int", value) <= INT_LIMIT:
            return value
    elif kind is float:
        return _plain_float(cast("float", value))
    raise _NotPlainError


def _plain_dict(members: dict[object, object]) -> dict[object, object]:
    changed: dict[object, object] | None = None
    for key, member in members.items():
        if type(key) is not str:
            raise _NotPlainError
        if type(member) not in _WORDS and (plain := _plain(member)) is not member:
            changed = changed or members.copy()
            changed[key] = plain
    return changed or members


def _plain_list(members: list[object]) -> list[object]:
    changed: list[object] | None = None
    for index, member in enumerate(members):
        if type(member) not in _WORDS and (plain := _plain(member)) is not member:
            changed = changed or [*members]
            changed[index] = plain
    return changed or members


def _plain_float(value: float) -> float:
    # Between these bounds all writers format a fraction as JavaScript does, and a whole number as an integer.
    if value.is_integer():
        if -INT_LIMIT <= value <= INT_LIMIT:
            return int(value)
    elif 1e-4 <= abs(value) < 1e16:
        return value
    raise _NotPlainError


def _has_astral(encoded: bytes) -> bool:
    return not encoded.isascii() and any(map(encoded.__contains__, _ASTRAL))


def _is_in_order(value: object) -> bool:
    """Whether sorting keys by code points and by UTF-16 units is the same: U+1F600 or U+FF5E may be first."""
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        near = all(key.isascii() or max(key) <= "\uffff" for key in members)
        return near and all(map(_is_in_order, members.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_in_order, cast("list[object]", value)))
    return True


# One container that is being written: what comes before each member, its key or index, the member.
_Members = Iterator[tuple[bytes, "str | int", object]]


def _encode_slowly(root: object) -> bytes:
    """Write any value by the letter of RFC 8785, with a stack of our own: Python's is short for deep values."""
    written: list[bytes] = []
    opened: list[tuple[_Members, bytes]] = [(iter(((b"", "", root),)), b"")]
    trail: list[str | int] = [""]
    try:
        while opened:
            members, end = opened[-1]
            for before, label, member in members:
                written.append(before)
                trail[-1] = label
                inner = _open(member, written)
                if inner is not None:
                    _check_depth(len(opened))
                    opened.append(inner)
                    trail.append("")
                    break
            else:
                written.append(end)
                opened.pop()
                trail.pop()
    except _NoJsonError as problem:
        raise CanonicalJsonError(_place(trail[1:]), str(problem)) from None
    return b"".join(written)


class _NoJsonError(Exception):
    """The value at hand has no canonical form; who writes it knows where it is."""


def _check_depth(depth: int) -> None:
    if depth > DEPTH_LIMIT:
        raise _NoJsonError(f"nested deeper than {DEPTH_LIMIT} levels, or contains itself")


def _open(value: object, written: list[bytes]) -> tuple[_Members, bytes] | None:
    """Write a simple value, or the beginning of a container, whose members and end are returned."""
    if isinstance(value, dict):
        members = _sorted_members(dict(cast("dict[object, object]", value)))
        written.append(b"{")
        return members, b"}"
    if isinstance(value, list | tuple):
        written.append(b"[")
        return _elements(list(cast("list[object]", value))), b"]"
    written.append(_simple(value))
    return None


def _elements(values: list[object]) -> _Members:
    for index, value in enumerate(values):
        yield b"," if index else b"", index, value


def _sorted_members(members: dict[object, object]) -> _Members:
    keyed: list[tuple[bytes, str, object]] = []
    for key, value in members.items():
        if not isinstance(key, str):
            raise _NoJsonError(f"the key {key!r} is not a string")
        keyed.append((_utf16(key), key, value))
    keyed.sort(key=lambda member: member[0])
    return _members(keyed)


def _members(keyed: list[tuple[bytes, str, object]]) -> _Members:
    comma = b""
    for _, key, value in keyed:
        yield comma + _string(key) + b":", key, value
        comma = b","


def _utf16(key: str) -> bytes:
    try:
        return str.encode(key, "utf-16-be")
    except UnicodeEncodeError:
        raise _NoJsonError(f"the key {key!r} has half a surrogate pair in it") from None


def _simple(value: object) -> bytes:
    if value is None:
        return b"null"
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, int):
        return _integer(int(value))
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, float):
        return _number(float(value))
    raise _NoJsonError(f"a value of type {type(value).__qualname__} is not a JSON value")


def _string(text: str) -> bytes:
    try:
        # A copy as plain str: the encoder would not take a subclass.
        return _encoder()(str.__str__(text))
    except UnicodeEncodeError:
        raise _NoJsonError("the string has half a surrogate pair in it") from None


def _integer(value: int) -> bytes:
    if not -INT_LIMIT <= value <= INT_LIMIT:
        raise _NoJsonError("the integer is beyond ±(2^53 - 1)")
    return b"%d" % value


def _number(value: float) -> bytes:
    """Write a number as JavaScript does: the same shortest digits as Python, in another form."""
    if not math.isfinite(value):
        raise _NoJsonError(f"the number {value} is not finite")
    if value == 0:
        return b"0"
    sign = "-" if value < 0 else ""
    digits, point = _digits(abs(value))
    return f"{sign}{_javascript_form(digits, point)}".encode()


def _digits(value: float) -> tuple[str, int]:
    """The shortest digits that give ``value`` again, and where the decimal point is, counted from the first."""
    mantissa, _, exponent = repr(value).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    return digits.rstrip("0"), point


def _javascript_form(digits: str, point: int) -> str:
    count = len(digits)
    if count <= point <= 21:
        return digits + "0" * (point - count)
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    mantissa = digits if count == 1 else f"{digits[0]}.{digits[1:]}"
    return f"{mantissa}e{point - 1:+d}"


def _place(labels: list[str | int]) -> str:
    """Where a value is, as in ``$.a[3]``; cut when it is too deep to be read."""
    return "$" + "".join(map(_label, labels[:32])) + ("…" if len(labels) > 32 else "")


def _label(label: str | int) -> str:
    if isinstance(label, int):
        return f"[{label}]"
    return f".{label}" if label.isidentifier() else f"[{label!r}]"
