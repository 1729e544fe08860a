"""Whether a JSON Schema is one: found out before an agent is started that would be asked for a value that cannot be checked.

Only what schemas of values are made of is looked at; other keywords are left to the agent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, cast

from bartack.agents.program._json_lines import member
from bartack.agents.reply import TYPES

_DEEPEST: Final = 100

Check = Callable[[object], str]
"""Returns what a keyword has to be; empty if it is that."""


def find_schema_flaw(schema: Mapping[str, object]) -> str:
    """Where a schema is not one, and why; empty if nothing is wrong with it."""
    return next(_flaws(schema, schema, "$", 0), "")


def _flaws(part: object, root: Mapping[str, object], path: str, depth: int) -> Iterator[str]:
    if isinstance(part, bool):
        return
    if not isinstance(part, dict):
        yield f"{path}: expected a schema, found {_kind(part)}"
        return
    if depth > _DEEPEST:
        yield f"{path}: it has more than {_DEEPEST} levels"
        return
    for keyword, value in cast("dict[str, object]", part).items():
        place = f"{path}.{keyword}"
        wanted = _CHECKS[keyword](value) if keyword in _CHECKS else ""
        if keyword == "$ref" and not wanted and not _resolves(cast("str", value), root):
            wanted = "a reference to a part of the schema"
        if wanted:
            yield f"{place}: expected {wanted}"
            return
        for name, below in _parts(keyword, value):
            yield from _flaws(below, root, f"{place}{name}", depth + 1)


def _parts(keyword: str, value: object) -> Iterator[tuple[str, object]]:
    """The schemas in the value of a keyword, which is of the right kind."""
    if keyword in _SCHEMAS:
        yield "", value
    elif keyword in _NAMED:
        yield from ((f".{name}", below) for name, below in cast("dict[str, object]", value).items())
    elif keyword in _LISTED:
        yield from ((f"[{place}]", below) for place, below in enumerate(cast("list[object]", value)))


def _resolves(reference: str, root: Mapping[str, object]) -> bool:
    first, *names = reference.split("/")
    found = member(root, *(name.replace("~1", "/").replace("~0", "~") for name in names))
    return first == "#" and isinstance(found, dict | bool)


def _kind(value: object) -> str:
    return next((name for name, fits in TYPES.items() if fits(value)), type(value).__name__)


# What a keyword has to be.


def _type(value: object) -> str:
    names = cast("list[object]", value) if isinstance(value, list) else [value]
    known = bool(names) and all(isinstance(name, str) and name in TYPES for name in names)
    return "" if known else f"one of {', '.join(TYPES)}, or a list of them"


def _texts(value: object) -> str:
    fits = isinstance(value, list) and all(isinstance(one, str) for one in cast("list[object]", value))
    return "" if fits else "a list of names"


def _list(value: object) -> str:
    return "" if isinstance(value, list) else "a list"


def _choices(value: object) -> str:
    return "" if isinstance(value, list) and value else "a list that is not empty"


def _object(value: object) -> str:
    return "" if isinstance(value, dict) else "an object"


def _number(value: object) -> str:
    return "" if TYPES["number"](value) else "a number"


def _size(value: object) -> str:
    return "" if TYPES["integer"](value) and cast("float", value) >= 0 else "a whole number of at least 0"


def _pattern(value: object) -> str:
    if not isinstance(value, str):
        return "a regular expression"
    try:
        re.compile(value)
    except re.error as error:
        return f"a regular expression ({error})"
    return ""


def _text(value: object) -> str:
    return "" if isinstance(value, str) else "a text"


_SCHEMAS: Final = frozenset(
    {"items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else"}
)
_NAMED: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_LISTED: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_CHECKS: Final[dict[str, Check]] = {
    "type": _type,
    "enum": _choices,
    "required": _texts,
    "pattern": _pattern,
    "$ref": _text,
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), _number),
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _size
    ),
    **dict.fromkeys(_NAMED, _object),
    **dict.fromkeys(_LISTED, _choices),
    "prefixItems": _list,
}
