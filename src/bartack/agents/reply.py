"""Reading the reply of an agent as what it was asked for, by JSON schema; the same for every kind of agent.

Agents wrap values in prose and fences. The value is looked for in a few fixed places and then checked; nothing is guessed or
converted. A reply that does not fit is worth one more request, which names every fault; ``repair_request`` words it.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast

import msgspec

from bartack.agents.protocol._sound import find_unsound

DECLINE: Final = "CANNOT_DETERMINE"
DECLINE_REQUEST: Final = f"If this cannot be known, reply exactly: {DECLINE}"

Schema = Mapping[str, object]
"""A JSON schema, as annotations and Patchwork types have them: types, enums, objects, arrays, alternatives, references."""

_FENCE: Final = re.compile(
    r"^(?P<mark>```+|~~~+)[ \t]*(?P<tag>[^\s`]*)[^\n]*\n(?P<inside>.*?)^(?P=mark)[ \t]*$", re.M | re.S
)
_DEEPEST: Final = 100


class Fault(NamedTuple):
    """Where a value is not what was asked for."""

    path: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.path}: expected {self.expected}, found {self.found}"


class ReplyFaultsError(ValueError):
    """A reply is not what was asked for; ``faults`` says where."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = list(faults)
        super().__init__("; ".join(map(str, faults)))


class ReadReply(NamedTuple):
    """A reply as what was asked for: its text, and its value where one was asked for and the agent did not decline."""

    text: str
    value: object = None
    declined: bool = False


def read_reply(
    text: str, schema: Schema | None, *, may_decline: bool = False, given: object = msgspec.UNSET
) -> ReadReply:
    """Read what an agent replied.

    Args:
        text: What it said.
        schema: What was asked for; plain text without one.
        may_decline: The prompt explains how to reply that the answer cannot be known.
        given: The value, if it came as one and not as text.

    Raises:
        ReplyFaultsError: It is not what was asked for.
    """
    if may_decline and is_declined(text):
        return ReadReply(text, declined=True)
    if schema is None:
        return ReadReply(read_text(text))
    value = _read_given(given, text, schema)
    return ReadReply(msgspec.json.encode(value).decode(), value)


def _read_given(given: object, text: str, schema: Schema) -> object:
    if given is msgspec.UNSET:
        return read_value(text, schema)
    value, faults = check_value(given, schema)
    if not faults:
        return value
    try:
        return read_value(text, schema)
    except ReplyFaultsError:
        if isinstance(given, str):
            raise
        raise ReplyFaultsError(faults) from None


def is_declined(text: str) -> bool:
    """Whether an agent says that it cannot know the answer."""
    return text.strip().upper() == DECLINE


def read_text(text: str) -> str:
    """A reply of plain text: without blanks around it and, if it is exactly one block fenced as ``text``, what is in that."""
    text = text.strip()
    block = _FENCE.match(text)
    whole = block is not None and block.end() == len(text)
    return block["inside"].removesuffix("\n") if block and whole and block["tag"] == "text" else text


def read_value(text: str, schema: Schema) -> object:
    """The value that a reply holds, without fields that were not asked for.

    Raises:
        ReplyFaultsError: There is none in it, or not one that fits.
    """
    faults: list[Fault] | None = None
    for candidate in _candidates(text, schema):
        checked, found = check_value(candidate, schema)
        if not found:
            return checked
        faults = faults or found
    raise ReplyFaultsError(faults or [Fault("$", "a JSON value", _short(text.strip()))])


def check_value(value: object, schema: Schema) -> tuple[object, list[Fault]]:
    """A value without fields that were not asked for, and where it is not what was asked for."""
    unsound = find_unsound(value, keyed=False)
    if unsound:
        return value, [Fault("$", "a value that can be stored", unsound)]
    check = _Check(schema)
    return check.value(value, schema, "$", 0), check.faults


