"""The functions of the library that have no effect: they give a value or throw."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Final

from bartack.errors import ThrownError, TypeMismatchError
from bartack.language import types
from bartack.runtime.patchwork import _operators as op
from bartack.runtime.patchwork._values import (
    compact,
    is_array,
    is_number,
    is_object,
    kind_of,
    mismatch,
    number,
    pretty,
    received,
    text,
    truth,
)
from bartack.runtime.scheduler.results import ShellResult


def length(value: object) -> int:
    """``len(v)``."""
    if isinstance(value, ShellResult):
        return len(text(value))
    if isinstance(value, str) or is_array(value) or is_object(value):
        return len(value)
    raise mismatch("len()", "a string, array or object", value)


def _object(name: str, value: object) -> dict[str, object]:
    if is_object(value):
        return value
    raise mismatch(f"{name}()", "an object", value)


def _number(name: str, value: object) -> float:
    if is_number(value):
        return value
    raise mismatch(f"{name}()", "a number", value)


def keys_of(value: object) -> list[str]:
    """``keys(o)``."""
    return list(_object("keys", value))


def values_of(value: object) -> list[object]:
    """``values(o)``."""
    return list(_object("values", value).values())


def entries_of(value: object) -> list[list[object]]:
    """``entries(o)``."""
    return [[key, member] for key, member in _object("entries", value).items()]


def without(value: object, *keys: object) -> object:
    """``without(o, k…)``: a copy without some keys."""
    left_out = set(map(text, keys))
    return {key: member for key, member in _object("without", value).items() if key not in left_out}


def has(value: object, key: object) -> bool:
    """``has(o, k)``."""
    return text(key) in _object("has", value)


def to_number(value: object) -> object:
    """``number(v)``: text is read as a number, booleans are 1 and 0."""
    if is_number(value):
        return value
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str | ShellResult):
        return _read_number(text(value))
    raise mismatch("number()", "a string, number or boolean", value)


def _read_number(written: str) -> object:
    found = types.parse_number(written)
    if found is None:
        raise TypeMismatchError("number()", "text that is a number", repr(written[:60]))
    return number(found)


def _refuse(name: str) -> object:
    raise ValueError(name)


def to_int(value: object) -> object:
    """``int(v)``: the number without its fraction."""
    found = to_number(value)
    assert is_number(found)
    return number(math.trunc(found))


def cat(value: object) -> str:
    """``cat(v)``: text unchanged, anything else as readable JSON."""
    return text(value) if isinstance(value, str | ShellResult) else pretty(value)


def to_json(value: object) -> object:
    """``json(v)``: text is parsed, anything else becomes text."""
    return parse_json(text(value)) if isinstance(value, str | ShellResult) else compact(value)


def parse_json(written: str) -> object:
    """A value from JSON text.

    Raises:
        TypeMismatchError: The text is not JSON; the error names line and column.
    """
    try:
        found: object = json.loads(written, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        place = f"json() at line {error.lineno}, column {error.colno}"
        rest = error.doc[error.pos : error.pos + 1]
        raise TypeMismatchError(place, "JSON", repr(rest) if rest else "the end of the text") from None
    except ValueError as error:
        raise TypeMismatchError("json()", "JSON", str(error)) from None
    except RecursionError:
        found = _TOO_DEEP
    if found is _TOO_DEEP or _is_too_deep(written, found):
        raise TypeMismatchError("json()", "JSON", "text that is nested too deeply")
    if _HALF_A_PAIR.search(written) and _has_half_a_pair(found):
        raise TypeMismatchError("json()", "JSON", "half of a surrogate pair, which is not a character")
    return received(found)


_TOO_DEEP: Final = object()


def _is_too_deep(written: str, value: object) -> bool:
    """Whether a value has more levels than a type looks at: as many on every Python."""
    if written.count("[") + written.count("{") <= types.DEEPEST:
        return False
    level = [value]
    for _ in range(types.DEEPEST):
        level = [part for one in level for part in _parts(one)]
        if not level:
            return False
    return any(is_array(one) or is_object(one) for one in level)


def _parts(value: object) -> Iterable[object]:
    return value if is_array(value) else value.values() if is_object(value) else ()


_HALF_A_PAIR: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""Text without these cannot be broken: most texts need not be checked again."""


def _has_half_a_pair(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _extreme(name: str, pick: Callable[[list[float]], float]) -> Callable[..., object]:
    def extreme(*values: object) -> object:
        if not values:
            raise TypeMismatchError(f"{name}()", "at least one number", "none")
        return pick([_number(name, value) for value in values])

    return extreme


def total(value: object) -> object:
    """``sum(xs)``."""
    if not is_array(value):
        raise mismatch("sum()", "an array", value)
    result: object = 0
    for element in value:
        result = op.add(result, _number("sum", element))
    return result


def digest(value: object) -> str:
    """``sha256(s)``."""
    if not isinstance(value, str | ShellResult):
        raise mismatch("sha256()", "a string", value)
    return sha256(text(value).encode("utf-8", "surrogatepass")).hexdigest()


def assure(condition: object, message: object = None) -> None:
    """``assert(cond, message?)``."""
    if not truth(condition):
        shown = "assertion failed" if message is None else text(message)
        raise ThrownError(shown, shown)


def thrown(value: object) -> ThrownError:
    """The error that a thrown value becomes."""
    if is_object(value) and isinstance(value.get("message"), str):
        return ThrownError(str(value["message"]), value)
    return ThrownError(text(value), value)


def _rounded(name: str, change: Callable[[float], float]) -> Callable[[object], object]:
    return lambda value: number(change(_number(name, value)))


PURE: Final[Mapping[str, Callable[..., object]]] = {
    "len": length,
    "keys": keys_of,
    "values": values_of,
    "entries": entries_of,
    "has": has,
    "without": without,
    "typeof": kind_of,
    "string": text,
    "number": to_number,
    "int": to_int,
    "cat": cat,
    "json": to_json,
    "abs": _rounded("abs", abs),
    "floor": _rounded("floor", math.floor),
    "ceil": _rounded("ceil", math.ceil),
    "round": _rounded("round", op.round_half_away),
    "min": _extreme("min", min),
    "max": _extreme("max", max),
    "sum": total,
    "sha256": digest,
    "assert": assure,
}
"""The functions by their names."""
