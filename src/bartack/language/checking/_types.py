"""Patchwork types as values: what they accept, how they read, arguments by type.

Owns the meaning of types at run time and what two types have in common. Their JSON Schema is in `_schema.py`; types
are made from what is written by `_written_types.py`.

Values are those of JSON in Python: None, bool, int or float, str, list, dict; everything else is opaque, and the
callers say how opaque values are called.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias, cast

import msgspec

from bartack.core.text import cut


class Scalar(msgspec.Struct, frozen=True, eq=False):
    """`any`, a simple type, or (only found, never written) an opaque kind such as `result`."""

    name: str


class LiteralOf(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Exactly one string, number or boolean."""

    value: str | float | bool


class ArrayOf(msgspec.Struct, frozen=True, eq=False):
    """An array; `element` is `ANY` for `array`.

    `parts` are elements that it has for certain, as one that is written out does; `exact` when it has no others.
    """

    element: Type
    parts: tuple[Type, ...] = ()
    exact: bool = False


class MapOf(msgspec.Struct, frozen=True, eq=False):
    """An object with any keys; `value` is `ANY` for `object`."""

    value: Type


class Field(msgspec.Struct, frozen=True, eq=False):
    """A field of a record."""

    name: str
    type: Type
    optional: bool = False


class Record(msgspec.Struct, frozen=True, eq=False):
    """An object with these fields, and maybe more; `exact` for one that is written out and has no others."""

    fields: tuple[Field, ...]
    exact: bool = False


class Union(msgspec.Struct, frozen=True, eq=False):
    """Any of its members."""

    members: tuple[Type, ...]


class Named(msgspec.Struct, eq=False):
    """A declared type. `definition` is set after all types of a program are known, so that types may be recursive.

    `module` is the id of the declaring module, `description` the text of the doc comment.
    """

    name: str
    module: str = ""
    description: str = ""
    definition: Type | None = None


Type: TypeAlias = Scalar | LiteralOf | ArrayOf | MapOf | Record | Union | Named

ANY = Scalar("any")
STRING = Scalar("string")
NUMBER = Scalar("number")
INT = Scalar("int")
BOOL = Scalar("bool")
NULL = Scalar("null")
ARRAY = ArrayOf(ANY)
OBJECT = MapOf(ANY)

RESULT = Scalar("result")
ERROR = Scalar("error")
SESSION = Scalar("session")
MAILBOX = Scalar("mailbox")
DELIVERY = Scalar("delivery")
SPEC = Scalar("spec")
OPAQUE = frozenset((RESULT, ERROR, SESSION, MAILBOX, DELIVERY, SPEC))
"""Kinds that no written type names."""

BUILT_IN: Mapping[str, Type] = {
    "string": STRING,
    "number": NUMBER,
    "float": NUMBER,
    "int": INT,
    "bool": BOOL,
    "boolean": BOOL,
    "null": NULL,
    "void": NULL,
    "any": ANY,
    "object": OBJECT,
    "array": ARRAY,
}
"""The types every program has, by all their names."""


def definition_of(kind: Type) -> Type:
    """The type of a declared name; `ANY` where there is no structure."""
    seen: set[int] = set()
    while isinstance(kind, Named):
        if id(kind) in seen or kind.definition is None:
            return ANY
        seen.add(id(kind))
        kind = kind.definition
    return kind


def members_of(kind: Type) -> Iterator[Type]:
    """The alternatives of a type, through declared names and unions within unions."""
    waiting: list[Type] = [kind]
    seen: set[int] = set()
    while waiting:
        found = definition_of(waiting.pop())
        if not isinstance(found, Union):
            yield found
        elif id(found) not in seen:
            seen.add(id(found))
            waiting.extend(reversed(found.members))


def join(kinds: list[Type]) -> Type:
    """The type of something that is one of these: one of them where they agree, else a union."""
    distinct = list(dict.fromkeys(kinds))
    if not distinct or ANY in distinct:
        return ANY
    return distinct[0] if len(distinct) == 1 else Union(tuple(distinct))


# How types read

_TEXT_LIMIT = 80


def describe(kind: Type) -> str:
    """The type as it is written in Patchwork, cut when it is long; declared types by their names."""
    text = _text(kind, 0)
    return cut(text, _TEXT_LIMIT)


def _text(kind: Type, depth: int) -> str:
    if isinstance(kind, (Scalar, Named)):
        return kind.name
    if isinstance(kind, LiteralOf):
        return _json(kind.value)
    return "…" if depth > 4 else _container_text(kind, depth + 1)