def repair_request(faults: Sequence[Fault], schema: Schema) -> str:
    """The text that asks an agent to fix its reply."""
    places = "\n".join(f"- {fault}" for fault in faults)
    wanted = json.dumps(schema, ensure_ascii=False)
    return (
        f"Your reply is not what was asked for:\n{places}\n\n"
        f"Reply again with nothing but a JSON value that fits this schema:\n{wanted}"
    )


# Finding the value.


def _candidates(text: str, schema: Schema) -> Iterator[object]:
    """The values that a reply may mean, the likeliest first."""
    text = text.strip()
    yield from _parsed(text)
    blocks = [block["inside"] for block in _FENCE.finditer(text) if block["tag"].lower() in {"", "json"}]
    if blocks:
        yield from _parsed(blocks[-1])
    yield from _bare(text, _Check(schema).resolve(schema))


def _parsed(text: str) -> Iterator[object]:
    try:
        yield msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return


def _bare(text: str, schema: Schema) -> Iterator[object]:
    """A word without quotes, where only certain words are wanted."""
    options = [schema, *(cast("Schema", part) for part in _list(schema.get("anyOf")))]
    if any(text in _list(option.get("enum")) for option in options):
        yield text
    if text.lower() in {"true", "false"} and any(option.get("type") == "boolean" for option in options):
        yield text.lower() == "true"


# Checking it.


class _Check:
    """One look at a value; collects what is wrong."""

    def __init__(self, root: Schema) -> None:
        self.faults: list[Fault] = []
        self._root = root

    def resolve(self, schema: Schema) -> Schema:
        """A schema, or what it refers to."""
        for _ in range(_DEEPEST):
            reference = schema.get("$ref")
            if not isinstance(reference, str):
                return schema
            shared = _mapping(self._root.get("$defs"))
            schema = _mapping(shared.get(reference.removeprefix("#/$defs/")))
        return schema

    def value(self, value: object, schema: Schema, path: str, depth: int) -> object:
        """A value as far as it was asked for."""
        schema = self.resolve(schema)
        if depth > _DEEPEST:
            return self._fault(path, f"at most {_DEEPEST} levels", value)
        if "anyOf" in schema:
            return self._any_of(value, [_mapping(part) for part in _list(schema["anyOf"])], path, depth)
        if "enum" in schema and not any(_equal(value, option) for option in _list(schema["enum"])):
            return self._fault(path, _described(schema), value)
        if "const" in schema and not _equal(value, schema["const"]):
            return self._fault(path, _described(schema), value)
        if not _has_type(value, schema):
            return self._fault(path, _described(schema), value)
        return self._inside(value, schema, path, depth)

    def _inside(self, value: object, schema: Schema, path: str, depth: int) -> object:
        if isinstance(value, dict):
            return self._object(cast("dict[str, object]", value), schema, path, depth)
        if isinstance(value, list):
            return self._array(cast("list[object]", value), schema, path, depth)
        beyond = _beyond(value, schema)
        if beyond:
            return self._fault(path, beyond, value)
        return int(value) if isinstance(value, float) and schema.get("type") == "integer" else value

    def _any_of(self, value: object, options: list[Schema], path: str, depth: int) -> object:
        attempts: list[_Check] = []
        for option in options:
            attempt = _Check(self._root)
            checked = attempt.value(value, option, path, depth + 1)
            if not attempt.faults:
                return checked
            attempts.append(attempt)
        near = [attempt for attempt in attempts if any(fault.path != path for fault in attempt.faults)]
        if len(near) == 1:
            self.faults += near[0].faults
            return value
        return self._fault(path, " or ".join(_described(self.resolve(option)) for option in options), value)

    def _object(self, value: dict[str, object], schema: Schema, path: str, depth: int) -> object:
        members = _mapping(schema.get("properties"))
        others = schema.get("additionalProperties")
        for name in _list(schema.get("required")):
            if name not in value:
                self.faults.append(
                    Fault(f"{path}.{name}", _described(self._member(members, str(name))), "nothing")
                )
        kept: dict[str, object] = {}
        for name, member in value.items():
            if name in members:
                kept[name] = self.value(member, self._member(members, name), f"{path}.{name}", depth + 1)
            elif isinstance(others, dict):
                kept[name] = self.value(member, cast("Schema", others), f"{path}.{name}", depth + 1)
            elif not members and others is not False:
                kept[name] = member
        return kept

    def _member(self, members: Schema, name: str) -> Schema:
        return self.resolve(_mapping(members.get(name)))

    def _array(self, value: list[object], schema: Schema, path: str, depth: int) -> object:
        low, high = schema.get("minItems", 0), schema.get("maxItems", len(value))
        if not cast("int", low) <= len(value) <= cast("int", high):
            wanted = f"{low} elements" if low == high else f"{low} to {high} elements"
            self.faults.append(Fault(path, wanted, f"{len(value)}"))
            return value
        first = [_mapping(part) for part in _list(schema.get("prefixItems"))]
        rest = _mapping(schema.get("items"))
        kinds = first + [rest] * max(len(value) - len(first), 0)
        return [
            self.value(element, kind, f"{path}[{index}]", depth + 1)
            for index, (element, kind) in enumerate(zip(value, kinds, strict=False))
        ]

    def _fault(self, path: str, expected: str, value: object) -> object:
        self.faults.append(Fault(path, expected, _short(json.dumps(value, ensure_ascii=False))))
        return value


