"""The JSON Schema of a Patchwork type, as agents and questions are given it.

Owns the mapping alone; what types mean is in `_types.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TypeAlias, cast

from bartack.language.checking._types import (
    ANY,
    BOOL,
    INT,
    NULL,
    NUMBER,
    STRING,
    ArrayOf,
    Field,
    LiteralOf,
    MapOf,
    Named,
    Record,
    Scalar,
    Type,
    Union,
    accepts,
    literals_of,
)

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
Schema: TypeAlias = dict[str, JsonValue]

_INLINE_LIMIT = 2_000
_SIMPLE = {STRING: "string", NUMBER: "number", INT: "integer", BOOL: "boolean", NULL: "null"}


def schema(kind: Type, *, nullable: bool = True) -> Schema:
    """The JSON Schema of a type.

    Declared types are put where they are used; recursive ones, and all when the whole would grow too large, go
    through `$defs`. An optional field may be null. With `nullable=False` its schema does not say so: prompts are compared
    with recorded ones in this form, which journals of earlier versions have.
    """
    maker = _Schemas(frozenset(_recursive(kind)), _INLINE_LIMIT, nullable=nullable)
    made = maker.of(kind)
    if maker.size > _INLINE_LIMIT:
        maker = _Schemas(frozenset(_named(kind)), sys.maxsize, nullable=nullable)
        made = maker.of(kind)
    return {**made, "$defs": cast("JsonValue", maker.definitions)} if maker.definitions else made


def _parts(kind: Type) -> tuple[Type, ...]:
    match kind:
        case ArrayOf(element=element):
            return (element,)
        case MapOf(value=value):
            return (value,)
        case Record(fields=fields):
            return tuple(field.type for field in fields)
        case Union(members=members):
            return members
        case Named(definition=definition):
            return () if definition is None else (definition,)
        case _:
            return ()


def _named(kind: Type) -> Iterator[Named]:
    waiting, seen = [kind], set[int]()
    while waiting:
        found = waiting.pop()
        if id(found) not in seen:
            seen.add(id(found))
            if isinstance(found, Named):
                yield found
            waiting.extend(reversed(_parts(found)))


def _recursive(kind: Type) -> Iterator[Named]:
    for named in _named(kind):
        inside = (part for part in _parts(named))
        if any(found is named for part in inside for found in _named(part)):
            yield named


class _Schemas:
    """Makes one schema, counting its parts."""

    def __init__(self, shared: frozenset[Named], limit: int, *, nullable: bool) -> None:
        self._shared = shared
        self._nullable = nullable
        self._limit = limit
        self._keys: dict[Named, str] = {}
        self.definitions: dict[str, Schema] = {}
        self.size = 0

    def of(self, kind: Type) -> Schema:
        self.size += 1
        if self.size > self._limit:
            return {}
        if isinstance(kind, Named):
            return self._reference(kind) if kind in self._shared else self._described(kind)
        return self._structure(kind)

    def _structure(self, kind: Scalar | LiteralOf | ArrayOf | MapOf | Record | Union) -> Schema:
        match kind:
            case Union():
                return self._union(kind)
            case Record():
                return self._record(kind)
            case ArrayOf(element=element):
                return {"type": "array", **self._inside("items", element)}
            case MapOf(value=value):
                return {"type": "object", **self._inside("additionalProperties", value)}
            case LiteralOf(value=literal):
                return {"enum": [_number(literal)]}
            case Scalar():
                return {"type": _SIMPLE[kind]} if kind in _SIMPLE else {}

    def _inside(self, key: str, kind: Type) -> Schema:
        return {} if kind is ANY else {key: self.of(kind)}

    def _described(self, kind: Named) -> Schema:
        made = self.of(kind.definition or ANY)
        return {"description": kind.description, **made} if kind.description else made

    def _reference(self, kind: Named) -> Schema:
        key = self._keys.get(kind)
        if key is None:
            taken = sum(1 for other in self._keys if other.name == kind.name)
            key = self._keys[kind] = kind.name if not taken else f"{kind.name}_{taken + 1}"
            self.definitions[key] = {}
            self.definitions[key].update(self._described(kind))
        return {"$ref": f"#/$defs/{key}"}

    def _union(self, kind: Union) -> Schema:
        literals = literals_of(kind)
        if literals is not None and not self._shared.intersection(kind.members):
            return {"enum": [_number(literal) for literal in literals]}
        return {"anyOf": [self.of(member) for member in kind.members]}

    def _record(self, kind: Record) -> Schema:
        return {
            "type": "object",
            "properties": {field.name: self._field(field) for field in kind.fields},
            "required": [field.name for field in kind.fields if not field.optional],
            "additionalProperties": False,
        }

    def _field(self, field: Field) -> Schema:
        made = self.of(field.type)
        if not (self._nullable and field.optional) or accepts(field.type, None) is None:
            return made
        options = made.get("enum")
        return (
            {**made, "enum": [*options, None]}
            if isinstance(options, list)
            else {"anyOf": [made, {"type": "null"}]}
        )


def _number(value: str | float | bool | None) -> JsonValue:
    return int(value) if isinstance(value, float) and value.is_integer() else value