def _container_text(kind: ArrayOf | MapOf | Record | Union, depth: int) -> str:
    match kind:
        case ArrayOf(element=element):
            return "array" if element is ANY else f"[{_text(element, depth)}]"
        case MapOf(value=value):
            return "object" if value is ANY else f"object<{_text(value, depth)}>"
        case Record():
            return "{" + ", ".join(_field_text(field, depth) for field in kind.fields[:20]) + "}"
        case Union():
            return " | ".join(_text(member, depth) for member in kind.members[:20])


_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def _field_text(field: Field, depth: int) -> str:
    key = field.name if _PLAIN_KEY.match(field.name) else _json(field.name)
    return f"{key}{'?' if field.optional else ''}: {_text(field.type, depth)}"


def _json(value: object) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    return json.dumps(value, ensure_ascii=False)


# What types accept


DEEPEST = 1_000
"""How many levels of a value are compared with a type; one that contains itself has more than any number."""


class Fault(NamedTuple):
    """The first place where a value is not of a type: its path from `$`, what was expected there and what was found.

    `too_deep` is for a value that has more than `DEEPEST` levels: whether it is of the type is not known.
    """

    path: str
    expected: str
    found: str
    too_deep: bool = False

    @property
    def text(self) -> str:
        """The fault in one sentence; the path only where it leads into the value."""
        where = "" if self.path == "$" else f" at {self.path}"
        return f"expected {self.expected}, found {self.found}{where}"


KindOf: TypeAlias = Callable[[object], str]
"""Names the kind of an opaque value, such as `result`."""


def _opaque(_value: object) -> str:
    return "opaque"


def accepts(kind: Type, value: object, kind_of: KindOf = _opaque) -> Fault | None:
    """What keeps `value` from being of this type, or None when nothing does.

    A result is accepted where a string is; `converted` makes it one.
    """
    try:
        fault = _Acceptance(kind_of).fault(kind, value)
    except (_TooDeep, RecursionError):
        return Fault("$", describe(kind), "a value that is nested too deeply", too_deep=True)
    if fault is None:
        return None
    steps, expected, found = fault
    return Fault("$" + "".join(map(_step_text, reversed(steps))), describe(expected), found)