TYPES: Final[dict[str, Callable[[object], bool]]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: (
        (isinstance(value, int) and not isinstance(value, bool))
        or (isinstance(value, float) and value.is_integer())
    ),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}

_BOUNDS: Final[dict[str, tuple[Callable[[float, float], bool], str]]] = {
    "minimum": (operator.ge, "at least"),
    "maximum": (operator.le, "at most"),
    "exclusiveMinimum": (operator.gt, "more than"),
    "exclusiveMaximum": (operator.lt, "less than"),
}
_LENGTHS: Final[dict[str, tuple[Callable[[float, float], bool], str]]] = {
    "minLength": (operator.ge, "a length of at least"),
    "maxLength": (operator.le, "a length of at most"),
}


def _beyond(value: object, schema: Schema) -> str:
    """Which bound a number or a text does not keep; empty if it keeps all."""
    if isinstance(value, str):
        pattern = schema.get("pattern")
        if isinstance(pattern, str) and not re.search(pattern, value):
            return f"text like {pattern}"
        return _passed(len(value), schema, _LENGTHS)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _passed(value, schema, _BOUNDS)
    return ""


def _passed(
    size: float, schema: Schema, bounds: Mapping[str, tuple[Callable[[float, float], bool], str]]
) -> str:
    for keyword, (keeps, words) in bounds.items():
        limit = schema.get(keyword)
        if isinstance(limit, int | float) and not keeps(size, limit):
            return f"{words} {limit}"
    return ""


def _has_type(value: object, schema: Schema) -> bool:
    kinds = schema.get("type")
    names = [kinds] if isinstance(kinds, str) else _list(kinds)
    return not names or any(TYPES[str(name)](value) for name in names if name in TYPES)


def _equal(value: object, option: object) -> bool:
    return value == option and isinstance(value, bool) == isinstance(option, bool)


def _described(schema: Schema) -> str:
    """What a schema asks for, in a few words."""
    if "enum" in schema:
        return " or ".join(json.dumps(option, ensure_ascii=False) for option in _list(schema["enum"]))
    if "const" in schema:
        return json.dumps(schema["const"], ensure_ascii=False)
    kinds = schema.get("type", "a value")
    return kinds if isinstance(kinds, str) else " or ".join(map(str, _list(kinds)))


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _mapping(value: object) -> Schema:
    return cast("Schema", value) if isinstance(value, dict) else {}