def _step_text(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _PLAIN_KEY.match(step) else f"[{_json(step)}]"


_Found: TypeAlias = tuple[list[str | int], Type, str]
"""A fault on its way up: the steps from the inside out, the type expected there, what was found."""


class _TooDeep(Exception):  # noqa: N818 - it never leaves this module
    """A value has more levels than are looked at."""


class _Met(NamedTuple):
    """What became of a pair of type and container, and how many levels of the container were looked at."""

    fault: _Found | None
    height: int


class _Acceptance:
    """One walk over a value. Remembers pairs of type and container, so that shared parts are met once.

    A pair that is met inside itself is a value that contains itself.
    """

    def __init__(self, kind_of: KindOf) -> None:
        self._kind_of = kind_of
        self._known: dict[tuple[int, int], _Met | None] = {}
        self._depth = 0
        self._deepest = 0

    def fault(self, kind: Type, value: object) -> _Found | None:
        kind = definition_of(kind)
        if isinstance(kind, Scalar):
            return None if self._is_scalar(kind, value) else self._here(kind, value)
        if isinstance(kind, LiteralOf):
            return None if same_value(kind.value, value) else self._here(kind, value)
        if not isinstance(value, (list, dict)):
            return self._fault_of_union(kind, value) if isinstance(kind, Union) else self._here(kind, value)
        key = (id(kind), id(cast("object", value)))
        if key not in self._known:
            self._known[key] = None
            self._known[key] = self._measured(kind, cast("object", value))
        met = self._known[key]
        if met is None or self._depth + met.height > DEEPEST:
            raise _TooDeep
        self._deepest = max(self._deepest, self._depth + met.height)
        return met.fault

    def _measured(self, kind: Type, value: object) -> _Met:
        around, self._deepest = self._deepest, self._depth
        level = 0 if isinstance(kind, Union) else 1
        self._depth += level
        if self._depth > DEEPEST:
            raise _TooDeep
        fault = self._fault_inside(kind, value)
        self._depth -= level
        height = max(self._deepest - self._depth, level)
        self._deepest = around
        return _Met(fault, height)

    def _fault_inside(self, kind: Type, value: object) -> _Found | None:
        match kind, value:
            case Union(), _:
                return self._fault_of_union(kind, value)
            case ArrayOf(element=element), list():
                return self._fault_of_parts(element, enumerate(cast("list[object]", value)))
            case MapOf(value=inner), dict():
                return self._fault_of_parts(inner, cast("dict[str, object]", value).items())
            case Record(), dict():
                return self._fault_of_record(kind, cast("dict[str, object]", value))
            case _:
                return self._here(kind, value)

    def _fault_of_parts(self, kind: Type, parts: Iterator[tuple[int, object]] | object) -> _Found | None:
        if kind is ANY:
            return None
        for step, part in cast("Iterator[tuple[str | int, object]]", parts):
            fault = self.fault(kind, part)
            if fault:
                return [*fault[0], step], fault[1], fault[2]
        return None

    def _fault_of_record(self, kind: Record, value: dict[str, object]) -> _Found | None:
        for field in kind.fields:
            part = value.get(field.name)
            if part is None and field.optional:
                continue
            if part is None and field.name not in value:
                return [field.name], field.type, "nothing"
            fault = self.fault(field.type, part)
            if fault:
                return [*fault[0], field.name], fault[1], fault[2]
        return None

    def _fault_of_union(self, kind: Union, value: object) -> _Found | None:
        deep: list[_Found] = []
        for member in members_of(kind):
            fault = self.fault(member, value)
            if fault is None:
                return None
            if fault[0]:
                deep.append(fault)
        return deep[0] if len(deep) == 1 else self._here(kind, value)

    def _here(self, kind: Type, value: object) -> _Found:
        return [], kind, found_text(value, self._kind_of)

    def _is_scalar(self, kind: Scalar, value: object) -> bool:
        if kind is ANY:
            return True
        if kind is STRING:
            return isinstance(value, str) or self.is_result(value)
        if kind is BOOL:
            return isinstance(value, bool)
        if kind is NULL:
            return value is None
        if kind is NUMBER or kind is INT:
            return is_number(value) and (kind is NUMBER or is_integral(value))
        return not is_plain(value) and self._kind_of(value) == kind.name

    def is_result(self, value: object) -> bool:
        return not is_plain(value) and self._kind_of(value) == "result"


def is_plain(value: object) -> bool:
    """Whether a value is one of JSON's kinds."""
    return value is None or isinstance(value, (bool, int, float, str, list, dict))


def is_number(value: object) -> bool:
    """Whether a value is a number; booleans are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_integral(value: object) -> bool:
    """Whether a number has no fraction."""
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def same_value(left: object, right: object) -> bool:
    """Whether two simple values are equal as Patchwork compares them: `true` is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return (
        left == right if is_number(left) and is_number(right) else type(left) is type(right) and left == right
    )


_SHOWN = 40


def found_text(value: object, kind_of: KindOf = _opaque) -> str:
    """A value as a message names it: its kind, and simple values themselves."""
    if value is None or isinstance(value, bool):
        return _json(value)
    if isinstance(value, str):
        return f"string {_json(value if len(value) <= _SHOWN else value[: _SHOWN - 1] + '…')}"
    if isinstance(value, list):
        return f"array of {len(cast('list[object]', value))}"
    if isinstance(value, (int, float)):
        return f"number {_json(value)}"
    return "object" if isinstance(value, dict) else kind_of(value)


def converted(kind: Type, value: object, kind_of: KindOf, text_of: Callable[[object], str]) -> object:
    """The value with results turned into their text where the type requires a string.

    The value must be accepted. Containers are copied only where something in them changes.
    """
    return _Conversion(kind_of, text_of).of(kind, value)


class _Conversion:
    """One conversion. A container that is met again is not converted again."""

    def __init__(self, kind_of: KindOf, text_of: Callable[[object], str]) -> None:
        self._text_of = text_of
        self._acceptance = _Acceptance(kind_of)
        self._made: dict[tuple[int, int], object] = {}

    def of(self, kind: Type, value: object) -> object:
        kind = definition_of(kind)
        if isinstance(kind, Union):
            kind = _first_fitting(kind, value, self._acceptance)
        if kind is STRING:
            return value if isinstance(value, str) else self._text_of(value)
        if not isinstance(value, (list, dict)):
            return value
        found = cast("object", value)
        key = (id(kind), id(found))
        if key not in self._made:
            self._made[key] = _rebuilt(kind, found, self.of)
        return self._made[key]


def _first_fitting(kind: Union, value: object, acceptance: _Acceptance) -> Type:
    """The member of a union that a value is of."""
    return next((member for member in members_of(kind) if acceptance.fault(member, value) is None), ANY)


def _rebuilt(kind: Type, value: object, inner: Callable[[Type, object], object]) -> object:
    match kind, value:
        case ArrayOf(element=element), list() if element is not ANY:
            old = cast("list[object]", value)
            new = [inner(element, part) for part in old]
            return new if any(a is not b for a, b in zip(old, new, strict=True)) else old
        case ((Record() | MapOf()), dict()):
            fields = cast("dict[str, object]", value)
            changed = {
                key: part if part is None and _may_miss(kind, key) else inner(_type_at(kind, key), part)
                for key, part in fields.items()
            }
            return changed if any(changed[key] is not part for key, part in fields.items()) else fields
        case _:
            return value


def _may_miss(kind: Record | MapOf, key: str) -> bool:
    """Whether null stands for a field that is missing: it is then left as it is, whatever the type of the field."""
    return isinstance(kind, Record) and any(field.name == key and field.optional for field in kind.fields)


def _type_at(kind: Record | MapOf, key: str) -> Type:
    if isinstance(kind, MapOf):
        return kind.value
    return next((field.type for field in kind.fields if field.name == key), ANY)


# Values from text


class Read(NamedTuple):
    """What became of a text: a value, or the fault that kept it from being one."""

    value: object
    fault: Fault | None = None


_TRUE = frozenset(("true", "yes", "1"))
_FALSE = frozenset(("false", "no", "0"))
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?\Z", re.ASCII)


def from_argument(kind: Type | None, text: str) -> Read:
    """Read one program argument by the type of its parameter; None is a parameter without type."""
    if kind is None or definition_of(kind) is STRING:
        return Read(text)
    bare = definition_of(kind)
    if bare is BOOL:
        return _boolean(text)
    if bare is NUMBER or bare is INT:
        return _checked(bare, parse_number(text), text)
    literals = literals_of(bare)
    if literals is not None:
        return _one_of(bare, literals, text)
    return _from_json(kind, text)


def _boolean(text: str) -> Read:
    word = text.lower()
    if word in _TRUE or word in _FALSE:
        return Read(word in _TRUE)
    return Read(None, Fault("$", "true, false, yes, no, 1 or 0", found_text(text)))


def parse_number(text: str) -> int | float | None:
    """The number a text is, blanks around it ignored; None when it is none or too large."""
    text = text.strip()
    return _double(text) if _NUMBER.match(text) else None


_LAST_EXACT = 2**53


def _double(text: str) -> int | float | None:
    """A number as a double has it, integers as such as far as they are exact."""
    value = float(text)
    if not math.isfinite(value):
        return None
    return int(value) if abs(value) <= _LAST_EXACT and value.is_integer() and "." not in text else value


def _checked(kind: Type, value: object, text: str) -> Read:
    if value is None or accepts(kind, value) is not None:
        return Read(None, Fault("$", describe(kind), found_text(text)))
    return Read(value)


def literals_of(kind: Type) -> tuple[str | float | bool | None, ...] | None:
    """The values of a type that has only finitely many written ones; None for all other types."""
    found: list[str | float | bool | None] = []
    for member in members_of(kind):
        if isinstance(member, LiteralOf):
            found.append(member.value)
        elif member is NULL:
            found.append(None)
        else:
            return None
    return tuple(found)


def _one_of(kind: Type, literals: tuple[str | float | bool | None, ...], text: str) -> Read:
    for literal in literals:
        if text == (literal if isinstance(literal, str) else _json(literal)):
            return Read(literal)
    return Read(None, Fault("$", describe(kind), found_text(text)))


def _refuse_constant(name: str) -> object:
    raise ValueError(name)


def _from_json(kind: Type, text: str) -> Read:
    try:
        value: object = json.loads(text, parse_constant=_refuse_constant, parse_int=_double)
    except (ValueError, RecursionError):
        fault: Fault | None = Fault("$", f"{describe(kind)} as JSON", found_text(text))
    else:
        fault = accepts(kind, value)
        if fault is None:
            return Read(value)
    if accepts(kind, text) is None:
        return Read(text)
    return Read(None, fault)


# What two types have in common


def overlap(left: Type, right: Type) -> bool:
    """Whether some value may be of both types. In doubt they overlap, so that no warning is given without cause."""
    if left is right or left is ANY or right is ANY:
        return True
    if isinstance(left, (Scalar, LiteralOf)) and isinstance(right, (Scalar, LiteralOf)):
        return _simple_overlap(left, right)
    return _Overlap().of(left, right)


class _Overlap:
    """One comparison. A pair of types met again counts as overlapping, so recursive types come to an end."""

    def __init__(self) -> None:
        self._met: set[tuple[int, int]] = set()

    def of(self, left: Type, right: Type) -> bool:
        left, right = definition_of(left), definition_of(right)
        if left is right or left is ANY or right is ANY:
            return True
        if isinstance(left, Union) or isinstance(right, Union):
            pair = (id(left), id(right))
            if pair in self._met:
                return True
            self._met.add(pair)
            return any(self.of(a, b) for a in members_of(left) for b in members_of(right))
        if isinstance(left, (Scalar, LiteralOf)) or isinstance(right, (Scalar, LiteralOf)):
            return _simple_overlap(left, right)
        return self._container_overlap(left, right)

    def _container_overlap(self, left: Type, right: Type) -> bool:
        pair = (id(left), id(right))
        if pair in self._met:
            return True
        self._met.add(pair)
        if isinstance(left, ArrayOf) or isinstance(right, ArrayOf):
            return isinstance(left, ArrayOf) and isinstance(right, ArrayOf) and self._arrays(left, right)
        if lacks(left, right) or lacks(right, left):
            return False
        return all(self.of(*both) for both in _common_fields(left, right))

    def _arrays(self, left: ArrayOf, right: ArrayOf) -> bool:
        """Arrays always have the empty one in common, unless one of them is known to have elements."""
        return all(self.of(part, right.element) for part in left.parts) and all(
            self.of(part, left.element) for part in right.parts
        )


def lacks(written: Type, wanted: Type) -> bool:
    """Whether an object that is written out misses a field another type requires."""
    if not isinstance(written, Record) or not written.exact or not isinstance(wanted, Record):
        return False
    given = {field.name for field in written.fields}
    return any(field.name not in given for field in wanted.fields if not field.optional)


def _common_fields(left: Type, right: Type) -> Iterator[tuple[Type, Type]]:
    """The types of the fields that a value of both types must have."""
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Record):
            for field in one.fields:
                if not field.optional and not _optional_in(other, field.name):
                    yield field.type, _field_type(other, field.name)


def _optional_in(kind: Type, name: str) -> bool:
    return isinstance(kind, Record) and any(field.name == name and field.optional for field in kind.fields)


def _field_type(kind: Type, name: str) -> Type:
    return _type_at(kind, name) if isinstance(kind, (Record, MapOf)) else ANY


_KIND: Mapping[type, Scalar] = {str: STRING, bool: BOOL, int: NUMBER, float: NUMBER}


def kind_of_type(kind: Type) -> Scalar | None:
    """The simple kind a simple type belongs to (`number` for `int` and `1`); None for containers."""
    if isinstance(kind, LiteralOf):
        return _KIND[type(kind.value)]
    if isinstance(kind, Scalar):
        return NUMBER if kind is INT else kind
    return None


def is_text(kind: Type) -> bool:
    """Whether all values of a type are text, or count as it."""
    kind = definition_of(kind)
    return kind in {STRING, RESULT} or (isinstance(kind, LiteralOf) and isinstance(kind.value, str))


def parts_of(kind: Type) -> tuple[Type, ...]:
    """The elements of an array that are known one by one, from the first on."""
    kind = definition_of(kind)
    return kind.parts if isinstance(kind, ArrayOf) and kind.exact else ()


def _simple_overlap(left: Type, right: Type) -> bool:
    if isinstance(left, LiteralOf) and isinstance(right, LiteralOf):
        return same_value(left.value, right.value)
    for literal, other in ((left, right), (right, left)):
        if isinstance(literal, LiteralOf) and other is INT:
            return is_number(literal.value) and is_integral(literal.value)
    one, two = kind_of_type(left), kind_of_type(right)
    if one is None or two is None:
        # An opaque value becomes an object where it crosses a border.
        opaque, container = (two, left) if one is None else (one, right)
        return opaque in OPAQUE and opaque is not SPEC and isinstance(container, (MapOf, Record))
    return one is two or {one, two} == {STRING, RESULT}
